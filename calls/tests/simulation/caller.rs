//! The caller: a PBX that dials, answers a challenge, acknowledges, cancels and hangs up.

use std::time::Duration;

use trunkline_sip::auth::client;
use trunkline_sip::wire::{Framing, HeaderName, Message, Method, lex};

use crate::dice::Dice;
use crate::hands::{Alarm, Hands, Step};
use crate::party::{Party, SDP, value};
use crate::plan::{CallerPlan, Identity, Reliable};
use crate::session::{Interval, Session, Stage, is_answer_to, label_of, sdp};
use crate::wire::{Heard, Outgoing, Place, Purpose, Silence};

/// Part of a body with the caller's location.
const LOCATION: &[u8] = b"--b\r\nContent-Type: application/pidf+xml\r\n\r\n<presence/>\r\n--b\r\n";
/// Time after which a caller cancels an INVITE without a final response. The node's own deadline is shorter.
const PATIENCE: Duration = Duration::from_secs(90);
/// Most challenges that a caller answers.
const LOGINS: u32 = 3;

/// Outcome of the call, as the caller knows it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Dialling,
    Up,
    Refused(u16),
    /// No final answer came.
    Silence,
}

#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) party: Party,
    pub(crate) plan: CallerPlan,
    pub(crate) outcome: Outcome,
    call: usize,
    uri: String,
    agent: String,
    call_id: String,
    /// Client transaction of the last INVITE.
    invite: Option<usize>,
    /// Number of INVITEs sent, and CSeq of the last one.
    invites: u32,
    /// Number of challenges received.
    logins: u32,
    /// Challenge that isn't answered yet.
    challenge: Option<Vec<u8>>,
    /// Label of the offer in the INVITE; `None` if the runtime makes the offer.
    offer: Option<String>,
    /// To-tag of the 2xx that counts.
    winner: Option<Vec<u8>>,
    /// Header that names the dialog to take over.
    replaces: Option<String>,
}

/// Number of a call, the place that its caller calls from, and the agent that is called.
pub(crate) struct Line<'a> {
    pub(crate) call: usize,
    pub(crate) place: Place,
    pub(crate) agent: &'a str,
}

impl Caller {
    pub(crate) fn new(line: &Line<'_>, plan: CallerPlan, dice: Dice) -> Self {
        let name = format!("caller{}", line.call);
        Self {
            party: Party::new(name, line.place, plan.talk.clone(), dice),
            plan,
            outcome: Outcome::Dialling,
            call: line.call,
            uri: format!("sip:+4930123@{}", line.place.node),
            agent: line.agent.to_owned(),
            call_id: format!("call-{}@pbx", line.call),
            invite: None,
            invites: 0,
            logins: 0,
            challenge: None,
            offer: None,
            winner: None,
            replaces: None,
        }
    }

    /// Makes a new leg of the same call, which replaces the leg of this line.
    pub(crate) fn successor(
        line: &Line<'_>,
        plan: CallerPlan,
        dice: Dice,
        replaces: String,
    ) -> Self {
        let name = format!("successor{}", line.call);
        let mut next = Self::new(line, plan, dice.clone());
        next.party = Party::new(name, line.place, next.plan.talk.clone(), dice);
        next.call_id = format!("next-{}@pbx", line.call);
        next.replaces = Some(replaces);
        next
    }

    /// Returns whether this leg replaces another one.
    pub(crate) const fn is_successor(&self) -> bool {
        self.replaces.is_some()
    }

    pub(crate) fn on_alarm(&mut self, hands: &mut Hands<'_>, alarm: &Alarm) {
        if self.party.gone {
            return;
        }
        if let Alarm::Step(step) = alarm {
            return self.on_step(hands, step);
        }

        match self.party.wire.alarm(hands, alarm) {
            Silence::NoAnswer(client) if Some(client) == self.invite => {
                self.outcome = Outcome::Silence;
            }
            Silence::NoAnswer(client) => self.party.on_silence(hands, client),
            Silence::NoAck(_) => self.on_no_ack(hands),
            Silence::NoPrack(_) | Silence::None => {}
        }
    }

    fn on_no_ack(&mut self, hands: &mut Hands<'_>) {
        let main = self.party.main;
        self.party.sessions[main].unacknowledged = false;
        self.party.hang_up(hands, main);
    }

