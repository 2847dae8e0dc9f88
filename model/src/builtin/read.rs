//! Reading of a flow from JSON. Reading goes on after a fault, so that all are named together.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use serde_json::{Map, Value};
use uuid::Uuid;

use super::fault::FlowFault;
use super::{
    Bundled, CALL_SECONDS, Choices, ECHO_DELAY, ECHO_SECONDS, Flow, Key, LONGEST_DESTINATION,
    LONGEST_NAME, LONGEST_TEXT, MENU_RETRIES, MENU_SECONDS, MOST_STEPS, Prompt, Step, check,
    five_minutes, five_seconds, half_a_second, ten_minutes, two_retries,
};

impl Flow {
    /// Reads a flow.
    ///
    /// # Errors
    /// All faults, those of fields first.
    pub fn read(value: &Value) -> Result<Self, Vec<FlowFault>> {
        let mut faults = Vec::new();
        let flow = read_flow(value, &mut faults);
        match flow {
            Some(flow) if faults.is_empty() => Ok(flow),
            Some(_) | None => Err(faults),
        }
    }
}

fn read_flow(value: &Value, faults: &mut Vec<FlowFault>) -> Option<Flow> {
    let mut fields = Fields::of(value, String::new(), faults)?;
    let start = fields.name("start");
    let longest_s = fields.number("longest_s", CALL_SECONDS, ten_minutes());
    let steps = fields.required("steps");
    fields.done();

    let steps = match steps {
        Some(Value::Object(steps)) if (1..=MOST_STEPS).contains(&steps.len()) => steps,
        Some(_) => {
            let expected = format!("expected an object of 1 to {MOST_STEPS} steps");
            faults.push(FlowFault::new(".steps", expected));
            return None;
        }
        None => return None,
    };

    let (mut read, mut unread) = (BTreeMap::new(), BTreeSet::new());
    for (name, step) in steps {
        let path = format!(".steps.{}", escaped(name));
        let is_named = is_name(name);
        if !is_named {
            faults.push(FlowFault::new(path.clone(), NAME));
        }

        // The check of the whole flow shows names as they are, so it gets no step whose name may be anything.
        match read_step(step, path, faults).filter(|_| is_named) {
            Some(step) => drop(read.insert(name.as_str().into(), step)),
            None => drop(unread.insert(name.as_str().into())),
        }
    }

    let flow = Flow {
        start: start?,
        steps: read,
        longest_s,
    };
    check::check(&flow, &unread, faults);
    Some(flow)
}

fn read_step(value: &Value, path: String, faults: &mut Vec<FlowFault>) -> Option<Step> {
    let mut fields = Fields::of(value, path, faults)?;
    let before = fields.faults.len();
    let action = match fields.required("do") {
        Some(Value::String(action)) => action.as_str(),
        // Refused below, with the list of actions.
        Some(_) => "",
        None => return None,
    };

    // Each arm reads all its fields before the first `?`, so that one answer names every fault of the step.
    let step = match action {
        "play" => (|| {
            let prompt = fields.prompt("prompt", true);
            let skippable = fields.switch("skippable");
            let next = fields.name("next");
            Some(Step::Play {
                prompt: prompt?,
                skippable,
                next: next?,
            })
        })(),

        "menu" => (|| {
            let prompt = fields.prompt("prompt", false);
            let choices = fields.choices(true);
            let timeout_s = fields.number("timeout_s", MENU_SECONDS, five_seconds());
            let retries = fields.number("retries", MENU_RETRIES, two_retries());
            let invalid = fields.prompt("invalid", false);
            let otherwise = fields.name("otherwise");
            Some(Step::Menu {
                prompt,
                choices,
                timeout_s,
                retries,
                invalid,
                otherwise: otherwise?,
            })
        })(),

        "echo" => (|| {
            let delay_ms = fields.number("delay_ms", ECHO_DELAY, half_a_second());
            let choices = fields.choices(false);
            let longest_s = fields.number("longest_s", ECHO_SECONDS, five_minutes());
            let next = fields.name("next");
            Some(Step::Echo {
                delay_ms,
                choices,
                longest_s,
                next: next?,
            })
        })(),

        "say_digits" => fields.name("next").map(|next| Step::SayDigits { next }),
        "transfer" => (|| {
            let destination = fields.text("destination", LONGEST_DESTINATION);
            let otherwise = fields.name("otherwise");
            Some(Step::Transfer {
                destination,
                otherwise: otherwise?,
            })
        })(),
        "next_runtime" => Some(Step::NextRuntime),
        "hang_up" => Some(Step::HangUp),
        _ => {
            fields.refuse(
                "do",
                "is none of play, menu, echo, say_digits, transfer, next_runtime, hang_up",
            );
            return None;
        }
    };

    fields.done();
    // A step with a fault counts as unread: what the whole flow would show of it follows from that fault.
    step.filter(|_| faults.len() == before)
}

