//! The machine that runs a flow: digits, ends of clips and time go in, actions come out. Knows nothing of calls.
//!
//! It has one timer, [`Machine::due`]. In a valid flow every loop waits for a digit, and the flow's longest time ends even such a loop.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use trunkline_model::builtin::{Choices, Flow, Key, Prompt, Step};
use trunkline_model::settings::Runtime;
use trunkline_sip::moment::Moment;

/// Digits that are kept for steps to come, and for being said. The oldest are dropped.
const MOST_KEYS: usize = 32;
/// Steps that one input may lead through. A valid flow needs fewer; beyond it the flow hangs up.
const MOST_TURNS: usize = 200;
/// Time before a BYE in which the last words get through the peer's jitter buffer.
const LAST_WORDS: Duration = Duration::from_millis(300);
/// Time that a caller stays after a transfer of unknown outcome.
const UNKNOWN_OUTCOME: Duration = Duration::from_secs(10);

/// Audio for the peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sound {
    /// A prompt, once.
    Prompt(Prompt),
    /// Names of keys, by their labels.
    Keys(Box<[u8]>),
    /// The peer's own audio, after this delay.
    Echo(Duration),
    /// Silence.
    Silence,
}

/// Action that the machine requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// Play this to the peer. The end of a prompt or of keys is reported with the serial.
    Play { serial: u32, sound: Sound },
    /// Transfer the caller to the destination of this name, or to the agent's first.
    Transfer(Option<Box<str>>),
    /// Go to the agent's next runtime.
    NextRuntime,
    /// Hang up.
    HangUp,
}

/// Failure of a transfer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum TransferFailure {
    /// The caller is still here.
    Failed,
    /// The PBX may have moved the caller.
    Unknown,
}

/// A flow that runs.
#[derive(Debug)]
pub(crate) struct Machine {
    runtime: Arc<Runtime>,
    state: State,
    /// Name of the step that runs.
    step: Box<str>,
    /// Serial of the last sound.
    serial: u32,
    /// Digits that no step has taken yet.
    typed: VecDeque<Key>,
    /// Digits that haven't been said yet.
    unsaid: VecDeque<Key>,
    /// End of the flow's longest time, at which it hangs up; `None` before it begins.
    ends_at: Option<Moment>,
    actions: VecDeque<Action>,
}

/// State of the step that runs. If the end of a sound is never reported, the flow's longest time ends the call.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum State {
    /// The call isn't up yet.
    Idle,
    /// A prompt, or keys, to their end.
    Playing,
    /// A menu.
    Asking { left: u32, phase: Phase },
    /// An echo, until this time.
    Echoing { until: Moment },
    /// The transfer has no outcome yet. Its own timers end it; the flow's don't run meanwhile.
    Transferring,
    /// The outcome is unknown; the step goes on at this time if the caller is still here.
    Parting { until: Moment },
    /// The last words are on their way.
    Closing { until: Moment },
    /// Another runtime has the call, or it is over.
    Over,
}

/// Phase of a menu.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Phase {
    /// The prompt plays that asks.
    Prompt,
    /// The prompt plays that says that a digit leads nowhere.
    Invalid,
    /// A digit is awaited until this time.
    Waiting { until: Moment },
}

impl Machine {
    /// Makes ready to run the flow of a runtime that has one.
    pub(crate) const fn new(runtime: Arc<Runtime>, step: Box<str>) -> Self {
        Self {
            runtime,
            state: State::Idle,
            step,
            serial: 0,
            typed: VecDeque::new(),
            unsaid: VecDeque::new(),
            ends_at: None,
            actions: VecDeque::new(),
        }
    }

    /// Takes the next action.
    pub(crate) fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Returns the time at which [`Machine::handle_timeout`] is due.
    pub(crate) fn due(&self) -> Option<Moment> {
        let own = match self.state {
            // A transfer reports its outcome by timers of its own. Even the longest time of the flow doesn't end it.
            State::Idle | State::Over | State::Transferring => return None,
            State::Playing => None,
            State::Asking { phase, .. } => match phase {
                Phase::Waiting { until } => Some(until),
                Phase::Prompt | Phase::Invalid => None,
            },
            State::Echoing { until } | State::Parting { until } | State::Closing { until } => {
                Some(until)
            }
        };
        own.into_iter().chain(self.ends_at).min()
    }

