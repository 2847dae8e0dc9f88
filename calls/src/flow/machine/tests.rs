//! Flows that are run with a clock that jumps.

use serde_json::{Value, json};

use super::*;

/// A machine with what it has asked for, in words.
struct Run {
    machine: Machine,
    now: Moment,
}

fn flow(steps: Value) -> Flow {
    let start = steps.as_object().unwrap().keys().next().unwrap().clone();
    Flow::read(&json!({"start": start, "steps": steps, "longest_s": 600})).unwrap()
}

impl Run {
    fn new(steps: Value) -> Self {
        let flow = Box::new(flow(steps));
        let start = flow.start.clone();
        let runtime = Runtime::Builtin {
            flow,
            fallbacks: Vec::new(),
        };
        let now = Moment::from_secs(1_000);
        let mut machine = Machine::new(Arc::new(runtime), start);
        machine.handle_start(now);
        Self { machine, now }
    }

    /// Returns the actions of the machine since the last call of this function, in words.
    fn asked(&mut self) -> Vec<String> {
        let actions = std::iter::from_fn(|| self.machine.poll_action());
        let said = actions.map(|action| match action {
            Action::Play { serial, sound } => match sound {
                Sound::Prompt(prompt) => format!("{serial} {prompt}"),
                Sound::Keys(keys) => format!("{serial} says {}", String::from_utf8_lossy(&keys)),
                Sound::Echo(delay) => format!("{serial} echo {}", delay.as_millis()),
                Sound::Silence => format!("{serial} silence"),
            },
            Action::Transfer(destination) => format!("transfer {destination:?}"),
            Action::NextRuntime => "next runtime".to_owned(),
            Action::HangUp => "hang up".to_owned(),
        });
        said.collect()
    }

    fn press(&mut self, keys: &str) -> Vec<String> {
        for label in keys.bytes() {
            self.machine
                .handle_key(Key::of_label(label).unwrap(), self.now);
        }
        self.asked()
    }

    fn played(&mut self, serial: u32) -> Vec<String> {
        self.machine.handle_played(serial, self.now);
        self.asked()
    }

    fn wait(&mut self, milliseconds: u64) -> Vec<String> {
        self.now = self.now + Duration::from_millis(milliseconds);
        self.machine.handle_timeout(self.now);
        self.asked()
    }

    /// Waits until the timer is due; the milliseconds.
    fn wait_until_due(&mut self) -> (u128, Vec<String>) {
        let wait = self.machine.due().unwrap().since(self.now);
        self.now = self.now + wait;
        self.machine.handle_timeout(self.now);
        (wait.as_millis(), self.asked())
    }
}

const NOTHING: [&str; 0] = [];

fn menu() -> Value {
    json!({
        "a_menu": {"do": "menu", "prompt": {"bundled": "welcome"}, "choices": {"1": "b_echo", "0": "c_desk"},
            "timeout_s": 5, "retries": 2, "invalid": {"bundled": "invalid"}, "otherwise": "d_bye"},
        "b_echo": {"do": "echo", "choices": {"#": "d_bye", "any": "e_say"}, "longest_s": 60, "next": "d_bye"},
        "c_desk": {"do": "transfer", "destination": "Desk", "otherwise": "a_menu"},
        "d_bye": {"do": "play", "prompt": {"bundled": "goodbye"}, "next": "f_end"},
        "e_say": {"do": "say_digits", "next": "b_echo"},
        "f_end": {"do": "hang_up"},
    })
}

#[test]
fn a_prompt_is_played_to_its_end_and_then_the_call_ends() {
    let mut run = Run::new(json!({
        "a": {"do": "play", "prompt": {"bundled": "welcome"}, "next": "b"},
        "b": {"do": "hang_up"},
    }));
    assert_eq!(run.asked(), ["1 welcome"]);
    assert_eq!(run.press("5"), NOTHING, "it isn't skippable");
    assert_eq!(run.played(0), NOTHING, "another sound");
    assert_eq!(run.played(1), NOTHING);
    assert_eq!(
        run.wait_until_due(),
        (300, vec!["hang up".to_owned()]),
        "the last words are heard"
    );
    assert_eq!(run.press("5"), NOTHING);
    assert_eq!(run.machine.due(), None);
}

#[test]
fn a_digit_chooses_and_cuts_the_prompt_short() {
    let mut run = Run::new(menu());
    assert_eq!(run.asked(), ["1 welcome"]);
    assert_eq!(run.press("1"), ["2 echo 500"]);
    assert_eq!(run.played(1), NOTHING, "the prompt was cut off");
}

#[test]
fn a_menu_asks_again_after_silence_and_gives_up() {
    let mut run = Run::new(menu());
    run.asked();
    for serial in 1..=3 {
        assert_eq!(run.played(serial), NOTHING);
        assert_eq!(run.wait(4_999), NOTHING);
        let next = match serial {
            3 => "4 goodbye".to_owned(),
            _ => format!("{} welcome", serial + 1),
        };
        assert_eq!(run.wait(1), [next]);
    }
}

