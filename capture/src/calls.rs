//! Grouping of messages into calls: by Call-ID, and the legs of a back-to-back call by content that a later leg repeats. Before the answer
//! these are numbers and media, afterwards a session id or the dialog that is replaced (RFC 3891).
//!
//! Retransmissions are left out, and so are OPTIONS outside calls, with which peers monitor each other. A call is emitted once it has been
//! over for a while, so a capture of any length needs the memory of its calls in progress. Beyond a bound the call that was silent longest
//! is emitted early.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, SocketAddr};

use super::Captured;
use super::flow::{Call, Entry, Role};
use super::message::{Message, user_of};

/// 64·T1 in microseconds: time for which a finished call is kept open for late messages.
const LINGER: u64 = 32_000_000;
/// Most octets of all calls in progress.
const MAX_HELD: usize = 96 * 1024 * 1024;
const MAX_CALLS: usize = 65_536;
/// Most octets of one call; further messages form another part of it.
const MAX_CALL: usize = 8 * 1024 * 1024;
/// Most OPTIONS kept of a capture that holds nothing else.
const MAX_PINGS: usize = 1_000;
/// Most session ids of one call; further ones join no leg to it.
const MAX_SESSIONS: usize = 16;
/// Most calls at one address that a new leg is compared with: the newest ones.
const MAX_CANDIDATES: usize = 64;

#[derive(Debug)]
struct Open {
    /// Call-IDs, each with the role of the far side; the first is the caller's leg.
    legs: Vec<(String, Role)>,
    messages: Vec<(Captured, usize)>,
    seen: HashSet<u64>,
    held: usize,
    last: u64,
    is_over: bool,
    is_answered: bool,
    /// Content that a second leg repeats.
    marks: HashSet<String>,
    /// Address to which the first request was sent, if it was an INVITE: the daemon's.
    us: Option<SocketAddr>,
    /// Sender of the first request.
    caller: SocketAddr,
    /// Session ids that further legs repeat.
    sessions: HashSet<String>,
    /// An OPTIONS outside a call.
    is_ping: bool,
}

/// Groups messages into calls.
#[derive(Debug, Default)]
pub struct Collector {
    open: HashMap<u64, Open>,
    by_call_id: HashMap<String, u64>,
    /// Calls that began with an INVITE, by the address that it was sent to.
    by_us: HashMap<IpAddr, VecDeque<u64>>,
    by_session: HashMap<String, u64>,
    /// Times of the last messages, each with its call.
    silent: BTreeSet<(u64, u64)>,
    /// The same for calls that are over.
    over: BTreeSet<(u64, u64)>,
    held: usize,
    next: u64,
    ready: VecDeque<Call>,
    /// A call that isn't just OPTIONS has been emitted.
    has_calls: bool,
    pings: Vec<Call>,
    /// OPTIONS outside calls that were left out.
    pub left_out: u64,
    /// Retransmissions that were left out.
    pub retransmissions: u64,
    /// Messages that were kept.
    pub messages: u64,
    /// Calls emitted before their end, for want of memory.
    pub cut_short: u64,
}

impl Collector {
    /// Adds a message.
    pub fn push(&mut self, captured: Captured) {
        let message = Message::parse(&captured.octets);
        let call_id = message.first("Call-ID").unwrap_or_default();
        let (id, leg) = match self.by_call_id.get(&call_id) {
            Some(id) => (*id, self.leg_of(*id, &call_id)),
            None => self.begin(&call_id, &captured, &message),
        };
        let now = captured.at;

        if let Some(open) = self.open.get_mut(&id) {
            // Both sets have the time in their keys, so the entries go before the time changes.
            self.silent.remove(&(open.last, id));
            self.over.remove(&(open.last, id));
            // Packets of a file aren't always in the order of their times.
            open.last = open.last.max(now);
            // About what a message takes beside its octets.
            let size = captured.octets.len() + 128;

            if open.take(captured, &message, leg) {
                self.messages += 1;
                self.held += size;
                open.held += size;
            } else {
                self.retransmissions += 1;
            }

            self.silent.insert((open.last, id));

            // A late message prolongs the wait for others: one that came after it would begin a call of its own.
            if open.is_over {
                self.over.insert((open.last, id));
            }

            if open.held > MAX_CALL {
                self.cut_short += 1;
                self.leave(id);
            }
        }

        self.sweep(now);
    }

