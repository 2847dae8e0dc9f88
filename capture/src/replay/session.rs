//! Replay of one call: sends due messages, compares received ones with the script, and ends a call that took another course.

mod ending;
mod judging;
mod output;
mod unexpected;

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::time::Duration;

use trunkline_sip::moment::Moment;

use super::Incoming;
use super::closing::reply_key;
use super::compare::AddressMap;
use super::reach::{first_beyond, is_own_call, note};
use super::recorder::Recorder;
use super::rewrite::{LiveEndpoint, RewriteMap};
use super::script::{Item, label, script};
use super::wire::{Sockets, Wire, WireClosed};
use super::{Difference, Options, Outcome, Played, unplayable};
use crate::Transport;
use crate::flow::{Call, Role};
use crate::message::Message;

/// Retransmission timers (RFC 3261 §17.1.1.1).
const T1: Duration = Duration::from_millis(500);
const T2: Duration = Duration::from_secs(4);
/// Time for ending a call that took another course.
const WINDING_UP: Duration = Duration::from_millis(700);
/// Most challenges that are answered without having been captured.
const MAX_CHALLENGES: u32 = 2;
/// Unexpected messages after which a call is given up.
const MAX_STRANGE: usize = 50;

/// Plays a call to its end, against the daemon in the options.
pub fn play(call: &Call, options: &Options) -> Played {
    if let Some(why) = unplayable(call) {
        return unplayed(call, why.to_owned());
    }
    match Sockets::open(options, captured_on(call)) {
        Ok(mut sockets) => play_over(call, options, &mut sockets),
        Err(error) => unplayed(call, format!("{}: {error}", options.target)),
    }
}

/// Plays a call to its end, over this wire.
pub fn play_over(call: &Call, options: &Options, wire: &mut dyn Wire) -> Played {
    if let Some(why) = unplayable(call) {
        return unplayed(call, why.to_owned());
    }

    if is_own_call(call) {
        return out_of_reach(call);
    }

    let mut wire = Recorder::new(wire);
    let mut session = Session::new(call, options, &mut wire);
    session.run();

    let played = Played {
        title: call.title.clone(),
        steps: session.ladder(),
        passed: session.differences.is_empty(),
        differences: session.differences,
        error: None,
        out_of_reach: session
            .beyond
            .filter(|_| session.is_beyond)
            .map(|(_, note)| note),
        messages: Vec::new(),
    };

    Played {
        messages: wire.into_entries(),
        ..played
    }
}

/// Returns the result for a call that Trunkline began: no message of a peer can cause it again.
fn out_of_reach(call: &Call) -> Played {
    let why = "Trunkline began this call, on an API request or after a change of its trunks. A replay can't cause either, so the call is out of reach";
    Played {
        passed: true,
        error: None,
        out_of_reach: Some(why.to_owned()),
        ..unplayed(call, String::new())
    }
}

fn unplayed(call: &Call, why: String) -> Played {
    Played {
        title: call.title.clone(),
        passed: false,
        steps: Vec::new(),
        differences: Vec::new(),
        error: Some(why),
        out_of_reach: None,
        messages: Vec::new(),
    }
}

/// Returns the transport of the caller in a captured call.
pub fn captured_on(call: &Call) -> Transport {
    let first = call.entries.first();
    first.map_or(Transport::Udp, |entry| entry.transport)
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum State {
    Pending,
    Done(Outcome, Moment),
}

/// A request without a response so far, on UDP. It is retransmitted until a response comes or the call is given up.
#[derive(Debug)]
struct Waiting {
    octets: Vec<u8>,
    cseq: Option<(u32, String)>,
    due: Moment,
    interval: Duration,
}

struct Session<'a> {
    options: &'a Options,
    items: Vec<Item>,
    states: Vec<State>,
    /// Label of the live message for each item.
    seen: Vec<Option<String>>,
    /// Unexpected messages: the number of items up to the last finished one, then time, party, label and outcome.
    extra: Vec<(usize, Moment, Role, String, Outcome)>,
    wire: &'a mut dyn Wire,
    caller: RewriteMap,
    /// Sides that the daemon calls.
    called: HashMap<Role, RewriteMap>,
    transport: Transport,
    /// Messages received so far, by which a retransmission is recognised.
    repeated: HashSet<(Role, Vec<u8>)>,
    /// Responses sent so far, by [`reply_key`].
    replies: HashMap<Vec<u8>, Vec<u8>>,
    waiting: Option<Waiting>,
    captured: AddressMap,
    live: AddressMap,
    started: Moment,
    differences: Vec<Difference>,
    /// The caller's last request, as sent.
    request: Option<Message>,
    /// The caller's last INVITE, as sent.
    invite: Option<Message>,
    /// The last final response to that INVITE.
    answer: Option<Message>,
    /// The last 2xx to an INVITE of the caller's, while the dialog lasts.
    dialog: Option<Message>,
    /// Highest CSeq of the caller's requests.
    cseq: u32,
    acknowledgement: Option<Vec<u8>>,
    /// The call is given up: a message is missing or unexpected, or can't be sent or received.
    is_over: bool,
    /// The item from which nothing can be played, and the reason.
    beyond: Option<(usize, String)>,
    /// That item was reached.
    is_beyond: bool,
}

