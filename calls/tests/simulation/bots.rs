//! Bots on a WebSocket in the place of runtimes: they accept late, refuse, keep silent, die in the call, or have it ended by a request. What is
//! said over the WebSocket is no matter of the calls, and passes outside of them.

use std::collections::HashMap;
use std::time::Duration;

use trunkline_calls::media::bot::{BotFailure, BotFault, BotGone};
use trunkline_calls::{CallKey, HangUpRequester};
use trunkline_sip::fault::Fault;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use crate::dice::Dice;
use crate::node::{self, Node, ORG, Wish};
use crate::plan::{Agent, Plan};
use crate::world::{Occasion, World};

/// Calls from the first seed on: enough that everything in [`SURE`] happens.
const CALLS: usize = 5_000;
/// Calls from the fresh seed of one run.
const FRESH_CALLS: usize = 3_000;
/// Seeds that found a fault, and the fault.
const FOUND: [(u64, &str); 4] = [
    (
        620,
        "a callee was left on the line where its bot couldn't be reached during a transfer",
    ),
    (
        9_196_224_028_978_998_851,
        "attempts at the callee and at its bot had the same numbers",
    ),
    (
        10_396_599_265_078_739_191,
        "a bot that had closed before the ACK was given the call at that",
    ),
    (
        17_907_620_783_953_939_096,
        "a runtime was put on hold since its caller refused to have its media back",
    ),
];

/// Events of any run of some length.
const SURE: [&str; 15] = [
    "Refused(480)",
    "Refused(503)",
    "Up",
    "bot closed",
    "bot comes too late",
    "bot ends the call by a request",
    "bot refuses",
    "bot silent",
    "bot started",
    "completed hung up",
    "completed runtime_unreachable",
    "failed runtime_unreachable",
    "held",
    "transfer by bridge completed",
    "transferred hung up",
];

/// The same where runtimes over SIP come first.
const SURE_SIP_FIRST: [&str; 10] = [
    "Refused(480)",
    "Refused(503)",
    "Up",
    "bot closed",
    "bot refuses",
    "bot started",
    "completed hung up",
    "flow begins",
    "held",
    "transfer by bridge completed",
];

/// Behaviour of a bot in a call.
#[derive(Copy, Clone, Debug)]
pub(crate) struct BotPlan {
    pub(crate) after: Duration,
    pub(crate) answer: Answer,
    /// It goes this long after it has accepted.
    pub(crate) leaves: Option<(Duration, Leave)>,
}

/// Its answer to the handshake.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    Accepts,
    Refuses,
    /// It says nothing until the caller gives up.
    Silence,
}

/// The way in which it goes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Leave {
    /// It closes the WebSocket.
    Closes,
    /// It has the call ended by a request, and closes when it hears of that.
    Asks,
}

impl BotPlan {
    pub(crate) fn draw(dice: &mut Dice) -> Self {
        let (answer, after) = match dice.below(100) {
            0..70 => (Answer::Accepts, dice.millis(0, 4_900)),
            70..90 => (Answer::Refuses, dice.millis(0, 2_000)),
            _ => (Answer::Silence, Duration::from_secs(5)),
        };
        let leave = dice.pick(&[Leave::Closes, Leave::Closes, Leave::Asks]);
        let leaves = dice.maybe(50, 0, 30_000);
        Self {
            after,
            answer,
            leaves: leaves.map(|after| (after, leave)),
        }
    }

    pub(crate) fn failure(self) -> Option<BotFailure> {
        let fault = match self.answer {
            Answer::Accepts => return None,
            Answer::Refuses => BotFault::Broken(Fault::Refused),
            Answer::Silence => BotFault::Silence,
        };
        Some(BotFailure {
            address: None,
            fault,
        })
    }
}

/// The bots that are attached to calls of the node.
#[derive(Debug, Default)]
pub(crate) struct Attached {
    bots: HashMap<CallKey, Seat>,
    count: u32,
}

#[derive(Debug)]
struct Seat {
    number: u32,
    is_started: bool,
}

impl Attached {
    /// A bot is attached to a call. Returns its number.
    pub(crate) fn attach(&mut self, call: CallKey) -> u32 {
        self.count += 1;
        let seat = Seat {
            number: self.count,
            is_started: false,
        };
        self.bots.insert(call, seat);
        self.count
    }

    pub(crate) fn has(&self, call: CallKey) -> bool {
        self.bots.contains_key(&call)
    }

    /// The call's bot gets the call. Returns what is wrong with that.
    pub(crate) fn start(&mut self, call: CallKey) -> Option<&'static str> {
        match self.bots.get_mut(&call) {
            None => Some("a call given to a bot that isn't there"),
            Some(seat) if seat.is_started => Some("a call given to its bot twice"),
            Some(seat) => {
                seat.is_started = true;
                None
            }
        }
    }

    /// The bot of this number goes, if it is still attached.
    pub(crate) fn leave(&mut self, call: CallKey, number: u32) -> bool {
        let is_there = self
            .bots
            .get(&call)
            .is_some_and(|seat| seat.number == number);
        if is_there {
            self.bots.remove(&call);
        }
        is_there
    }

    /// The call's media are closed, and its bot with them.
    pub(crate) fn close(&mut self, call: CallKey) {
        self.bots.remove(&call);
    }

    pub(crate) fn len(&self) -> usize {
        self.bots.len()
    }
}