    fn on_step(&mut self, hands: &mut Hands<'_>, step: &Step) {
        match step {
            Step::Dial => self.dial(hands),
            Step::LogIn => self.log_in(hands),
            // Between a challenge and its answer there is nothing to cancel.
            Step::Cancel if self.challenge.take().is_some() => self.refused(487),
            Step::Cancel => {
                if let (Some(invite), Outcome::Dialling) = (self.invite, self.outcome) {
                    self.party.seen.push("cancels");
                    self.party.wire.cancel(hands, invite);
                }
            }
            Step::ByeEarly => self.bye_early(hands),
            Step::UpdateEarly => self.update_early(hands),
            Step::Vanish
            | Step::Answer(..)
            | Step::CancelReinvite(_)
            | Step::Referred(..)
            | Step::News(..)
            | Step::Leave(_)
            | Step::Act(_)
            | Step::Refresh(_)
            | Step::Expire(_)
            | Step::TooLong => self.party.on_step(hands, step),
            Step::Ring(_) | Step::Finish | Step::FinishFork(_) => {}
        }
    }

    fn dial(&mut self, hands: &mut Hands<'_>) {
        if let Some(after) = self.plan.vanish_after {
            hands.step(after, Step::Vanish);
        }
        if !self.plan.offers_late {
            self.offer = Some(self.party.label());
        }
        self.send_invite(hands, "");
        hands.step(PATIENCE + self.plan.login_after, Step::Cancel);
        self.plan_endings(hands);
    }

    fn plan_endings(&mut self, hands: &mut Hands<'_>) {
        if let Some(after) = self.plan.cancel_after {
            hands.step(after, Step::Cancel);
        }
        if let Some(after) = self.plan.bye_early {
            hands.step(after, Step::ByeEarly);
        }
        if let Some(after) = self.plan.update_early {
            hands.step(after, Step::UpdateEarly);
        }
    }

    fn send_invite(&mut self, hands: &mut Hands<'_>, credentials: &str) {
        self.invites += 1;
        let body = self
            .offer
            .as_ref()
            .map(|label| sdp(label, "sendrecv", None))
            .unwrap_or_default();
        let body = match self.plan.has_parts {
            true => [LOCATION, SDP.as_bytes(), b"\r\n", &body, b"--b--\r\n"].concat(),
            false => body,
        };

        let lines = self.invite_lines(credentials, !body.is_empty());
        let outgoing = Outgoing {
            method: Method::Invite,
            purpose: Purpose::Invite,
            session: 0,
            cseq: self.invites,
            uri: &self.uri,
            lines: &lines,
            body: &body,
        };
        self.invite = Some(self.party.wire.send(hands, &outgoing));
    }

    fn invite_lines(&self, credentials: &str, has_body: bool) -> String {
        let Self {
            call,
            agent,
            call_id,
            ..
        } = self;
        let own = self.party.own_lines();
        let own = match self.plan.reliable {
            Reliable::Unknown => own.replace("100rel, ", "").replace("100rel", "join"),
            Reliable::Supported | Reliable::Required => own,
        };

        let mut lines = format!(
            "Max-Forwards: 70\r\nFrom: \"Caller\" <sip:+49301{call:04}@pbx.example>;tag=from-{call}\r\nTo: <{}>\r\n\
             Call-ID: {call_id}\r\n{own}X-Sim-Call: {call}\r\nX-PLATFORM-AGENT-ID: {agent}\r\n{credentials}",
            self.uri
        );

        if let Some(replaces) = &self.replaces {
            lines.push_str(replaces);
        }
        if self.plan.reliable == Reliable::Required {
            lines.push_str("Require: 100rel\r\n");
        }
        if let Some((seconds, refresher)) = self.plan.interval {
            let who = refresher.map_or(String::new(), |who| format!(";refresher={who}"));
            lines.push_str(&format!("Session-Expires: {seconds}{who}\r\n"));
        }

        match (has_body, self.plan.has_parts) {
            (true, true) => lines.push_str("Content-Type: multipart/mixed;boundary=b\r\n"),
            (true, false) => lines.push_str(SDP),
            (false, _) => {}
        }
        lines
    }

