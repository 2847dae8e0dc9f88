//! The runtime that speaks for an agent: it rings, forks, answers, refuses, or is silent, as its plan has it.

use std::time::Duration;

use trunkline_sip::wire::{Framing, HeaderName, Message, Method, lex};

use crate::dice::Dice;
use crate::hands::{Alarm, Hands, Step};
use crate::party::{Party, SDP, value};
use crate::plan::{AttemptPlan, Finish, Flaw, OnCancel};
use crate::session::{Session, Stage, label_of, sdp};
use crate::wire::{Heard, Place, Silence};

#[derive(Debug)]
pub(crate) struct Runtime {
    pub(crate) party: Party,
    pub(crate) plan: AttemptPlan,
    /// The INVITE as received, and its number among the requests.
    invite: Vec<u8>,
    server: usize,
    /// Sessions by fork.
    forks: Vec<(usize, usize)>,
    /// Progress of the first offer and answer in reliable provisional responses.
    agreed: Agreed,
    /// The runtime's answer to the offer, once made: the same in every provisional and final answer.
    answer: Option<Vec<u8>>,
    caller_reliable: bool,
    role: Role,
    /// Number of INVITEs that the node has sent to this place before.
    before: u32,
}

/// Recipient of an INVITE that the node sends.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Role {
    /// The runtime of an agent.
    Agent,
    /// The callee of an outbound call.
    Callee,
    /// The destination of a transfer.
    Destination,
}

/// Progress of the first offer and answer (RFC 3262 §5).
#[derive(Clone, PartialEq, Eq, Debug)]
enum Agreed {
    /// Our offer or answer is still to be sent.
    Open,
    /// The reliable provisional response with this RSeq carries our offer or answer.
    Sent(u32),
    /// That response has its PRACK.
    Done,
}

impl Runtime {
    pub(crate) fn new(
        name: String,
        place: Place,
        (role, plan): (Role, AttemptPlan),
        dice: Dice,
        invite: &Message<'_>,
    ) -> Self {
        Self {
            party: Party::new(name, place, plan.talk.clone(), dice),
            plan,
            invite: invite.raw().to_vec(),
            server: 0,
            forks: Vec::new(),
            agreed: Agreed::Open,
            answer: None,
            caller_reliable: invite.has_token(HeaderName::Supported, "100rel"),
            role,
            before: 0,
        }
    }

    pub(crate) fn on_datagram(&mut self, hands: &mut Hands<'_>, message: &Message<'_>) {
        if self.party.gone || self.plan.deaf {
            return;
        }

        if !message.is_request() {
            let heard = self.party.wire.hear(hands, message);
            if let Some(heard @ Heard::Answer(_)) = heard {
                self.party.on_heard(hands, heard, message);
            }
            return;
        }

        if message.method() == Method::Ack {
            return self.party.on_ack(message);
        }

        let (at, new) = self.party.wire.take(hands, message);
        if !new {
            return;
        }
        match (message.to_tag(), message.method()) {
            (None, Method::Invite) => self.on_invite(hands, at, message),
            (None, Method::Cancel) => self.on_cancel(hands, at),
            (_, Method::Cancel) => self.party.on_cancel(hands, at, message),
            (Some(_), Method::Prack) => self.on_prack(hands, at, message),
            (_, _) => self.party.on_request(hands, at, message),
        }
    }

    fn on_invite(&mut self, hands: &mut Hands<'_>, at: usize, message: &Message<'_>) {
        if self.server_is_old() {
            self.begin_again(message);
        }
        self.server = at;

        let named: &[&str] = match self.role {
            Role::Agent => &[
                "X-PLATFORM-SESSION-ID",
                "X-PLATFORM-AGENT-ID",
                "X-PLATFORM-SESSION-TOKEN",
            ],
            Role::Destination => &["X-PLATFORM-SESSION-ID", "X-PLATFORM-AGENT-ID"],
            Role::Callee => &[],
        };
        for name in named {
            if message.other(name).is_none() {
                self.party.fault(format!("no {name}"));
            }
        }

        let token = message.other("X-PLATFORM-SESSION-TOKEN").is_some();
        let proven = message.first(HeaderName::Authorization).is_some();
        if self.role == Role::Agent && proven || self.role != Role::Agent && token {
            self.party.fault("credentials of somebody else");
        }

        if self.plan.tries {
            self.party.wire.answer(hands, at, 100, ("", "", b""));
        }

        for (ring, planned) in self.plan.rings.iter().enumerate() {
            hands.step(planned.after, Step::Ring(ring));
        }

        if let Some(after) = self.plan.update_early {
            hands.step(after, Step::UpdateEarly);
        }

        match self.plan.finish {
            Finish::Answer { after, .. } | Finish::Refuse { after, .. } => {
                hands.step(after, Step::Finish);
            }
            Finish::Never => {}
        }
    }

