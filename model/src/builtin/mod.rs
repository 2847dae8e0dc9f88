//! The flow of a built-in agent: named steps, each with what it does and the step that follows. Plain data; `calls` runs it.
//!
//! [`Flow::read`] reads it from JSON and names every fault by its path. A flow that was read is sound: each step that is
//! named exists, each that exists is reached, and no loop turns without waiting for the caller.

mod check;
mod fault;
mod read;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use fault::FlowFault;

/// Entry in an agent's list of runtimes that names the agent's own flow.
pub const ENTRY: &str = "builtin:";

/// Most steps of a flow.
pub const MOST_STEPS: usize = 50;
/// Longest name of a step, in octets.
pub const LONGEST_NAME: usize = 40;
/// Longest text that is spoken, in characters.
pub const LONGEST_TEXT: usize = 500;
/// Longest name of a destination, in characters.
pub const LONGEST_DESTINATION: usize = 200;
/// Seconds of a call that a flow may take.
pub const CALL_SECONDS: std::ops::RangeInclusive<u32> = 10..=3_600;
/// Seconds of an echo.
pub const ECHO_SECONDS: std::ops::RangeInclusive<u32> = 1..=3_600;
/// Milliseconds by which an echo comes late.
pub const ECHO_DELAY: std::ops::RangeInclusive<u32> = 0..=2_000;
/// Seconds that a menu waits for a digit.
pub const MENU_SECONDS: std::ops::RangeInclusive<u32> = 1..=60;
/// Times that a menu asks again.
pub const MENU_RETRIES: std::ops::RangeInclusive<u32> = 0..=10;

/// Steps of a built-in agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "BuiltinFlow")]
pub struct Flow {
    /// Name of the first step.
    pub start: Box<str>,
    /// Steps by their names.
    pub steps: BTreeMap<Box<str>, Step>,
    /// Seconds after which the agent hangs up, at whatever step it is.
    #[serde(default = "ten_minutes")]
    pub longest_s: u32,
}

/// One step.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
#[schemars(rename = "BuiltinStep")]
pub enum Step {
    /// Plays a prompt to its end.
    Play {
        /// Prompt to play.
        prompt: Prompt,
        /// A digit ends it; the next step gets the digit either way.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        skippable: bool,
        /// Step that follows.
        next: Box<str>,
    },
    /// Waits for a digit.
    Menu {
        /// Prompt that asks; a digit ends it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        prompt: Option<Prompt>,
        /// Step for each digit (`0` to `9`, `*`, `#`); `any` means all others.
        choices: Choices,
        /// Seconds to wait after the prompt.
        #[serde(default = "five_seconds")]
        timeout_s: u32,
        /// Times that the menu asks again, after silence or a digit without a step.
        #[serde(default = "two_retries")]
        retries: u32,
        /// Prompt after a digit without a step.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        invalid: Option<Prompt>,
        /// Step once it asks no more.
        otherwise: Box<str>,
    },
    /// Sends the caller its own audio.
    Echo {
        /// Milliseconds by which the echo comes late.
        #[serde(default = "half_a_second")]
        delay_ms: u32,
        /// Step for each digit (`0` to `9`, `*`, `#`); `any` means all others. A digit without a step changes nothing.
        #[serde(default, skip_serializing_if = "Choices::is_empty")]
        choices: Choices,
        /// Seconds after which the next step follows.
        #[serde(default = "five_minutes")]
        longest_s: u32,
        /// Step that follows.
        next: Box<str>,
    },
    /// Says the digits that were heard since they were last said.
    SayDigits {
        /// Step that follows.
        next: Box<str>,
    },
    /// Hands the caller off to one of the agent's destinations.
    Transfer {
        /// Name of the destination; without one, the first of the agent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        destination: Option<Box<str>>,
        /// Step once the caller can't be handed off.
        otherwise: Box<str>,
    },
    /// Goes to the agent's next runtime.
    NextRuntime,
    /// Hangs up.
    HangUp,
}

/// Audio that is played.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "BuiltinPrompt")]
pub enum Prompt {
    /// A prompt that the org has uploaded.
    Id(Uuid),
    /// A text, which the configured synthesiser speaks.
    Text(Box<str>),
    /// A prompt that comes with Trunkline.
    Bundled(Bundled),
}

