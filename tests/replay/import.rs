//! `trunkline capture import`: our own capture in every framing, damaged files, and captures of others where they are installed.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, symlink};
use std::path::{Path, PathBuf};
use trunkline_testkit::not_run;

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use trunkline_testkit::shell::Shell;

const INVITE: &str = "INVITE sip:+442071838750@10.0.0.2 SIP/2.0\r\nVia: SIP/2.0/UDP 10.0.0.1;branch=z9hG4bK1\r\n\
    From: <sip:+442071111111@10.0.0.1>;tag=a\r\nTo: <sip:+442071838750@10.0.0.2>\r\nCall-ID: one@10.0.0.1\r\nCSeq: 1 INVITE\r\nContent-Length: 0\r\n\r\n";
const OK: &str = "SIP/2.0 486 Busy Here\r\nVia: SIP/2.0/UDP 10.0.0.1;branch=z9hG4bK1\r\n\
    From: <sip:+442071111111@10.0.0.1>;tag=a\r\nTo: <sip:+442071838750@10.0.0.2>;tag=b\r\nCall-ID: one@10.0.0.1\r\nCSeq: 1 INVITE\r\nContent-Length: 0\r\n\r\n";

fn udp(payload: &[u8], back: bool) -> Vec<u8> {
    let length = u16::try_from(payload.len() + 8)
        .expect("as the test made it")
        .to_be_bytes();
    let ports: [u8; 4] = if back {
        [0x13, 0xc4, 0x13, 0xc5]
    } else {
        [0x13, 0xc5, 0x13, 0xc4]
    };
    [&ports[..], &length, &[0, 0], payload].concat()
}

fn ipv4(inner: &[u8], protocol: u8, place: u16, back: bool) -> Vec<u8> {
    let total = u16::try_from(inner.len() + 20)
        .expect("as the test made it")
        .to_be_bytes();
    let [high, low] = place.to_be_bytes();
    let (source, target) = if back { (2, 1) } else { (1, 2) };
    let head = [
        0x45, 0, total[0], total[1], 0, 7, high, low, 64, protocol, 0, 0, 10, 0, 0, source, 10, 0,
        0, target,
    ];
    [&head[..], inner].concat()
}