    /// Sends the same INVITE with the next CSeq and the answer to the challenge (RFC 3261 §22.2).
    fn log_in(&mut self, hands: &mut Hands<'_>) {
        let Some(challenge) = self.challenge.take() else {
            return;
        };
        let message = lex(&challenge, Framing::Datagram).expect("it was read when it came");

        let (user, password) = match self.plan.identity {
            Identity::Good => ("trunk-user", "secret"),
            Identity::WrongPassword => ("trunk-user", "guess"),
            Identity::Unknown => ("nobody", "secret"),
            Identity::Stranger | Identity::Trusted => return self.refused(401),
        };
        let Some((_, asked)) = client::challenge(&message) else {
            return self.party.fault("a challenge that can't be answered");
        };

        let challenged = client::ChallengedMessage {
            method: "INVITE",
            uri: self.uri.as_bytes(),
            body: b"",
        };
        let login = client::Login { user, password };
        let answer = client::answer(&asked, &challenged, &login, 1, "cnonce");
        let lines = format!("Authorization: {}\r\n", answer.expect("we know MD5"));
        self.send_invite(hands, &lines);
    }

    fn refused(&mut self, status: u16) {
        self.outcome = Outcome::Refused(status);
        for session in &mut self.party.sessions {
            session.stage = Stage::Ended;
        }
    }

    pub(crate) fn on_datagram(&mut self, hands: &mut Hands<'_>, message: &Message<'_>) {
        if self.party.gone {
            return;
        }
        if message.is_request() {
            return self.on_request(hands, message);
        }

        let Some(heard) = self.party.wire.hear(hands, message) else {
            return;
        };

        let (Heard::Answer(at) | Heard::Fork(at)) = heard;
        if self.party.wire.clients[at].purpose != Purpose::Invite {
            return self.party.on_heard(hands, heard, message);
        }
        match message.status() {
            ..200 => self.on_provisional(hands, at, message),
            200..300 => self.on_accepted(hands, at, message),
            401 => self.on_challenge(hands, message),
            status => self.refused(status),
        }
    }

    fn on_request(&mut self, hands: &mut Hands<'_>, message: &Message<'_>) {
        if message.method() == Method::Ack {
            return self.party.on_ack(message);
        }
        let (at, new) = self.party.wire.take(hands, message);
        match (new, message.method()) {
            (false, _) => {}
            (true, Method::Cancel) => self.party.on_cancel(hands, at, message),
            (true, _) => self.party.on_request(hands, at, message),
        }
    }

    fn on_challenge(&mut self, hands: &mut Hands<'_>, message: &Message<'_>) {
        self.logins += 1;
        let gave_up = self
            .invite
            .is_some_and(|invite| self.party.wire.is_cancelled(invite));

        let stale = value(message, HeaderName::WwwAuthenticate).contains("stale=true");
        if stale {
            self.party.seen.push("stale nonce");
        }

        if gave_up || self.logins > LOGINS || (self.logins > 1 && !stale) {
            return self.refused(401);
        }

        self.challenge = Some(message.raw().to_vec());
        let wait = if self.logins == 1 {
            self.plan.login_after
        } else {
            Duration::ZERO
        };
        hands.step(wait, Step::LogIn);
    }

    /// Returns the dialog of a response, which is made if it is new.
    fn session_of(&mut self, at: usize, message: &Message<'_>) -> usize {
        let tag = message.to_tag().unwrap_or_default();
        let known = self
            .party
            .sessions
            .iter()
            .position(|session| session.remote_tag == tag);
        known.unwrap_or_else(|| {
            let mut session = Session::as_caller(message, message);
            session.local_seq = self.party.wire.clients[at].cseq;
            self.party.sessions.push(session);
            self.party.sessions.len() - 1
        })
    }

    fn on_provisional(&mut self, hands: &mut Hands<'_>, at: usize, message: &Message<'_>) {
        if message.to_tag().is_none() || self.outcome != Outcome::Dialling {
            return;
        }

        let session = self.session_of(at, message);
        self.party.seen.push("rings");

        if !message.has_token(HeaderName::Require, "100rel") {
            return;
        }
        if self.plan.reliable == Reliable::Unknown {
            self.party
                .fault("100rel is required of a caller without it");
        }

        let rseq = message.number(HeaderName::RSeq).unwrap_or_default();
        let held = &mut self.party.sessions[session];
        let next = held.highest_rseq == 0 || rseq == held.highest_rseq + 1;
        if !next || self.plan.never_pracks {
            return;
        }

        held.highest_rseq = rseq;
        self.prack(hands, session, rseq, message);
    }

