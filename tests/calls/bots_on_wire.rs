//! RTP and RTCP of a bot's call as they are on the wire, judged by tshark, which learns ports and payload types from SDP.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::calls::bots::{set, setup};
use trunkline_testkit::not_run;
use trunkline_testkit::on_wire::{JudgedStream, OnWire, tshark};
use trunkline_testkit::shell::Shell;
use trunkline_testkit::talker::{Rtp, Talker, offer};
use trunkline_testkit::{BotServer, Daemon, Deadline, tools};

/// Address that no other test calls from, so that the capture holds this call alone.
const CALLER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 42));
const PATIENCE: Duration = Duration::from_secs(30);
const SENDER_REPORT: u8 = 200;
/// Datagram that ends the capture.
const END: &[u8] = b"the call is over";

/// Sockets of a caller: RTP, and RTCP at the port above.
fn media() -> (Rtp, UdpSocket) {
    let found = (0..100).find_map(|_| {
        let rtp = Rtp::new(CALLER);
        let above = rtp.address().port().checked_add(1)?;
        let rtcp = UdpSocket::bind((CALLER, above)).ok()?;
        Some((rtp, rtcp))
    });
    let (rtp, rtcp) = found.expect("two ports in a row");
    rtcp.set_nonblocking(true).expect("it doesn't wait");
    (rtp, rtcp)
}

/// Speaks to the bot and hears it until three reports have come: five seconds at least, with their intervals as RFC 3550 §6.3.1 varies them.
fn talk(rtp: &Rtp, rtcp: &UdpSocket, to: SocketAddr) {
    let mut reports = 0;
    let reported = Deadline::after(PATIENCE).poll(|| {
        rtp.say(to, &[0x31; 160]);
        rtp.audio();
        let mut octets = [0; 512];
        let length = rtcp.recv(&mut octets).ok()?;
        reports += i32::from(octets[..length].get(1) == Some(&SENDER_REPORT));
        (reports == 3).then_some(())
    });
    assert!(
        reported.is_some(),
        "sender reports, five seconds apart or so"
    );
}

#[test]
fn tshark_finds_no_fault_in_the_media_of_a_bots_call() {
    if !tools(&["tshark", "dumpcap"]) {
        return;
    }
    let (shell, daemon) = (Shell::new(), setup());
    daemon.dedicate(&CALLER.to_string());
    let daemon = daemon.serve();

    let file = shell.path("speaks.pcapng");
    let Some([from, to]) = captured(&daemon, "", &file) else {
        not_run::without("the right to capture on the loopback interface");
        return;
    };
    let stream = judge(&file, from, to);
    assert_eq!((&*stream.payloads, stream.lost), ("g711U", 0), "{stream:?}");
    assert!(!stream.has_problems, "{stream:?}");
    assert!(stream.jitter_ms < 20.0, "less than a packet: {stream:?}");

    let file = shell.path("presses.pcapng");
    let [from, to] = captured(&daemon, "5", &file).expect("the right to capture");
    let stream = judge(&file, from, to);
    assert_eq!(stream.lost, 0, "{stream:?}");
    let pressed = format!("rtpevent && udp.srcport == {}", from.port());
    let pressed = fields(&file, &pressed, &["rtp.p_type", "rtpevent.event_id"]);
    assert!(pressed.len() > 3, "{pressed:?}");
    assert!(pressed.iter().all(|of| *of == ["101", "5"]), "{pressed:?}");
}

