//! A peer inside a call, caller or runtime: it answers what comes, does what its plan says, keeps or breaks the promises of
//! its session timer, and records faults in what it receives (RFC 3261 §12 to §15, RFC 3311, RFC 4028).

use std::time::Duration;

use trunkline_sip::wire::{Framing, HeaderName, Message, Method, lex};

use crate::dice::Dice;
use crate::handover::Referral;
use crate::hands::{Hands, Step};
use crate::plan::{Reaction, Talk};
use crate::session::{Interval, Session, Stage, is_answer_to, label_of, sdp, text};
use crate::wire::{Heard, Outgoing, Place, Purpose, Wire};

/// Longer than any call should last: the node ends calls well before.
const TOO_LONG: Duration = Duration::from_secs(1_500);

#[derive(Debug)]
pub(crate) struct Party {
    pub(crate) name: String,
    pub(crate) wire: Wire,
    pub(crate) sessions: Vec<Session>,
    /// The session that the plan is about.
    pub(crate) main: usize,
    pub(crate) talk: Talk,
    pub(crate) dice: Dice,
    /// It neither sends nor hears any more.
    pub(crate) gone: bool,
    /// Faults of what it was sent.
    pub(crate) faults: Vec<String>,
    /// Events at this peer, for the tally.
    pub(crate) seen: Vec<&'static str>,
    /// State of its REFER.
    pub(crate) referral: Referral,
    labels: u32,
}

impl Party {
    pub(crate) fn new(name: String, place: Place, talk: Talk, dice: Dice) -> Self {
        Self {
            wire: Wire::new(&name, place),
            name,
            sessions: Vec::new(),
            main: 0,
            talk,
            dice,
            gone: false,
            faults: Vec::new(),
            seen: Vec::new(),
            referral: Referral::default(),
            labels: 0,
        }
    }

    pub(crate) fn fault(&mut self, what: impl Into<String>) {
        self.faults.push(format!("{}: {}", self.name, what.into()));
    }

    pub(crate) fn contact(&self) -> String {
        let transport = if self.wire.stream {
            ";transport=tcp"
        } else {
            ""
        };
        format!("<sip:{}@{}{transport}>", self.name, self.wire.address)
    }

    /// Returns Contact, Allow and Supported of this party.
    pub(crate) fn own_lines(&self) -> String {
        let update = if self.talk.updates { ", UPDATE" } else { "" };
        let timer = if self.talk.timers { ", timer" } else { "" };
        let refer = if self.talk.refers.is_known {
            ", REFER, NOTIFY"
        } else {
            ""
        };
        format!(
            "Contact: {}\r\nAllow: INVITE, ACK, CANCEL, BYE, OPTIONS, PRACK, INFO, MESSAGE{update}{refer}\r\nSupported: 100rel{timer}\r\n",
            self.contact()
        )
    }

    pub(crate) fn label(&mut self) -> String {
        self.labels += 1;
        format!("{}-{}", self.name, self.labels)
    }

    pub(crate) fn offer(&mut self, session: usize, direction: &str) -> Vec<u8> {
        let label = self.label();
        let body = sdp(&label, direction, None);
        self.sessions[session].offered = Some(label);
        body
    }

    /// Our answer to an offer.
    pub(crate) fn answer_to(&mut self, offer: &[u8]) -> Vec<u8> {
        let label = self.label();
        let answer = sdp(&label, "sendrecv", Some(&label_of(offer)));
        // A new port in each answer.
        match self.talk.moves {
            true => text(&answer)
                .replace("audio 4000", &format!("audio {}", 4_000 + 2 * self.labels))
                .into_bytes(),
            false => answer,
        }
    }

    /// Records a fault if our offer is open and this body isn't the answer to it.
    pub(crate) fn check_answer(&mut self, session: usize, body: &[u8]) {
        let Some(label) = self.sessions[session].offered.take() else {
            return;
        };
        if !is_answer_to(body, &label) {
            self.fault(format!(
                "offer {label} was answered with {}",
                label_of(body)
            ));
        }
    }

    /// The call is up: the plan begins.
    pub(crate) fn begin(&mut self, hands: &mut Hands<'_>, session: usize) {
        self.main = session;
        self.sessions[session].stage = Stage::Confirmed;
        self.seen.push("up");
        for (at, (after, _)) in self.talk.acts.iter().enumerate() {
            hands.step(*after, Step::Act(at));
        }

        hands.step(TOO_LONG, Step::TooLong);
        self.watch(hands);
    }

