//! The world of one run: a clock that jumps, a queue of what happens next, the node, its peers, the network between them.

use std::collections::{BTreeMap, BinaryHeap};
use std::net::SocketAddr;
use std::time::Duration;

use trunkline_calls::CallKey;
use trunkline_calls::parts::target::UnresolvedTarget;
use trunkline_model::record::Fact;
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::{Framing, Message, Method, lex};
use uuid::Uuid;

use crate::bots::BotStep;
use crate::builtin::FlowStep;
use crate::caller::{Caller, Line};
use crate::dice::Dice;
use crate::hands::{Alarm, Hands, Step};
use crate::network::{Connections, Datagram, Sent, describe, first_line};
use crate::node::{self, NODE, Node, Wish};
use crate::orders;
use crate::plan::{CallPlan, CallerPlan, Identity, Plan};
use crate::runtime::{Role, Runtime};
use crate::scheduled::Scheduled;
use crate::wire::Place;
use crate::wiretap::Wiretap;

/// As soon as can be.
const TICK: Duration = Duration::from_millis(1);
/// Time by which both sides have agreed to a hold, unless a peer makes it wait.
const SOON: Duration = Duration::from_secs(1);
/// A hold that waits for everybody as long as it may.
const HOLD: Duration = Duration::from_secs(160);
const START: Moment = Moment::from_secs(1_750_000_000);

/// Something that will happen.
#[derive(Debug)]
pub(crate) enum Occasion {
    Arrives(Datagram),
    /// The network tells the node that nobody is there, or that the connection is gone.
    Lost(SocketAddr, Option<u32>),
    /// Every connection breaks.
    Cut,
    Caller(usize, Alarm),
    Runtime(usize, Alarm),
    Resolved(u32, CallKey, UnresolvedTarget),
    ContactFound(u32, CallKey),
    Bot(u32, BotStep),
    Flow(u32, FlowStep),
    Restart,
    /// A request of the API for a call: to begin it, to hand it over to that destination, or to end it.
    NewOutboundCall(usize),
    HandOver(usize, usize),
    HangUp(usize),
    /// It is held or resumed, and by then both sides have agreed or one has refused.
    Hold(usize, bool),
    Settled(Uuid, u32, bool),
    /// A new leg of the PBX takes a caller's place.
    TakeOver(usize),
    Drain,
    HangUpAll,
    Silence,
    /// The node has no room for requests of its own.
    Crowd,
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) now: Moment,
    pub(crate) node: Node,
    pub(crate) callers: Vec<Caller>,
    pub(crate) runtimes: Vec<Runtime>,
    pub(crate) tap: Wiretap,
    /// Facts of the boots before this one, and when they ended.
    pub(crate) earlier: Vec<Fact>,
    pub(crate) restarted: Option<Moment>,
    /// Time at which the node last heard something or ended a call.
    pub(crate) last_stir: Moment,
    /// Time at which no call, transaction or timer was left.
    pub(crate) empty_since: Option<Moment>,
    pub(crate) trace: Option<Vec<String>>,
    /// Every message as it was sent, if that is recorded.
    pub(crate) sent: Option<Vec<Sent>>,
    /// Which runtime has which dialog.
    by_call_id: BTreeMap<(SocketAddr, Vec<u8>), usize>,
    attempts: BTreeMap<(usize, Role), usize>,
    /// The call of each number, as the node knows it.
    ids: BTreeMap<usize, Uuid>,
    pub(crate) boot: u32,
    connections: Connections,
    /// Facts that were seen already.
    ended: usize,
    dice: Dice,
    /// Random numbers of the bots alone, so that they change nothing else of a run.
    pub(crate) bot_dice: Dice,
    queue: BinaryHeap<Scheduled>,
    order: u64,
}

impl World {
    pub(crate) fn new(plan: Plan, traced: bool) -> Self {
        let mut dice = Dice::new(plan.seed ^ 0x5eed);
        let node = Node::new(&mut dice, plan.agent_limit, plan.no_media, START);
        let mut world = Self {
            now: START,
            node,
            callers: Vec::new(),
            runtimes: Vec::new(),
            tap: Wiretap::default(),
            earlier: Vec::new(),
            restarted: None,
            last_stir: START,
            empty_since: None,
            trace: traced.then(Vec::new),
            sent: None,
            by_call_id: BTreeMap::new(),
            attempts: BTreeMap::new(),
            ids: BTreeMap::new(),
            boot: 0,
            connections: Connections::default(),
            ended: 0,
            dice,
            bot_dice: Dice::new(plan.seed ^ 0xb07_5eed),
            queue: BinaryHeap::new(),
            order: 0,
            plan,
        };

        world.set_up();
        world
    }

