//! Liveness of the peer of a leg. Session timers (RFC 4028), one on each leg, are refreshed by us, or end a session that
//! nobody refreshes. A peer that has said nothing for long is asked, with a session or without: by what refreshes, since OPTIONS
//! proves no dialog.
//!
//! One timer of the wheel serves both. What is heard only sets a moment; the timer finds that out when it fires.

use std::net::SocketAddr;
use std::time::Duration;

use trunkline_sip::dialog::direction;
use trunkline_sip::dialog::sdp::Direction;
use trunkline_sip::dialog::session_timer::SessionTimer;
use trunkline_sip::flow::{Flow, Transport};
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::print::Head;
use trunkline_sip::wire::{Message, Method};

use super::Calls;
use super::call::{Call, CallStatus, Pending, Purpose, QueuedRequest};
use super::context::{CallTimer, Cx};
use super::leg::{Abilities, Leg, LegId, Session, SipPeer};
use super::refusal::Reason;
use super::reply::{PAUSE, Reply};
use super::request_origin::RequestOrigin;

/// Pause after a first sign that a peer is gone, before it is asked again.
const AGAIN: Duration = Duration::from_secs(60);
/// Longest time of a transaction.
const ANSWERED: Duration = Duration::from_secs(32);
/// Over how long the questions are spread to those who share a peer that is taken for gone.
const SPREAD_MS: u64 = 2_000;
/// A session that nobody has refreshed, as the reason of our BYE and as the outcome of a transfer to that peer.
const EXPIRED: (Reason, u16) = (Reason::SessionExpired, 408);

/// Signs that a peer is still there.
#[derive(Copy, Clone, Default, Debug)]
pub(crate) struct Presence {
    /// When it was last heard in this dialog.
    heard: Moment,
    /// When its session is to be refreshed, or counts as gone if that is up to the peer.
    session_due: Option<Moment>,
    /// When its session ends unless it is refreshed.
    session_end: Option<Moment>,
    /// When we hang up for want of a refresh, a little before that.
    session_over: Option<Moment>,
    /// The refresh that the peer has refused, while the other way to refresh is tried.
    refused: Option<Question>,
    /// When to ask it, if that isn't left to its silence.
    ask_at: Option<Moment>,
    /// For when a doubt from outside of the call last had it asked.
    doubted: Moment,
    /// A question had no answer, or none that a live dialog gives.
    is_missed: bool,
    /// It refuses re-INVITEs that change nothing.
    refuses_reinvite: bool,
}

impl Presence {
    /// Something of the peer has come in its dialog.
    pub(crate) const fn hear(&mut self, now: Moment) {
        self.heard = now;
        self.ask_at = None;
        self.is_missed = false;
    }

    /// A session begins, or is refreshed.
    fn begin(&mut self, session: Option<&SessionTimer>, now: Moment) {
        self.hear(now);
        self.session_due = session.map(|session| session.due(now));
        let whole = |session: &SessionTimer| now + Duration::from_secs(session.interval().into());
        self.session_end = session.map(whole);
        self.session_over = session.map(|session| session.over(now));
        self.refused = None;
    }

    /// Returns whether nobody has refreshed the session in time.
    fn is_over(&self, now: Moment) -> bool {
        self.session_over.is_some_and(|over| over <= now)
    }

    /// When its silence has lasted for `longest`; never if that is nothing.
    fn silent_at(&self, longest: Duration) -> Option<Moment> {
        self.ask_at
            .or_else(|| (!longest.is_zero()).then(|| self.heard + longest))
    }

    /// Requests outside this call find the peer gone: gives the moment to ask it, `from` at the earliest; `None` if it is asked soon anyway.
    /// Another org's agent can make a peer look gone again and again, and that has it asked once in [`AGAIN`] only.
    fn doubt(&mut self, from: Moment, longest: Duration) -> Option<Moment> {
        let at = from.max(self.doubted + AGAIN);
        let is_silent = self.silent_at(longest).is_some_and(|silent| silent <= at);
        if self.ask_at.is_some() || is_silent {
            return None;
        }
        self.doubted = at;
        self.ask_at = Some(at);
        Some(at)
    }

    /// A question had no answer; whether there is still time to ask once more.
    fn miss(&mut self, now: Moment) -> bool {
        let is_first = !std::mem::replace(&mut self.is_missed, true);
        let next = now + AGAIN;
        let outlives = self.session_end.is_none_or(|end| next + ANSWERED < end);
        self.ask_at = Some(next);
        // The session is refreshed by the same question.
        self.session_due = self.session_due.map(|due| due.max(next));
        is_first && outlives
    }
}

