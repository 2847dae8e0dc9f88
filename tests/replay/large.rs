//! A capture of any size is read within the memory of its calls in progress. The test generates it while the command reads it.
//!
//! `TRUNKLINE_CAPTURE_MB` makes it larger: `just large-capture`.

use std::collections::HashSet;
use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use trunkline_testkit::DaemonSetup;
use trunkline_testkit::shell::Shell;

/// Octets in a MiB.
const MIB: usize = 1 << 20;
const SIZE: usize = 64 * MIB;
/// Peak memory that the command may use, whatever the size: 96 MiB of messages that wait for the end of their calls, and their bookkeeping.
const MOST_KIB: u64 = 320 * 1024;

fn size() -> usize {
    std::env::var("TRUNKLINE_CAPTURE_MB")
        .ok()
        .and_then(|text| text.parse::<usize>().ok())
        .map_or(SIZE, |size| size * MIB)
}

/// A pcap of raw IP that goes on for as long as the reader reads.
struct Traffic {
    file: Vec<u8>,
    millis: u64,
    identification: u16,
}

impl Traffic {
    fn new() -> Self {
        let mut file = Vec::new();
        for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 101] {
            file.extend_from_slice(&word.to_le_bytes());
        }
        Self {
            file,
            millis: 0,
            identification: 0,
        }
    }

    fn packet(&mut self, protocol: u8, place: u16, [from, to]: [[u8; 4]; 2], inner: &[u8]) {
        let total = u16::try_from(inner.len() + 20).expect("as it was made");
        let length = u32::from(total);
        let [high, low] = place.to_be_bytes();
        let [id_high, id_low] = self.identification.to_be_bytes();
        self.identification = self.identification.wrapping_add(1);

        let seconds = u32::try_from(1_700_000_000 + self.millis / 1_000).expect("before 2106");
        let micros = u32::try_from(self.millis % 1_000 * 1_000).expect("below a million");
        for word in [seconds, micros, length, length] {
            self.file.extend_from_slice(&word.to_le_bytes());
        }

        let [total_high, total_low] = total.to_be_bytes();
        self.file.extend_from_slice(&[
            0x45, 0, total_high, total_low, id_high, id_low, high, low, 64, protocol, 0, 0,
        ]);
        self.file.extend_from_slice(&from);
        self.file.extend_from_slice(&to);
        self.file.extend_from_slice(inner);
    }

    fn udp(&mut self, ends: [[u8; 4]; 2], message: &str) {
        let length = u16::try_from(message.len() + 8).expect("as it was made");
        let mut inner = vec![0x13, 0xc4, 0x13, 0xc4];
        inner.extend_from_slice(&length.to_be_bytes());
        inner.extend_from_slice(&[0, 0]);
        inner.extend_from_slice(message.as_bytes());
        self.packet(17, 0, ends, &inner);
    }

    fn tcp(&mut self, ends: [[u8; 4]; 2], port: u16, sequence: u32, flags: u8, octets: &[u8]) {
        let mut inner = Vec::from(port.to_be_bytes());
        inner.extend_from_slice(&[0x13, 0xc4]);
        inner.extend_from_slice(&sequence.to_be_bytes());
        inner.extend_from_slice(&[0, 0, 0, 0, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        inner.extend_from_slice(octets);
        self.packet(6, 0, ends, &inner);
    }

    /// Writes the packets of a hundredth of a second: two legs of a call that ends, one that never ends, a TCP stream that begins in the middle, one
    /// with a gap, and single fragments.
    fn next(&mut self, place: usize) {
        self.millis += 10;
        let number = u32::try_from(place).expect("fewer than 2^32");
        let [_, a, b, c] = number.to_be_bytes();
        let (caller, us, runtime) = ([10, a, b, c], [192, 0, 2, 1], [192, 0, 2, 9]);

        for (leg, [near, far]) in [[caller, us], [us, runtime]].into_iter().enumerate() {
            let call_id = format!("{place}-{leg}");
            for (start, method) in [
                ("INVITE sip:+442071838750@192.0.2.1 SIP/2.0", "INVITE"),
                ("SIP/2.0 180 Ringing", "INVITE"),
                ("SIP/2.0 200 OK", "INVITE"),
                ("ACK sip:trunkline@192.0.2.1 SIP/2.0", "ACK"),
                ("BYE sip:trunkline@192.0.2.1 SIP/2.0", "BYE"),
                ("SIP/2.0 200 OK", "BYE"),
            ] {
                let ends = if start.starts_with("SIP/2.0") {
                    [far, near]
                } else {
                    [near, far]
                };
                self.udp(ends, &message(start, method, &call_id));
            }
        }

        let invite = message(
            "INVITE sip:100@192.0.2.1 SIP/2.0",
            "INVITE",
            &format!("{place}-lost"),
        );
        self.udp([[11, a, b, c], us], &invite);

        let port = u16::try_from(1_024 + place % 60_000).expect("a port");
        self.tcp([caller, us], port, 1_000, 2, b"");
        self.tcp([caller, us], port, 1_001, 16, &invite.as_bytes()[..200]);
        self.tcp([caller, us], port, 900_000, 16, &invite.as_bytes()[..400]);

        let fragment = [0x41; 1_200];
        self.packet(17, 0x2000, [caller, us], &fragment);
    }
}

fn message(start: &str, method: &str, call_id: &str) -> String {
    let body = "v=0\r\no=caller 7 7 IN IP4 10.0.0.1\r\ns=call\r\nc=IN IP4 10.0.0.1\r\nt=0 0\r\nm=audio 41000 RTP/AVP 8 0 101\r\n\
        a=rtpmap:8 PCMA/8000\r\na=rtpmap:0 PCMU/8000\r\na=sendrecv\r\n";
    format!(
        "{start}\r\nVia: SIP/2.0/UDP 10.0.0.1;branch=z9hG4bK{call_id}\r\nFrom: <sip:+442071111111@10.0.0.1>;tag={call_id}\r\n\
         To: <sip:+442071838750@192.0.2.1>;tag=x\r\nCall-ID: {call_id}\r\nCSeq: 1 {method}\r\nContent-Type: application/sdp\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .replacen(";tag=x", if start.starts_with("INVITE") { "" } else { ";tag=x" }, 1)
}

/// Returns the peak memory of a process so far.
fn peak_kib(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

/// Runs a command with the capture as its input; returns exit code, output, and peak memory.
fn fed(mut command: Command) -> (Option<i32>, String, u64) {
    let mut process = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");

    let mut input = process.stdin.take().expect("a pipe");
    let feeding = thread::spawn(move || {
        let (mut traffic, size) = (Traffic::new(), size());
        let (mut written, mut place) = (0, 0);
        while written < size {
            traffic.next(place);
            place += 1;
            if traffic.file.len() > MIB {
                written += traffic.file.len();
                input.write_all(&traffic.file).expect("it reads");
                traffic.file.clear();
            }
        }
        place
    });

    let mut peak = 0;
    let status = loop {
        peak = peak.max(peak_kib(process.id()).unwrap_or(0));
        if let Some(status) = process.try_wait().expect("its state") {
            break status;
        }
        thread::sleep(Duration::from_millis(5));
    };
    assert!(feeding.join().expect("all of it was taken") > 100);

    let mut said = String::new();
    std::io::Read::read_to_string(&mut process.stderr.take().expect("a pipe"), &mut said)
        .expect("text");
    (status.code(), said, peak)
}

#[test]
fn a_large_capture_is_imported_in_little_memory() {
    for flags in [&[][..], &["--anonymise"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
        command
            .args(["capture", "import", "/dev/stdin", "-o", "-"])
            .args(flags);
        let (code, said, peak) = fed(command);
        assert_eq!(code, Some(0), "{said}");
        assert!(
            said.contains(" calls") && said.contains("gaps in TCP"),
            "{said}"
        );
        assert!(peak > 0 && peak <= MOST_KIB, "{peak} KiB: {said}");
        println!("import {flags:?}: {peak} KiB");
    }
}

#[test]
fn a_large_capture_is_replayed_in_little_memory() {
    let setup = DaemonSetup::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    command
        .args([
            "replay",
            "/dev/stdin",
            "--in-process",
            "--call",
            "1",
            "--data-dir",
        ])
        .arg(setup.folder.path().join("data"))
        .args(["--patience", "1"]);
    let (code, said, peak) = fed(command);

    // The caller in the capture was never admitted.
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("1 of 1 calls went differently"), "{said}");
    assert!(peak > 0 && peak <= MOST_KIB, "{peak} KiB");

    println!("replay: {peak} KiB");
}

/// More callers than there are numbers: all stay distinct, and private ones stay private.
#[test]
fn a_crowd_is_anonymised_and_no_two_share_a_replacement() {
    const CALLERS: u32 = 36_000;
    let mut traffic = Traffic::new();
    for place in 0..CALLERS {
        let [_, high, middle, low] = place.to_be_bytes();
        let first = if place % 2 == 0 { 10 } else { 9 };
        let invite = format!(
            "INVITE sip:+442071838750@192.0.2.1 SIP/2.0\r\nFrom: <sip:+49301{place:07}@pbx-{place}.example>;tag=1\r\n\
             To: <sip:+442071838750@192.0.2.1>\r\nCall-ID: {place}@pbx\r\nCSeq: 1 INVITE\r\n\r\n"
        );
        traffic.millis += 1;
        traffic.udp([[first, high, middle, low], [192, 0, 2, 1]], &invite);
    }

    let shell = Shell::new();
    shell.write("crowd.pcap", &traffic.file);
    let arguments = ["capture", "import", "crowd.pcap", "-o", "-", "--anonymise"];
    let ran = shell.run(&arguments);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);

    let all = |start: &str| {
        let lines = ran.stdout.lines();
        let found: Vec<&str> = lines.filter_map(|line| line.strip_prefix(start)).collect();
        assert_eq!(found.len(), CALLERS as usize, "{start}");
        found
    };

    for start in ["= caller ", "Call-ID: ", "From: "] {
        let distinct: HashSet<&str> = all(start).into_iter().collect();
        assert_eq!(distinct.len(), CALLERS as usize, "{start}");
    }

    let users: HashSet<&str> = all("From: ")
        .into_iter()
        .filter_map(|from| from.split('@').next())
        .collect();
    assert_eq!(users.len(), CALLERS as usize, "numbers");
    let places: HashSet<&str> = all("From: ")
        .into_iter()
        .filter_map(|from| from.split('@').nth(1))
        .collect();
    assert_eq!(places.len(), CALLERS as usize, "hosts");

    let is_private = |caller: &&str| {
        let (address, _) = caller.split_once(':').expect("an address and a port");
        let address: std::net::Ipv4Addr = address.parse().expect("an address");
        address.is_private()
    };
    let private = all("= caller ").into_iter().filter(is_private).count();
    assert_eq!(private, CALLERS as usize / 2);
}
