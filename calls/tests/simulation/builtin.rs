//! Built-in agents in the place of runtimes: sounds that end sooner or later, keys that the caller presses, hand-offs, and bots that follow. The
//! flow alone is played; no audio passes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use trunkline_calls::CallKey;
use trunkline_calls::flow::Sound;
use trunkline_model::builtin::Flow;
use trunkline_model::settings::{BotProtocol, OnClose, Runtime, Wake};
use trunkline_sip::moment::Moment;

use crate::dice::Dice;
use crate::node::{Node, Wish};
use crate::plan::{Agent, Plan};
use crate::trunk::BOT;
use crate::world::{Occasion, World};

/// Calls from the first seed on: enough that everything in [`SURE`] happens.
const CALLS: usize = 5_000;
/// Calls from the fresh seed of one run.
const FRESH_CALLS: usize = 3_000;
/// Seeds that found a fault, and the fault.
const FOUND: [(u64, &str); 2] = [
    (2, "a flow went on after our BYE, until that was answered"),
    (
        185,
        "the timer of a flow was left when a transfer removed it",
    ),
];

/// Events of any run of some length.
const SURE: [&str; 13] = [
    "Refused(503)",
    "Up",
    "bot closed",
    "bot started",
    "completed hung up",
    "flow begins",
    "flow hands off",
    "flow hears a key",
    "flow plays a sound that is too late",
    "flow sends the echo",
    "held",
    "transfer by bridge completed",
    "transferred hung up",
];

/// The steps of the agents: each kind of step, and each way out of it.
const FLOW: &str = r##"{
    "start": "welcome",
    "longest_s": 120,
    "steps": {
        "welcome": {"do": "play", "prompt": {"bundled": "welcome"}, "skippable": true, "next": "menu"},
        "menu": {"do": "menu", "prompt": {"text": "what now"}, "timeout_s": 2, "retries": 1, "invalid": {"bundled": "invalid"}, "otherwise": "echo",
            "choices": {"0": "person", "1": "named", "2": "other", "#": "goodbye", "3": "echo"}},
        "echo": {"do": "echo", "choices": {"0": "person", "#": "goodbye", "any": "say"}, "longest_s": 20, "next": "goodbye"},
        "say": {"do": "say_digits", "next": "echo"},
        "person": {"do": "transfer", "otherwise": "echo"},
        "named": {"do": "transfer", "destination": "nobody has this name", "otherwise": "menu"},
        "other": {"do": "next_runtime"},
        "goodbye": {"do": "play", "prompt": {"bundled": "goodbye"}, "next": "end"},
        "end": {"do": "hang_up"}
    }
}"##;

fn flow() -> Box<Flow> {
    serde_json::from_str(FLOW).expect("a flow")
}

/// The flow first, then a bot.
pub(crate) fn flow_then_bot() -> Runtime {
    Runtime::Builtin {
        flow: flow(),
        fallbacks: vec![BOT.into()],
    }
}

/// A bot first, then the flow.
pub(crate) fn bot_then_flow() -> Runtime {
    Runtime::WebSocket {
        uri: BOT.into(),
        protocol: BotProtocol::Twilio,
        fallbacks: vec!["builtin:".into()],
        wake: Wake::Ringing,
        on_close: OnClose::NextRuntime,
        status_callback: None,
        status_callback_events: Vec::new(),
        flow: Some(flow()),
    }
}

/// A runtime over SIP at this URI first, then the flow.
pub(crate) fn sip_then_flow(at: Box<str>) -> Runtime {
    let mut runtime = Runtime::sip(at);
    if let Runtime::Sip {
        fallbacks,
        flow: held,
        ..
    } = &mut runtime
    {
        fallbacks.push("builtin:".into());
        *held = Some(flow());
    }
    runtime
}

/// The flows that run, by the serial of the last sound of each.
#[derive(Debug, Default)]
pub(crate) struct Playing(HashMap<CallKey, u32>);

impl Playing {
    /// Takes a sound. Returns whether it is the first of its call, or what is wrong with it.
    fn play(&mut self, call: CallKey, serial: u32) -> Result<bool, &'static str> {
        match self.0.insert(call, serial) {
            None => Ok(true),
            // A flow that follows a bot, which followed the same flow, begins anew.
            Some(before) if serial > before || serial == 1 => Ok(false),
            Some(_) => Err("a sound is older than the one before"),
        }
    }

    fn is_last(&self, call: CallKey, serial: u32) -> bool {
        self.0.get(&call) == Some(&serial)
    }

    /// The call's media are closed.
    pub(crate) fn close(&mut self, call: CallKey) {
        self.0.remove(&call);
    }
}