    /// Begins the flow: the call is up.
    pub(crate) fn handle_start(&mut self, now: Moment) {
        if self.state != State::Idle {
            return;
        }
        let runtime = Arc::clone(&self.runtime);
        let Some(flow) = runtime.flow() else {
            return self.hang_up();
        };
        self.ends_at = Some(now + flow.longest());
        self.go(flow, flow.start.clone(), now);
    }

    /// Handles a key that the peer has pressed.
    pub(crate) fn handle_key(&mut self, key: Key, now: Moment) {
        match self.state {
            State::Idle
            | State::Transferring
            | State::Parting { .. }
            | State::Closing { .. }
            | State::Over => return,
            State::Playing | State::Asking { .. } | State::Echoing { .. } => {}
        }
        keep(&mut self.unsaid, key);
        keep(&mut self.typed, key);

        let runtime = Arc::clone(&self.runtime);
        let Some(flow) = runtime.flow() else { return };
        // A key that skips a prompt isn't taken by it: the menu that comes next takes it.
        let next = match (flow.step(&self.step), self.state) {
            (
                Some(Step::Play {
                    skippable: true,
                    next,
                    ..
                }),
                State::Playing,
            ) => Some(next.clone()),
            (Some(step @ (Step::Menu { .. } | Step::Echo { .. })), _) => self.take_typed(step, now),
            (Some(_) | None, _) => None,
        };
        if let Some(next) = next {
            self.go(flow, next, now);
        }
    }

    /// Handles the end of the sound with this serial, or that it could not be played.
    pub(crate) fn handle_played(&mut self, serial: u32, now: Moment) {
        // The end of a sound that another one has replaced.
        if serial != self.serial {
            return;
        }
        let runtime = Arc::clone(&self.runtime);
        let Some(flow) = runtime.flow() else { return };
        let Some(step) = flow.step(&self.step) else {
            return;
        };
        match (self.state, step) {
            (State::Playing, Step::Play { next, .. } | Step::SayDigits { next }) => {
                self.go(flow, next.clone(), now);
            }
            (State::Asking { left, phase }, Step::Menu { timeout_s, .. }) => match phase {
                Phase::Prompt => self.await_digit(left, *timeout_s, now),
                Phase::Invalid => self.ask(left, step, now),
                Phase::Waiting { .. } => {}
            },
            (_, _) => {}
        }
    }

    /// Handles the timeout at [`Machine::due`].
    pub(crate) fn handle_timeout(&mut self, now: Moment) {
        if self.due().is_none_or(|due| now < due) {
            return;
        }
        if self.ends_at.is_some_and(|end| end <= now) {
            return self.hang_up();
        }

        let runtime = Arc::clone(&self.runtime);
        let Some(flow) = runtime.flow() else { return };
        let Some(step) = flow.step(&self.step) else {
            return self.hang_up();
        };
        let next = match (self.state, step) {
            (State::Asking { left, .. }, Step::Menu { otherwise, .. }) => match left {
                0 => Some(otherwise),
                _ => return self.ask(left - 1, step, now),
            },
            (State::Echoing { .. }, Step::Echo { next, .. }) => Some(next),
            (State::Parting { .. }, Step::Transfer { otherwise, .. }) => Some(otherwise),
            (_, _) => None,
        };
        match next {
            Some(next) => self.go(flow, next.clone(), now),
            None => self.hang_up(),
        }
    }

    /// Handles a transfer that has failed, or whose outcome is unknown.
    pub(crate) fn handle_transfer_failed(&mut self, why: TransferFailure, now: Moment) {
        // A transfer that the API has ordered isn't the flow's.
        if self.state != State::Transferring {
            return;
        }
        let runtime = Arc::clone(&self.runtime);
        let Some(flow) = runtime.flow() else { return };
        match (why, flow.step(&self.step)) {
            (TransferFailure::Unknown, _) => {
                let until = now + UNKNOWN_OUTCOME;
                self.state = State::Parting { until };
            }
            (TransferFailure::Failed, Some(Step::Transfer { otherwise, .. })) => {
                self.go(flow, otherwise.clone(), now);
            }
            (TransferFailure::Failed, _) => self.hang_up(),
        }
    }

    /// Runs steps until one waits.
    fn go(&mut self, flow: &Flow, first: Box<str>, now: Moment) {
        let mut next = Some(first);
        // Bounded, since a flow that isn't sound could go in a circle for ever and stop the shard.
        for _ in 0..MOST_TURNS {
            let Some(name) = next else { return };
            let Some(step) = flow.step(&name) else { break };
            self.step = name;
            next = self.begin(step, now);
        }
        self.hang_up();
    }