impl<'a> Session<'a> {
    fn new(call: &Call, options: &'a Options, wire: &'a mut dyn Wire) -> Self {
        let (target, caller) = (wire.target(), wire.local(Role::Caller));
        let caller = caller.unwrap_or(target);
        let called: Vec<(Role, SocketAddr)> = [Role::Runtime, Role::Other]
            .into_iter()
            .filter_map(|role| Some((role, wire.local(role)?)))
            .collect();

        let items = script(
            call,
            |role| role == Role::Caller || called.iter().any(|(known, _)| *known == role),
            options.credentials.is_some(),
            &options.replace,
        );

        let captured: Vec<SocketAddr> = call.peers.iter().map(|(_, address)| *address).collect();
        let mut live = vec![target, caller];
        live.extend(called.iter().map(|(_, address)| *address));

        let places = moved(call, target, caller, &called);
        let map = || RewriteMap::new(places.clone());
        let named = || options.replace.iter().map(|(_, today)| &**today);
        let beyond = first_beyond(&items);
        let beyond = beyond.map(|(at, why)| (at, note(&items[at], why)));
        let now = wire.now();

        Self {
            states: vec![State::Pending; items.len()],
            seen: vec![None; items.len()],
            items,
            extra: Vec::new(),
            caller: map(),
            called: called.iter().map(|(role, _)| (*role, map())).collect(),
            transport: wire.transport(Role::Caller),
            repeated: HashSet::new(),
            replies: HashMap::new(),
            waiting: None,
            captured: AddressMap::new(&captured).naming(named()),
            live: AddressMap::new(&live).naming(named()),
            started: now,
            differences: Vec::new(),
            request: None,
            invite: None,
            answer: None,
            dialog: None,
            cseq: 0,
            acknowledgement: None,
            is_over: false,
            beyond,
            is_beyond: false,
            options,
            wire,
        }
    }

    fn now(&self) -> Moment {
        self.wire.now()
    }

    fn run(&mut self) {
        while !self.is_over
            && let Some(next) = self.next()
        {
            if self.beyond.as_ref().is_some_and(|(at, _)| next >= *at) {
                self.is_beyond = true;
                break;
            }

            if self.items[next].sends {
                self.wait_until(next);
                // A message that came during the wait may have ended the call, or put another item first.
                if !self.is_over && self.next() == Some(next) {
                    self.send(next);
                }
            } else {
                self.await_message(next);
            }
        }

        self.wind_up();
    }

    /// Returns the first item that is still pending.
    fn next(&self) -> Option<usize> {
        (0..self.items.len()).find(|at| {
            self.states[*at] == State::Pending
                && (self.items[*at].sends || !self.items[*at].is_optional)
        })
    }

    /// Returns the last event before an item: its captured and its live time.
    fn before(&self, at: usize) -> (u64, Moment) {
        let done = (0..self.items.len()).filter_map(|index| match self.states[index] {
            State::Done(_, when) if index < at => Some((self.items[index].at, when)),
            State::Done(..) | State::Pending => None,
        });
        done.max_by_key(|(_, when)| *when)
            .unwrap_or((0, self.started))
    }

    /// Returns the last event on the same side, from which the lateness of a message is measured.
    fn before_on_its_side(&self, at: usize) -> (u64, Moment) {
        let party = self.items[at].party;
        let mut done = (0..at)
            .filter(|index| self.items[*index].party == party)
            .filter_map(|index| match self.states[index] {
                State::Done(_, when) => Some((self.items[index].at, when)),
                State::Pending => None,
            });
        done.next_back().unwrap_or_else(|| self.before(at))
    }

    /// Returns the time from `from`, a captured time, to an item at the speed of the replay.
    fn gap(&self, at: usize, from: u64) -> Duration {
        let captured = Duration::from_micros(self.items[at].at.saturating_sub(from));
        let gap = match self.options.speed {
            Some(speed) => captured.div_f64(speed.max(0.001)),
            None => Duration::ZERO,
        };
        gap.max(self.items[at].wait)
    }

    fn wait_until(&mut self, at: usize) {
        let (captured, happened) = self.before(at);
        let due = happened + self.gap(at, captured);
        while !self.is_over && self.now() < due {
            self.receive(due);
        }
    }