    /// Sends a request inside a dialog.
    pub(crate) fn request(
        &mut self,
        hands: &mut Hands<'_>,
        session: usize,
        (method, purpose): (Method, Purpose),
        lines: &str,
        body: &[u8],
    ) -> usize {
        self.sessions[session].local_seq += 1;
        let cseq = self.sessions[session].local_seq;
        let lines = format!("{}{lines}", self.head(session));
        let uri = self.sessions[session].target.clone();

        self.wire.send(
            hands,
            &Outgoing {
                method,
                purpose,
                session,
                cseq,
                uri: &uri,
                lines: &lines,
                body,
            },
        )
    }

    pub(crate) fn head(&self, session: usize) -> String {
        let Session {
            local,
            remote,
            call_id,
            ..
        } = &self.sessions[session];
        format!("Max-Forwards: 70\r\nFrom: {local}\r\nTo: {remote}\r\nCall-ID: {call_id}\r\n")
    }

    /// Acknowledges a 2xx.
    pub(crate) fn acknowledge(
        &mut self,
        hands: &mut Hands<'_>,
        session: usize,
        (client, tag): (usize, &[u8]),
        body: &[u8],
    ) {
        let mut lines = self.head(session);
        if !body.is_empty() {
            lines.push_str(SDP);
        }

        let uri = self.sessions[session].target.clone();
        let outgoing = Outgoing {
            method: Method::Ack,
            purpose: Purpose::Other,
            session,
            cseq: self.wire.clients[client].cseq,
            uri: &uri,
            lines: &lines,
            body,
        };
        self.wire.ack(hands, client, tag, &outgoing);
    }

    /// Handles a request with a To-tag that isn't a retransmission.
    pub(crate) fn on_request(&mut self, hands: &mut Hands<'_>, at: usize, message: &Message<'_>) {
        let Some(session) = self.sessions.iter().position(|session| session.is(message)) else {
            return self.wire.answer(hands, at, 481, ("", "", b""));
        };

        let number = message.cseq().number;
        let dialog = &mut self.sessions[session];
        if number <= dialog.remote_seq {
            return self.wire.answer(hands, at, 500, ("", "", b""));
        }

        dialog.remote_seq = number;
        if dialog.stage == Stage::Ended {
            return self.wire.answer(hands, at, 481, ("", "", b""));
        }

        match message.method() {
            Method::Bye => self.on_bye(hands, session, at),
            Method::Invite | Method::Update => self.on_change(hands, session, at, message),
            Method::Info | Method::Message => {
                self.seen.push("info");
                self.wire.answer(hands, at, 200, ("", "", b""));
            }
            Method::Options => self.wire.answer(hands, at, 200, ("", "", b"")),
            Method::Refer => self.on_refer(hands, session, at, message),
            Method::Notify => self.on_notify(hands, at, message),
            Method::Ack
            | Method::Cancel
            | Method::Prack
            | Method::Register
            | Method::Subscribe
            | Method::Publish
            | Method::Other => {
                let method = message.method().as_str();
                self.fault(format!("{method} inside the call"));
                self.wire.answer(hands, at, 501, ("", "", b""));
            }
        }
    }

    fn on_bye(&mut self, hands: &mut Hands<'_>, session: usize, at: usize) {
        self.seen.push("hung up on");
        self.wire.answer(hands, at, 200, ("", "", b""));
        self.end(hands, session);
    }

    /// Ends the dialog: a request of the peer that still waits for its answer gets 487.
    pub(crate) fn end(&mut self, hands: &mut Hands<'_>, session: usize) {
        let dialog = &mut self.sessions[session];
        dialog.stage = Stage::Ended;
        dialog.unacknowledged = false;
        if let Some(asked) = dialog.asked.take() {
            self.wire.answer(hands, asked, 487, ("", "", b""));
        }
    }

    /// Handles a re-INVITE or UPDATE.
    fn on_change(
        &mut self,
        hands: &mut Hands<'_>,
        session: usize,
        at: usize,
        message: &Message<'_>,
    ) {
        self.seen.push("asked");
        let dialog = &mut self.sessions[session];
        let invites = message.method() == Method::Invite;
        if let Some(status) = self.talk.refuses_updates.filter(|_| !invites) {
            return self.wire.answer(hands, at, status, ("", "", b""));
        }

        // A re-INVITE without SDP asks for an offer in the 2xx (RFC 3261 §14.2), so it is in glare with an open offer of ours as well.
        let offers = !message.body().is_empty() || invites;
        if offers && (dialog.asking.is_some() || dialog.offered.is_some()) {
            self.seen.push("glare");
            return self.wire.answer(hands, at, 491, ("", "", b""));
        }

        if offers && dialog.asked.is_some() {
            let later = "Retry-After: 2\r\n";
            return self.wire.answer(hands, at, 500, ("", later, b""));
        }
        if !offers {
            return self.accept_change(hands, session, at);
        }

        dialog.asked = Some(at);
        match self.talk.reaction {
            Reaction::Accept => self.accept_change(hands, session, at),
            Reaction::Later(after, status) => {
                if invites {
                    self.wire.answer(hands, at, 100, ("", "", b""));
                }
                hands.step(after, Step::Answer(at, status));
            }
            Reaction::Refuse(status) => self.refuse_change(hands, session, at, status),
            Reaction::Never => {
                if invites {
                    self.wire.answer(hands, at, 100, ("", "", b""));
                }
            }
        }
    }

