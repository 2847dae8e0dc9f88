//! Bots over sockets on loopback: a call between an RTP peer and a WebSocket server, both played by the test.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha1::{Digest as _, Sha1};

use super::*;
use crate::bot::{self, BotEnd, BotProtocol, BotRequest, BotStart};

/// Server's end of a bot's WebSocket.
struct Server {
    stream: TcpStream,
}

impl Server {
    /// Accepts the WebSocket, with `behind` in the same segment as the answer.
    fn accept(listener: &TcpListener, behind: &[u8]) -> Self {
        let (mut stream, _) = listener.accept().unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();

        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut octet = [0];
            stream.read_exact(&mut octet).unwrap();
            head.push(octet[0]);
        }

        let head = String::from_utf8(head).unwrap();
        let key = head
            .lines()
            .find_map(|line| line.strip_prefix("Sec-WebSocket-Key: "))
            .unwrap();
        let hash = Sha1::digest(format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11"));
        let accept = STANDARD.encode(hash);
        let answer = format!(
            "HTTP/1.1 101 OK\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
        );

        stream
            .write_all(&[answer.as_bytes(), behind].concat())
            .unwrap();
        Self { stream }
    }

    fn say(&mut self, message: &Value) {
        self.stream.write_all(&text(message)).unwrap();
    }

    /// Returns the next frame: its first octet and its payload, unmasked.
    fn next(&mut self) -> (u8, Vec<u8>) {
        let mut head = [0; 2];
        self.stream.read_exact(&mut head).unwrap();
        assert_ne!(head[1] & 0x80, 0, "a client masks");

        let length = match head[1] & 0x7f {
            126 => {
                let mut length = [0; 2];
                self.stream.read_exact(&mut length).unwrap();
                usize::from(u16::from_be_bytes(length))
            }
            short => usize::from(short),
        };
        let mut rest = vec![0; 4 + length];
        self.stream.read_exact(&mut rest).unwrap();

        let (mask, payload) = rest.split_at(4);
        let unmasked = payload
            .iter()
            .zip(mask.iter().cycle())
            .map(|(octet, mask)| octet ^ mask);
        (head[0], unmasked.collect())
    }

    fn message(&mut self) -> Value {
        let (first, payload) = self.next();
        assert_eq!(first, 0x81, "a text in one frame");
        serde_json::from_slice(&payload).unwrap()
    }

    /// The next message of this event.
    fn event(&mut self, event: &str) -> Value {
        loop {
            let message = self.message();
            if message["event"] == event {
                return message;
            }
        }
    }
}

fn text(message: &Value) -> Vec<u8> {
    let payload = message.to_string().into_bytes();
    let mut frame = vec![0x81];
    match payload.len() {
        short @ 0..=125 => frame.push(short as u8),
        middle @ 126..=0xffff => {
            frame.push(126);
            frame.extend((middle as u16).to_be_bytes());
        }
        long => {
            frame.push(127);
            frame.extend((long as u64).to_be_bytes());
        }
    }

    frame.extend(payload);
    frame
}

fn said(audio: &[u8]) -> Value {
    json!({"event": "media", "streamSid": null, "media": {"payload": STANDARD.encode(audio)}})
}

/// A call whose bot has been attached, and started.
struct Conversation {
    media: Media,
    events: mpsc::Receiver<(u64, MediaEvent)>,
    server: Server,
    peer: UdpSocket,
    ours: SocketAddr,
}

/// The machine's clock, which sockets need.
fn clock() -> Moment {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap();
    Moment::from_micros(u64::try_from(since.as_micros()).unwrap())
}

