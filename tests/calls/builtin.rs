//! The built-in agent: a flow as data, run by the built daemon, heard by a caller with RTP of its own.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde_json::{Value, json};

use trunkline_net::media::wav;
use trunkline_testkit::talker::{Rtp, Talker, offer};
use trunkline_testkit::{Daemon, DaemonSetup, Deadline};

/// The caller.
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const PATIENCE: Duration = Duration::from_secs(20);
/// Silence in µ-law.
const SILENCE: u8 = 0xff;
const FRAME: usize = 160;
/// Keys beyond the digits, as events (RFC 4733 §3.2).
const STAR_KEY: u8 = 10;
const POUND_KEY: u8 = 11;

const WELCOME: &[u8] = include_bytes!("../../assets/spoken/welcome.ulaw");
const CONNECTING: &[u8] = include_bytes!("../../assets/spoken/connecting.ulaw");
const UNAVAILABLE: &[u8] = include_bytes!("../../assets/spoken/unavailable.ulaw");
const INVALID: &[u8] = include_bytes!("../../assets/spoken/invalid.ulaw");
const GOODBYE: &[u8] = include_bytes!("../../assets/spoken/goodbye.ulaw");
const FIVE: &[u8] = include_bytes!("../../assets/spoken/5.ulaw");
const STAR: &[u8] = include_bytes!("../../assets/spoken/star.ulaw");

fn serve() -> Daemon {
    let setup = DaemonSetup::new();
    setup.dedicate(&PEER.to_string());
    setup.serve()
}

/// Sets the runtime of the first agent.
fn set(daemon: &Daemon, runtime: &Value) {
    let agent = &daemon.setup.first_agent;
    let change = json!({ "runtime": runtime });
    let (status, body) = daemon.change("PATCH", &format!("/phone/{agent}"), &change);
    assert_eq!(status, 200, "{body}");
    daemon.setup.settle();
}

fn builtin(steps: Value) -> Value {
    json!({"type": "builtin", "flow": {"start": "start", "steps": steps}})
}

/// A caller with its audio, and all that it has heard.
struct Caller {
    talker: Talker,
    rtp: Rtp,
    to: SocketAddr,
    heard: RefCell<Vec<u8>>,
}

impl Caller {
    fn call(daemon: &Daemon) -> Self {
        let rtp = Rtp::new(PEER);
        let sdp = offer(rtp.address());
        let (talker, answer) = Talker::call(PEER, daemon.sip(), &daemon.setup.first_number, &sdp);
        assert_eq!(answer.status(), Some(200), "{answer:?}");
        let to = answer.media();
        Self {
            talker,
            rtp,
            to,
            heard: RefCell::default(),
        }
    }

    /// Sends a frame of one sample, and keeps the next frame that is heard.
    fn frame(&self, says: u8) {
        self.rtp.say(self.to, &[says; FRAME]);
        if let Some(audio) = self.rtp.audio() {
            self.heard.borrow_mut().extend(audio);
        }
    }

    /// Sends silence until the whole clip has been heard; false if it never is. Drops the audio up to the clip's end.
    fn hears(&self, clip: &[u8]) -> bool {
        let heard = Deadline::after(PATIENCE).poll(|| {
            self.frame(SILENCE);
            let mut heard = self.heard.borrow_mut();
            let at = heard.windows(clip.len()).position(|heard| heard == clip)?;
            heard.drain(..at + clip.len());
            Some(())
        });
        heard.is_some()
    }

    fn press(&self, key: u8) {
        self.rtp.press(self.to, key);
    }
}

#[test]
fn a_prompt_is_heard_whole_and_the_call_ends_after_it() {
    let daemon = serve();
    set(
        &daemon,
        &builtin(json!({
            "start": {"do": "play", "prompt": {"bundled": "goodbye"}, "next": "end"},
            "end": {"do": "hang_up"},
        })),
    );

    let caller = Caller::call(&daemon);
    assert!(caller.hears(GOODBYE), "{:?}", caller.heard);
    assert!(caller.talker.asked("BYE").is_some(), "the agent hangs up");
    let record = daemon.record();
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(record["hangup_by"], "agent", "{record}");
}