    /// Returns the next finished call.
    pub fn pop(&mut self) -> Option<Call> {
        self.ready.pop_front()
    }

    /// Returns the time of the latest message of a call in progress.
    pub fn latest(&self) -> u64 {
        self.silent.last().map_or(0, |(last, _)| *last)
    }

    /// Finishes all calls, in the order of their beginning.
    pub fn finish(&mut self) {
        let mut ids: Vec<u64> = self.open.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            self.leave(id);
        }

        // A capture that holds nothing but OPTIONS was made for them.
        if !self.has_calls {
            for ping in self.pings.drain(..) {
                self.left_out -= 1;
                self.messages += ping.entries.len() as u64;
                self.ready.push_back(ping);
            }
        }
    }

    fn leg_of(&self, id: u64, call_id: &str) -> usize {
        let legs = self.open.get(&id).map(|open| &open.legs);
        legs.and_then(|legs| legs.iter().position(|(leg, _)| leg == call_id))
            .unwrap_or(0)
    }

    fn begin(&mut self, call_id: &str, captured: &Captured, message: &Message) -> (u64, usize) {
        let is_initial = message.status().is_none()
            && message.method() == "INVITE"
            && message.tag("To").is_none();
        if is_initial && let Some((id, far)) = self.joined(captured, message) {
            self.by_call_id.insert(call_id.to_owned(), id);

            let legs = self.open.get_mut(&id).map(|open| {
                open.legs.push((call_id.to_owned(), far));
                let session = session(message).filter(|_| open.sessions.len() < MAX_SESSIONS);
                if let Some(session) = session {
                    self.by_session.insert(session.clone(), id);
                    open.sessions.insert(session);
                }
                open.legs.len() - 1
            });

            return (id, legs.unwrap_or(0));
        }

        let id = self.next;
        self.next += 1;

        if is_initial {
            let candidates = self.by_us.entry(captured.target.ip()).or_default();
            candidates.push_back(id);
            if candidates.len() > MAX_CANDIDATES {
                candidates.pop_front();
            }
        }

        self.by_call_id.insert(call_id.to_owned(), id);

        self.open.insert(
            id,
            Open {
                legs: vec![(call_id.to_owned(), Role::Caller)],
                messages: Vec::new(),
                seen: HashSet::new(),
                held: 0,
                last: captured.at,
                is_over: false,
                is_answered: false,
                marks: if is_initial {
                    marks(message)
                } else {
                    HashSet::new()
                },
                us: is_initial.then_some(captured.target),
                caller: captured.source,
                sessions: HashSet::new(),
                is_ping: message.method() == "OPTIONS"
                    && (message.status().is_some() || message.tag("To").is_none()),
            },
        );

        (id, 0)
    }

    /// Returns the call to which a new leg belongs, and the role of its far side.
    fn joined(&self, captured: &Captured, message: &Message) -> Option<(u64, Role)> {
        if let Some(id) = self.first_leg(captured, message) {
            return Some((id, Role::Runtime));
        }

        if let Some(id) = session(message).and_then(|session| self.by_session.get(&session)) {
            let open = self.open.get(id)?;
            let is_ours = open.us.is_some_and(|us| us.ip() == captured.source.ip());
            let is_back = open.caller == captured.target;
            return is_ours.then_some((*id, if is_back { Role::Caller } else { Role::Other }));
        }

        let replaces = message.first("Replaces")?;
        let id = self.by_call_id.get(replaces.split(';').next()?.trim())?;
        let open = self.open.get(id)?;
        (open.us == Some(captured.target)).then_some((*id, Role::Caller))
    }

    /// Returns the call whose second leg begins here: its first leg went to this sender, isn't answered, and shares content with this
    /// message.
    fn first_leg(&self, captured: &Captured, message: &Message) -> Option<u64> {
        let marks = marks(message);
        let candidates = self.by_us.get(&captured.source.ip())?;
        // The latest first: of two calls with the same numbers, the new leg is the newer call's.
        candidates.iter().rev().copied().find(|id| {
            self.open.get(id).is_some_and(|open| {
                !open.is_answered
                    && open.us.is_some_and(|us| us != captured.target)
                    && !open.marks.is_disjoint(&marks)
            })
        })
    }

    fn sweep(&mut self, now: u64) {
        while let Some((last, id)) = self.over.first().copied()
            && last.saturating_add(LINGER) < now
        {
            self.leave(id);
        }
        while self.held > MAX_HELD || self.open.len() > MAX_CALLS {
            let Some((_, id)) = self.silent.first().copied() else {
                return;
            };
            self.cut_short += 1;
            self.leave(id);
        }
    }

    fn leave(&mut self, id: u64) {
        let Some(open) = self.open.remove(&id) else {
            return;
        };

        self.silent.remove(&(open.last, id));
        self.over.remove(&(open.last, id));
        self.held -= open.held;

        for (leg, _) in &open.legs {
            self.by_call_id.remove(leg);
        }

        for session in &open.sessions {
            self.by_session.remove(session);
        }

        if let Some(us) = open.us
            && let Some(candidates) = self.by_us.get_mut(&us.ip())
        {
            candidates.retain(|candidate| *candidate != id);
            if candidates.is_empty() {
                self.by_us.remove(&us.ip());
            }
        }

        let is_ping = open.is_ping;
        match open.into_call() {
            Some(ping) if is_ping => {
                self.left_out += 1;
                self.messages -= ping.entries.len() as u64;
                if !self.has_calls && self.pings.len() < MAX_PINGS {
                    self.pings.push(ping);
                }
            }
            Some(call) => {
                self.has_calls = true;
                // From now on OPTIONS are left out, those so far included.
                self.pings = Vec::new();
                self.ready.push_back(call);
            }
            None => {}
        }
    }
}