#[test]
fn a_digit_without_a_step_is_refused_and_counts_as_a_try() {
    let mut run = Run::new(menu());
    run.asked();
    assert_eq!(run.press("7"), ["2 invalid"]);
    assert_eq!(run.played(2), ["3 welcome"]);
    assert_eq!(run.press("8"), ["4 invalid"]);
    assert_eq!(run.press("9"), ["5 goodbye"], "no try is left");
}

#[test]
fn digits_that_are_typed_ahead_are_taken_in_turn() {
    let mut run = Run::new(menu());
    assert_eq!(run.asked(), ["1 welcome"]);
    // The menu takes the 1, the echo the 5; what was typed while it is said is said next.
    assert_eq!(run.press("15"), ["2 echo 500", "3 says 15"]);
    assert_eq!(run.press("23"), NOTHING);
    assert_eq!(run.played(3), ["4 says 23"]);
    assert_eq!(run.played(4), ["5 echo 500"], "3 was said with 2");
    assert_eq!(run.press("#"), ["6 goodbye"]);
}

#[test]
fn a_skippable_prompt_gives_its_digit_to_the_next_step() {
    let mut run = Run::new(json!({
        "a": {"do": "play", "prompt": {"text": "hello"}, "skippable": true, "next": "b"},
        "b": {"do": "echo", "choices": {"any": "c"}, "next": "d"},
        "c": {"do": "say_digits", "next": "b"},
        "d": {"do": "hang_up"},
    }));
    assert_eq!(run.asked(), ["1 a text"]);
    assert_eq!(run.press("4"), ["2 says 4"]);
    assert_eq!(run.played(2), ["3 echo 500"]);
}

#[test]
fn an_echo_ends_by_its_own_time() {
    let mut run = Run::new(menu());
    run.asked();
    run.press("1");
    assert_eq!(run.wait_until_due(), (60_000, vec!["3 goodbye".to_owned()]));
}

#[test]
fn a_transfer_that_fails_leads_on() {
    let mut run = Run::new(menu());
    run.asked();
    let transfer = ["2 silence", r#"transfer Some("Desk")"#];
    assert_eq!(run.press("0"), transfer);
    assert_eq!(run.press("1"), NOTHING, "nobody listens meanwhile");
    assert_eq!(run.machine.due(), None, "a transfer ends by its own times");
    run.machine
        .handle_transfer_failed(TransferFailure::Failed, run.now);
    assert_eq!(run.asked(), ["3 welcome"]);
    run.machine
        .handle_transfer_failed(TransferFailure::Failed, run.now);
    assert_eq!(run.asked(), NOTHING, "a transfer that the API has begun");
}

#[test]
fn a_caller_whose_transfer_is_unknown_is_waited_for() {
    let mut run = Run::new(menu());
    run.asked();
    run.press("0");
    run.machine
        .handle_transfer_failed(TransferFailure::Unknown, run.now);
    assert_eq!(run.asked(), NOTHING);
    assert_eq!(run.wait_until_due(), (10_000, vec!["3 welcome".to_owned()]));
}

#[test]
fn a_flow_ends_by_its_longest_time_wherever_it_is() {
    // A menu that turns for ever.
    let mut run = Run::new(json!({
        "a": {"do": "menu", "choices": {"1": "a"}, "timeout_s": 60, "retries": 0, "otherwise": "a"},
    }));
    let begun = run.now;
    let mut asked = run.asked();
    while asked != ["hang up"] {
        assert_eq!(asked.len(), 1, "{asked:?}");
        asked = run.wait_until_due().1;
    }
    assert_eq!(run.now.since(begun), Duration::from_secs(600));

    // A prompt whose end is never heard of.
    let mut run = Run::new(menu());
    run.asked();
    assert_eq!(run.wait_until_due(), (600_000, vec!["hang up".to_owned()]));
}

#[test]
fn digits_without_end_are_bounded() {
    let mut run = Run::new(json!({
        "a": {"do": "play", "prompt": {"bundled": "welcome"}, "next": "b"},
        "b": {"do": "say_digits", "next": "c"},
        "c": {"do": "hang_up"},
    }));
    run.asked();
    run.press(&"0123456789".repeat(1_000));
    assert_eq!(run.machine.typed.len(), MOST_KEYS);
    let said = run.played(1);
    assert_eq!(said, [format!("2 says {}{}", "89", "0123456789".repeat(3))]);
}

#[test]
fn the_next_runtime_and_an_unsound_flow() {
    let mut run = Run::new(json!({"a": {"do": "next_runtime"}}));
    assert_eq!(run.asked(), ["next runtime"]);
    assert_eq!(run.machine.due(), None);

    // A flow that the API would refuse, since it would turn for ever.
    let turning = Flow {
        start: "a".into(),
        steps: [("a".into(), Step::SayDigits { next: "a".into() })].into(),
        longest_s: 600,
    };
    let runtime = Runtime::Builtin {
        flow: Box::new(turning),
        fallbacks: Vec::new(),
    };
    let mut machine = Machine::new(Arc::new(runtime), "a".into());
    machine.handle_start(Moment::from_secs(1));
    assert_eq!(machine.poll_action(), Some(Action::HangUp));
    assert_eq!(machine.poll_action(), None);
}