#[test]
fn a_menu_an_echo_digits_and_a_hand_off() {
    let daemon = serve();
    daemon.destination("Desk", "phone", "+442071838751");
    set(
        &daemon,
        &builtin(json!({
            "start": {"do": "menu", "choices": {"1": "echo"}, "invalid": {"bundled": "invalid"}, "timeout_s": 60, "otherwise": "end"},
            "echo": {"do": "echo", "delay_ms": 500, "choices": {"0": "desk", "any": "say"}, "next": "end"},
            "say": {"do": "say_digits", "next": "echo"},
            "desk": {"do": "transfer", "destination": "Desk", "otherwise": "end"},
            "end": {"do": "hang_up"},
        })),
    );

    let caller = Caller::call(&daemon);
    caller.frame(SILENCE);
    caller.press(7);
    assert!(caller.hears(INVALID), "a key without a step");
    caller.press(1);

    // The caller sends a frame for each that it hears, so frames measure the time.
    for _ in 0..30 {
        caller.frame(0x11);
    }

    caller.heard.borrow_mut().clear();
    caller.frame(0x22);
    let place = Deadline::after(PATIENCE).poll(|| {
        caller.frame(0x33);
        let heard = caller.heard.borrow();
        heard.chunks(FRAME).position(|frame| frame == [0x22; FRAME])
    });
    let place = place.expect("the echo");
    let late = place * 20;
    assert!(late >= 480, "the echo is {late} ms late");

    {
        let heard = caller.heard.borrow();
        let before = heard.chunks(FRAME).nth(place - 1).expect("a frame");
        assert_eq!(
            before, [0x11; FRAME],
            "the frame before it is echoed before it"
        );
    }

    caller.press(5);
    assert!(caller.hears(FIVE), "the key is said");
    caller.press(STAR_KEY);
    assert!(caller.hears(STAR), "and the next one");

    caller.press(0);
    let referred = caller.talker.asked("REFER").expect("the hand-off");
    assert!(referred.text().contains("442071838751"), "{referred}");
}

#[test]
fn the_flow_of_the_quickstart() {
    let daemon = serve();
    let flow = include_str!("../../model/src/builtin/demo.json");
    let flow: Value = serde_json::from_str(flow).expect("JSON");
    set(&daemon, &json!({"type": "builtin", "flow": flow}));

    let caller = Caller::call(&daemon);
    assert!(caller.hears(WELCOME));
    caller.press(0);
    assert!(caller.hears(CONNECTING));
    assert!(caller.hears(UNAVAILABLE), "no destination is assigned");
    caller.press(POUND_KEY);
    assert!(caller.hears(GOODBYE));
    assert!(caller.talker.asked("BYE").is_some());
}

#[test]
fn a_bot_that_cannot_be_reached_is_followed_by_the_flow() {
    let setup = DaemonSetup::new().set("TRUNKLINE__SIP__ALLOW_PRIVATE_PEERS", "127.0.0.0/8");
    setup.dedicate(&PEER.to_string());
    let daemon = setup.serve();
    set(
        &daemon,
        &json!({
            "type": "websocket", "uri": "ws://127.0.0.1:9/", "fallbacks": ["builtin:"],
            "flow": {"start": "sorry", "steps": {
                "sorry": {"do": "play", "prompt": {"bundled": "unavailable"}, "next": "end"},
                "end": {"do": "hang_up"},
            }},
        }),
    );

    let caller = Caller::call(&daemon);
    assert!(caller.hears(UNAVAILABLE));
    assert!(caller.talker.asked("BYE").is_some());

    // The other way round: the flow's fallback is a bot that can't be reached.
    set(
        &daemon,
        &json!({
            "type": "builtin", "fallbacks": ["ws://127.0.0.1:9/"],
            "flow": {"start": "hello", "steps": {
                "hello": {"do": "play", "prompt": {"bundled": "connecting"}, "next": "next"},
                "next": {"do": "next_runtime"},
            }},
        }),
    );

    let caller = Caller::call(&daemon);
    assert!(caller.hears(CONNECTING));
    assert!(caller.talker.asked("BYE").is_some());
}

#[test]
fn a_flow_with_faults_is_refused_with_all_of_them() {
    let daemon = serve();
    let agent = &daemon.setup.first_agent;
    let runtime = builtin(json!({
        "start": {"do": "play", "prompt": {"text": "hello"}, "next": "nowhere"},
        "alone": {"do": "play", "prompt": {"id": "00000000-0000-0000-0000-000000000000"}, "next": "alone"},
    }));

    let (status, body) = daemon.change(
        "PATCH",
        &format!("/phone/{agent}"),
        &json!({"runtime": runtime}),
    );
    assert_eq!(status, 400, "{body}");

    let faults: Vec<_> = body["errors"]
        .as_array()
        .expect("faults")
        .iter()
        .map(|fault| fault["path"].as_str().expect("a pointer").to_owned())
        .collect();
    assert_eq!(
        faults,
        [
            "runtime.flow.steps.start.next",
            "runtime.flow.steps.alone",
            "runtime.flow.steps.alone",
        ],
        "{body}"
    );
}