    fn prack(&mut self, hands: &mut Hands<'_>, session: usize, rseq: u32, message: &Message<'_>) {
        self.party.seen.push("pracks");
        let mut body = Vec::new();
        let agreed = self.party.sessions[session].agreed;
        match self.offer.clone() {
            _ if message.body().is_empty() => {}
            Some(label) => {
                self.party.sessions[session].agreed = true;
                self.match_answer(&label, message.body());
            }
            None if self.plan.forgets_answer || agreed => {}
            None => {
                self.party.sessions[session].agreed = true;
                body = self.party.answer_to(message.body());
            }
        }

        let invite = message.cseq().number;
        let content = if body.is_empty() { "" } else { SDP };
        let lines = format!("RAck: {rseq} {invite} INVITE\r\n{content}");
        let method = (Method::Prack, Purpose::Other);
        self.party.request(hands, session, method, &lines, &body);
    }

    fn match_answer(&mut self, label: &str, body: &[u8]) {
        if !is_answer_to(body, label) {
            let wrong = format!("offer {label} was answered with {}", label_of(body));
            self.party.fault(wrong);
        }
    }

    fn on_accepted(&mut self, hands: &mut Hands<'_>, at: usize, message: &Message<'_>) {
        let tag = message.to_tag().unwrap_or_default();
        if self.winner.as_deref().is_some_and(|winner| winner != tag) {
            return self.party.fault("a second 200 with another To-tag");
        }
        if self.winner.is_some() || matches!(self.outcome, Outcome::Refused(_)) {
            return;
        }

        self.winner = Some(tag.to_vec());
        self.outcome = Outcome::Up;
        if self.is_successor() {
            self.party.seen.push("took over");
        }

        let session = self.session_of(at, message);
        for other in &mut self.party.sessions {
            other.stage = Stage::Ended;
        }

        self.party.sessions[session].refresh_target(message);
        self.party.sessions[session].interval =
            Interval::read(message, "uac").filter(|_| self.plan.talk.timers);

        let answer = self.settle_media(session, message);
        if !self.plan.never_acks {
            self.party.acknowledge(hands, session, (at, tag), &answer);
        }
        self.party.begin(hands, session);
    }

    /// Checks the answer to the caller's offer, or returns the caller's answer to the offer in the 200.
    fn settle_media(&mut self, session: usize, message: &Message<'_>) -> Vec<u8> {
        let agreed = self.party.sessions[session].agreed;
        match self.offer.take() {
            Some(_) if agreed && message.body().is_empty() => Vec::new(),
            Some(label) => {
                self.match_answer(&label, message.body());
                Vec::new()
            }
            None if agreed => Vec::new(),
            None if message.body().is_empty() => {
                self.party.fault("no offer and none in the 200");
                Vec::new()
            }
            None if self.plan.forgets_answer => Vec::new(),
            None => self.party.answer_to(message.body()),
        }
    }

    /// Sends BYE in every early dialog, or in the first (RFC 3261 §15).
    fn bye_early(&mut self, hands: &mut Hands<'_>) {
        if self.outcome != Outcome::Dialling {
            return;
        }
        for session in 0..self.party.sessions.len() {
            if self.party.sessions[session].stage == Stage::Early {
                self.party.seen.push("hangs up early");
                let method = (Method::Bye, Purpose::Other);
                self.party.request(hands, session, method, "", b"");
                if self.plan.byes_first_alone {
                    return;
                }
            }
        }
    }

    /// Sends an offer by UPDATE in the first early dialog (RFC 3311 §5.1), even at a time at which none is allowed.
    fn update_early(&mut self, hands: &mut Hands<'_>) {
        let early = |session: &Session| session.stage == Stage::Early;
        let Some(session) = self.party.sessions.iter().position(early) else {
            return;
        };
        if self.outcome == Outcome::Dialling {
            self.party.seen.push("offers early");
            self.party.offer_by_update(hands, session);
        }
    }

    pub(crate) const fn number(&self) -> usize {
        self.call
    }

    pub(crate) fn call_id(&self) -> &str {
        &self.call_id
    }
}
