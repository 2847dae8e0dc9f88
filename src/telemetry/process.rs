//! Metrics of the process under the names that Prometheus' client libraries give them, read from `/proc` (proc(5)).
//!
//! They are written here because CPU time is a counter with a fraction, which the registry doesn't have.

use std::fmt::Write as _;
use std::fs;

use rustix::param::clock_ticks_per_second;

/// Returns the process's metrics in Prometheus' text format. One that the system doesn't show is left out.
pub fn rendered() -> String {
    let mut text = String::new();
    let mut add = |name: &str, kind: &str, help: &str, value: Option<f64>| {
        if let Some(value) = value {
            // Writing to a string doesn't fail.
            let _ = write!(
                text,
                "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n\n"
            );
        }
    };

    let stat = fs::read_to_string("/proc/self/stat").ok();
    let stat = stat.as_deref().and_then(Stat::parse);
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let memory = |key| value_of(&status, key).map(|kib| kib * 1024.0);

    add(
        "process_cpu_seconds_total",
        "counter",
        "User and system CPU time spent",
        stat.as_ref().map(|stat| stat.cpu),
    );

    add(
        "process_resident_memory_bytes",
        "gauge",
        "Resident memory size",
        memory("VmRSS:"),
    );
    add(
        "process_virtual_memory_bytes",
        "gauge",
        "Virtual memory size",
        memory("VmSize:"),
    );

    add(
        "process_threads",
        "gauge",
        "Number of threads",
        value_of(&status, "Threads:"),
    );

    add(
        "process_open_fds",
        "gauge",
        "Number of open file descriptors",
        open_descriptors(),
    );
    add(
        "process_max_fds",
        "gauge",
        "Maximum number of open file descriptors",
        most_descriptors(),
    );

    add(
        "process_start_time_seconds",
        "gauge",
        "Start of the process since the Unix epoch",
        stat.and_then(|stat| Some(boot_time()? + stat.start)),
    );

    text
}

/// Times from `/proc/self/stat`, in seconds.
#[derive(PartialEq, Debug)]
struct Stat {
    cpu: f64,
    /// Start of the process after the machine's.
    start: f64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The program's name may hold spaces and parentheses.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // Fields are counted from 1 in proc(5); `state`, the first here, is the third.
        let seconds = |field: usize| -> Option<f64> {
            let ticks: f64 = fields.get(field - 3)?.parse().ok()?;
            Some(ticks / clock_ticks_per_second() as f64)
        };

        Some(Self {
            cpu: seconds(14)? + seconds(15)?,
            start: seconds(22)?,
        })
    }
}

/// The number behind a key of a file such as `/proc/self/status`.
fn value_of(text: &str, key: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

fn boot_time() -> Option<f64> {
    value_of(&fs::read_to_string("/proc/stat").ok()?, "btime")
}

fn open_descriptors() -> Option<f64> {
    // Since Linux 6.2 the folder's size is their number. Counting a hundred thousand of them takes tens of milliseconds.
    let counted = || Some(fs::read_dir("/proc/self/fd").ok()?.count() as u64);
    let size = fs::metadata("/proc/self/fd").ok()?.len();
    let count = if size > 0 { Some(size) } else { counted() };
    count.map(|count| count as f64)
}

fn most_descriptors() -> Option<f64> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    Some(limit.current.map_or(f64::INFINITY, |most| most as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_may_be_called_anything() {
        let text = "7 (a) b (c) S 1 7 7 0 -1 4194304 100 0 0 0 250 150 0 0 20 0 4 0 12300 1 2 3";
        let ticks = clock_ticks_per_second() as f64;
        let expected = Stat {
            cpu: 400.0 / ticks,
            start: 12_300.0 / ticks,
        };
        assert_eq!(Stat::parse(text), Some(expected));
        assert_eq!(Stat::parse("7 (a) S 1"), None);
    }

    #[test]
    fn what_linux_shows_of_this_process_is_rendered() {
        let text = rendered();
        let value = |name: &str| -> f64 {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            let line = line.unwrap_or_else(|| panic!("{name} is missing: {text}"));
            line.parse().expect("a number")
        };
        assert!(value("process_resident_memory_bytes") > 1e5);
        assert!(value("process_virtual_memory_bytes") > value("process_resident_memory_bytes"));
        assert!(value("process_open_fds") >= 3.0);
        assert!(value("process_max_fds") >= value("process_open_fds"));
        assert!(value("process_threads") >= 1.0);
        assert!(value("process_cpu_seconds_total") >= 0.0);

        // 2020: later than any clock that isn't set.
        assert!(value("process_start_time_seconds") > 1_577_836_800.0);
    }
}