/// Returns the content that the second leg of a call shares with its first: numbers, and the session of its SDP.
fn marks(message: &Message) -> HashSet<String> {
    let uri = message.request_uri();
    let dialled = user_of(&uri).or_else(|| message.user("To"));
    // Very short names are shared by callers that have nothing to do with each other.
    let caller = message.user("From").filter(|user| user.len() > 2);
    let body = String::from_utf8_lossy(&message.body);
    let session = body.lines().find(|line| line.starts_with("o="));

    [
        dialled.map(|user| format!("dialled {user}")),
        caller.map(|user| format!("caller {user}")),
        session.map(str::to_owned),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns the id that a back-to-back agent puts on every leg of a call: a header such as `X-PLATFORM-SESSION-ID`.
fn session(message: &Message) -> Option<String> {
    let named = message
        .lines()
        .iter()
        .find(|line| line.name().to_ascii_lowercase().ends_with("-session-id"));
    named
        .map(super::message::Line::value)
        .filter(|value| uuid::Uuid::try_parse(value).is_ok())
}

impl Open {
    /// Adds a message; returns whether it is new.
    fn take(&mut self, captured: Captured, message: &Message, leg: usize) -> bool {
        let mut hasher = DefaultHasher::new();
        (captured.source, captured.target, &captured.octets).hash(&mut hasher);

        if !self.seen.insert(hasher.finish()) {
            return false;
        }

        let method = message.method();
        let status = message.status();
        if leg == 0 && method == "INVITE" {
            self.is_answered |=
                status.is_some_and(|status| status >= 200 && !matches!(status, 401 | 407));
        }

        let starts_with_invite = !self.marks.is_empty();
        self.is_over |= match (status, method.as_str()) {
            (_, "BYE" | "CANCEL") => true,
            // A refusal on a later leg ends no call: another target may follow.
            (Some(status), "INVITE") => status >= 300 && !matches!(status, 401 | 407) && leg == 0,
            (Some(status), _) => status >= 200 && !starts_with_invite,
            (None, _) => false,
        };

        self.messages.push((captured, leg));
        true
    }

    fn into_call(mut self) -> Option<Call> {
        self.messages.sort_by_key(|(captured, _)| captured.at);
        let started = self.messages.first()?.0.at;
        let mut roles = Roles::default();
        let mut call = Call {
            started,
            ..Call::default()
        };

        for (captured, leg) in self.messages {
            let message = Message::parse(&captured.octets);
            let far = self.legs.get(leg).map_or(Role::Caller, |(_, far)| *far);
            let (from, to) = roles.of(leg, far, &captured, &message);

            if call.entries.is_empty() {
                call.title = title(&message);
            }

            call.entries.push(Entry {
                at: captured.at - started,
                from,
                to,
                transport: captured.transport,
                expectations: Vec::new(),
                octets: captured.octets,
            });
        }

        call.peers = roles.order;
        Some(call)
    }
}

fn title(message: &Message) -> String {
    let short = |text: String| text.chars().take(80).collect::<String>();
    match message.status() {
        Some(status) => short(format!("begins with {status} to {}", message.method())),
        None => short(format!("{} {}", message.method(), message.request_uri())),
    }
}

/// Roles of the addresses of a call.
#[derive(Debug, Default)]
struct Roles {
    known: HashMap<(usize, SocketAddr), Role>,
    /// Sender of the first request of each leg: its tag and its role.
    first: HashMap<usize, (String, Role)>,
    order: Vec<(Role, SocketAddr)>,
}

impl Roles {
    fn of(
        &mut self,
        leg: usize,
        far: Role,
        captured: &Captured,
        message: &Message,
    ) -> (Role, Role) {
        let (source, target) = (captured.source, captured.target);
        let near = Role::Us;
        let is_request = message.status().is_none();

        // The first request of a leg goes towards us on the caller's leg and with Replaces, and from us on the others.
        let is_towards_us = leg == 0 || message.first("Replaces").is_some();
        let tag = message.tag("From").unwrap_or_default();
        let begins = || (tag.clone(), if is_towards_us { far } else { near });
        let (first, sender) = self.first.entry(leg).or_insert_with(begins);

        // The far side's requests may use a connection of their own.
        let asks = if *first == tag {
            *sender
        } else {
            opposite(*sender, far)
        };

        let forward = if is_request {
            (asks, opposite(asks, far))
        } else {
            (opposite(asks, far), asks)
        };

        let from = self.known.get(&(leg, source)).copied();
        let to = self.known.get(&(leg, target)).copied();
        let is_initial = is_request && message.tag("To").is_none() && message.method() == "INVITE";
        let (from, to) = match (from, to) {
            (Some(from), Some(to)) => (from, to),
            // A proxy forwards the request under the same Call-ID.
            (Some(Role::Us), None) if is_initial && leg == 0 => (Role::Us, Role::Runtime),
            (Some(from), None) => (from, opposite(from, far)),
            (None, Some(to)) => (opposite(to, far), to),
            (None, None) => forward,
        };

        for (address, role) in [(source, from), (target, to)] {
            if self.known.insert((leg, address), role).is_none()
                && !self.order.contains(&(role, address))
            {
                self.order.push((role, address));
            }
        }

        (from, to)
    }
}

const fn opposite(role: Role, far: Role) -> Role {
    match role {
        Role::Us => far,
        Role::Caller | Role::Runtime | Role::Other => Role::Us,
    }
}