/// Prompts that come with Trunkline.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "BundledPrompt")]
pub enum Bundled {
    /// Greets, and says what the quickstart's agent does.
    Welcome,
    /// "Connecting you."
    Connecting,
    /// "Nobody can be reached at the moment."
    Unavailable,
    /// "Sorry, I didn't get that."
    Invalid,
    /// "Goodbye."
    Goodbye,
}

impl Bundled {
    /// All variants, by their name in the API.
    pub const ALL: [(&'static str, Self); 5] = [
        ("welcome", Self::Welcome),
        ("connecting", Self::Connecting),
        ("unavailable", Self::Unavailable),
        ("invalid", Self::Invalid),
        ("goodbye", Self::Goodbye),
    ];
}

/// Key of a telephone: 0 to 9, `*` and `#`.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Key(u8);

impl Key {
    /// Returns the key of an event (RFC 4733 §3.2); `None` for one that a telephone's user can't press.
    pub const fn of_event(event: u8) -> Option<Self> {
        match event {
            0..=9 => Some(Self(b'0' + event)),
            10 => Some(Self(b'*')),
            11 => Some(Self(b'#')),
            _ => None,
        }
    }

    /// Returns the key with this label.
    pub const fn of_label(label: u8) -> Option<Self> {
        match label {
            b'0'..=b'9' | b'*' | b'#' => Some(Self(label)),
            _ => None,
        }
    }

    /// Returns its label.
    pub const fn label(self) -> u8 {
        self.0
    }
}

/// Steps by the digits that lead to them.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Choices(pub(crate) BTreeMap<Box<str>, Box<str>>);

impl Choices {
    /// Label for digits that aren't named.
    pub const ANY: &'static str = "any";

    /// Returns the step to which a key leads.
    pub fn of(&self, key: Key) -> Option<&str> {
        let label = [key.label()];
        let label = std::str::from_utf8(&label).unwrap_or_default();
        let step = self.0.get(label).or_else(|| self.0.get(Self::ANY))?;
        Some(step)
    }

    /// Returns whether no digit leads to a step.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Flow {
    /// Flow of the quickstart's agent: it greets, echoes, says the digits that it hears, and hands off on 0.
    ///
    /// # Panics
    /// Never: a test reads the same flow.
    pub fn demo() -> Self {
        serde_json::from_str(include_str!("demo.json")).expect("a test has read it")
    }

    /// Returns the step of this name.
    pub fn step(&self, name: &str) -> Option<&Step> {
        self.steps.get(name)
    }

    /// Returns the longest time of a call with this flow.
    pub fn longest(&self) -> Duration {
        Duration::from_secs(u64::from(self.longest_s))
    }

    /// Returns all prompts of the flow, with the path of each.
    pub fn prompts(&self) -> impl Iterator<Item = (String, &Prompt)> {
        self.steps.iter().flat_map(|(name, step)| {
            step.prompts()
                .map(move |(field, prompt)| (format!(".steps.{name}.{field}"), prompt))
        })
    }
}

impl Step {
    fn prompts(&self) -> impl Iterator<Item = (&'static str, &Prompt)> {
        let [prompt, invalid] = match self {
            Self::Play { prompt, .. } => [Some(prompt), None],
            Self::Menu {
                prompt, invalid, ..
            } => [prompt.as_ref(), invalid.as_ref()],
            Self::Echo { .. }
            | Self::SayDigits { .. }
            | Self::Transfer { .. }
            | Self::NextRuntime
            | Self::HangUp => [None, None],
        };

        let named = [("prompt", prompt), ("invalid", invalid)];
        named
            .into_iter()
            .filter_map(|(field, prompt)| Some((field, prompt?)))
    }
}

impl fmt::Display for Prompt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => id.fmt(f),
            Self::Text(_) => f.write_str("a text"),
            Self::Bundled(bundled) => {
                let named = Bundled::ALL.iter().find(|(_, one)| one == bundled);
                f.write_str(named.map_or("bundled", |(name, _)| name))
            }
        }
    }
}

pub(crate) const fn ten_minutes() -> u32 {
    600
}

pub(crate) const fn five_minutes() -> u32 {
    300
}

pub(crate) const fn five_seconds() -> u32 {
    5
}

pub(crate) const fn two_retries() -> u32 {
    2
}

pub(crate) const fn half_a_second() -> u32 {
    500
}