    fn await_message(&mut self, at: usize) {
        let (captured, happened) = self.before(at);
        let recorded = Duration::from_micros(self.items[at].at.saturating_sub(captured));
        let until = happened + recorded.max(self.gap(at, captured)) + self.options.patience;
        while !self.is_over && self.states[at] == State::Pending {
            if self.now() >= until {
                self.missing(
                    at,
                    &format!(
                        "nothing within {:.1} s",
                        until.since(happened).as_secs_f64()
                    ),
                );
                self.is_over = true;
                return;
            }

            self.receive(until);
        }
    }

    fn missing(&mut self, at: usize, found: &str) {
        self.finish(at, Outcome::Missing, None);
        let expected = label(&self.items[at].message);
        self.differ(Some(at), "message", expected, found.to_owned());
    }

    fn finish(&mut self, at: usize, outcome: Outcome, seen: Option<String>) {
        self.states[at] = State::Done(outcome, self.now());
        self.seen[at] = seen;
    }

    fn differ(&mut self, at: Option<usize>, part: &str, expected: String, found: String) {
        self.differences.push(Difference {
            message: at.map(|at| self.items[at].index + 1),
            label: at.map_or_else(|| found.clone(), |at| label(&self.items[at].message)),
            part: part.to_owned(),
            expected,
            found,
        });
    }

    fn side(&mut self, party: Role) -> Option<(&mut RewriteMap, LiveEndpoint)> {
        let seat = LiveEndpoint {
            local: self.wire.local(party)?,
            target: self.wire.target(),
            transport: self.wire.transport(party),
        };
        let map = match party {
            Role::Runtime | Role::Other => self.called.get_mut(&party)?,
            Role::Caller | Role::Us => &mut self.caller,
        };
        Some((map, seat))
    }

    fn send(&mut self, at: usize) {
        let item = self.items[at].clone();
        let login = self.options.credentials.clone();

        let Some((map, seat)) = self.side(item.party) else {
            return self.finish(at, Outcome::Absent, None);
        };

        let Some(message) = map.outgoing(&item, seat, login.as_ref()) else {
            self.missing(at, "no request that this could answer");
            self.is_over = true;
            return;
        };

        let octets = message.to_octets();
        if let Err(error) = self.wire.send(item.party, &octets) {
            self.finish(at, Outcome::Missing, None);
            self.differ(
                Some(at),
                "message",
                "to be sent".to_owned(),
                error.to_string(),
            );
            self.is_over = true;
            return;
        }

        self.finish(at, Outcome::Sent, Some(label(&message)));
        self.note_sent(item.party, &message, octets);
    }

    /// Notes a sent message, for the messages that depend on it.
    fn note_sent(&mut self, party: Role, message: &Message, octets: Vec<u8>) {
        if message.status().is_some() {
            if let Some(key) = reply_key(message) {
                self.replies.insert(key, octets);
            }
            return;
        }

        if party == Role::Caller && message.method() != "ACK" {
            self.request = Some(message.clone());
            let number = message.cseq().map_or(0, |(number, _)| number);
            self.cseq = self.cseq.max(number);
        }

        match message.method().as_str() {
            "ACK" => {
                // Nothing answers an ACK, so it isn't repeated.
                self.acknowledgement = Some(octets);
                return;
            }
            "INVITE" if party == Role::Caller => {
                self.invite = Some(message.clone());
                self.answer = None;
            }
            "BYE" if party == Role::Caller => {
                self.invite = None;
                self.dialog = None;
            }
            _ => {}
        }

        if party == Role::Caller && self.transport == Transport::Udp {
            self.waiting = Some(Waiting {
                octets,
                cseq: message.cseq(),
                due: self.now() + T1,
                interval: T1,
            });
        }
    }

    /// Waits for one message, at most until then; retransmits unanswered requests.
    fn receive(&mut self, until: Moment) {
        let now = self.now();
        let mut until = until;
        if let Some(waiting) = &mut self.waiting {
            if waiting.due <= now {
                waiting.interval = (waiting.interval * 2).min(T2);
                waiting.due = now + waiting.interval;
                // A failure shows as a response that doesn't come.
                let _ = self.wire.send(Role::Caller, &waiting.octets);
            }
            until = until.min(waiting.due);
        }

        match self.wire.receive(until) {
            Ok(Some(incoming)) => self.handle_message(&incoming),
            Ok(None) => {}
            Err(WireClosed) => self.is_over = true,
        }
    }

