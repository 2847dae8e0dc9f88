//! Counts a process's syncs to disk by the kernel's tracepoints, where `perf` may read them.

use std::fs;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::kernel::interrupt;

const EVENTS: &str = "syscalls:sys_enter_fdatasync,syscalls:sys_enter_fsync";

/// A count in progress.
#[derive(Debug)]
pub struct Syncs {
    perf: Child,
    folder: TempDir,
}

impl Syncs {
    /// Begins to count for a process; `None` without `perf`, or without the right to use it.
    pub fn count(pid: u32) -> Option<Self> {
        let folder = TempDir::new().ok()?;
        let perf = Command::new("perf")
            .args([
                "stat",
                "-x",
                ",",
                "-e",
                EVENTS,
                "-p",
                &pid.to_string(),
                "-o",
            ])
            .arg(folder.path().join("counts"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        Some(Self { perf, folder })
    }

    /// Ends the count; `None` if nothing could be counted.
    pub fn end(mut self) -> Option<u64> {
        interrupt(self.perf.id());
        self.perf.wait().ok()?;
        total(&fs::read_to_string(self.folder.path().join("counts")).ok()?)
    }
}

/// Sums the counts of `perf stat -x,`; `None` if one wasn't counted.
fn total(counts: &str) -> Option<u64> {
    let lines = counts.lines().filter(|line| line.contains("sys_enter_f"));
    let counted: Vec<u64> = lines
        .map(|line| line.split(',').next()?.parse().ok())
        .collect::<Option<_>>()?;
    (!counted.is_empty()).then(|| counted.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_sync_count_or_none() {
        let counted = "# started on Sun\n\n12,,syscalls:sys_enter_fdatasync,1000,100.00,,\n3,,syscalls:sys_enter_fsync,1000,100.00,,\n";
        assert_eq!(total(counted), Some(15));
        let refused = "<not supported>,,syscalls:sys_enter_fdatasync,0,100.00,,\n3,,syscalls:sys_enter_fsync,1000,100.00,,\n";
        assert_eq!(total(refused), None);
        assert_eq!(total(""), None);
    }
}