    fn server_is_old(&self) -> bool {
        let first = self.party.wire.servers.first();
        first.is_some_and(|server| server.status >= 200)
    }

    /// Takes a further INVITE of the node: with credentials, for a longer session or by another connection. Its answer has another tag
    /// (RFC 3261 §8.2.6.2).
    fn begin_again(&mut self, invite: &Message<'_>) {
        self.before += 1;
        let refused = matches!(
            self.plan.finish,
            Finish::Refuse {
                status: 401 | 422,
                ..
            }
        );

        let before = lex(&self.invite, Framing::Datagram).expect("it was lexed when it came");
        let is_next = before.call_id() == invite.call_id()
            && before.from_tag() == invite.from_tag()
            && before.cseq().number + 1 == invite.cseq().number;
        if refused && !is_next {
            // RFC 3261 §8.1.3.5.
            self.party
                .fault("not the same Call-ID and tag and the next CSeq");
        }

        self.invite = invite.raw().to_vec();
        self.forks.clear();
        self.agreed = Agreed::Open;
        self.answer = None;
        if let Finish::Refuse {
            after,
            status: 302 | 401 | 422,
        } = self.plan.finish
        {
            self.plan.finish = Finish::Answer { after, fork: 0 };
        }
    }

    pub(crate) fn on_alarm(&mut self, hands: &mut Hands<'_>, alarm: &Alarm) {
        if self.party.gone {
            return;
        }

        if let Alarm::Step(step) = alarm {
            return self.on_step(hands, step);
        }

        match self.party.wire.alarm(hands, alarm) {
            Silence::NoAnswer(client) => self.party.on_silence(hands, client),
            Silence::NoAck(_) => self.on_no_ack(hands),
            // RFC 3262 §3: the INVITE is refused with a 5xx.
            Silence::NoPrack(at) => {
                self.party.seen.push("no PRACK");
                self.party.wire.answer(hands, at, 504, ("late", "", b""));
                self.end_all();
            }
            Silence::None => {}
        }
    }

    /// Hangs up each session that has no ACK (RFC 3261 §13.3.1.4).
    fn on_no_ack(&mut self, hands: &mut Hands<'_>) {
        self.party.seen.push("no ACK");
        for session in 0..self.party.sessions.len() {
            self.party.sessions[session].unacknowledged = false;
            self.party.hang_up(hands, session);
        }
    }

    fn on_step(&mut self, hands: &mut Hands<'_>, step: &Step) {
        match step {
            Step::Ring(ring) => self.ring(hands, *ring),
            Step::Finish => match self.plan.finish {
                Finish::Answer { fork, .. } => self.finish(hands, fork),
                Finish::Refuse { status, .. } => self.refuse(hands, status),
                Finish::Never => {}
            },
            Step::FinishFork(fork) => self.finish_again(hands, *fork),
            Step::UpdateEarly => {
                let session = self.session_of(0);
                self.party.offer_by_update(hands, session);
            }
            Step::Dial | Step::LogIn | Step::Cancel | Step::ByeEarly => {}
            Step::Act(_)
            | Step::Answer(..)
            | Step::CancelReinvite(_)
            | Step::Refresh(_)
            | Step::Expire(_)
            | Step::Referred(..)
            | Step::News(..)
            | Step::Leave(_)
            | Step::TooLong
            | Step::Vanish => self.party.on_step(hands, step),
        }
    }

    fn is_open(&self) -> bool {
        self.party.wire.servers[self.server].status < 200
    }