    fn handle_message(&mut self, incoming: &Incoming) {
        let message = Message::parse(&incoming.octets);
        let party = incoming.party;

        if self
            .waiting
            .as_ref()
            .is_some_and(|waiting| message.status().is_some() && waiting.cseq == message.cseq())
        {
            self.waiting = None;
        }

        // A retransmission is the same message again, octet for octet: another request has at least another branch.
        if !self.repeated.insert((party, incoming.octets.clone())) {
            return self.answer_retransmission(party, &message);
        }

        if party == Role::Caller {
            // A late message of an earlier call.
            let call_id = message.first("Call-ID").unwrap_or_default();
            if !self.caller.has_call_id(&call_id) && message.method() != "INVITE" {
                return;
            }

            if message.method() == "BYE" {
                self.invite = None;
                self.dialog = None;
            }

            let status = message.status().filter(|_| message.method() == "INVITE");
            if status.is_some_and(|status| status >= 200) {
                self.answer = Some(message.clone());
            }
            if status.is_some_and(|status| matches!(status, 200..=299)) {
                self.accepted(message.clone());
            }
        }

        match self.expected(party, &message) {
            Some(at) => self.recognised(at, party, &message),
            None => self.handle_unexpected(party, &message),
        }
    }

    /// Sends a message that isn't in the capture. A failure shows in the messages that the daemon sends next, or doesn't send.
    fn send_extra(&mut self, party: Role, octets: &[u8]) {
        let _ = self.wire.send(party, octets);
    }

    /// Answers a retransmission as its original was answered.
    fn answer_retransmission(&mut self, party: Role, message: &Message) {
        let reply = match message.status() {
            Some(_) if message.method() == "INVITE" => self.acknowledgement.as_ref(),
            Some(_) => None,
            None => reply_key(message).and_then(|key| self.replies.get(&key)),
        };
        if let Some(reply) = reply.cloned() {
            self.send_extra(party, &reply);
        }
    }

    /// Returns the item that the message matches, among those that may come before this side sends again. A response to anything but an
    /// INVITE blocks nothing: another request may cross it.
    fn expected(&mut self, party: Role, message: &Message) -> Option<usize> {
        let window: Vec<usize> = (0..self.items.len())
            .filter(|at| self.states[*at] == State::Pending && self.items[*at].party == party)
            .take_while(|at| !self.items[*at].sends || self.items[*at].holds_nothing_up())
            .filter(|at| !self.items[*at].sends)
            .collect();
        let found = window
            .iter()
            .copied()
            .find(|at| is_same_kind(&self.items[*at].message, message))?;

        let skipped: Vec<usize> = window
            .into_iter()
            .take_while(|at| *at < found)
            .filter(|at| {
                !self.items[*at].is_optional && same_transaction(&self.items[*at].message, message)
            })
            .collect();
        for at in skipped {
            self.missing(at, &label(message));
        }

        Some(found)
    }

    fn recognised(&mut self, at: usize, party: Role, message: &Message) {
        let (captured, happened) = self.before_on_its_side(at);
        let after = self.now().since(happened);
        let item = self.items[at].clone();
        if let Some((map, _)) = self.side(party) {
            map.learn(&item.message, message);
        }

        let differences = self.compare(&item, message, captured, after);
        let outcome = if differences.is_empty() {
            Outcome::Received
        } else {
            Outcome::Differs
        };

        self.finish(at, outcome, Some(label(message)));

        for (part, expected, found) in differences {
            self.differ(Some(at), &part, expected, found);
        }
    }
}

/// Returns captured addresses with their live ones. Longer texts come first, so that an address with a port is replaced as a whole.
fn moved(
    call: &Call,
    target: SocketAddr,
    caller: SocketAddr,
    called: &[(Role, SocketAddr)],
) -> Vec<(String, String)> {
    let mut places: Vec<(String, String)> = Vec::new();

    for (role, address) in &call.peers {
        let today = match role {
            Role::Us => target,
            Role::Caller => caller,
            Role::Runtime | Role::Other => {
                let today = called.iter().find(|(known, _)| known == role);
                today.map_or(*address, |(_, today)| *today)
            }
        };

        places.push((address.to_string(), today.to_string()));

        if !address.ip().is_loopback() && !address.ip().is_unspecified() {
            places.push((address.ip().to_string(), today.ip().to_string()));
        }
    }

    places.sort_by_key(|(was, _)| std::cmp::Reverse(was.len()));
    let mut seen = HashSet::new();
    places.retain(|(was, _)| seen.insert(was.clone()));

    places
}

fn is_same_kind(captured: &Message, live: &Message) -> bool {
    captured.status() == live.status() && captured.method() == live.method()
}

/// Returns whether both are responses to the same kind of request.
fn same_transaction(captured: &Message, live: &Message) -> bool {
    captured.status().is_some() == live.status().is_some()
        && captured.status().is_some()
        && captured.method() == live.method()
}