/// Something that a bot does.
#[derive(Copy, Clone, Debug)]
pub(crate) enum BotStep {
    /// It answers the handshake, for the call of this session.
    Answers(CallKey, Uuid, BotPlan),
    /// The bot of this number goes.
    Leaves((CallKey, u32, Uuid), Leave),
}

impl World {
    /// A bot is dialled.
    pub(crate) fn dial_bot(&mut self, key: CallKey, session: Uuid) {
        let plan = BotPlan::draw(&mut self.bot_dice);
        let step = BotStep::Answers(key, session, plan);
        self.schedule(plan.after, Occasion::Bot(self.boot, step));
    }

    pub(crate) fn bot_acts(&mut self, step: BotStep) {
        self.note(|| format!("bot: {step:?}"));
        match step {
            BotStep::Answers(key, session, plan) => {
                let number = self.node.bot_answers(key, plan, self.now);
                if let Some((number, (after, leave))) = number.zip(plan.leaves) {
                    let step = BotStep::Leaves((key, number, session), leave);
                    self.schedule(after, Occasion::Bot(self.boot, step));
                }
            }
            BotStep::Leaves(bot, leave) => self.node.bot_leaves(bot, leave, self.now),
        }
    }
}

impl Node {
    /// A call wants a bot.
    pub(crate) fn dial_bot(&mut self, call: CallKey, session: Uuid) {
        if !self.media.contains(&call) || self.bots.has(call) {
            let fault = "a bot dialled without media, or beside another";
            self.faults.push(fault.into());
        }
        self.wishes.push(Wish::DialBot(call, session));
    }

    /// The call's bot is given the call.
    pub(crate) fn start_bot(&mut self, call: CallKey, answered_at: Moment, now: Moment) {
        let fault = self.bots.start(call).map(str::to_owned);
        self.faults.extend(fault);
        if answered_at > now {
            self.faults.push("answered in the future".into());
        }
        self.bots_seen.push("bot started");
    }

    /// A call has a key pressed.
    pub(crate) fn press_key(&mut self, call: CallKey) {
        if !self.media.contains(&call) {
            self.faults.push("a key for media that isn't open".into());
        }
    }

    /// A bot has answered, or hasn't. Returns its number if the call wants it.
    pub(crate) fn bot_answers(&mut self, key: CallKey, plan: BotPlan, now: Moment) -> Option<u32> {
        let failure = plan.failure();
        self.bots_seen.push(match plan.answer {
            Answer::Accepts => "bot accepts",
            Answer::Refuses => "bot refuses",
            Answer::Silence => "bot silent",
        });
        let dialled = match failure {
            None => Ok(node::address("192.0.2.80:443")),
            Some(failure) => Err(failure),
        };
        let has_accepted = dialled.is_ok();

        // Attached before the effects of that are carried out, among which is its start.
        let is_wanted = self.calls.handle_bot(&mut self.endpoint, key, dialled, now);
        let number = (has_accepted && is_wanted).then(|| self.bots.attach(key));
        if has_accepted && !is_wanted {
            self.bots_seen.push("bot comes too late");
        }
        self.settle(now);
        number
    }

    /// The bot of this number goes, if it is still attached.
    pub(crate) fn bot_leaves(
        &mut self,
        (key, number, session): (CallKey, u32, Uuid),
        leave: Leave,
        now: Moment,
    ) {
        match leave {
            Leave::Closes if self.bots.leave(key, number) => {
                self.bots_seen.push("bot closed");
                self.calls
                    .handle_bot_closed(&mut self.endpoint, key, BotGone::Closed, now);
            }
            Leave::Asks if self.bots.has(key) => {
                if let Some(live) = self.live.of_session(ORG, session) {
                    self.bots_seen.push("bot ends the call by a request");
                    let (call, by) = (live.started.call, HangUpRequester::Agent);
                    self.calls.hang_up_by_id(&mut self.endpoint, call, by, now);
                }
            }
            Leave::Closes | Leave::Asks => {}
        }
        self.settle(now);
    }
}

/// The plan of a seed with bots for all its agents. Dice of their own choose them, so that everything else is as without them.
pub(crate) fn plan(seed: u64) -> Plan {
    let mut dice = Dice::new(seed ^ 0xb07);
    let mut plan = Plan::draw(seed);
    for call in &mut plan.calls {
        call.agent = dice.pick(&[Agent::Bot, Agent::Bot, Agent::BotThenSip]);
    }
    plan
}

/// The same with runtimes over SIP that a bot or a flow follows.
fn plan_sip_first(seed: u64) -> Plan {
    let mut dice = Dice::new(seed ^ 0x51b);
    let mut plan = Plan::draw(seed);
    for call in &mut plan.calls {
        call.agent = dice.pick(&[Agent::SipThenBot, Agent::SipThenBot, Agent::DeadThenFlow]);
    }
    plan
}

#[test]
fn every_call_of_a_runtime_that_a_bot_follows_reaches_its_end() {
    crate::run_known(plan_sip_first, CALLS, &SURE_SIP_FIRST);
    crate::run_fresh(plan_sip_first, FRESH_CALLS);
}

#[test]
fn every_call_with_a_bot_reaches_its_end_and_nothing_is_left() {
    crate::run_known(plan, CALLS, &SURE);
}

#[test]
fn fresh_seeds_with_bots_find_no_fault() {
    crate::run_fresh(plan, FRESH_CALLS);
}

#[test]
fn found_seeds_with_bots_stay_fixed() {
    crate::stay_fixed(plan, &FOUND);
}