/// Fields of an object that haven't been read yet.
struct Fields<'v, 'f> {
    map: &'v Map<String, Value>,
    path: String,
    read: Vec<&'static str>,
    faults: &'f mut Vec<FlowFault>,
}

impl<'v, 'f> Fields<'v, 'f> {
    fn of(value: &'v Value, path: String, faults: &'f mut Vec<FlowFault>) -> Option<Self> {
        let Value::Object(map) = value else {
            faults.push(FlowFault::new(path, "expected an object"));
            return None;
        };
        Some(Self {
            map,
            path,
            read: Vec::new(),
            faults,
        })
    }

    fn refuse(&mut self, name: &str, message: impl Into<String>) {
        let path = format!("{}.{}", self.path, escaped(name));
        self.faults.push(FlowFault::new(path, message));
    }

    fn optional(&mut self, name: &'static str) -> Option<&'v Value> {
        self.read.push(name);
        self.map.get(name).filter(|value| !value.is_null())
    }

    fn required(&mut self, name: &'static str) -> Option<&'v Value> {
        let value = self.optional(name);
        if value.is_none() {
            self.refuse(name, "is required");
        }
        value
    }

    /// Reads the name of a step.
    fn name(&mut self, name: &'static str) -> Option<Box<str>> {
        let step = self.required(name)?.as_str().filter(|step| is_name(step));
        if step.is_none() {
            self.refuse(name, NAME);
        }
        step.map(Into::into)
    }

    fn text(&mut self, name: &'static str, longest: usize) -> Option<Box<str>> {
        let value = self.optional(name)?;
        let text = as_text(value, longest);
        if text.is_none() {
            self.refuse(name, text_expected(longest));
        }
        text
    }

    fn switch(&mut self, name: &'static str) -> bool {
        let value = self.optional(name);
        let switch = value.map_or(Some(false), Value::as_bool);
        switch.unwrap_or_else(|| {
            self.refuse(name, "expected true or false");
            false
        })
    }

    fn number(&mut self, name: &'static str, range: RangeInclusive<u32>, default: u32) -> u32 {
        let Some(value) = self.optional(name) else {
            return default;
        };
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        number
            .filter(|number| range.contains(number))
            .unwrap_or_else(|| {
                let (least, most) = (range.start(), range.end());
                self.refuse(
                    name,
                    format!("expected a whole number from {least} to {most}"),
                );
                default
            })
    }

    fn prompt(&mut self, name: &'static str, is_required: bool) -> Option<Prompt> {
        let value = match is_required {
            true => self.required(name)?,
            false => self.optional(name)?,
        };
        let prompt = as_prompt(value);
        if let Err(expected) = &prompt {
            self.refuse(name, expected);
        }
        prompt.ok()
    }

    fn choices(&mut self, is_required: bool) -> Choices {
        let mut choices = Choices::default();
        let value = match is_required {
            true => self.required("choices"),
            false => self.optional("choices"),
        };
        let Some(value) = value else { return choices };
        let Value::Object(map) = value else {
            self.refuse("choices", "expected an object of digits and steps");
            return choices;
        };
        if is_required && map.is_empty() {
            self.refuse("choices", "needs at least one digit");
        }

        for (digit, step) in map {
            let is_digit = matches!(digit.as_bytes(), [label] if Key::of_label(*label).is_some());
            let fault = match step.as_str().filter(|step| is_name(step)) {
                _ if !is_digit && digit != Choices::ANY => {
                    "is none of 0 to 9, *, #, and any".to_owned()
                }
                Some(step) => {
                    choices.0.insert(digit.as_str().into(), step.into());
                    continue;
                }
                None => NAME.to_owned(),
            };
            let path = format!("{}.choices.{}", self.path, escaped(digit));
            self.faults.push(FlowFault::new(path, fault));
        }
        choices
    }

    /// Notes every field that wasn't read.
    fn done(mut self) {
        let map = self.map;
        for name in map.keys() {
            if !self.read.contains(&name.as_str()) {
                self.refuse(name, "is no field here");
            }
        }
    }
}

const NAME: &str = "expected the name of a step: at most 40 of a to z, 0 to 9, _ and -";

fn is_name(name: &str) -> bool {
    let is_octet =
        |octet: u8| octet.is_ascii_lowercase() || octet.is_ascii_digit() || b"_-".contains(&octet);
    (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(is_octet)
}

fn text_expected(longest: usize) -> String {
    format!("expected a text of 1 to {longest} characters, without control characters")
}

fn as_text(value: &Value, longest: usize) -> Option<Box<str>> {
    let text = value.as_str()?;
    let is_sound = !text.trim().is_empty()
        && text.chars().count() <= longest
        && !text.chars().any(char::is_control);
    is_sound.then(|| text.into())
}

fn as_prompt(value: &Value) -> Result<Prompt, String> {
    const EXPECTED: &str = r#"expected one of {"id": …}, {"text": …}, {"bundled": …}"#;

    let map = value.as_object().filter(|map| map.len() == 1);
    let one = map.and_then(|map| map.iter().next());
    match one {
        Some((kind, id)) if kind == "id" => {
            let id = id.as_str().and_then(|id| Uuid::parse_str(id).ok());
            id.map(Prompt::Id)
                .ok_or_else(|| "expected the id of a prompt, a UUID".to_owned())
        }
        Some((kind, text)) if kind == "text" => as_text(text, LONGEST_TEXT)
            .map(Prompt::Text)
            .ok_or_else(|| text_expected(LONGEST_TEXT)),
        Some((kind, name)) if kind == "bundled" => {
            let named = |(known, _): &&(&str, Bundled)| Some(*known) == name.as_str();
            let found = Bundled::ALL.iter().find(named);
            found.map(|(_, one)| Prompt::Bundled(*one)).ok_or_else(|| {
                let names = Bundled::ALL.map(|(name, _)| name).join(", ");
                format!("is none of the bundled prompts: {names}")
            })
        }
        Some(_) | None => Err(EXPECTED.to_owned()),
    }
}

/// Makes a name fit for a path. A client may send any name, so blanks, control characters, colons and dots become `?`, and a long
/// name is cut.
fn escaped(name: &str) -> String {
    let cut = name.chars().take(LONGEST_NAME + 1);
    let plain = cut.map(|char| match char {
        char if char.is_whitespace() || char.is_control() || matches!(char, ':' | '.') => '?',
        char => char,
    });
    plain.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn faults(value: &Value) -> Vec<String> {
        let faults = Flow::read(value).err().unwrap_or_default();
        faults.iter().map(ToString::to_string).collect()
    }

    fn sound() -> Value {
        json!({
            "start": "hello",
            "steps": {
                "hello": {"do": "play", "prompt": {"bundled": "welcome"}, "next": "menu"},
                "menu": {"do": "menu", "prompt": {"text": "Press 1."}, "choices": {"1": "echo", "0": "desk"}, "otherwise": "bye"},
                "echo": {"do": "echo", "choices": {"any": "say"}, "next": "bye"},
                "say": {"do": "say_digits", "next": "echo"},
                "desk": {"do": "transfer", "destination": "Desk", "otherwise": "menu"},
                "bye": {"do": "play", "prompt": {"id": Uuid::nil()}, "next": "end"},
                "end": {"do": "hang_up"},
            },
        })
    }

    #[test]
    fn a_sound_flow_is_read_and_written_again() {
        let flow = Flow::read(&sound()).unwrap();
        assert_eq!(flow.longest_s, 600);
        let menu = flow.step("menu");
        assert!(
            matches!(
                menu,
                Some(Step::Menu {
                    timeout_s: 5,
                    retries: 2,
                    ..
                })
            ),
            "{menu:?}"
        );

        let written = serde_json::to_value(&flow).unwrap();
        assert_eq!(Flow::read(&written).as_ref(), Ok(&flow));
        let stored: Flow = serde_json::from_value(written).unwrap();
        assert_eq!(stored, flow);

        let prompts: Vec<String> = flow.prompts().map(|(path, _)| path).collect();
        let expected = ["bye", "hello", "menu"].map(|name| format!(".steps.{name}.prompt"));
        assert_eq!(prompts, expected);
    }

    #[test]
    fn the_flow_of_the_quickstart_is_sound() {
        let demo = serde_json::to_value(Flow::demo()).unwrap();
        assert_eq!(Flow::read(&demo), Ok(Flow::demo()));
    }

    #[test]
    fn all_faults_are_named_at_once() {
        let mut value = sound();
        value["longest_s"] = json!(5);
        value["colour"] = json!("red");
        value["steps"]["menu"]["choices"]["12"] = json!("echo");
        value["steps"]["menu"]["choices"]["2"] = json!("nowhere");
        value["steps"]["menu"]["timeout_s"] = json!(0);
        value["steps"]["echo"]["delay_ms"] = json!(2_001);
        value["steps"]["bye"]["prompt"] = json!({"bundled": "music"});
        value["steps"]["desk"]["destination"] = json!("");
        value["steps"]["end"] = json!({"do": "explode"});
        value["steps"]["a b/c"] = json!({"do": "hang_up"});
        let named = faults(&value);
        for path in [
            ".longest_s: expected a whole number from 10 to 3600",
            ".colour: is no field here",
            ".steps.menu.choices.12: is none of 0 to 9, *, #, and any",
            ".steps.menu.timeout_s: expected a whole number from 1 to 60",
            ".steps.echo.delay_ms: expected a whole number from 0 to 2000",
            ".steps.bye.prompt: is none of the bundled prompts: welcome, connecting, unavailable, invalid, goodbye",
            ".steps.desk.destination: expected a text of 1 to 200 characters, without control characters",
            ".steps.end.do: is none of play, menu, echo, say_digits, transfer, next_runtime, hang_up",
            ".steps.a?b/c: expected the name of a step: at most 40 of a to z, 0 to 9, _ and -",
        ] {
            assert!(
                named.iter().any(|fault| fault == path),
                "{path} in {named:#?}"
            );
        }
        assert_eq!(named.len(), 9, "{named:#?}");
    }

    #[test]
    fn a_flow_is_sound_as_a_whole() {
        let hang_up = json!({"do": "hang_up"});
        let play =
            |next: &str| json!({"do": "play", "prompt": {"bundled": "welcome"}, "next": next});
        let echo = |next: &str| json!({"do": "echo", "next": next});
        for (name, steps, expected) in [
            ("one step", json!({"a": hang_up}), &[][..]),
            (
                "undefined",
                json!({"a": play("b")}),
                &[r#".steps.a.next: "b" is no step of this flow"#][..],
            ),
            (
                "unreachable",
                json!({"a": hang_up, "b": play("a"), "c": hang_up}),
                &[
                    ".steps.b: is a step that no other leads to",
                    ".steps.c: is a step that no other leads to",
                ],
            ),
            (
                "a loop of prompts",
                json!({"a": play("b"), "b": play("c"), "c": play("b")}),
                &[".steps.b: turns in a loop that waits for no digit: b → c → b"],
            ),
            (
                "a prompt that leads to itself",
                json!({"a": play("a")}),
                &[".steps.a: turns in a loop that waits for no digit: a → a"],
            ),
            (
                "transfers in turn",
                json!({"a": {"do": "transfer", "otherwise": "b"}, "b": {"do": "transfer", "otherwise": "a"}}),
                &[".steps.a: turns in a loop that waits for no digit: a → b → a"],
            ),
            (
                "a loop that waits",
                json!({"a": play("b"), "b": echo("a")}),
                &[],
            ),
        ] {
            let flow = json!({"start": "a", "steps": steps});
            assert_eq!(faults(&flow), expected, "{name}");
        }
        let no_start = json!({"start": "b", "steps": {"a": hang_up}});
        assert_eq!(
            faults(&no_start),
            [r#".start: "b" is no step of this flow"#]
        );
    }

    #[test]
    fn a_wrong_name_of_a_step_is_shown_cut_alone() {
        let long = "x".repeat(100_000);
        let loops = json!({"do": "play", "prompt": {"bundled": "welcome"}, "next": "nowhere"});
        let flow = json!({"start": "a", "steps": {"a": {"do": "hang_up"}, long: loops}});
        let cut = "x".repeat(LONGEST_NAME + 1);
        assert_eq!(faults(&flow), [format!(".steps.{cut}: {NAME}")]);
    }

    #[test]
    fn a_flow_is_bounded() {
        let steps: Map<String, Value> = (0..=MOST_STEPS)
            .map(|at| (format!("s{at}"), json!({"do": "hang_up"})))
            .collect();
        assert_eq!(
            faults(&json!({"start": "s0", "steps": steps})),
            [".steps: expected an object of 1 to 50 steps"]
        );
        for (name, value, fault) in [
            ("no object", json!(7), ": expected an object"),
            ("nothing", json!({}), ".start: is required"),
            (
                "a long text",
                json!({"start": "a", "steps": {"a": {"do": "play", "prompt": {"text": "x".repeat(501)}, "next": "a"}}}),
                ".steps.a.prompt: expected a text of 1 to 500 characters, without control characters",
            ),
            (
                "two kinds of prompt",
                json!({"start": "a", "steps": {"a": {"do": "play", "prompt": {"text": "x", "id": "y"}, "next": "a"}}}),
                r#".steps.a.prompt: expected one of {"id": …}, {"text": …}, {"bundled": …}"#,
            ),
        ] {
            assert!(
                faults(&value).contains(&fault.to_owned()),
                "{name}: {:?}",
                faults(&value)
            );
        }
    }
}