    /// Records every message from now on.
    pub(crate) fn recorded(mut self) -> Self {
        self.sent = Some(Vec::new());
        self
    }

    fn set_up(&mut self) {
        let calls = self.plan.calls.clone();
        for (call, plan) in calls.iter().enumerate() {
            for (after, destination) in &plan.handover.asked {
                let what = Occasion::HandOver(call, *destination);
                self.schedule(plan.start + *after, what);
            }
            if let Some((after, _)) = &plan.handover.taken_over {
                self.schedule(plan.start + *after, Occasion::TakeOver(call));
            }
            for (after, held) in &plan.handover.held {
                self.schedule(plan.start + *after, Occasion::Hold(call, *held));
            }
            let Some(order) = &plan.order else {
                self.add_caller(call, plan);
                continue;
            };
            self.schedule(plan.start, Occasion::NewOutboundCall(call));
            if let Some(after) = order.hung_up {
                self.schedule(plan.start + after, Occasion::HangUp(call));
            }
        }

        let Plan {
            restart,
            drain,
            cut,
            hang_up_all,
            silence,
            ..
        } = self.plan;

        let planned = [
            (restart, Occasion::Restart),
            (drain, Occasion::Drain),
            (cut, Occasion::Cut),
            (hang_up_all, Occasion::HangUpAll),
            (silence, Occasion::Silence),
        ];
        for (after, what) in planned {
            if let Some(after) = after {
                self.schedule(after, what);
            }
        }
    }

    fn add_caller(&mut self, call: usize, plan: &CallPlan) {
        let network = network_of(&plan.caller);
        let agent = node::agent_id(plan.agent).to_string();
        let line = Line {
            call,
            place: Place {
                address: node::address(&format!("198.51.{network}.{}:5060", call + 10)),
                node: node::address(NODE),
                stream: plan.caller.stream,
            },
            agent: &agent,
        };
        let dice = self.dice.split();
        self.callers
            .push(Caller::new(&line, plan.caller.clone(), dice));
        let dial = Alarm::Step(Step::Dial);
        self.schedule(plan.start, Occasion::Caller(self.callers.len() - 1, dial));
    }

    fn take_over(&mut self, call: usize) {
        let caller = self.callers.iter().find(|caller| caller.number() == call);
        let Some(old) = caller.and_then(|caller| caller.party.sessions.get(caller.party.main))
        else {
            return;
        };

        let replaces = format!(
            "Replaces: {};to-tag={};from-tag={}\r\n",
            old.call_id,
            String::from_utf8_lossy(&old.remote_tag),
            old.local_tag
        );
        let Some((_, plan)) = self.plan.calls[call].handover.taken_over.clone() else {
            return;
        };

        let line = Line {
            call,
            place: Place {
                address: node::address(&format!(
                    "198.51.{}.{}:5060",
                    network_of(&plan),
                    call + 110
                )),
                node: node::address(NODE),
                stream: plan.stream,
            },
            agent: "nobody",
        };

        let dice = self.dice.split();
        self.callers
            .push(Caller::successor(&line, plan, dice, replaces));

        let dial = Alarm::Step(Step::Dial);
        self.schedule(TICK, Occasion::Caller(self.callers.len() - 1, dial));
    }

    pub(crate) fn schedule(&mut self, after: Duration, what: Occasion) {
        self.schedule_at(self.now + after, what);
    }

    fn schedule_at(&mut self, at: Moment, what: Occasion) {
        self.order += 1;
        let order = self.order;
        self.queue.push(Scheduled { at, order, what });
    }

    /// Lets everything happen, until nothing more will.
    pub(crate) fn run(&mut self) {
        loop {
            let next = self.queue.peek().map(|scheduled| scheduled.at);
            let due = self.node.next_timeout();
            match (next, due) {
                (None, None) => return,
                (next, Some(due)) if next.is_none_or(|next| due <= next) => {
                    self.now = self.now.max(due);
                    self.node.timeouts(self.now);
                }
                _ => {
                    let Some(scheduled) = self.queue.pop() else {
                        return;
                    };
                    self.now = self.now.max(scheduled.at);
                    self.happen(scheduled.what);
                }
            }
            self.carry();
        }
    }