/// By what a peer is asked.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Question {
    Update,
    Reinvite,
    Options,
}

impl Session {
    /// Returns what is due now: the refresh of the session, or a question to a peer that has been silent for `longest`.
    fn next_question(&self, peer: &SipPeer, now: Moment, longest: Duration) -> Option<Question> {
        let is_due = |at: Option<Moment>| at.is_some_and(|at| at <= now);
        let we_refresh = self.timer.as_ref().is_some_and(SessionTimer::we_refresh);
        if we_refresh && is_due(self.presence.session_due) {
            return Some(self.refresh(peer.abilities, peer.told_first()));
        }
        is_due(self.presence.silent_at(longest))
            .then(|| self.question(peer.abilities, peer.told_first()))
    }

    /// By what the session is refreshed: as the peer lists, but for what it has just refused.
    fn refresh(&self, abilities: Abilities, told: Option<&[u8]>) -> Question {
        let can_repeat = told.is_some();
        let by_update = abilities.update || !can_repeat;
        match (by_update, self.presence.refused) {
            (true, Some(Question::Update)) if can_repeat => Question::Reinvite,
            (false, Some(Question::Reinvite)) | (true, _) => Question::Update,
            (false, _) => Question::Reinvite,
        }
    }

    /// Chooses the request for a silent peer: one that refreshes comes first; OPTIONS only where both are refused, or a re-INVITE would disturb.
    fn question(&self, abilities: Abilities, told: Option<&[u8]>) -> Question {
        let may_reinvite = || !self.presence.refuses_reinvite && told.is_some_and(is_plain_audio);
        match abilities.update {
            true => Question::Update,
            false if may_reinvite() => Question::Reinvite,
            false => Question::Options,
        }
    }
}

impl Leg {
    /// Returns what the peer is to be asked now.
    fn next_question(&self, now: Moment, longest: Duration) -> Option<Question> {
        self.session()?.next_question(self.sip()?, now, longest)
    }
}

/// Whether a description neither holds the call nor sends a fax: repeating one of those could end it.
fn is_plain_audio(sdp: &[u8]) -> bool {
    let is_open = |direction| direction == Direction::SendRecv;
    let mut lines = sdp.split(|octet| *octet == b'\n');
    let has_image = lines.any(|line| line.starts_with(b"m=image"));
    !has_image && direction::of(sdp).into_iter().all(is_open)
}

/// Whether a peer that answers so takes no re-INVITE that changes nothing.
const fn refuses_reinvite(status: u16) -> bool {
    matches!(status, 403 | 405 | 415 | 420 | 488 | 501 | 603 | 606)
}

impl Calls {
    /// A peer doesn't answer OPTIONS outside of calls any more: it is asked in its calls at once.
    pub fn suspect(&mut self, transport: Transport, address: SocketAddr, now: Moment) {
        let longest = self.core.config.dead_peer;
        for (_, slot) in &mut self.slab {
            let call = &mut slot.call;
            let key = call.key;
            let is_up = matches!(call.status(), CallStatus::Answered | CallStatus::Up);
            for id in [call.trunk_id(), call.agent_id()] {
                let is_asked = call.is_refreshing(id);
                let is_meant =
                    |leg: &&SipPeer| leg.flow.peer == address && leg.flow.transport == transport;
                let peer = call.legs.sip(id).filter(is_meant);
                let is_asked = is_asked || !is_up || peer.is_none();
                let session = call.legs.session_mut(id);
                let Some(session) = session.filter(|_| !is_asked) else {
                    continue;
                };
                let spread = u64::from(key.index).wrapping_mul(37) % SPREAD_MS;
                let from = now + Duration::from_millis(spread);
                let Some(at) = session.presence.doubt(from, longest) else {
                    continue;
                };
                let due = session.presence.session_due.map_or(at, |due| due.min(at));
                let timer = (key, CallTimer::Session(id));
                let timer = self.core.timers.schedule(due, timer);
                if let Some(old) = session.due.replace(timer) {
                    self.core.timers.cancel(old);
                }
            }
        }
    }
}

impl Call {
    /// Starts the leg's timer anew: its session begins, or has been refreshed.
    pub(crate) fn start_session(&mut self, cx: &mut Cx<'_>, id: LegId) {
        if let Some(session) = self.legs.session_mut(id) {
            session.presence.begin(session.timer.as_ref(), cx.now);
        }
        self.watch(cx, id);
    }