fn converse(test: u8, payload: AudioPayload, behind: &'static [u8]) -> Conversation {
    let (reports, events) = mpsc::channel();
    let settings = MediaSettings {
        ports: 20_000..=20_009,
        ips: vec![loopback(test)],
        own: Vec::new(),
        listeners: Vec::new(),
        workers: 1,
        descriptors: std::sync::Arc::default(),
    };
    let report = move |key, event| reports.send((key, event)).unwrap_or_default();
    let media = Media::new(&settings, Entropy::from_seed([7; 32]), clock, report).unwrap();

    let listener = TcpListener::bind((loopback(test), 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let accepting = std::thread::spawn(move || Server::accept(&listener, behind));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let request = BotRequest {
        url: format!("ws://{address}/media"),
        address,
        tls: Arc::new(crate::tls::client(rustls::RootCertStore::empty())),
        headers: vec![("X-Twilio-Signature".to_owned(), "abc=".to_owned())],
        start: BotStart {
            protocol: BotProtocol::Twilio,
            account_sid: "AC".to_owned(),
            call_sid: "CA".to_owned(),
            stream_sid: "MZ".to_owned(),
            parameters: vec![("agent_id".to_owned(), "7".to_owned())],
        },
        descriptor: None,
    };
    let bot = runtime
        .block_on(bot::connect(request, Duration::from_secs(5)))
        .unwrap();

    let (ours, peer) = (
        media.open(5, loopback(test), holder(5)).unwrap(),
        peer(test),
    );
    let agreed = NegotiatedMedia {
        payload,
        received: PayloadTypes::of(payload, Some(101)),
        ..agreed(peer.local_addr().unwrap(), Some(101))
    };
    media.update(5, agreed, clock());
    media.attach(5, bot);
    Conversation {
        media,
        events,
        server: accepting.join().unwrap(),
        peer,
        ours,
    }
}

impl Conversation {
    /// Sends packets of 20 ms with this octet, at their pace.
    fn speak(&self, payload_type: u8, octet: u8, sequences: std::ops::Range<u16>) {
        for sequence in sequences {
            let mut packet = vec![0x80, payload_type];
            packet.extend(sequence.to_be_bytes());
            packet.extend((u32::from(sequence) * 160).to_be_bytes());
            packet.extend([1, 2, 3, 4]);
            packet.extend([octet; 160]);
            self.peer.send_to(&packet, self.ours).unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Payload of the next packet.
    fn heard(&self) -> Vec<u8> {
        self.heard_as().1
    }

    /// Payload type of the next packet, and its payload.
    fn heard_as(&self) -> (u8, Vec<u8>) {
        let mut packet = [0; 2_048];
        let length = self.peer.recv(&mut packet).unwrap();
        assert_eq!(length, 172, "20 ms of G.711");
        (packet[1] & 0x7f, packet[12..length].to_vec())
    }
}

#[test]
fn a_caller_and_a_bot_converse() {
    a_caller_of_a_law_and_a_bot_converse(20, AudioPayload::PCMA);
}

/// A-law with a number of the offer's own (RFC 3551 §3).
#[test]
fn a_caller_with_a_dynamic_payload_type_and_a_bot_converse() {
    let payload = AudioPayload {
        number: 96,
        ..AudioPayload::PCMA
    };
    a_caller_of_a_law_and_a_bot_converse(38, payload);
}

fn a_caller_of_a_law_and_a_bot_converse(test: u8, payload: AudioPayload) {
    let mut call = converse(test, payload, b"");
    call.media.start(5, now());
    assert_eq!(
        call.server.message(),
        json!({"event": "connected", "protocol": "Call", "version": "1.0.0"})
    );
    let start = call.server.message();
    assert_eq!(start["start"]["customParameters"], json!({"agent_id": "7"}));

    // The caller's A-law reaches the bot as µ-law, in frames that count without a hole.
    call.speak(payload.number, 0xd4, 0..20);
    let mut frames = Vec::new();
    while frames
        .iter()
        .filter(|frame: &&Value| {
            frame["media"]["payload"] == STANDARD.encode([g711::mu_of_a(0xd4); 160])
        })
        .count()
        < 10
    {
        frames.push(call.server.event("media"));
    }
    for (at, frame) in frames.iter().enumerate() {
        assert_eq!(frame["media"]["chunk"], (at + 1).to_string());
        assert_eq!(frame["media"]["timestamp"], (at * 20).to_string());
        assert_eq!(frame["sequenceNumber"], (at + 2).to_string());
    }

    // The caller gets all of the bot's audio, from messages of any size, and its mark comes back.
    call.server.say(&said(&[0x90; 100]));
    call.server.say(&said(&[0x90; 700]));
    call.server
        .say(&json!({"event": "mark", "mark": {"name": "greeted"}}));
    assert_eq!(call.server.event("mark")["mark"]["name"], "greeted");
    let a_law = g711::a_of_mu(0x90);
    let mut heard = Vec::new();
    while heard.len() < 800 {
        let (payload_type, audio) = call.heard_as();
        assert_eq!(payload_type, payload.number);
        heard.extend(audio.into_iter().filter(|octet| *octet == a_law));
    }
    let after = call.events.recv_timeout(Duration::from_secs(5)).unwrap();
    assert!(
        matches!(after, (5, MediaEvent::BotSpoke { .. })),
        "{after:?}"
    );

    // A key, and the end.
    let key = [0x80, 101, 0, 20, 0, 0, 3, 32, 1, 2, 3, 4, 11, 10, 1, 64];
    call.peer.send_to(&key, call.ours).unwrap();
    assert_eq!(
        call.server.event("dtmf")["dtmf"],
        json!({"track": "inbound_track", "digit": "#"})
    );
    while call.media.statistics(5).unwrap().packets_received < 18 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let figures = call.media.close(5, now()).unwrap();
    assert_eq!(
        call.server.event("stop")["stop"],
        json!({"accountSid": "AC", "callSid": "CA"})
    );
    assert_eq!(call.server.next(), (0x88, vec![3, 232]));
    assert_eq!(
        (figures.packets_received, figures.packets_lost),
        (18, 0),
        "the first three only prove the address"
    );
    assert!(
        figures.packets_sent > 5 && figures.mos.is_some_and(|mos| mos > 4.0),
        "{figures:?}"
    );
    assert!(figures.first_word.is_some());
    assert_eq!(call.media.close(5, now()), None);
}

/// Bots greet as soon as they have `start`, and that is before the caller's address is learnt.
#[test]
fn a_greeting_before_the_callers_first_word_is_heard_whole() {
    let mut call = converse(24, AudioPayload::PCMU, b"");
    call.media.start(5, now());
    call.server.say(&said(&[0x90; 800]));
    call.server
        .say(&json!({"event": "mark", "mark": {"name": "greeted"}}));
    std::thread::sleep(Duration::from_millis(200));
    call.speak(0, 0x91, 0..6);
    assert_eq!(call.server.event("mark")["mark"]["name"], "greeted");
    let mut heard = Vec::new();
    while heard.len() < 800 {
        heard.extend(call.heard().into_iter().filter(|octet| *octet == 0x90));
    }
}

#[test]
fn what_came_with_the_handshake_is_heard() {
    // {"event":"mark","mark":{"name":"a"}}
    let mut call = converse(
        21,
        AudioPayload::PCMU,
        b"\x81\x24{\"event\":\"mark\",\"mark\":{\"name\":\"a\"}}",
    );
    call.media.start(5, now());
    assert_eq!(
        call.server.event("mark")["mark"]["name"],
        "a",
        "nothing is buffered: at once"
    );
}

#[test]
fn clear_discards_what_waits_and_returns_its_marks() {
    let mut call = converse(22, AudioPayload::PCMU, b"");
    call.media.start(5, now());
    call.speak(0, 0x91, 0..6);

    // Ten minutes in one burst, and more audio for which there is no room.
    let minute = said(&[0x90; 480_000]);
    for _ in 0..11 {
        call.server.say(&minute);
    }
    call.server
        .say(&json!({"event": "mark", "mark": {"name": "a"}}));
    call.server
        .say(&json!({"event": "mark", "mark": {"name": "a"}}));

    while call.heard() != [0x90; 160] {}
    call.server.say(&json!({"event": "clear"}));
    for _ in 0..2 {
        assert_eq!(call.server.event("mark")["mark"]["name"], "a");
    }
    while call.heard() != [g711::SILENCE; 160] {}

    let figures = call.media.close(5, now()).unwrap();
    assert!(figures.discarded >= 480_000 - 160 * 50, "{figures:?}");
    let mut steps = figures.steps.iter();
    assert!(steps.any(|step| step.kind == MediaStepKind::Discarded));
}

/// Their names have six octets for each in a message, so that all together exceed what is kept for a slow bot.
#[test]
fn marks_with_long_names_all_come_back() {
    let mut call = converse(29, AudioPayload::PCMU, b"");
    call.media.start(5, now());
    call.speak(0, 0x91, 0..6);
    call.server.say(&said(&[0x90; 80_000]));

    let name = |at: char, length| format!("{at}{}", "\u{1}".repeat(length));
    let names = || ('a'..='h').map(|at| name(at, 8_191));
    for name in names().chain([name('i', 8_192)]) {
        let mark = json!({"event": "mark", "mark": {"name": name}});
        call.server.say(&mark);
    }
    call.server.say(&json!({"event": "clear"}));

    for name in names() {
        assert_eq!(call.server.event("mark")["mark"]["name"], name);
    }

    // The figures of a turn are published at its end, after its marks were sent. This one is read in a later turn.
    call.server
        .say(&json!({"event": "mark", "mark": {"name": "last"}}));
    assert_eq!(call.server.event("mark")["mark"]["name"], "last");

    let figures = call.media.close(5, now()).unwrap();
    assert_eq!(figures.junk, 1, "the longest is refused");
    call.server.event("stop");
}

#[test]
fn a_bot_that_speaks_on_reads_the_end_of_its_call() {
    let mut call = converse(27, AudioPayload::PCMU, b"");
    call.media.start(5, now());
    call.server.event("start");
    call.media.close(5, now()).unwrap();
    call.server.event("stop");

    // The first of these would make TCP reset a connection that was already closed.
    for _ in 0..20 {
        call.server.say(&said(&[0x90; 160]));
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(call.server.next(), (0x88, 1_000_u16.to_be_bytes().to_vec()));

    // The connection ends once the bot has closed too.
    call.server
        .stream
        .shutdown(std::net::Shutdown::Write)
        .unwrap();
    assert_eq!(call.server.stream.read(&mut [0]).unwrap(), 0);
}

#[test]
fn the_end_of_a_bot_is_reported_with_its_cause() {
    type Deed = fn(&mut Server);
    let cases: [(&str, Deed, BotEnd); 7] = [
        (
            "a close frame",
            |server| server.stream.write_all(&[0x88, 0]).unwrap(),
            BotEnd::Closed,
        ),
        (
            "TCP closed",
            |server| server.stream.shutdown(std::net::Shutdown::Write).unwrap(),
            BotEnd::Closed,
        ),
        (
            "a masked frame",
            |server| server.stream.write_all(&[0x81, 0x80, 0, 0, 0, 0]).unwrap(),
            BotEnd::Protocol,
        ),
        (
            "junk without end",
            |server| {
                while server
                    .stream
                    .write_all(&text(&json!({"event": "coffee"})).repeat(100))
                    .is_ok()
                {}
            },
            BotEnd::Protocol,
        ),
        (
            "audio without end",
            |server| {
                while server
                    .stream
                    .write_all(&text(&said(&[0x90; 8_000])))
                    .is_ok()
                {}
            },
            BotEnd::Protocol,
        ),
        (
            "fragments without end",
            |server| {
                server.stream.write_all(&[0x01, 0]).unwrap();
                while server.stream.write_all(&[0; 2_000]).is_ok() {}
            },
            BotEnd::Protocol,
        ),
        (
            "reads nothing, while its marks come back",
            |server| {
                let mark = text(&json!({"event": "mark", "mark": {"name": "x".repeat(400)}}));
                while server.stream.write_all(&mark.repeat(50)).is_ok() {}
            },
            BotEnd::TooSlow,
        ),
    ];

    for (at, (name, deed, expected)) in (30..).zip(cases) {
        let mut call = converse(at, AudioPayload::PCMU, b"");
        call.media.start(5, now());
        call.server.event("start");
        deed(&mut call.server);
        let event = call.events.recv_timeout(Duration::from_secs(10));
        assert_eq!(event, Ok((5, MediaEvent::BotClosed(expected))), "{name}");
    }
}

/// Its Close frame has the status of RFC 6455 §7.4.1.
#[test]
fn a_bot_that_breaks_the_protocol_gets_that_status() {
    let mut call = converse(38, AudioPayload::PCMU, b"");
    call.media.start(5, now());
    call.server.event("start");
    call.server
        .stream
        .write_all(&[0x81, 0x80, 0, 0, 0, 0])
        .unwrap();

    let close = loop {
        match call.server.next() {
            (0x88, payload) => break payload,
            _ => continue,
        }
    };

    assert_eq!(close, 1_002_u16.to_be_bytes());
}

#[test]
fn a_hold_is_remembered_while_the_call_that_needed_it_goes_on() {
    let mut call = converse(37, AudioPayload::PCMU, b"");
    call.media.start(5, clock());
    call.server.event("start");

    call.speak(0, 0x31, 0..5);
    assert_eq!(call.media.ports.learnt(5), None);

    // Each message has 20 ms of audio, and comes 60 ms after the one before.
    let learnt = (0..100).find_map(|at| {
        call.speak(0, 0x31, 5 + 3 * at..8 + 3 * at);
        let message = text(&said(&[0x31; 160]));
        call.server.stream.write_all(&message).unwrap();
        call.media.ports.learnt(5)
    });
    assert!(learnt.is_some_and(|hold| hold >= Duration::from_millis(20)));
}

/// The bot's machine is gone: nothing that is sent to it is acknowledged, and nothing comes.
#[test]
fn a_bot_that_has_vanished_is_lost_and_not_slow() {
    let mut call = converse(36, AudioPayload::PCMU, b"");
    call.media.start(5, now());
    call.server.event("start");

    let drop_all = socket2::SockFilter::new(0x06, 0, 0, 0);
    let server = socket2::SockRef::from(&call.server.stream);
    server.attach_filter(&[drop_all]).unwrap();

    // Keys fill the buffer, slowly enough for TCP to send again what isn't acknowledged.
    let ended = (0..10_000).find_map(|_| {
        call.media.pass_key(5, '1');
        call.events.recv_timeout(Duration::from_millis(3)).ok()
    });
    assert_eq!(ended, Some((5, MediaEvent::BotClosed(BotEnd::Lost))));
}

#[test]
fn pings_are_answered() {
    let mut call = converse(23, AudioPayload::PCMU, b"");
    call.server.stream.write_all(b"\x89\x02hi").unwrap();
    assert_eq!(
        call.server.next(),
        (0x8a, b"hi".to_vec()),
        "even before the call is up"
    );
}