    /// Begins a step; returns the next one where it has ended already.
    fn begin(&mut self, step: &Step, now: Moment) -> Option<Box<str>> {
        match step {
            Step::Play { prompt, .. } => {
                self.state = State::Playing;
                self.play(Sound::Prompt(prompt.clone()));
            }

            Step::Menu { retries, .. } => {
                if self.typed.is_empty() {
                    self.ask(*retries, step, now);
                } else {
                    // Enters the menu without its prompt: the digits are there already.
                    self.await_digit(*retries, 0, now);
                    return self.take_typed(step, now);
                }
            }

            Step::Echo {
                delay_ms,
                longest_s,
                ..
            } => {
                let longest = Duration::from_secs(u64::from(*longest_s));
                let until = now + longest;
                self.state = State::Echoing { until };

                if let Some(next) = self.take_typed(step, now) {
                    return Some(next);
                }
                let delay = Duration::from_millis(u64::from(*delay_ms));
                self.play(Sound::Echo(delay));
            }

            Step::SayDigits { next } => {
                let keys: SmallVec<[u8; MOST_KEYS]> =
                    self.unsaid.drain(..).map(Key::label).collect();
                if keys.is_empty() {
                    return Some(next.clone());
                }
                self.state = State::Playing;
                self.play(Sound::Keys(keys.as_slice().into()));
            }

            Step::Transfer { destination, .. } => {
                // Silence replaces an echo of the step before.
                self.state = State::Transferring;
                self.play(Sound::Silence);
                self.actions
                    .push_back(Action::Transfer(destination.clone()));
            }

            Step::NextRuntime => {
                self.state = State::Over;
                self.actions.push_back(Action::NextRuntime);
            }
            Step::HangUp => {
                let until = now + LAST_WORDS;
                self.state = State::Closing { until };
            }
        }
        None
    }

    /// Asks for a digit.
    fn ask(&mut self, left: u32, step: &Step, now: Moment) {
        let Step::Menu {
            prompt, timeout_s, ..
        } = step
        else {
            return;
        };
        match prompt {
            Some(prompt) => {
                self.state = State::Asking {
                    left,
                    phase: Phase::Prompt,
                };
                self.play(Sound::Prompt(prompt.clone()));
            }
            None => {
                // An echo of the step before goes on until another sound replaces it.
                self.play(Sound::Silence);
                self.await_digit(left, *timeout_s, now);
            }
        }
    }

    fn await_digit(&mut self, left: u32, timeout_s: u32, now: Moment) {
        let until = now + Duration::from_secs(u64::from(timeout_s));
        self.state = State::Asking {
            left,
            phase: Phase::Waiting { until },
        };
    }

    /// Gives the step the digits that were typed, until one leads on.
    fn take_typed(&mut self, step: &Step, now: Moment) -> Option<Box<str>> {
        while let Some(key) = self.typed.pop_front() {
            let next = match step {
                Step::Menu { choices, .. } => match choices.of(key) {
                    Some(next) => Some(next.into()),
                    None => self.refuse_key(step, now),
                },
                Step::Echo { choices, .. } => Choices::of(choices, key).map(Into::into),
                Step::Play { .. }
                | Step::SayDigits { .. }
                | Step::Transfer { .. }
                | Step::NextRuntime
                | Step::HangUp => None,
            };
            if next.is_some() {
                return next;
            }
        }
        None
    }

    /// A digit leads nowhere: the menu asks again, or goes on.
    fn refuse_key(&mut self, step: &Step, now: Moment) -> Option<Box<str>> {
        let (
            State::Asking { left, .. },
            Step::Menu {
                invalid, otherwise, ..
            },
        ) = (self.state, step)
        else {
            return None;
        };

        let Some(left) = left.checked_sub(1) else {
            return Some(otherwise.clone());
        };

        match invalid {
            Some(invalid) => {
                self.state = State::Asking {
                    left,
                    phase: Phase::Invalid,
                };
                self.play(Sound::Prompt(invalid.clone()));
            }
            None => self.ask(left, step, now),
        }
        None
    }

    fn play(&mut self, sound: Sound) {
        self.serial += 1;
        let serial = self.serial;
        self.actions.push_back(Action::Play { serial, sound });
    }

    fn hang_up(&mut self) {
        self.state = State::Over;
        self.actions.push_back(Action::HangUp);
    }
}

/// Keeps a key, and the last ones of too many.
fn keep(keys: &mut VecDeque<Key>, key: Key) {
    if keys.len() == MOST_KEYS {
        keys.pop_front();
    }
    keys.push_back(key);
}

#[cfg(test)]
mod tests;