    fn session_of(&mut self, fork: usize) -> usize {
        if let Some((_, session)) = self.forks.iter().find(|(of, _)| *of == fork) {
            return *session;
        }
        let invite = lex(&self.invite, Framing::Datagram).expect("it was read when it came");
        let tag = format!("{}-{fork}-{}", self.party.name, self.before);
        self.party.sessions.push(Session::as_callee(&invite, &tag));
        let session = self.party.sessions.len() - 1;
        self.forks.push((fork, session));
        session
    }

    fn offer(&self) -> Option<String> {
        let invite = lex(&self.invite, Framing::Datagram).expect("it was read when it came");
        (!invite.body().is_empty()).then(|| label_of(invite.body()))
    }

    /// Returns our answer to the INVITE's offer, or an offer of ours if the INVITE has none.
    fn description(&mut self) -> Vec<u8> {
        if self.answer.is_none() {
            let label = self.party.label();
            self.answer = Some(sdp(&label, "sendrecv", self.offer().as_deref()));
        }
        self.answer.clone().unwrap_or_default()
    }

    fn ring(&mut self, hands: &mut Hands<'_>, ring: usize) {
        if !self.is_open() {
            return;
        }

        let ring = self.plan.rings[ring];
        let session = self.session_of(ring.fork);
        let reliable = ring.reliable && self.caller_reliable;

        // Only one reliable answer at a time, and none behind one that isn't acknowledged (RFC 3262 §3).
        if reliable && !self.party.wire.owes_nothing_reliable(self.server) {
            return;
        }

        // What is agreed for one fork isn't agreed for another: descriptions go with the first fork alone.
        let sdp = ring.sdp && ring.fork == 0 && (reliable || self.offer().is_some());
        let fresh = sdp && (self.agreed == Agreed::Open);
        let body = if fresh {
            self.description()
        } else {
            Vec::new()
        };

        let mut lines = self.party.own_lines();
        if !body.is_empty() {
            lines.push_str(SDP);
        }

        let tag = self.party.sessions[session].local_tag.clone();
        if reliable {
            // Each fork counts by itself, the first from 101, the second from 201.
            let held = &mut self.party.sessions[session];
            held.highest_rseq = held.highest_rseq.max(100 * (ring.fork as u32 + 1)) + 1;
            let rseq = held.highest_rseq;
            if fresh {
                self.agreed = Agreed::Sent(rseq);
            }
            let status = (ring.status, rseq);
            let content = (&*tag, &*lines, &*body);
            self.party
                .wire
                .answer_reliably(hands, self.server, status, content);
        } else {
            let content = (&*tag, &*lines, &*body);
            self.party
                .wire
                .answer(hands, self.server, ring.status, content);
        }
    }

    fn on_prack(&mut self, hands: &mut Hands<'_>, at: usize, message: &Message<'_>) {
        let known = self
            .party
            .sessions
            .iter_mut()
            .find(|session| session.is(message));
        let Some(session) = known else {
            return self.party.wire.answer(hands, at, 481, ("", "", b""));
        };
        session.remote_seq = session.remote_seq.max(message.cseq().number);

        let rack = value(message, HeaderName::RAck);
        let rseq: u32 = rack
            .split(' ')
            .next()
            .and_then(|number| number.parse().ok())
            .unwrap_or_default();

        // One may have come before its connection ended, and another after.
        let mut invites = self
            .party
            .wire
            .servers
            .iter()
            .filter(|server| server.method == Method::Invite);
        if !invites.any(|invite| rack.ends_with(&format!(" {} INVITE", invite.cseq))) {
            self.party.fault(format!("RAck {rack}"));
        }

        if !self.party.wire.reliably_heard(self.server, rseq) {
            return self.party.wire.answer(hands, at, 481, ("", "", b""));
        }

        self.party.seen.push("pracked");
        if self.agreed == Agreed::Sent(rseq) {
            self.agreed = Agreed::Done;
            if self.offer().is_none() && message.body().is_empty() {
                // The answer was forgotten: the 2xx carries the offer again.
                self.agreed = Agreed::Open;
            }
        }

        self.party.wire.answer(hands, at, 200, ("", "", b""));
    }