#[test]
fn an_uploaded_prompt_is_heard_as_it_was_converted() {
    let daemon = serve();
    let audio: Vec<u8> = (0..8_000_u32).map(|at| (at * at % 251) as u8).collect();
    let path = daemon.setup.folder.path().join("prompt.wav");
    std::fs::write(&path, wav::write(&audio)).expect("the folder can be written");

    let file = path.to_str().expect("a path");
    let create = [
        "prompt", "create", "--name", "Hello", "--file", file, "--json",
    ];
    let made = daemon.setup.run(&create);

    set(
        &daemon,
        &builtin(json!({
            "start": {"do": "play", "prompt": {"id": made["id"]}, "next": "end"},
            "end": {"do": "hang_up"},
        })),
    );

    // The second call finds the prompt loaded.
    for _ in 0..2 {
        let caller = Caller::call(&daemon);
        assert!(caller.hears(&audio), "the prompt, whole");
        assert!(caller.talker.asked("BYE").is_some());
    }
}

/// A flow that speaks a text, then says goodbye.
fn speaking() -> Value {
    builtin(json!({
        "start": {"do": "play", "prompt": {"text": "It's $(touch /tmp/x) 5 o'clock."}, "next": "bye"},
        "bye": {"do": "play", "prompt": {"bundled": "goodbye"}, "next": "end"},
        "end": {"do": "hang_up"},
    }))
}

#[test]
fn a_text_is_spoken_once_and_a_synthesiser_that_fails_holds_up_no_call() {
    let folder = tempfile::tempdir().expect("a folder");
    let (log, wav_file) = (folder.path().join("log"), folder.path().join("spoken.wav"));
    let audio: Vec<u8> = (0..4_000_u32).map(|at| (at * 7 % 251) as u8).collect();
    std::fs::write(&wav_file, wav::write(&audio)).expect("the folder can be written");
    let speaks = format!("cat >> {}; cat {}", log.display(), wav_file.display());

    for (name, script, is_heard) in [
        ("speaks", speaks.as_str(), true),
        ("endless", "exec cat /dev/zero", false),
        ("no WAV", "echo ID3", false),
        ("fails", "exit 3", false),
    ] {
        let command = format!("sh,-c,{script}");
        let setup = DaemonSetup::new().set("TRUNKLINE__SPEECH__COMMAND", &command);
        setup.dedicate(&PEER.to_string());
        let daemon = setup.serve();
        set(&daemon, &speaking());

        for _ in 0..2 {
            let caller = Caller::call(&daemon);
            assert!(!is_heard || caller.hears(&audio), "{name}");
            assert!(caller.hears(GOODBYE), "{name}");
        }
    }

    let log = std::fs::read_to_string(&log).expect("the text");
    assert_eq!(log, "It's $(touch /tmp/x) 5 o'clock.", "once");
}

#[test]
fn a_text_is_spoken_by_an_endpoint_that_gets_the_key() {
    let audio: Vec<u8> = (0..4_000_u32).map(|at| (at * 11 % 251) as u8).collect();
    let endpoint = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let url = format!(
        "http://{}/v1/audio/speech",
        endpoint.local_addr().expect("an address")
    );
    let file = wav::write(&audio);

    let asked = std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        let (mut stream, _) = endpoint.accept().expect("a connection");
        let mut request = Vec::new();
        let mut octets = [0; 4_096];
        while !request.ends_with(b"}") {
            let length = stream.read(&mut octets).expect("a request");
            assert_ne!(length, 0, "the request is cut off");
            request.extend(&octets[..length]);
        }

        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", file.len());
        stream.write_all(head.as_bytes()).expect("an answer");
        stream.write_all(&file).expect("an answer");
        String::from_utf8_lossy(&request).into_owned()
    });

    let setup = DaemonSetup::new()
        .set("TRUNKLINE__SPEECH__URL", &url)
        .set("TRUNKLINE__SPEECH__API_KEY", "sk-secret-of-the-test")
        .set("TRUNKLINE__SPEECH__ALLOW_PRIVATE_ADDRESSES", "true");
    setup.dedicate(&PEER.to_string());
    let daemon = setup.serve();
    set(&daemon, &speaking());

    let caller = Caller::call(&daemon);
    assert!(caller.hears(&audio));
    assert!(caller.hears(GOODBYE));

    let asked = asked.join().expect("the endpoint");
    assert!(asked.contains("Bearer sk-secret-of-the-test"), "{asked}");
    assert!(
        asked.contains("\"input\":\"It's $(touch /tmp/x) 5 o'clock.\""),
        "{asked}"
    );
    assert!(!daemon.log().contains("sk-secret"), "the key isn't logged");
}