    pub(crate) fn answer_later(&mut self, hands: &mut Hands<'_>, at: usize, status: u16) {
        let Some(session) = self
            .sessions
            .iter()
            .position(|session| session.asked == Some(at))
        else {
            return;
        };
        if status == 200 {
            self.accept_change(hands, session, at);
        } else {
            self.refuse_change(hands, session, at, status);
        }
    }

    fn refuse_change(&mut self, hands: &mut Hands<'_>, session: usize, at: usize, status: u16) {
        self.sessions[session].asked = None;
        self.wire.answer(hands, at, status, ("", "", b""));
    }

    fn accept_change(&mut self, hands: &mut Hands<'_>, session: usize, at: usize) {
        let request = self.wire.servers[at].request.clone();
        let message = lex(&request, Framing::Datagram).expect("it was read when it came");
        self.sessions[session].refresh_target(&message);

        let invites = message.method() == Method::Invite;
        let body = match (message.body().is_empty(), invites) {
            (false, _) => self.answer_to(message.body()),
            (true, true) => self.offer(session, "sendrecv"),
            (true, false) => Vec::new(),
        };

        let mut lines = self.own_lines();
        lines.push_str(&self.agree(session, &message));
        if !body.is_empty() {
            lines.push_str(SDP);
        }
        self.wire.answer(hands, at, 200, ("", &lines, &body));

        let dialog = &mut self.sessions[session];
        dialog.unacknowledged |= invites;
        if dialog.asked == Some(at) && !invites {
            dialog.asked = None;
        }

        self.watch(hands);
    }

    /// Agrees to the session interval that a request asks for. Returns the lines of our 2xx that say so.
    pub(crate) fn agree(&mut self, session: usize, request: &Message<'_>) -> String {
        let asked = Interval::read(request, "uas").filter(|_| self.talk.timers);
        let dialog = &mut self.sessions[session];
        dialog.interval = asked;
        dialog.refreshed += 1;
        match asked {
            Some(interval) => {
                let who = if interval.we_refresh { "uas" } else { "uac" };
                format!(
                    "Session-Expires: {};refresher={who}\r\nRequire: timer\r\n",
                    interval.seconds
                )
            }
            None => String::new(),
        }
    }

    /// Sets the alarm of the session timer.
    pub(crate) fn watch(&mut self, hands: &mut Hands<'_>) {
        let Some(session) = self.sessions.get(self.main) else {
            return;
        };
        match session.interval {
            Some(interval) if interval.we_refresh => {
                hands.step(interval.half(), Step::Refresh(session.refreshed));
            }
            Some(interval) => hands.step(interval.whole(), Step::Expire(session.refreshed)),
            None => {}
        }
    }

    /// Handles the ACK of a 2xx of ours.
    pub(crate) fn on_ack(&mut self, message: &Message<'_>) {
        let Some(at) = self.wire.take_ack(message) else {
            return;
        };
        let Some(session) = self.sessions.iter().position(|session| session.is(message)) else {
            return;
        };

        let dialog = &mut self.sessions[session];
        dialog.unacknowledged = false;
        dialog.last_early.get_or_insert(dialog.local_seq);
        dialog.asked.take_if(|asked| *asked == at);
        if dialog.offered.is_some() {
            self.check_answer(session, message.body());
        }
    }

    /// CANCEL of a re-INVITE: the INVITE itself gets 487 (RFC 3261 §9.2).
    pub(crate) fn on_cancel(&mut self, hands: &mut Hands<'_>, at: usize, message: &Message<'_>) {
        let number = message.cseq().number;
        self.wire.answer(hands, at, 200, ("cancel", "", b""));
        let waiting = self.sessions.iter_mut().find_map(|session| {
            let servers = &self.wire.servers;
            session.asked.take_if(|asked| {
                servers[*asked].cseq == number
                    && servers[*asked].method == Method::Invite
                    && servers[*asked].status < 200
            })
        });
        if let Some(invite) = waiting {
            self.seen.push("re-INVITE cancelled");
            self.wire.answer(hands, invite, 487, ("", "", b""));
        }
    }