    fn happen(&mut self, what: Occasion) {
        match what {
            Occasion::Arrives(datagram) => self.arrive(&datagram),
            Occasion::Lost(peer, connection) => {
                self.note(|| format!("{peer} can't be reached"));
                self.node.lost(peer, connection, self.now);
            }
            Occasion::Cut => {
                self.tap.cut();
                for (number, peer) in self.connections.cut() {
                    self.schedule(TICK, Occasion::Lost(peer, Some(number)));
                }
            }

            Occasion::Caller(at, alarm) => {
                self.wake(
                    at,
                    |world, hands| world.callers[at].on_alarm(hands, &alarm),
                    true,
                );
            }
            Occasion::Runtime(at, alarm) => {
                self.wake(
                    at,
                    |world, hands| world.runtimes[at].on_alarm(hands, &alarm),
                    false,
                );
            }

            Occasion::Bot(boot, step) if boot == self.boot => self.bot_acts(step),
            Occasion::Flow(boot, step) if boot == self.boot => self.flow_goes_on(step),
            Occasion::Resolved(boot, key, wanted) if boot == self.boot => {
                self.node.resolved(key, node::resolve(&wanted), self.now);
            }
            Occasion::ContactFound(boot, key) if boot == self.boot => {
                let contact = Some(Uuid::from_u128(0xc0));
                self.node.contact_found(key, contact, self.now);
            }
            Occasion::Bot(..)
            | Occasion::Flow(..)
            | Occasion::Resolved(..)
            | Occasion::ContactFound(..) => {}

            Occasion::Restart => self.restart(),
            Occasion::NewOutboundCall(call) => {
                let plan = &self.plan.calls[call];
                if let Some(order) = &plan.order {
                    self.node.place(&order.order(call, plan.agent), self.now);
                }
            }

            Occasion::HandOver(call, destination) => {
                if let Some(id) = self.ids.get(&call) {
                    self.node.hand_over(*id, destination, self.now);
                }
            }
            Occasion::HangUp(call) => {
                if let Some(id) = self.ids.get(&call) {
                    self.node.hang_up(*id, self.now);
                }
            }
            Occasion::Hold(call, held) => {
                if let Some(id) = self.ids.get(&call).copied()
                    && let Some(number) = self.node.hold(id, held, self.now)
                {
                    self.tap.held.insert(call);
                    self.schedule(SOON, Occasion::Settled(id, number, false));
                    self.schedule(HOLD, Occasion::Settled(id, number, true));
                }
            }
            Occasion::Settled(id, number, last) => self.node.settled(id, number, last),
            Occasion::TakeOver(call) => self.take_over(call),
            Occasion::Drain => self.node.calls.drain(),
            Occasion::HangUpAll => self.node.hang_up_all(self.now),
            Occasion::Silence => self.node.silence(self.now),
            Occasion::Crowd => self.node.fill_clients(self.now),
        }
    }

    fn restart(&mut self) {
        self.note(|| "the node restarts".into());
        self.earlier.append(&mut self.node.facts);
        self.restarted = Some(self.now);
        self.boot += 1;
        self.ended = 0;
        self.node = self.node.restarted(&mut self.dice, self.now);
        self.tap.restart(self.now);
    }

    fn arrive(&mut self, datagram: &Datagram) {
        // What was on its way over a connection is lost with it.
        if datagram
            .connection
            .is_some_and(|number| !self.connections.is_open(number))
        {
            return;
        }

        if datagram.to == node::address(NODE) {
            self.last_stir = self.now;
            self.tap.delivered(datagram, self.now);
            return self.node.receive(datagram, self.now);
        }

        let Ok(message) = lex(&datagram.octets, Framing::Datagram) else {
            return;
        };

        let caller = self.callers.iter().position(|caller| {
            let meant = caller.call_id().as_bytes() == message.call_id();
            meant && caller.party.wire.address == datagram.to
        });
        match caller {
            Some(at) => self.wake(
                at,
                |world, hands| world.callers[at].on_datagram(hands, &message),
                true,
            ),
            None => self.arrive_at_runtime(datagram, &message),
        }
    }

    fn arrive_at_runtime(&mut self, datagram: &Datagram, message: &Message<'_>) {
        let key = (datagram.to, message.call_id().to_vec());
        let known = self.by_call_id.get(&key).copied();
        let at = match known {
            Some(at) => at,
            None if message.method() == Method::Invite && message.is_request() => {
                let Some(at) = self.add_runtime(datagram, message) else {
                    return;
                };
                self.by_call_id.insert(key, at);
                at
            }
            None => return,
        };

        self.wake(
            at,
            |world, hands| world.runtimes[at].on_datagram(hands, message),
            false,
        );
    }

    fn add_runtime(&mut self, datagram: &Datagram, message: &Message<'_>) -> Option<usize> {
        let (call, role) = self.tap.meant(message)?;
        let attempt = self.attempts.entry((call, role)).or_default();
        let planned = &self.plan.calls[call];
        let (plans, name) = match (role, &planned.order) {
            (Role::Agent, _) => (&planned.attempts, "runtime"),
            (Role::Destination, _) => (&planned.handover.destinations, "destination"),
            (Role::Callee, order) => (&order.as_ref()?.callees, "callee"),
        };
        let plan = plans[(*attempt).min(plans.len() - 1)].clone();
        let name = format!("{name}{call}x{attempt}");
        *attempt += 1;

        let place = Place {
            address: datagram.to,
            node: datagram.from,
            stream: datagram.connection.is_some(),
        };
        let dice = self.dice.split();
        self.runtimes
            .push(Runtime::new(name, place, (role, plan), dice, message));
        Some(self.runtimes.len() - 1)
    }

