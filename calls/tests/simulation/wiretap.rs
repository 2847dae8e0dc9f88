//! View of an observer of the node, and the rules for each message that it sends, whatever the network does.
//!
//! - A message is readable; a repetition is octet for octet what it repeats, and there are not many.
//! - A request has one final status, and nothing comes after it.
//! - CSeq grows within a dialog; in a dialog that is over, nothing begins.
//! - One offer at a time is out on a leg.
//! - A body is one that the other side of the call sent, or says that it is the node's own.
//! - The caller isn't hung up on before its ACK is in or overdue (RFC 3261 §15).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use trunkline_sip::dialog::direction;
use trunkline_sip::dialog::sdp::Direction;
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::{Framing, Message, Method, lex};

use crate::hands::PATIENCE;
use crate::network::Datagram;
use crate::node::SETUP;
use crate::orders;
use crate::runtime::Role;
use crate::world::call_number;

/// Most copies of one message that the node may send unasked: 64*T1 of doubling intervals up to T2 are eleven.
const MOST_REPEATS: u32 = 12;
/// A request inside the call may have to wait for the other leg's answer, and for the end of its CANCEL.
const IN_DIALOG: Duration = Duration::from_secs(300);

type Octets = Vec<u8>;
/// A transaction: branch, method.
type Key = (Octets, &'static str);

#[derive(Debug, Default)]
pub(crate) struct Wiretap {
    pub(crate) faults: Vec<String>,
    legs: BTreeMap<Octets, Leg>,
    /// Bodies by call and by whether the caller sent them.
    bodies: BTreeMap<(usize, bool), BTreeSet<Octets>>,
    /// Calls that were held: a description, new or repeated, may cross with another direction.
    pub(crate) held: BTreeSet<usize>,
    /// Calls whose caller is handed over by the node: the destination gets no hold.
    handed: BTreeSet<usize>,
    /// The number of the call that each session is.
    pub(crate) sessions: BTreeMap<String, usize>,
    restarted: bool,
}

/// Messages on the wire with one Call-ID.
#[derive(Debug, Default)]
struct Leg {
    call: usize,
    /// The peer has called the node.
    is_caller: bool,
    /// It is on the caller's side, or the callee of the node's own call.
    is_near: bool,
    is_stream: bool,
    asked: BTreeMap<Key, Asked>,
    answered: BTreeMap<Key, Answered>,
    /// The highest CSeq of the node in each dialog, by its tag and the peer's: an early dialog that another fork's answer ends counts its own
    /// (RFC 3261 §12.2.1.1).
    highest: BTreeMap<(Octets, Octets), u32>,
    /// Dialogs that are over, by the peer's tag.
    over: BTreeSet<Octets>,
    /// Dialogs in which the node sent BYE, by the peer's tag.
    told: BTreeSet<Octets>,
    /// Dialogs over a connection in which the node's BYE may have been lost with it, and that have had another.
    again: BTreeSet<Octets>,
    /// 2xx that came for such a dialog, each of which may be answered with another BYE.
    late: BTreeMap<Octets, u32>,
    /// Time at which the node accepted the INVITE that began the call, and whether the ACK has come.
    accepted: Option<Moment>,
    acknowledged: bool,
}

/// A request of the node.
#[derive(Debug)]
struct Asked {
    came: Moment,
    octets: Octets,
    sent: u32,
    /// The peer's tag; empty outside a dialog.
    to: Octets,
    offers: bool,
    is_final: bool,
    /// A provisional answer came while the transaction ran.
    is_heard: bool,
    /// Time at which the node sent CANCEL behind it.
    cancelled: Option<Moment>,
}

impl Asked {
    /// Returns whether its transaction can't have ended yet, if no final answer came: an INVITE ends by timer B, unless something is heard, and 64*T1
    /// after its CANCEL; any other request by timer F (RFC 3261 §9.1, §17.1.1.2, §17.1.2.2).
    fn is_open(&self, now: Moment) -> bool {
        let ends = |from: Moment| now.since(from) >= PATIENCE;
        let has_ended = match (self.is_heard, self.cancelled) {
            (true, Some(cancelled)) => ends(cancelled),
            (true, None) => false,
            (false, _) => ends(self.came),
        };
        !self.is_final && !has_ended
    }
}

/// A request to the node.
#[derive(Debug)]
struct Answered {
    came: Moment,
    begins: bool,
    copies: u32,
    last: Option<(u16, Moment)>,
    /// By status and, before the final one, fork.
    sent: BTreeMap<(u16, Vec<u8>), u32>,
}

impl Wiretap {
    pub(crate) fn restart(&mut self, _now: Moment) {
        self.restarted = true;
        for leg in self.legs.values_mut() {
            *leg = Leg {
                call: leg.call,
                is_caller: leg.is_caller,
                is_near: leg.is_near,
                ..Leg::default()
            };
        }
    }

    /// All connections break, and what was asked over them has failed.
    pub(crate) fn cut(&mut self) {
        let streams = self.legs.values_mut().filter(|leg| leg.is_stream);
        for asked in streams.flat_map(|leg| leg.asked.values_mut()) {
            asked.is_final = true;
        }
    }

    /// Notes that a message of the node went over a connection that is gone: it has failed.
    pub(crate) fn failed(&mut self, datagram: &Datagram) {
        let Ok(message) = lex(&datagram.octets, Framing::Datagram) else {
            return;
        };
        let leg = self.legs.get_mut(message.call_id());
        if let Some(asked) = leg.and_then(|leg| leg.asked.get_mut(&key_of(&message))) {
            asked.is_final = true;
        }
    }

    /// A peer sends something, which may never arrive.
    pub(crate) fn peer_sent(&mut self, datagram: &Datagram) {
        let Ok(message) = lex(&datagram.octets, Framing::Datagram) else {
            return;
        };

        if let (None, Some(call)) = (message.to_tag(), call_number(&message)) {
            let leg = self.legs.entry(message.call_id().to_vec()).or_default();
            (leg.call, leg.is_caller, leg.is_near) = (call, true, true);
        }

        let Some(leg) = self.legs.get(message.call_id()) else {
            return;
        };

        if !message.body().is_empty() {
            let sent = self.bodies.entry((leg.call, leg.is_near)).or_default();
            if let Some((_, part)) = std::str::from_utf8(message.body())
                .ok()
                .filter(|body| body.starts_with("--"))
                .and_then(|body| body.split_once("\r\n\r\nv=0"))
            {
                let end = part.find("--b").unwrap_or(part.len());
                sent.insert(without_origin(format!("v=0{}", &part[..end]).as_bytes()));
            }
            sent.insert(without_origin(message.body()));
        }
    }

    /// Something of a peer's arrives at the node.
    pub(crate) fn delivered(&mut self, datagram: &Datagram, now: Moment) {
        let Ok(message) = lex(&datagram.octets, Framing::Datagram) else {
            return;
        };
        let Some(leg) = self.legs.get_mut(message.call_id()) else {
            return;
        };

        let key = key_of(&message);
        if !message.is_request() {
            leg.note_late(&message);
            if let Some(asked) = leg.asked.get_mut(&key) {
                // What comes after the end of the transaction changes nothing.
                let counts = message.method() == Method::Invite && asked.is_open(now);
                asked.is_final |= message.status() >= 200;
                asked.is_heard |= counts;
            }
            return;
        }

        if message.method() == Method::Ack {
            leg.acknowledged = true;
            return;
        }

        let answered = leg.answered.entry(key).or_insert(Answered {
            came: now,
            begins: message.to_tag().is_none(),
            copies: 0,
            last: None,
            sent: BTreeMap::new(),
        });
        answered.copies += 1;
    }

    /// The node sends something.
    pub(crate) fn node_sent(&mut self, datagram: &Datagram, now: Moment) {
        let Ok(message) = lex(&datagram.octets, Framing::Datagram) else {
            let text = String::from_utf8_lossy(&datagram.octets).into_owned();
            return self.faults.push(format!("not a message: {text}"));
        };

        if let (true, None, Some((call, role))) =
            (message.is_request(), message.to_tag(), self.meant(&message))
        {
            let leg = self.legs.entry(message.call_id().to_vec()).or_default();
            leg.call = call;
            leg.is_near = role == Role::Callee;
            if role == Role::Destination {
                self.handed.insert(call);
            }
        }

        let Some(leg) = self.legs.get_mut(message.call_id()) else {
            return;
        };

        let before = self.faults.len();
        let turned = Turned {
            held: self.held.contains(&leg.call),
            handed: self.handed.contains(&leg.call),
        };
        check_body(leg, &self.bodies, turned, &message, &mut self.faults);
        if message.is_request() {
            leg.is_stream |= datagram.connection.is_some();
            leg.on_request(&message, now, &mut self.faults);
        } else {
            leg.on_response(&message, now, self.restarted, &mut self.faults);
        }

        for fault in &mut self.faults[before..] {
            let (call, to) = (leg.call, datagram.to);
            *fault = format!("call {call}, to {to}: {fault}");
        }
    }

    /// Returns the call that an INVITE of the node belongs to, and the role of its recipient.
    pub(crate) fn meant(&self, message: &Message<'_>) -> Option<(usize, Role)> {
        let session = message.other("X-PLATFORM-SESSION-ID");
        let session = session.and_then(|session| std::str::from_utf8(session).ok());
        let call = session.and_then(|session| self.sessions.get(session).copied());
        match (call, message.other("X-PLATFORM-SESSION-TOKEN")) {
            (Some(call), Some(_)) => Some((call, Role::Agent)),
            (Some(call), None) => Some((call, Role::Destination)),
            (None, _) => Some((orders::call_of(message)?, Role::Callee)),
        }
    }

    /// Returns whether the node has sent BYE to the peer with that tag.
    pub(crate) fn was_told(&self, call_id: &str, tag: &str) -> bool {
        self.legs.get(call_id.as_bytes()).is_some_and(|leg| {
            leg.told.contains(tag.as_bytes()) || leg.over.contains(tag.as_bytes())
        })
    }

    /// Which requests have no final answer, or have it too late.
    pub(crate) fn unanswered(&self) -> Vec<String> {
        let mut found = Vec::new();
        for leg in self.legs.values() {
            for ((branch, method), answered) in &leg.answered {
                let limit = if answered.begins { SETUP } else { IN_DIALOG };
                let must = matches!(*method, "INVITE" | "BYE" | "CANCEL");
                let late = answered
                    .last
                    .filter(|(status, _)| *status >= 200)
                    .is_none_or(|(_, at)| at.since(answered.came) > limit + Duration::from_secs(1));
                if must && late {
                    let branch = String::from_utf8_lossy(branch);
                    let last = answered.last;
                    found.push(format!(
                        "call {}: {method} {branch} has no final answer in time: {last:?}",
                        leg.call
                    ));
                }
            }
        }

        found
    }
}

impl Leg {
    fn on_request(&mut self, message: &Message<'_>, now: Moment, faults: &mut Vec<String>) {
        let key = key_of(message);
        let method = message.method();
        if let Some(asked) = self.asked.get_mut(&key) {
            asked.sent += 1;
            if asked.octets != message.raw() {
                faults.push(format!("{} changed when it was repeated", method.as_str()));
            }
            if asked.sent > MOST_REPEATS && method != Method::Ack {
                faults.push(format!("{} sent {} times", method.as_str(), asked.sent));
            }
            return;
        }

        // The first exchange may be over before the INVITE is (RFC 3262 §5).
        let offers = message.to_tag().is_some()
            && matches!(method, Method::Invite | Method::Update)
            && (method == Method::Invite || !message.body().is_empty());
        let to = message.to_tag().unwrap_or_default();
        if offers && self.asks(to, now) {
            faults.push(format!("{} while an offer is out", method.as_str()));
        }

        let asked = Asked {
            came: now,
            octets: message.raw().to_vec(),
            sent: 1,
            to: to.to_vec(),
            offers,
            is_final: false,
            is_heard: false,
            cancelled: None,
        };
        if method == Method::Cancel
            && let Some(invite) = self
                .asked
                .get_mut(&(key.0.clone(), Method::Invite.as_str()))
        {
            invite.cancelled.get_or_insert(now);
        }

        self.asked.insert(key, asked);
        self.check_sequence(message, faults);
        if method == Method::Bye {
            self.check_bye(message, now, faults);
        }
    }

    fn note_late(&mut self, message: &Message<'_>) {
        let peer = message.to_tag().unwrap_or_default();
        let accepts = message.method() == Method::Invite && (200..300).contains(&message.status());
        if accepts && self.over.contains(peer) {
            *self.late.entry(peer.to_vec()).or_default() += 1;
        }
    }

    /// Returns whether an offer in the dialog with this tag has no answer, and its transaction can't have ended without one. The offer to a fork that
    /// has lost is no matter of the dialog that is left.
    fn asks(&self, to: &[u8], now: Moment) -> bool {
        self.asked
            .values()
            .any(|asked| asked.offers && asked.to == to && asked.is_open(now))
    }

    fn check_sequence(&mut self, message: &Message<'_>, faults: &mut Vec<String>) {
        let method = message.method();
        let Some(peer) = message.to_tag() else {
            return;
        };
        if matches!(method, Method::Ack | Method::Cancel) {
            return;
        }
        if method == Method::Bye
            && let Some(late) = self.late.get_mut(peer).filter(|late| **late > 0)
        {
            *late -= 1;
            return;
        }
        let again = method == Method::Bye && self.is_stream && self.told.contains(peer);
        let again = again && self.again.insert(peer.to_vec());
        if self.over.contains(peer) && !again {
            faults.push(format!("{} in a dialog that is over", method.as_str()));
        }
        let number = message.cseq().number;
        let dialog = (
            message.from_tag().unwrap_or_default().to_vec(),
            peer.to_vec(),
        );
        let highest = self.highest.entry(dialog).or_default();
        if number <= *highest {
            faults.push(format!("CSeq {number} after {highest}"));
        }
        *highest = number.max(*highest);
    }

    fn check_bye(&mut self, message: &Message<'_>, now: Moment, faults: &mut Vec<String>) {
        let peer = message.to_tag().unwrap_or_default().to_vec();
        self.over.insert(peer.clone());
        self.told.insert(peer);
        let overdue = self.accepted.is_none_or(|at| now.since(at) >= PATIENCE);
        if self.is_caller && !self.acknowledged && !overdue {
            faults.push("BYE before the caller's ACK".into());
        }
    }

    fn on_response(
        &mut self,
        message: &Message<'_>,
        now: Moment,
        restarted: bool,
        faults: &mut Vec<String>,
    ) {
        let (status, method) = (message.status(), message.method());
        let Some(answered) = self.answered.get_mut(&key_of(message)) else {
            if !restarted {
                faults.push(format!("{status} to nothing"));
            }
            return;
        };

        match answered.last {
            // What is answered without memory may be answered otherwise the next time.
            Some((401 | 503, _)) if matches!(status, 401 | 503) => {}
            Some((200, _)) if method == Method::Cancel && status == 481 => {}
            // The transaction is over (timers J and L, RFC 3261 §17.2.2, RFC 6026 §7.1): a late copy is a request to no dialog.
            Some((_, at)) if status == 481 && now.since(at) >= PATIENCE => {}
            Some((last, _)) if last >= 200 && last != status => {
                faults.push(format!("{status} to {} after {last}", method.as_str()));
            }
            Some((last, _)) if last == status => {}
            Some(_) | None => answered.last = Some((status, now)),
        }

        let fork = message.to_tag().filter(|_| status < 200);
        let fork = fork.unwrap_or_default().to_vec();
        let sent = answered.sent.entry((status, fork)).or_default();

        *sent += 1;
        if *sent > MOST_REPEATS + answered.copies {
            faults.push(format!("{status} to {} sent {sent} times", method.as_str()));
        }

        match (method, status) {
            // A BYE of the caller in an early dialog ends that one alone. All of them have its one tag.
            (Method::Bye, 200..300) if self.is_caller && self.accepted.is_none() => {}
            (Method::Bye, 200..300) => {
                let peer = message.from_tag().unwrap_or_default();
                self.over.insert(peer.to_vec());
            }
            (Method::Invite, 200..300) if self.is_caller => {
                self.accepted.get_or_insert(now);
            }
            (_, _) => {}
        }
    }
}

/// Reason why a body may have another direction than its author gave it.
#[derive(Copy, Clone, Debug)]
struct Turned {
    held: bool,
    handed: bool,
}

fn check_body(
    leg: &Leg,
    bodies: &BTreeMap<(usize, bool), BTreeSet<Octets>>,
    turned: Turned,
    message: &Message<'_>,
    faults: &mut Vec<String>,
) {
    let body = message.body();
    let is_open = |direction| direction == Direction::SendRecv;
    let opened = turned.handed && direction::of(body).into_iter().all(is_open);
    let may_turn = turned.held || opened;
    let undirected = without_direction(body);
    let is_held_one = |sent: &BTreeSet<Octets>| {
        sent.iter()
            .any(|sent| without_direction(sent) == undirected)
    };
    let crossed = bodies.get(&(leg.call, !leg.is_near)).is_some_and(|sent| {
        sent.contains(&without_origin(body)) || (may_turn && is_held_one(sent))
    });
    if !body.is_empty() && !crossed && !is_own(body) {
        let body = String::from_utf8_lossy(body);
        faults.push(format!("a body that nobody sent: {body}"));
    }
}

/// A description without its origin line, which is the node's where one peer hears several others.
fn without_origin(body: &[u8]) -> Octets {
    let lines = body.split_inclusive(|octet| *octet == b'\n');
    lines
        .filter(|line| !line.starts_with(b"o="))
        .flatten()
        .copied()
        .collect()
}

fn without_direction(body: &[u8]) -> Octets {
    let body = without_origin(body);
    let lines = body.split_inclusive(|octet| *octet == b'\n');
    let directions = ["sendrecv", "sendonly", "recvonly", "inactive"];
    let says = |line: &[u8]| {
        let line = line.trim_ascii_end().strip_prefix(b"a=");
        line.is_some_and(|line| directions.iter().any(|name| line == name.as_bytes()))
    };
    lines
        .filter(|line| !says(line) && !line.trim_ascii().is_empty())
        .flatten()
        .copied()
        .collect()
}

/// A body of the node's own: the echo agent's description, one that takes nothing, or what became of a REFER.
fn is_own(body: &[u8]) -> bool {
    std::str::from_utf8(body).is_ok_and(|text| {
        if text.starts_with("SIP/2.0 ") {
            return true;
        }
        let echo = text.contains("m=audio 20000 ");
        let streams = || text.lines().filter(|line| line.starts_with("m="));
        text.contains("IN IP4 203.0.113.5")
            && (echo || streams().all(|line| line.starts_with("m=audio 0 ")))
    })
}

#[test]
fn a_request_is_open_until_its_transaction_ends() {
    let sent = Moment::from_secs(1_790_000_000);
    for (case, is_heard, cancelled, open_until) in [
        ("timer B", false, None, Some(32)),
        ("heard", true, None, None),
        ("heard and taken back", true, Some(6), Some(38)),
        ("taken back in silence", false, Some(6), Some(32)),
    ] {
        let asked = Asked {
            came: sent,
            octets: Octets::new(),
            sent: 1,
            to: Octets::new(),
            offers: true,
            is_final: false,
            is_heard,
            cancelled: cancelled.map(|after| sent + Duration::from_secs(after)),
        };
        let is_open = |after| asked.is_open(sent + Duration::from_secs(after));
        match open_until {
            Some(end) => assert!(is_open(end - 1) && !is_open(end), "{case}"),
            None => assert!(is_open(3_600), "{case}"),
        }
    }
}

fn key_of(message: &Message<'_>) -> Key {
    (
        message.top_via().branch.unwrap_or_default().to_vec(),
        message.method().as_str(),
    )
}
