//! A capture of the loopback interface, by dumpcap, and what tshark reads in it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::Deadline;
use crate::process::Process;

const LIMIT: Duration = Duration::from_secs(30);

/// A capture that runs.
#[derive(Debug)]
pub struct OnWire {
    process: Process,
    file: PathBuf,
}

impl OnWire {
    /// Captures what passes this filter into this file. `None` where this process may not capture.
    pub fn start(filter: &str, file: &Path) -> Option<Self> {
        let mut command = Command::new("dumpcap");
        command
            .args(["-q", "-i", "lo", "-f", filter, "-w"])
            .arg(file)
            .stdout(Stdio::null())
            .stderr(Stdio::null());

        let mut capturing = Self {
            process: Process::start("dumpcap", &mut command),
            file: file.to_owned(),
        };
        let begun = Deadline::after(LIMIT).poll(|| {
            let ended = capturing.process.exited();
            (ended.is_some() || file.exists()).then_some(ended.is_none())
        });

        // dumpcap creates its file before it listens.
        std::thread::sleep(Duration::from_millis(500));
        (begun == Some(true)).then_some(capturing)
    }

    /// Returns the file as far as dumpcap has written it, which it does twice a second.
    pub fn octets(&self) -> Vec<u8> {
        std::fs::read(&self.file).unwrap_or_default()
    }

    /// Ends the capture.
    pub fn stop(self) {
        let Self { mut process, .. } = self;
        // Not killed: on SIGINT dumpcap writes out its buffer before it ends.
        process.signal("INT");
        let ended = process.wait(Deadline::after(LIMIT));
        assert!(ended.is_some(), "it ends");
    }
}

/// Reads a captured file with tshark; the lines that it prints with these arguments.
pub fn tshark(file: &Path, arguments: &[&str]) -> Vec<String> {
    let read = Command::new("tshark")
        .arg("-r")
        .arg(file)
        .args(arguments)
        .output()
        .expect("tshark runs");
    assert!(
        read.status.success(),
        "{}",
        String::from_utf8_lossy(&read.stderr)
    );
    let lines = String::from_utf8_lossy(&read.stdout);
    lines.lines().map(str::to_owned).collect()
}

/// Stream of RTP as tshark judges it.
#[derive(Debug)]
pub struct JudgedStream {
    /// Source in hexadecimal digits, in lower case.
    pub ssrc: String,
    /// Names of the payload types.
    pub payloads: String,
    /// Packets that were captured.
    pub packets: u64,
    /// Packets that are missing; negative where some came twice.
    pub lost: i64,
    /// Mean of the interarrival jitter in milliseconds.
    pub jitter_ms: f64,
    /// tshark marks the stream as one with problems: numbers out of order, or a payload type that changes.
    pub has_problems: bool,
    /// The line as tshark prints it.
    pub line: String,
}

impl JudgedStream {
    /// Returns tshark's judgement on the stream from one address to another.
    pub fn of(file: &Path, from: SocketAddr, to: SocketAddr) -> Option<Self> {
        let lines = tshark(file, &["-q", "-z", "rtp,streams"]);
        lines.iter().find_map(|line| Self::read(line, from, to))
    }

    /// Reads a line: times, both addresses, source, payload types, packets, losses and their share, and nine figures in milliseconds.
    fn read(line: &str, from: SocketAddr, to: SocketAddr) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let of = |at: SocketAddr| [at.ip().to_string(), at.port().to_string()];
        if words.get(2..6)? != [of(from), of(to)].concat() {
            return None;
        }

        let share = words.iter().position(|word| word.ends_with("%)"))?;
        let figures = words.get(share + 1..)?;
        Some(Self {
            ssrc: words.get(6)?.to_ascii_lowercase(),
            payloads: words.get(7..share - 2)?.join(" "),
            packets: words.get(share - 2)?.parse().ok()?,
            lost: words.get(share - 1)?.parse().ok()?,
            jitter_ms: figures.get(4)?.parse().ok()?,
            has_problems: figures.get(6).is_some(),
            line: line.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_tshark_is_read() {
        let line = "     0.401618     14.481534       127.0.0.1 22000       127.0.0.2 47044 0x88FFEA15            g711U   702     \
            3 (0.4%)           0.009          19.973          70.691           0.081           1.173           5.915 X";
        let (from, to) = (
            ([127, 0, 0, 1], 22_000).into(),
            ([127, 0, 0, 2], 47_044).into(),
        );
        let read = JudgedStream::read(line, from, to).expect("a stream");
        assert_eq!((&*read.ssrc, &*read.payloads), ("0x88ffea15", "g711U"));
        assert_eq!((read.packets, read.lost, read.jitter_ms), (702, 3, 1.173));
        assert!(read.has_problems);

        let well = JudgedStream::read(line.trim_end_matches(" X"), from, to);
        assert!(well.is_some_and(|stream| !stream.has_problems));
        assert!(JudgedStream::read(line, to, from).is_none());
    }
}