    /// Lets a peer act, and takes from its hands what it sends and what it wants to be woken by.
    fn wake(&mut self, at: usize, act: impl FnOnce(&mut Self, &mut Hands<'_>), is_caller: bool) {
        let (mut out, mut alarms) = (Vec::new(), Vec::new());
        let mut hands = Hands {
            now: self.now,
            out: &mut out,
            alarms: &mut alarms,
        };

        act(self, &mut hands);
        for (moment, alarm) in alarms {
            let what = if is_caller {
                Occasion::Caller(at, alarm)
            } else {
                Occasion::Runtime(at, alarm)
            };
            self.schedule_at(moment, what);
        }

        for mut datagram in out {
            self.tap.peer_sent(&datagram);
            if datagram.connection.is_some() {
                datagram.connection = Some(self.connections.to(datagram.from));
            }
            self.send(datagram);
        }
    }

    /// Carries out what the node sends and asks for.
    fn carry(&mut self) {
        self.note_calls();
        for mut datagram in self.node.transmits() {
            self.tap.node_sent(&datagram, self.now);
            let peer = datagram.to;
            if datagram.connection == Some(0) {
                datagram.connection = Some(self.connections.to(peer));
            }
            let gone = datagram
                .connection
                .is_some_and(|number| !self.connections.is_open(number));
            if gone || peer == node::address(node::UNREACHABLE_PEER) {
                self.tap.failed(&datagram);
                self.note(|| format!("{} for nobody", first_line(&datagram.octets)));
                self.schedule(TICK, Occasion::Lost(peer, datagram.connection));
            } else {
                self.send(datagram);
            }
        }

        for wish in std::mem::take(&mut self.node.wishes) {
            match wish {
                Wish::Resolve(key, wanted) => {
                    let what = Occasion::Resolved(self.boot, key, wanted);
                    self.schedule(self.plan.resolver, what);
                }
                Wish::DialBot(key, session) => self.dial_bot(key, session),
                Wish::PlaySound(key, serial, is_first) => self.play_sound(key, serial, is_first),
                Wish::HandOff(key) => self.hand_off(key),
                Wish::FindContact(key) => {
                    let what = Occasion::ContactFound(self.boot, key);
                    self.schedule(self.plan.contact, what);
                }
            }
        }

        self.watch_for_quiet();
    }

    /// Which calls the node has begun.
    fn note_calls(&mut self) {
        for fact in &self.node.facts[self.ended..] {
            if let Fact::Started(started) = fact
                && let Some(call) = orders::number_of_record(started)
            {
                self.ids.insert(call, started.call);
                self.tap.sessions.insert(started.session.to_string(), call);
            }
        }
    }

    fn watch_for_quiet(&mut self) {
        if self.node.next_timeout().is_some() {
            self.empty_since = None;
        } else if self.empty_since.is_none() {
            self.empty_since = Some(self.now);
        }
        if self.ended < self.node.facts.len() {
            self.ended = self.node.facts.len();
            self.last_stir = self.now;
        }
    }

    fn send(&mut self, datagram: Datagram) {
        let fates = match datagram.connection {
            Some(_) => vec![Duration::from_millis(10)],
            None => self.plan.weather.fates(&mut self.dice),
        };
        if self.trace.is_some() {
            let what = describe(&datagram);
            let fate = match fates.len() {
                0 => " (lost)",
                1 => "",
                _ => " (twice)",
            };
            self.note(|| format!("{what}{fate}"));
        }

        let after = self.now.since(START);
        if let Some(sent) = &mut self.sent {
            sent.push(Sent {
                after,
                copies: fates.len(),
                datagram: datagram.clone(),
            });
        }
        for delay in fates {
            self.schedule(delay, Occasion::Arrives(datagram.clone()));
        }
    }

    pub(crate) fn note(&mut self, what: impl FnOnce() -> String) {
        let at = self.now.since(START).as_millis();
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>9}.{:03} {}", at / 1000, at % 1000, what()));
        }
    }
}

/// Addresses of trusted peers say that they are trusted.
fn network_of(plan: &CallerPlan) -> u8 {
    if plan.identity == Identity::Trusted {
        101
    } else {
        100
    }
}

/// The number of the call that an INVITE is about.
pub(crate) fn call_number(message: &Message<'_>) -> Option<usize> {
    let value = message.other("X-Sim-Call")?;
    std::str::from_utf8(value).ok()?.parse().ok()
}