    /// Handles a response to a request inside the call.
    pub(crate) fn on_heard(&mut self, hands: &mut Hands<'_>, heard: Heard, message: &Message<'_>) {
        let (Heard::Answer(at) | Heard::Fork(at)) = heard;
        if message.status() < 200 {
            return;
        }

        let session = self.wire.clients[at].session;
        if let Some(dialog) = self.sessions.get_mut(session) {
            let is_early = dialog
                .last_early
                .is_some_and(|last| message.cseq().number <= last);
            dialog.sequenced |= message.status() != 481 && !dialog.unacknowledged && !is_early;
        }

        match self.wire.clients[at].purpose {
            Purpose::Bye => self.end(hands, session),
            Purpose::Change => self.on_change_answered(hands, session, at, message),
            Purpose::Probe(expected) => {
                let cseq = self.wire.clients[at].cseq;
                // A later request may have overtaken this one, whose CSeq is then too low: 500 (RFC 3261 §12.2.2).
                let overtaken = message.status() == 500
                    && self.wire.clients.iter().any(|other| other.cseq > cseq);
                let up = self.sessions[session].is_up() && !overtaken;
                if up && message.status() != expected && message.status() != 481 {
                    self.fault(format!("{} where {expected} is due", message.status()));
                }
                self.seen.push("probed");
            }
            Purpose::Refer => self.on_refer_answered(message),
            Purpose::Invite | Purpose::Other => {}
        }
    }

    fn on_change_answered(
        &mut self,
        hands: &mut Hands<'_>,
        session: usize,
        at: usize,
        message: &Message<'_>,
    ) {
        let invites = self.wire.clients[at].method == Method::Invite;
        let offered = self.wire.clients[at].offers;
        let dialog = &mut self.sessions[session];

        dialog.asking.take_if(|asking| *asking == at);
        if message.status() >= 300 {
            self.seen.push(match message.status() {
                491 => "glare",
                487 => "re-INVITE cancelled",
                _ => "change refused",
            });
            dialog.offered.take_if(|_| offered);
            if message.status() == 481 {
                self.end(hands, session);
            }
            return;
        }

        self.seen.push("change agreed");
        dialog.refresh_target(message);
        dialog.interval = Interval::read(message, "uac").filter(|_| self.talk.timers);
        dialog.refreshed += 1;
        if offered {
            self.check_answer(session, message.body());
        }

        if invites {
            let answer = if offered || message.body().is_empty() {
                Vec::new()
            } else {
                self.answer_to(message.body())
            };
            let tag = message.to_tag().unwrap_or_default();
            self.acknowledge(hands, session, (at, tag), &answer);
        }

        self.watch(hands);
    }

    /// Handles the end of the wait for an answer.
    pub(crate) fn on_silence(&mut self, hands: &mut Hands<'_>, client: usize) {
        let (purpose, session) = (
            self.wire.clients[client].purpose,
            self.wire.clients[client].session,
        );
        match purpose {
            Purpose::Bye => self.end(hands, session),
            // Silence counts as 408, which ends the dialog (RFC 3261 §12.2.1.2).
            Purpose::Change => {
                let dialog = &mut self.sessions[session];
                dialog.asking = None;
                dialog.offered = None;
                self.hang_up(hands, session);
            }
            Purpose::Invite | Purpose::Probe(_) | Purpose::Refer | Purpose::Other => {}
        }
    }

    /// Sends BYE, unless the call isn't up. A caller of this method that has answered waits for the ACK first (RFC 3261 §15).
    pub(crate) fn hang_up(&mut self, hands: &mut Hands<'_>, session: usize) {
        if !self.sessions[session].is_up() {
            return;
        }

        self.sessions[session].stage = Stage::Leaving;
        let reason = format!("Reason: Q.850;cause=16;text=\"{}\"\r\n", self.name);
        self.request(hands, session, (Method::Bye, Purpose::Bye), &reason, b"");
        if let Some(asked) = self.sessions[session].asked.take() {
            self.wire.answer(hands, asked, 487, ("", "", b""));
        }
    }
}

/// Header line of an SDP body.
pub(crate) const SDP: &str = "Content-Type: application/sdp\r\n";

/// Returns the first value of a header as text; empty without one.
pub(crate) fn value(message: &Message<'_>, name: HeaderName) -> String {
    text(message.first(name).unwrap_or_default())
}