    /// Returns whether the peer is being asked, or is to be in its turn.
    fn is_refreshing(&self, id: LegId) -> bool {
        let is_it = |pending: &Pending| pending.leg == id && pending.purpose == Purpose::Refresh;
        self.queue.has(QueuedRequest::Refresh(id)) || self.pending.iter().any(is_it)
    }

    /// Sets the leg's timer to what is due next.
    fn watch(&mut self, cx: &mut Cx<'_>, id: LegId) {
        let (key, longest) = (self.key, cx.core.config.dead_peer);
        let is_refreshing = self.is_refreshing(id);
        let leg = self.legs.get_mut(id).filter(|leg| leg.sip().is_some());
        let Some(session) = leg.and_then(Leg::session_mut) else {
            return;
        };
        let presence = &session.presence;
        let asks = [presence.session_due, presence.silent_at(longest)];
        let asks = asks.into_iter().flatten().filter(|_| !is_refreshing);
        let due = asks.chain(presence.session_over).min();
        cx.cancel_timer(&mut session.due);
        if let Some(due) = due {
            let timer = (key, CallTimer::Session(id));
            session.due = Some(cx.core.timers.schedule(due, timer));
        }
    }

    /// The leg's timer: time to refresh, nobody has, or the peer has been silent for long.
    pub(crate) fn on_session_timer(&mut self, cx: &mut Cx<'_>, id: LegId) {
        let is_asked = |pending: &Pending| pending.leg == id && pending.purpose == Purpose::Refresh;
        let is_asked = self.pending.iter().any(is_asked);
        let now = cx.now;
        let Some(session) = self.legs.session_mut(id) else {
            return;
        };
        session.due = None;
        match (session.presence.is_over(now), is_asked) {
            // The answer may still come.
            (true, true) => {}
            (true, false) => self.lose_leg(cx, id, EXPIRED),
            (false, _) => self.refresh_later(cx, id, Duration::ZERO),
        }
    }

    /// Has the peer asked in its turn, where that is due by then.
    fn refresh_later(&mut self, cx: &mut Cx<'_>, id: LegId, wait: Duration) {
        let now = cx.now;
        let session = self.legs.session(id);
        if session.is_some_and(|session| session.presence.is_over(now)) {
            return self.lose_leg(cx, id, EXPIRED);
        }
        self.ask(cx, QueuedRequest::Refresh(id), wait, None);
        self.watch(cx, id);
    }

    /// Refreshes the session, or asks a peer that has been silent for long.
    pub(crate) fn send_refresh(&mut self, cx: &mut Cx<'_>, id: LegId) {
        let (now, longest) = (cx.now, cx.core.config.dead_peer);
        let leg = self.legs.get(id);
        match leg.and_then(|leg| leg.next_question(now, longest)) {
            Some(question) => self.ask_peer(cx, id, question),
            None => self.watch(cx, id),
        }
    }

    /// Returns whether a leg's refresh is an offer, and may not be made while another is open.
    pub(crate) fn refreshes_by_offer(&self, id: LegId, now: Moment, longest: Duration) -> bool {
        let leg = self.legs.get(id);
        leg.and_then(|leg| leg.next_question(now, longest)) == Some(Question::Reinvite)
    }

