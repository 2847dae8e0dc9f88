//! A flow with a planted change fails, over sockets and in the command's own process, and the output names the message and the part of it.

use crate::replay::flows::{Stage, agent_of, flow};
use trunkline_testkit::DaemonSetup;

/// Messages of a flow, after the text before the first; each begins with its head.
struct Cut(Vec<String>);

impl Cut {
    fn new(text: &str) -> Self {
        let mut pieces = text.split("\n--- ");
        let head = pieces.next().unwrap_or_default().to_owned();
        let messages = pieces.map(|piece| format!("\n--- {piece}"));
        Self(std::iter::once(head).chain(messages).collect())
    }

    /// Returns the index of the first message in this direction that begins so.
    fn place(&self, way: &str, start: &str) -> usize {
        let is_meant = |piece: &String| {
            let mut lines = piece.trim_start().lines();
            let (head, first) = (lines.next().unwrap_or_default(), lines.next());
            head.contains(&format!(" {way} ")) && first.is_some_and(|line| line.starts_with(start))
        };
        let found = self.0.iter().position(is_meant);
        found.unwrap_or_else(|| panic!("no {start:?} goes {way}"))
    }

    fn change(mut self, way: &str, start: &str, change: impl Fn(&str) -> String) -> String {
        let place = self.place(way, start);
        let changed = change(&self.0[place]);
        assert_ne!(changed, self.0[place], "{way} {start}");
        self.0[place] = changed;
        self.0.concat()
    }

    fn without(mut self, way: &str, start: &str) -> String {
        let place = self.place(way, start);
        self.0.remove(place);
        self.0.concat()
    }

    /// Inserts behind a message its copy with another start line.
    fn with_another(mut self, way: &str, start: &str, other: &str) -> String {
        let place = self.place(way, start);
        let copy = self.0[place].replacen(start, other, 1);
        self.0.insert(place + 1, copy);
        self.0.concat()
    }
}

/// Returns the message with its time moved by so many seconds.
fn later(piece: &str, seconds: u32) -> String {
    let (time, rest) = piece
        .trim_start_matches("\n--- ")
        .split_once('.')
        .expect("a time");
    let time: u32 = time.parse().expect("seconds");
    format!("\n--- {}.{rest}", time + seconds)
}

#[test]
fn a_planted_change_is_named_by_message_and_header() {
    let setup = DaemonSetup::new();
    let second = setup.run(&[
        "agent", "create", "--org", &setup.org, "--name", "Second", "--json",
    ]);
    let second = second["id"].as_str().expect("an id").to_owned();
    let stage = Stage::within(setup);
    stage.daemon.setup.runtime(&second, &stage.runtime_uri());
    stage.daemon.setup.settle();
    let answered = flow("answered");
    let first = agent_of(&answered).expect("an agent");
    let cut = || Cut::new(&answered);
    let (to_caller, to_runtime) = ("us > caller", "us > runtime");

    let cases = [
        (
            "another routing step",
            answered.replace(
                "X-Account: 4711",
                &format!("X-Account: 4711\nX-PLATFORM-AGENT-ID: {second}"),
            ),
            [
                "INVITE, X-PLATFORM-AGENT-ID: expected ",
                &stage.daemon.setup.first_agent,
            ],
        ),
        (
            "a header that is gone",
            cut().change(to_runtime, "INVITE", |piece| {
                piece.replacen("\nMax-Forwards", "\nX-Priority: high\nMax-Forwards", 1)
            }),
            ["INVITE, X-Priority: expected `high`", "found none"],
        ),
        (
            "a header that is new",
            cut().change(to_caller, "SIP/2.0 200 OK", |piece| {
                let kept = piece
                    .lines()
                    .filter(|line| !line.starts_with("Supported: "));
                kept.map(|line| format!("{line}\n")).collect()
            }),
            ["200 OK (INVITE), Supported: expected none", "found `"],
        ),
        (
            "another value",
            cut().change(to_runtime, "INVITE", |piece| {
                piece.replacen("X-Queue-Name: front desk", "X-Queue-Name: back office", 1)
            }),
            [
                "INVITE, X-Queue-Name: expected `back office`",
                "found `front desk`",
            ],
        ),
        (
            "a later answer",
            cut().change("runtime > us", "SIP/2.0 200 OK", |piece| later(piece, 3)),
            ["200 OK (INVITE), time: expected after ", "found after "],
        ),
        (
            "another status",
            cut().change(to_caller, "SIP/2.0 200 OK", |piece| {
                piece.replacen("SIP/2.0 200 OK", "SIP/2.0 486 Busy Here", 1)
            }),
            [
                "486 Busy Here (INVITE), start line: expected ",
                "found 200 OK (INVITE)",
            ],
        ),
        (
            "a message that is gone",
            cut().with_another(
                to_caller,
                "SIP/2.0 180 Ringing",
                "SIP/2.0 183 Session Progress",
            ),
            [
                "183 Session Progress (INVITE), message: expected 183",
                "found nothing within",
            ],
        ),
        (
            "a message at the end that is gone",
            cut().with_another(
                to_caller,
                "SIP/2.0 200 OK",
                "INFO sip:caller@127.0.0.1 SIP/2.0",
            ),
            ["INFO, message: expected INFO", "found nothing within"],
        ),
        (
            "a message that is new",
            cut().without(to_caller, "SIP/2.0 180 Ringing"),
            [
                "180 Ringing (INVITE), message: expected nothing of the kind",
                "180 Ringing",
            ],
        ),
    ];
    let replace = format!("{first}={}", stage.daemon.setup.first_agent);
    let flags = ["--replace", &replace, "--patience", "4"];

    for mode in ["over sockets", "in process"] {
        let play = |text: &str| {
            stage.shell.write("planted.flow", text);
            match mode {
                "in process" => stage.in_process("planted.flow", &flags),
                _ => stage.replay("planted.flow", &flags),
            }
        };

        let ran = play(&answered);
        assert_eq!(ran.code, Some(0), "{mode}: {}{}", ran.stdout, ran.stderr);
        for (name, text, words) in &cases {
            let ran = play(text);
            assert_eq!(
                ran.code,
                Some(1),
                "{mode}, {name}: {}{}",
                ran.stdout,
                ran.stderr
            );
            for word in words {
                assert!(
                    ran.stdout.contains(word),
                    "{mode}, {name}: no {word:?} in\n{}",
                    ran.stdout
                );
            }
        }
    }
}