/// Something that happens to a flow.
#[derive(Copy, Clone, Debug)]
pub(crate) enum FlowStep {
    /// The sound of this serial has ended, or can't be played.
    Played(CallKey, u32),
    /// The caller presses a key.
    Key(CallKey, u8),
    /// The settings for a hand-off are at hand.
    HandOff(CallKey),
}

impl World {
    /// A flow plays a sound; the keys of its caller are drawn at the first.
    pub(crate) fn play_sound(&mut self, key: CallKey, serial: u32, is_first: bool) {
        let after = match self.bot_dice.below(10) {
            // It can't be played.
            0 => Duration::ZERO,
            _ => self.bot_dice.millis(20, 4_000),
        };
        self.flow_step(after, FlowStep::Played(key, serial));
        if !is_first {
            return;
        }

        for _ in 0..self.bot_dice.below(6) {
            let pressed = self.bot_dice.pick(&[0, 0, 1, 2, 3, 5, 10, 11]);
            let after = self.bot_dice.millis(0, 40_000);
            self.flow_step(after, FlowStep::Key(key, pressed));
        }
    }

    pub(crate) fn hand_off(&mut self, key: CallKey) {
        let after = self.bot_dice.millis(0, 100);
        self.flow_step(after, FlowStep::HandOff(key));
    }

    fn flow_step(&mut self, after: Duration, step: FlowStep) {
        self.schedule(after, Occasion::Flow(self.boot, step));
    }

    pub(crate) fn flow_goes_on(&mut self, step: FlowStep) {
        self.note(|| format!("flow: {step:?}"));
        self.node.flow_goes_on(step, self.now);
    }
}

impl Node {
    /// A call's flow has a sound played.
    pub(crate) fn play_sound(&mut self, call: CallKey, serial: u32, sound: &Sound) {
        if !self.media.contains(&call) || self.bots.has(call) {
            let fault = "a sound for media that isn't open, or beside a bot";
            self.faults.push(fault.into());
        }
        let is_first = match self.playing.play(call, serial) {
            Ok(is_first) => is_first,
            Err(fault) => return self.faults.push(fault.into()),
        };
        if is_first {
            self.bots_seen.push("flow begins");
        }
        match sound {
            Sound::Prompt(_) | Sound::Keys(_) => {
                self.wishes.push(Wish::PlaySound(call, serial, is_first));
            }
            Sound::Echo(_) => self.bots_seen.push("flow sends the echo"),
            Sound::Silence => {}
        }
    }

    fn flow_goes_on(&mut self, step: FlowStep, now: Moment) {
        match step {
            FlowStep::Played(call, serial) => {
                if self.media.contains(&call) && !self.playing.is_last(call, serial) {
                    self.bots_seen.push("flow plays a sound that is too late");
                }
                self.calls
                    .handle_played(&mut self.endpoint, call, serial, now);
            }
            FlowStep::Key(call, event) => {
                if self.media.contains(&call) {
                    self.bots_seen.push("flow hears a key");
                    let view = Arc::clone(self.view());
                    self.calls
                        .handle_media_digit(&mut self.endpoint, &view, call, event, now);
                }
            }
            FlowStep::HandOff(call) => {
                self.bots_seen.push("flow hands off");
                let view = Arc::clone(self.view());
                self.calls
                    .handle_hand_off(&mut self.endpoint, &view, call, now);
            }
        }
        self.settle(now);
    }
}

/// The plan of a seed with flows for all its agents, as [`crate::bots::plan`] has bots.
pub(crate) fn plan(seed: u64) -> Plan {
    let mut dice = Dice::new(seed ^ 0xf10);
    let mut plan = Plan::draw(seed);
    for call in &mut plan.calls {
        call.agent = dice.pick(&[Agent::FlowThenBot, Agent::FlowThenBot, Agent::BotThenFlow]);
    }
    plan
}

#[test]
fn every_call_with_a_flow_reaches_its_end_and_nothing_is_left() {
    crate::run_known(plan, CALLS, &SURE);
}

#[test]
fn fresh_seeds_with_flows_find_no_fault() {
    crate::run_fresh(plan, FRESH_CALLS);
}

#[test]
fn found_seeds_with_flows_stay_fixed() {
    crate::stay_fixed(plan, &FOUND);
}