    /// Sends the 200 once every reliable provisional response has its PRACK (RFC 3262 §5).
    fn finish(&mut self, hands: &mut Hands<'_>, fork: usize) {
        if !self.is_open() {
            return;
        }
        if !self.party.wire.owes_nothing_reliable(self.server) {
            return hands.step(Duration::from_millis(200), Step::Finish);
        }
        let fork = if self.agreed == Agreed::Done { 0 } else { fork };

        let session = self.session_of(fork);
        let agreed = self.agreed == Agreed::Done;
        let body = if agreed {
            Vec::new()
        } else {
            self.description()
        };

        if !agreed && self.offer().is_none() {
            self.party.sessions[session].offered = Some(label_of(&body));
        }

        self.send_accepted(hands, session, &body);
        if let Some(after) = self.plan.second_fork {
            hands.step(after, Step::FinishFork(7));
        }
    }

    fn send_accepted(&mut self, hands: &mut Hands<'_>, session: usize, body: &[u8]) {
        let invite = lex(&self.invite, Framing::Datagram).expect("it was read when it came");
        let mut lines = self.party.own_lines();
        if self.plan.agrees_to_timer {
            lines.push_str(&self.party.agree(session, &invite));
        }

        let body = match self.plan.flaw {
            Some(Flaw::NoSdp) => b"",
            Some(Flaw::UnreadableRoute) => {
                lines.push_str("Record-Route: <sip:\r\n");
                body
            }
            None => body,
        };
        if !body.is_empty() {
            lines.push_str(SDP);
        }

        for (of, held) in self.party.sessions.iter_mut().enumerate() {
            if of != session {
                held.stage = Stage::Ended;
            }
        }

        let tag = self.party.sessions[session].local_tag.clone();
        let content = (&*tag, &*lines, body);
        self.party.wire.answer(hands, self.server, 200, content);
        self.party.sessions[session].unacknowledged = true;
        self.party.sessions[session].asked = Some(self.server);
        self.party.begin(hands, session);
    }

    /// A second fork answers as well: a proxy on the way passes both.
    fn finish_again(&mut self, hands: &mut Hands<'_>, fork: usize) {
        let session = self.session_of(fork);
        let label = self.party.label();
        let body = sdp(&label, "sendrecv", self.offer().as_deref());
        let lines = format!("{}{SDP}", self.party.own_lines());
        let tag = self.party.sessions[session].local_tag.clone();
        self.party.seen.push("forks");
        let copy = self
            .party
            .wire
            .fork(hands, self.server, (&*tag, &*lines, &*body));
        self.party.sessions[session].asked = Some(copy);
        self.party.sessions[session].unacknowledged = true;
        self.party.sessions[session].stage = Stage::Confirmed;
    }

    fn refuse(&mut self, hands: &mut Hands<'_>, status: u16) {
        let contact = format!("Contact: {}\r\n", self.party.contact());
        let lines = match status {
            302 => contact.as_str(),
            305 => "Contact: <sip:elsewhere@198.51.100.200:5060>\r\n",
            422 => "Min-SE: 2400\r\n",
            503 => "Retry-After: 5\r\n",
            401 => "WWW-Authenticate: Digest realm=\"runtime\", nonce=\"1\"\r\n",
            _ => "",
        };
        self.party
            .wire
            .answer(hands, self.server, status, ("refused", lines, b""));
        self.end_all();
    }

    fn end_all(&mut self) {
        for session in &mut self.party.sessions {
            session.stage = Stage::Ended;
        }
    }

    fn on_cancel(&mut self, hands: &mut Hands<'_>, at: usize) {
        self.party.seen.push("cancelled");
        self.party
            .wire
            .answer(hands, at, 200, ("cancelled", "", b""));
        if !self.is_open() {
            return;
        }

        match self.plan.on_cancel {
            OnCancel::Obeys => self.refuse(hands, 487),
            OnCancel::AnswersAnyway => {
                self.party.seen.push("answers a CANCEL with 200");
                let session = self.session_of(0);
                let body = self.description();
                if self.offer().is_none() {
                    self.party.sessions[session].offered = Some(label_of(&body));
                }
                self.send_accepted(hands, session, &body);
            }
            OnCancel::Forgets => {}
        }
    }
}