    /// A bodiless UPDATE, a re-INVITE with the SDP that the peer has, or OPTIONS.
    fn ask_peer(&mut self, cx: &mut Cx<'_>, id: LegId, question: Question) {
        let first = self.legs.sip(id).and_then(|peer| peer.dialogs.first());
        let Some(fork) = first.map(|held| held.fork) else {
            return;
        };
        let told = self.legs.sip(id).and_then(SipPeer::told_first);
        let sdp = told.unwrap_or_default().to_vec();
        let (method, offers, body) = match question {
            Question::Update => ((Method::Update, "UPDATE"), false, &b""[..]),
            Question::Reinvite => ((Method::Invite, "INVITE"), true, &*sdp),
            Question::Options => ((Method::Options, "OPTIONS"), false, &b""[..]),
        };
        let purpose = (Purpose::Refresh, offers, RequestOrigin::Ours);
        let lines = |head: &mut Head<'_>| {
            if offers {
                head.line("Content-Type", b"application/sdp");
            }
        };
        if !self.send_on_leg(cx, id, fork, method, purpose, body, lines) {
            self.ask(cx, QueuedRequest::Refresh(id), PAUSE, None);
        }
    }

    /// The answer to a refresh or question of ours. 481 to what refreshes says that the dialog is gone. 481 to OPTIONS may come from a peer that
    /// looks for no dialog, and 408 from a proxy: these count once they are said twice. Any other answer shows that the peer is there.
    pub(crate) fn on_refresh_answer(
        &mut self,
        cx: &mut Cx<'_>,
        flow: Flow,
        pending: &Pending,
        message: &Message<'_>,
    ) {
        let id = pending.leg;
        match self.reply_to(cx, pending, message) {
            Reply::Accepted if pending.method == Method::Options => self.watch(cx, id),
            Reply::Accepted => {
                if pending.method == Method::Update
                    && let Some(leg) = self.leg(id)
                {
                    // Whether it lists it or not.
                    leg.abilities.update = true;
                }
                self.take_accepted(cx, flow, pending, message);
            }
            Reply::Again(wait) => self.refresh_later(cx, id, wait),
            Reply::Refused(status) => self.refresh_refused(cx, pending, status),
            Reply::Unheard | Reply::TooBrief | Reply::Gone => {}
        }
    }

    /// A refresh or question of ours has no answer.
    pub(crate) fn on_refresh_unanswered(
        &mut self,
        cx: &mut Cx<'_>,
        pending: &Pending,
        status: u16,
    ) {
        match self.reply_of_none(cx, pending, status) {
            Reply::Again(wait) => self.refresh_later(cx, pending.leg, wait),
            Reply::Refused(_) => self.missed(cx, pending.leg),
            Reply::Accepted | Reply::Unheard | Reply::TooBrief | Reply::Gone => {}
        }
    }

    /// Refused, but heard: a session that is due is refreshed by the other method (RFC 4028 §7.4), and after a while by the first again.
    fn refresh_refused(&mut self, cx: &mut Cx<'_>, pending: &Pending, status: u16) {
        let id = pending.leg;
        let Some(peer) = self.leg(id) else { return };
        if pending.method == Method::Update && matches!(status, 405 | 501) {
            peer.abilities.update = false;
        }
        let abilities = peer.abilities;
        let told: Option<Box<[u8]>> = peer.told_first().map(Into::into);
        let Some(session) = self.legs.session_mut(id) else {
            return;
        };
        session.presence.refuses_reinvite |=
            pending.method == Method::Invite && refuses_reinvite(status);
        let due = session.presence.session_due;
        let is_due = due.is_some_and(|due| due <= cx.now);
        let Some(timer) = session.timer.filter(|_| is_due) else {
            return self.watch(cx, id);
        };

        let refused = match pending.method == Method::Invite {
            true => Question::Reinvite,
            false => Question::Update,
        };
        let is_first = session.presence.refused.replace(refused).is_none();
        if is_first && session.refresh(abilities, told.as_deref()) != refused {
            // Where the first answer took its time, this is the last chance.
            self.ask(cx, QueuedRequest::Refresh(id), Duration::ZERO, None);
            return self.watch(cx, id);
        }
        session.presence.refused = None;
        let wait = Duration::from_secs(u64::from(timer.interval() / 8));
        self.refresh_later(cx, id, wait);
    }

    /// A refresh or question had no answer: the peer is asked once more before the call ends.
    pub(crate) fn missed(&mut self, cx: &mut Cx<'_>, id: LegId) {
        let now = cx.now;
        let session = self.legs.session_mut(id);
        let asks_again = session.is_some_and(|session| session.presence.miss(now));
        match asks_again {
            true => self.watch(cx, id),
            false => self.lose_leg(cx, id, (Reason::DialogGone, 408)),
        }
    }
}

#[cfg(test)]
mod tests {
    use trunkline_sip::wire::{Framing, lex};

    use super::*;

    const START: Moment = Moment::from_secs(1_790_000_000);
    const LONGEST: Duration = Duration::from_secs(300);

    fn after(seconds: u64) -> Moment {
        START + Duration::from_secs(seconds)
    }

    #[test]
    fn silence_is_counted_from_what_was_heard_last() {
        let mut presence = Presence::default();
        presence.begin(None, START);
        assert_eq!(presence.silent_at(LONGEST), Some(after(300)));
        assert_eq!(presence.silent_at(Duration::ZERO), None, "switched off");
        presence.hear(after(100));
        assert_eq!(presence.silent_at(LONGEST), Some(after(400)));

        assert!(presence.miss(after(432)), "the first");
        assert_eq!(presence.silent_at(LONGEST), Some(after(492)));
        assert_eq!(presence.silent_at(Duration::ZERO), Some(after(492)));
        assert!(!presence.miss(after(524)), "the second");

        presence.hear(after(525));
        assert_eq!(presence.silent_at(LONGEST), Some(after(825)));
        assert!(presence.miss(after(825)), "it had been heard");
    }

