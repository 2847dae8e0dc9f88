//! Figures of a process from /proc.

use std::collections::BTreeMap;
use std::{fs, io};

use crate::kernel::ticks_per_second;

/// Resident memory, in octets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// All resident memory.
    pub resident: u64,
    /// The part without a file behind it: heap and stacks.
    pub anonymous: u64,
}

/// CPU seconds of a process so far, user and system together.
pub fn cpu_seconds(pid: u32) -> io::Result<f64> {
    cpu_seconds_in(&format!("/proc/{pid}/stat"))
}

/// CPU seconds of the calling thread.
pub fn own_cpu_seconds() -> io::Result<f64> {
    cpu_seconds_in("/proc/thread-self/stat")
}

/// Name and CPU seconds of threads so far, by thread.
pub type ThreadTimes = BTreeMap<u32, (String, f64)>;

/// Times of each thread of a process.
pub fn thread_cpu(pid: u32) -> io::Result<ThreadTimes> {
    let mut threads = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = entry?.path();
        let id = path
            .file_name()
            .and_then(|name| name.to_str()?.parse().ok());
        // A thread may end while it is looked at.
        let read = |file: &str| fs::read_to_string(path.join(file)).ok();
        if let (Some(id), Some(name), Some(spent)) = (id, read("comm"), read("schedstat")) {
            // Nanoseconds on a processor come first.
            let spent = spent
                .split(' ')
                .next()
                .and_then(|first| first.parse::<f64>().ok());
            threads.insert(
                id,
                (name.trim_end().to_owned(), spent.unwrap_or_default() / 1e9),
            );
        }
    }
    Ok(threads)
}

fn cpu_seconds_in(stat: &str) -> io::Result<f64> {
    ticks(&fs::read_to_string(stat)?)
        .map(|ticks| ticks as f64 / ticks_per_second())
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Returns the memory of a process now.
pub fn memory(pid: u32) -> io::Result<Memory> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    match (
        kibibytes(&status, "VmRSS:"),
        kibibytes(&rollup, "Anonymous:"),
    ) {
        (Some(resident), Some(anonymous)) => Ok(Memory {
            resident: resident * 1024,
            anonymous: anonymous * 1024,
        }),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// utime and stime, fields 14 and 15. The name in field 2 may hold blanks and parentheses.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat[stat.rfind(')')? + 1..]
        .split_ascii_whitespace()
        .skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_any_name() {
        let stat = "12 (a) b (c) S 1 12 12 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 3 0 1";
        assert_eq!(ticks(stat), Some(300));
    }

    #[test]
    fn our_own_process_can_be_read() {
        let memory = memory(std::process::id()).expect("own /proc");
        assert!(memory.resident > memory.anonymous && memory.anonymous > 0);
        assert!(cpu_seconds(std::process::id()).expect("own /proc") >= 0.0);
        assert!(own_cpu_seconds().expect("own /proc") >= 0.0);
        let threads = thread_cpu(std::process::id()).expect("own /proc");
        assert!(
            threads.values().any(|(_, spent)| *spent > 0.0),
            "{threads:?}"
        );
    }
}