fn ipv6(inner: &[u8], back: bool) -> Vec<u8> {
    let length = u16::try_from(inner.len())
        .expect("as the test made it")
        .to_be_bytes();
    let mut head = vec![0x60, 0, 0, 0, length[0], length[1], 17, 64];
    for last in if back { [2, 1] } else { [1, 2] } {
        head.extend_from_slice(&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    [&head[..], inner].concat()
}

/// A pcap of the two messages, each packet made by `frame`.
fn pcap(link: u32, packets: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, link] {
        file.extend_from_slice(&word.to_le_bytes());
    }

    for (at, packet) in packets.iter().enumerate() {
        let length = u32::try_from(packet.len()).expect("as the test made it");
        for word in [
            1_700_000_000,
            u32::try_from(at).expect("as the test made it") * 1_000,
            length,
            length,
        ] {
            file.extend_from_slice(&word.to_le_bytes());
        }
        file.extend_from_slice(packet);
    }

    file
}

fn pcapng(link: u16, packets: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut block = |kind: u32, body: &[u8]| {
        let padded = body.len().next_multiple_of(4);
        let length = u32::try_from(padded + 12)
            .expect("as the test made it")
            .to_be_bytes();
        file.extend_from_slice(&kind.to_be_bytes());
        file.extend_from_slice(&length);
        file.extend_from_slice(body);
        file.resize(file.len() + padded - body.len(), 0);
        file.extend_from_slice(&length);
    };

    block(
        0x0a0d_0d0a,
        &[
            &0x1a2b_3c4d_u32.to_be_bytes()[..],
            &[0, 1, 0, 0],
            &[0xff; 8],
        ]
        .concat(),
    );
    let [high, low] = link.to_be_bytes();

    // Nanoseconds.
    block(
        1,
        &[
            high, low, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 9, 0, 0, 0, 0, 0, 0, 0,
        ],
    );

    block(0x0bad, b"nobody knows this block");
    for (at, packet) in packets.iter().enumerate() {
        let time = 1_700_000_000_000_000_000 + at as u64 * 1_000_000;
        let length = u32::try_from(packet.len())
            .expect("as the test made it")
            .to_be_bytes();
        block(
            6,
            &[&[0; 4][..], &time.to_be_bytes(), &length, &length, packet].concat(),
        );
    }

    file
}

fn import(shell: &Shell, capture: &[u8], flags: &[&str]) -> Result<String, String> {
    shell.write("capture", capture);
    let ran = shell.run(&[&["capture", "import", "capture", "-o", "out.flow"], flags].concat());
    match ran.code {
        Some(0) => Ok(std::fs::read_to_string(shell.path("out.flow")).expect("the flow is there")),
        Some(1) => {
            assert_eq!(
                ran.stderr.trim_end().lines().count(),
                1,
                "one sentence: {}",
                ran.stderr
            );
            Err(ran.stderr)
        }
        other => panic!("exit code {other:?}: {}", ran.stderr),
    }
}

#[test]
fn every_framing_gives_the_same_messages() {
    let shell = Shell::new();
    let both = |frame: &dyn Fn(&[u8], bool) -> Vec<u8>| {
        vec![frame(INVITE.as_bytes(), false), frame(OK.as_bytes(), true)]
    };
    let ip = |payload: &[u8], back| ipv4(&udp(payload, back), 17, 0, back);
    let framed =
        |head: &'static [u8]| both(&move |payload, back| [head, &ip(payload, back)].concat());
    let halves = |payload: &[u8], back: bool| {
        let whole = udp(payload, back);
        [
            ipv4(&whole[..200], 17, 0x2000, back),
            ipv4(&whole[200..], 17, 25, back),
        ]
    };

    let fragments = [
        halves(INVITE.as_bytes(), false),
        halves(OK.as_bytes(), true),
    ]
    .concat();

    for (name, file) in [
        (
            "ethernet",
            pcap(1, &framed(b"\0\0\0\0\0\0\0\0\0\0\0\0\x08\0")),
        ),
        (
            "vlan",
            pcap(
                1,
                &framed(b"\0\0\0\0\0\0\0\0\0\0\0\0\x88\xa8\0\x01\x81\0\0\x02\x08\0"),
            ),
        ),
        (
            "linux cooked",
            pcap(113, &framed(b"\0\0\0\x01\0\x06\0\0\0\0\0\0\0\0\x08\0")),
        ),
        (
            "linux cooked v2",
            pcap(
                276,
                &framed(b"\x08\0\0\0\0\0\0\x01\0\x01\0\x06\0\0\0\0\0\0\0\0"),
            ),
        ),
        ("loopback", pcap(0, &framed(b"\x02\0\0\0"))),
        ("raw", pcap(101, &framed(b""))),
        ("raw in pcapng", pcapng(101, &framed(b""))),
        (
            "ipv6",
            pcap(101, &both(&|payload, back| ipv6(&udp(payload, back), back))),
        ),
        ("fragments", pcap(101, &fragments)),
        (
            "fragments, last first",
            pcap(101, &fragments.iter().rev().cloned().collect::<Vec<_>>()),
        ),
    ] {
        let flow = import(&shell, &file, &[]).unwrap_or_else(|why| panic!("{name}: {why}"));
        for message in [INVITE, OK] {
            assert!(
                flow.contains(&message.replace("\r\n", "\n")),
                "{name}:\n{flow}"
            );
        }

        assert_eq!(flow.matches("\n=== call ").count(), 1, "{name}");
        assert!(
            flow.contains(" caller > us udp\nINVITE")
                && flow.contains(" us > caller udp\nSIP/2.0 486"),
            "{name}:\n{flow}"
        );
    }
}

#[test]
fn tcp_is_put_together() {
    let shell = Shell::new();
    let tcp = |sequence: u32, flags: u8, payload: &[u8], back: bool| {
        let ports: [u8; 4] = if back {
            [0x13, 0xc4, 0x13, 0xc5]
        } else {
            [0x13, 0xc5, 0x13, 0xc4]
        };
        let segment = [
            &ports[..],
            &sequence.to_be_bytes(),
            &[0; 4],
            &[0x50, flags, 0, 0, 0, 0, 0, 0],
            payload,
        ]
        .concat();
        ipv4(&segment, 6, 0, back)
    };

    let (invite, ok) = (INVITE.as_bytes(), OK.as_bytes());
    let packets = [
        tcp(99, 2, b"", false),
        tcp(300, 0x18, &invite[200..], false),
        tcp(100, 0x18, &invite[..220], false),
        tcp(100, 0x18, &invite[..220], false),
        tcp(5_000, 0x18, ok, true),
    ];
    let flow = import(&shell, &pcap(101, &packets), &[]).expect("as the test made it");
    for message in [INVITE, OK] {
        assert!(flow.contains(&message.replace("\r\n", "\n")), "{flow}");
    }

    assert!(flow.contains(" caller > us tcp\n"), "{flow}");
}

#[test]
fn what_cannot_be_used_says_why_and_leaves_what_was_there() {
    let shell = Shell::new();
    shell.write("out.flow", "as it was");

    let whole = pcap(101, &[ipv4(&udp(INVITE.as_bytes(), false), 17, 0, false)]);
    let huge = [
        &whole[..24],
        &[
            0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        ],
    ]
    .concat();

    for (name, file, why) in [
        ("nothing", vec![], "neither pcap"),
        (
            "prose",
            b"# Captures of real SIP traffic\n".to_vec(),
            "neither pcap",
        ),
        ("gzip", vec![0x1f, 0x8b, 8, 0], "gzip"),
        ("a head alone", whole[..24].to_vec(), "no SIP message"),
        ("half a head", whole[..20].to_vec(), "damaged"),
        (
            "cut in its only packet",
            whole[..60].to_vec(),
            "damaged: packet 1",
        ),
        ("a length of 4 GiB", huge, "damaged: packet 1"),
        (
            "another link type",
            pcap(105, &[vec![0; 60]]),
            "link type 105",
        ),
        (
            "RTP",
            pcap(101, &[ipv4(&udp(&[0x80; 172], false), 17, 0, false)]),
            "1 of them UDP",
        ),
    ] {
        let complaint = import(&shell, &file, &[]).expect_err(name);
        assert!(complaint.contains(why), "{name}: {complaint}");
    }

    assert_eq!(
        std::fs::read_to_string(shell.path("out.flow")).expect("as the test made it"),
        "as it was"
    );
    assert_eq!(names(&shell), ["capture", "out.flow"], "nothing is left");
}

/// Names in the folder.
fn names(shell: &Shell) -> Vec<String> {
    let entries = std::fs::read_dir(shell.path("")).expect("the folder");
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.expect("an entry").file_name();
    let mut names: Vec<String> = entries
        .map(|entry| name(entry).to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Makes a special file in the shell's folder; false if the system refuses.
fn make(shell: &Shell, name: &str, kind: FileType, device: u64) -> bool {
    mknodat(CWD, shell.path(name), kind, Mode::RUSR | Mode::WUSR, device).is_ok()
}

#[test]
fn only_regular_files_are_replaced_by_the_output() {
    let shell = Shell::new();
    shell.write("out.flow", "as it was");
    symlink("out.flow", shell.path("link")).expect("a link");
    symlink("later.flow", shell.path("dangling")).expect("a link");
    assert!(make(&shell, "fifo", FileType::Fifo, 0));
    symlink("fifo", shell.path("link of fifo")).expect("a link");
    let capture = pcap(101, &[ipv4(&udp(INVITE.as_bytes(), false), 17, 0, false)]);
    shell.write("capture", capture);
    let import = |output: &str| {
        let ran = shell.run(&["capture", "import", "capture", "-o", output]);
        assert_eq!(ran.code, Some(0), "{output}: {}", ran.stderr);
        ran.stdout
    };
    let kind = |name: &str| {
        let metadata = std::fs::symlink_metadata(shell.path(name)).expect("it is there");
        metadata.file_type()
    };
    let is_flow = |text: &str| text.contains("INVITE sip:+442071838750@");

    for (name, leads_to) in [("link", "out.flow"), ("dangling", "later.flow")] {
        import(name);
        assert!(kind(name).is_symlink(), "{name}");
        let text = std::fs::read_to_string(shell.path(leads_to)).expect("it is there");
        assert!(is_flow(&text), "{name}: {text}");
    }

    for name in ["fifo", "link of fifo"] {
        // Read and write, so that the open waits for nobody, and a daemon that replaces the FIFO leaves nobody waiting.
        let path = shell.path("fifo");
        let open = std::fs::File::options().read(true).write(true).open(path);
        let mut open = open.expect("the FIFO");
        import(name);
        assert!(kind("fifo").is_fifo(), "{name}");
        let mut octets = [0; 4_096];
        open.write_all(b"\n").expect("room for an end");
        let length = open.read(&mut octets).expect("the flow");
        let text = String::from_utf8_lossy(&octets[..length]);
        assert!(is_flow(&text), "{name}: {text}");
    }
    assert!(kind("link of fifo").is_symlink());

    // A device as `/dev/null` is: 1, 3. Not that one itself, which a fault would take from the whole machine.
    let is_made = make(&shell, "null", FileType::CharacterDevice, makedev(1, 3));
    if is_made && std::fs::write(shell.path("null"), "").is_ok() {
        let printed = import("null");
        assert!(printed.starts_with("1 message in 1 call"), "{printed}");
        assert!(kind("null").is_char_device());
    } else {
        not_run::note("the right to make a device");
    }

    // The names of open files: what the shell has there already stays.
    let log = std::fs::File::options();
    let log = log
        .clone()
        .create(true)
        .append(true)
        .open(shell.path("log"));
    let mut log = log.expect("a log");
    log.write_all(b"before\n").expect("written");
    let mut command = shell.command(&["capture", "import", "capture", "-o", "/dev/stdout"]);
    let status = command.stdout(log).status().expect("it runs");
    assert!(status.success());
    let text = std::fs::read_to_string(shell.path("log")).expect("the log");
    assert!(text.starts_with("before\n") && is_flow(&text), "{text}");

    let left: Vec<String> = names(&shell)
        .into_iter()
        .filter(|name| name.ends_with(".new"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn damage_costs_what_is_behind_it() {
    let shell = Shell::new();
    let packets = [INVITE, OK].map(|message| ipv4(&udp(message.as_bytes(), false), 17, 0, false));
    let file = pcap(101, &packets);
    let flow = import(&shell, &file[..file.len() - 10], &[]).expect("as the test made it");
    assert!(
        flow.contains("INVITE sip") && !flow.contains("486 Busy"),
        "{flow}"
    );
}

#[test]
fn octets_at_random_crash_nothing() {
    let shell = Shell::new();
    let whole = pcapng(101, &[ipv4(&udp(INVITE.as_bytes(), false), 17, 0, false)]);
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..40 {
        let mut file = whole.clone();
        for _ in 0..6 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = usize::try_from(seed >> 33).expect("as the test made it") % file.len();
            file[at] = (seed >> 24) as u8;
        }
        let _ = import(&shell, &file, &[]);
    }
}

#[test]
fn a_flow_passed_on_names_nobody() {
    let shell = Shell::new();

    // A public and a private address that no replacement has.
    let (caller, us) = ([81, 2, 69, 160], [172, 20, 30, 41]);
    let packet = |message: &str, back: bool| {
        let message = message.replace("10.0.0.1", "81.2.69.160");
        let message = message.replace("10.0.0.2", "172.20.30.41");
        let mut packet = ipv4(&udp(message.as_bytes(), back), 17, 0, back);
        let (source, target) = if back { (us, caller) } else { (caller, us) };
        packet[12..16].copy_from_slice(&source);
        packet[16..20].copy_from_slice(&target);
        packet
    };

    let packets = [packet(INVITE, false), packet(OK, true)];
    let plain = import(&shell, &pcap(101, &packets), &[]).expect("as the test made it");
    let flow = import(&shell, &pcap(101, &packets), &["--anonymise"]).expect("as the test made it");

    for gone in ["1838750", "1111111", "one@", "81.2.69.160", "172.20.30.41"] {
        assert!(plain.contains(gone), "{gone}: {plain}");
        assert!(!flow.contains(gone), "{gone}: {flow}");
    }
    assert!(flow.contains("\n= caller 192.0.2.1:"), "{flow}");
    assert!(flow.contains("SIP/2.0 486 Busy Here"), "{flow}");

    // An imported flow is read again and stays the same.
    let again = import(&shell, flow.as_bytes(), &[]).expect("as the test made it");
    let body = |flow: &str| {
        flow.split_once("\n\n")
            .expect("as the test made it")
            .1
            .to_owned()
    };

    assert_eq!(body(&again), body(&flow));
}

/// Captures of others, which we may not ship: beside the workspace, at `TRUNKLINE_CAPTURES`, or absent.
fn captures_of_others() -> Option<PathBuf> {
    let beside = std::env::var_os("TRUNKLINE_CAPTURES").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/captures"),
        PathBuf::from,
    );

    // A worktree lies one folder deeper.
    let deeper = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/captures");
    let found = [beside, deeper].into_iter().find(|folder| folder.is_dir());
    if found.is_none() {
        not_run::note("the captures of others: no ../shared/captures");
    }
    found
}

fn files_in(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("readable") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            files_in(&path, files);
        } else {
            files.push(path);
        }
    }
}

#[test]
fn captures_of_others_import_or_say_why_not() {
    let Some(folder) = captures_of_others() else {
        return;
    };

    let shell = Shell::new();
    let mut files = Vec::new();
    files_in(&folder, &mut files);

    let mut refused = Vec::new();
    for file in &files {
        let octets = std::fs::read(file).expect("readable");
        for flags in [&[][..], &["--anonymise"]] {
            match import(&shell, &octets, flags) {
                Ok(flow) => {
                    assert!(flow.contains("\n--- 0.000000 "), "{}", file.display());
                    let calls: Vec<&str> = flow.split("\n=== call ").skip(1).collect();
                    let is_ping = |call: &&&str| call.contains(": OPTIONS ");
                    let pings = calls.iter().filter(is_ping).count();
                    assert!(pings == 0 || pings == calls.len(), "{}", file.display());
                }
                Err(why) => refused.push(format!("{}: {why}", file.display())),
            }
        }
    }

    assert!(
        files.len() > 10,
        "only {} files in {}",
        files.len(),
        folder.display()
    );

    let without_sip = |why: &String| why.contains("INDEX.md") || why.contains("g711a.pcap");
    refused.retain(|why| !without_sip(why));
    assert!(refused.is_empty(), "{}", refused.join(""));
}