    #[test]
    fn a_doubt_has_a_peer_asked_once_a_minute() {
        let mut presence = Presence::default();
        presence.begin(None, START);
        assert_eq!(presence.doubt(after(1), LONGEST), Some(after(1)));
        assert_eq!(presence.silent_at(LONGEST), Some(after(1)));
        assert_eq!(presence.doubt(after(1), LONGEST), None, "it is asked");
        presence.hear(after(2));
        assert_eq!(presence.doubt(after(3), LONGEST), Some(after(61)));
        presence.hear(after(61));
        assert_eq!(presence.doubt(after(200), LONGEST), Some(after(200)));

        assert!(presence.miss(after(232)));
        assert_eq!(presence.doubt(after(233), LONGEST), None, "the second");
        assert_eq!(presence.silent_at(LONGEST), Some(after(292)));
        presence.hear(after(292));
        assert_eq!(presence.doubt(after(592), LONGEST), None, "for its silence");
    }

    #[test]
    fn no_question_waits_beyond_the_end_of_a_session() {
        for (interval, asks_again) in [(90, false), (240, false), (1_800, true)] {
            let octets = format!(
                "SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP h;branch=z9hG4bK1\r\nFrom: <sip:a@b>;tag=1\r\nTo: <sip:c@d>;tag=2\r\n\
                 Call-ID: x\r\nCSeq: 1 INVITE\r\nSession-Expires: {interval};refresher=uac\r\n\r\n"
            );
            let answer = lex(octets.as_bytes(), Framing::Datagram).expect("a response");
            let session = SessionTimer::for_uac(&answer, Some(interval));
            let mut presence = Presence::default();
            presence.begin(session.as_ref(), START);
            let half = u64::from(interval) / 2;
            assert_eq!(presence.session_due, Some(after(half)));
            // The refresh at half the interval had no answer.
            assert_eq!(presence.miss(after(half + 32)), asks_again, "{interval}");
        }
    }

    #[test]
    fn what_refreshes_comes_before_options() {
        let plain = "v=0\r\nc=IN IP4 192.0.2.1\r\nm=audio 9 RTP/AVP 0\r\n";
        let held = "v=0\r\nc=IN IP4 192.0.2.1\r\nm=audio 9 RTP/AVP 0\r\na=sendonly\r\n";
        let fax = "v=0\r\nc=IN IP4 192.0.2.1\r\nm=image 9 udptl t38\r\n";
        for (case, update, refuses_reinvite, sdp, question) in [
            (
                "UPDATE is listed",
                true,
                false,
                Some(plain),
                Question::Update,
            ),
            ("held", true, false, Some(held), Question::Update),
            ("no UPDATE", false, false, Some(plain), Question::Reinvite),
            ("both refused", false, true, Some(plain), Question::Options),
            (
                "held, no UPDATE",
                false,
                false,
                Some(held),
                Question::Options,
            ),
            ("a fax", false, false, Some(fax), Question::Options),
            ("nothing to repeat", false, false, None, Question::Options),
        ] {
            let abilities = Abilities {
                update,
                ..Abilities::default()
            };
            let mut session = Session::default();
            session.presence.refuses_reinvite = refuses_reinvite;
            let told = sdp.map(str::as_bytes);
            assert_eq!(session.question(abilities, told), question, "{case}");
        }
    }

    #[test]
    fn a_session_is_refreshed_by_what_has_not_just_been_refused() {
        let (update, reinvite) = (Question::Update, Question::Reinvite);
        for (case, lists_update, has_sdp, refused, question) in [
            ("UPDATE is listed", true, true, None, update),
            ("it was refused", true, true, Some(update), reinvite),
            (
                "and nothing can be repeated",
                true,
                false,
                Some(update),
                update,
            ),
            ("UPDATE isn't listed", false, true, None, reinvite),
            (
                "the re-INVITE was refused",
                false,
                true,
                Some(reinvite),
                update,
            ),
            (
                "UPDATE was and is struck off",
                false,
                true,
                Some(update),
                reinvite,
            ),
            ("nothing is left to repeat", false, false, None, update),
        ] {
            let abilities = Abilities {
                update: lists_update,
                ..Abilities::default()
            };
            let mut session = Session::default();
            let told = has_sdp.then_some(&b"v=0\r\n"[..]);
            session.presence.refused = refused;
            assert_eq!(session.refresh(abilities, told), question, "{case}");
        }
    }
}