/// Has a bot speak and press keys in a call that is captured; the addresses of its audio. `None` where nothing may be captured.
fn captured(daemon: &Daemon, keys: &str, file: &Path) -> Option<[SocketAddr; 2]> {
    let server = BotServer::start();
    set(daemon, &json!({"type": "websocket", "uri": server.url}));
    let capture = OnWire::start(&format!("udp and host {CALLER}"), file)?;

    let (calls, (rtp, rtcp)) = (daemon.calls().len(), media());
    let number = &daemon.setup.first_number;
    let (talker, answer) = Talker::call(CALLER, daemon.sip(), number, &offer(rtp.address()));
    assert_eq!(answer.status(), Some(200), "{answer:?}");

    let to = answer.media();
    let bot = server.accepted();
    bot.event("start");
    bot.play(&[0x23; 8_000]);
    bot.say(&json!({"event": "dtmf", "dtmf": {"digit": keys}}));
    bot.play(&[0x23; 8_000]);
    talk(&rtp, &rtcp, to);
    bot.close();
    assert!(talker.asked("BYE").is_some(), "the call ends with the bot");

    // Behind the goodbye, which is sent when the record is made.
    daemon.records(calls + 1);
    let is_whole = || {
        rtcp.send_to(END, (CALLER, 9)).expect("it is sent");
        memchr::memmem::find(&capture.octets(), END).map(drop)
    };
    assert!(Deadline::after(PATIENCE).poll(is_whole).is_some());
    capture.stop();
    Some([to, rtp.address()])
}

/// Fields of packets that pass a filter.
fn fields(file: &Path, filter: &str, names: &[&str]) -> Vec<Vec<String>> {
    let mut arguments = vec!["-Y", filter, "-T", "fields"];
    arguments.extend(names.iter().flat_map(|name| ["-e", name]));
    let lines = tshark(file, &arguments);
    let split = |line: &String| line.split('\t').map(str::to_owned).collect();
    lines.iter().map(split).collect()
}

/// Judges our stream, all of it but its payload types.
fn judge(file: &Path, from: SocketAddr, to: SocketAddr) -> JudgedStream {
    let stream = JudgedStream::of(file, from, to).expect("our stream");
    assert!(stream.packets > 240, "{stream:?}");

    // Numbers, and payload types that the SDP of the answer names.
    let port = from.port();
    let ours = format!("rtp && udp.srcport == {port}");
    let names = ["frame.number", "rtp.seq", "rtp.p_type", "rtp.setup-method"];
    let packets = fields(file, &ours, &names);
    let number = |packet: &[String], at: usize| packet[at].parse::<u64>().expect("a number");

    for two in packets.windows(2) {
        let step = (number(&two[1], 1) + 0x1_0000 - number(&two[0], 1)) % 0x1_0000;
        assert_eq!(step, 1, "{two:?}");
    }
    for packet in &packets {
        assert!(["0", "101"].contains(&&*packet[2]), "{packet:?}");
        assert_eq!(packet[3], "SDP", "{packet:?}");
    }

    // Reports: whole, of this stream, and true.
    let reports = format!("rtcp && udp.srcport == {}", port + 1);
    let names = [
        "frame.number",
        "rtcp.pt",
        "rtcp.length_check",
        "rtcp.senderssrc",
        "rtcp.sender.packetcount",
        "rtcp.ssrc.fraction",
    ];

    let reports = fields(file, &reports, &names);
    let (last, reports) = reports.split_last().expect("reports");
    assert_eq!(last[1], "201,202,203", "the goodbye: {last:?}");
    assert!(!reports.is_empty());
    for report in reports {
        assert_eq!(report[1..3], ["200,202", "1"], "{report:?}");
        assert_eq!(report[3], stream.ssrc, "{report:?}");
        let before = |packet: &&Vec<String>| number(packet, 0) < number(report, 0);
        let sent = packets.iter().filter(before).count() as u64;
        assert_eq!(number(report, 4), sent, "{report:?}");
        assert_eq!(report[5], "0", "the caller lost nothing: {report:?}");
    }

    const WARNING: &str = "6291456";
    let faults = format!("_ws.malformed || _ws.expert.severity >= {WARNING}");
    let faults = tshark(file, &["-Y", &faults]);
    assert!(faults.is_empty(), "{faults:#?}");
    stream
}
