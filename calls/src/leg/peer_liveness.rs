//! Liveness of a leg's peer: when to refresh its session (RFC 4028) or to probe it after silence, by which request, and when it counts as gone. Knows
//! neither call nor leg (`session` does).

use std::time::Duration;

use trunkline_sip::dialog::direction;
use trunkline_sip::dialog::sdp::Direction;
use trunkline_sip::dialog::session_timer::SessionTimer;
use trunkline_sip::moment::Moment;

/// Pause after a first sign that a peer is gone, before the second probe.
const AGAIN: Duration = Duration::from_secs(60);
/// The same pause where no media comes from the peer either.
const SILENT_AGAIN: Duration = Duration::from_secs(10);
/// Longest time of a transaction.
const ANSWERED: Duration = Duration::from_secs(32);

/// Signs that a peer is still there.
#[derive(Copy, Clone, Default, Debug)]
pub(crate) struct PeerLiveness {
    /// Time of the last message in this dialog.
    heard: Moment,
    /// Its session, if it has one.
    session: Option<SessionTimes>,
    /// Method of refresh that the peer has refused, while the other one is tried.
    refused: Option<LivenessProbe>,
    /// Time of the next probe, if silence doesn't set it.
    ask_at: Option<Moment>,
    /// Time for which a doubt from outside last scheduled a probe.
    doubted: Moment,
    /// A probe had no answer, or none that a live dialog gives.
    is_missed: bool,
    /// No media comes from the peer, which should send some.
    is_silent: bool,
    /// A probe was repeated because its connection broke.
    is_repeated: bool,
    /// It refuses re-INVITEs that change nothing.
    refuses_reinvite: bool,
}

/// Times of a session (RFC 4028 §10).
#[derive(Copy, Clone, Debug)]
struct SessionTimes {
    /// Time of our next refresh; `over` if the peer refreshes.
    due: Moment,
    /// End of the session unless it is refreshed.
    end: Moment,
    /// Time at which we hang up for lack of a refresh, a little before `end`.
    over: Moment,
}

impl PeerLiveness {
    /// Notes a message of the peer in this dialog.
    pub(crate) const fn hear(&mut self, now: Moment) {
        self.heard = now;
        self.ask_at = None;
        self.is_missed = false;
        self.is_silent = false;
        self.is_repeated = false;
    }

    /// Notes that no media has come for `silence` from the peer, which should send some. Schedules a probe for when no message has come from it
    /// for as long, and returns when the leg's timer has to fire; `None` if a probe is due anyway.
    pub(crate) fn doubt_silent(&mut self, silence: Duration, now: Moment) -> Option<Moment> {
        if self.ask_at.is_some() {
            return None;
        }
        let at = now.max(self.heard + silence);
        self.is_silent = true;
        self.ask_at = Some(at);
        Some(self.session.map_or(at, |session| session.due.min(at)))
    }

    /// Returns whether the probes are for a peer that sends no media.
    pub(crate) const fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// Notes that media comes from the peer again. Returns whether a probe was due only because it didn't.
    pub(crate) const fn trust_heard(&mut self, now: Moment) -> bool {
        let was_silent = self.is_silent;
        if was_silent {
            self.hear(now);
        }
        was_silent
    }

    /// Notes that a session begins or is refreshed.
    pub(crate) fn begin(&mut self, session: Option<&SessionTimer>, now: Moment) {
        self.hear(now);
        self.session = session.map(|session| SessionTimes {
            due: session.due(now),
            end: now + Duration::from_secs(session.interval().into()),
            over: session.over(now),
        });
        self.refused = None;
    }

    /// Returns whether the session was not refreshed in time.
    pub(crate) fn is_over(&self, now: Moment) -> bool {
        self.session.is_some_and(|session| session.over <= now)
    }

    /// Returns when the peer is probed: at `ask_at` if that is set, else when its silence reaches `longest`, or never if that is zero.
    fn silent_at(&self, longest: Duration) -> Option<Moment> {
        self.ask_at
            .or_else(|| (!longest.is_zero()).then(|| self.heard + longest))
    }

    /// Returns when the next step is due: a refresh, a probe, or the end of the session.
    pub(crate) fn due(&self, longest: Duration) -> Option<Moment> {
        let session = self.session.map(|session| session.due.min(session.over));
        let due = [session, self.silent_at(longest)];
        due.into_iter().flatten().min()
    }

    fn session_due(&self) -> Option<Moment> {
        self.session.map(|session| session.due)
    }

    /// Returns when the session ends for lack of a refresh.
    pub(crate) fn over(&self) -> Option<Moment> {
        self.session.map(|session| session.over)
    }

    /// Notes that the peer was found down outside this call. Schedules a probe at `from` or later, and returns when
    /// the leg's timer has to fire; `None` if a probe is due soon anyway.
    /// Another org's agent can make a peer look down repeatedly, so such probes happen once in [`AGAIN`] only.
    pub(crate) fn doubt(&mut self, from: Moment, longest: Duration) -> Option<Moment> {
        let at = from.max(self.doubted + AGAIN);
        let is_silent = self.silent_at(longest).is_some_and(|silent| silent <= at);
        if self.ask_at.is_some() || is_silent {
            return None;
        }
        self.doubted = at;
        self.ask_at = Some(at);
        Some(self.session.map_or(at, |session| session.due.min(at)))
    }

    /// Notes a probe whose connection broke. Returns whether to repeat it at once, since only the connection may have been stale. Over TLS
    /// each new connection that is refused looks like one that broke, so this happens once; but until the end of a session that leaves no
    /// time for a second probe.
    pub(crate) fn repeat_broken(&mut self, now: Moment) -> bool {
        let is_first = !std::mem::replace(&mut self.is_repeated, true);
        let is_short = |session: SessionTimes| session.end <= now + AGAIN + ANSWERED;
        is_first || self.session.is_some_and(is_short)
    }

    /// Notes a probe without an answer. Returns whether there is time for another one.
    pub(crate) fn miss(&mut self, now: Moment) -> bool {
        let is_first = !std::mem::replace(&mut self.is_missed, true);
        // A second probe helps only if its answer can come before the session ends.
        let pause = if self.is_silent { SILENT_AGAIN } else { AGAIN };
        let next = now + pause;
        let outlives = |session: SessionTimes| next + ANSWERED < session.end;
        let outlives = self.session.is_none_or(outlives);
        self.ask_at = Some(next);
        // The next probe also refreshes the session, so no refresh is due before it.
        if let Some(session) = &mut self.session {
            session.due = session.due.max(next);
        }
        is_first && outlives
    }

    /// Returns the request that is due now: a refresh, or a probe of a peer that has been silent for `longest`.
    pub(crate) fn next_probe(
        &self,
        session: Option<&SessionTimer>,
        means: ProbeMethods<'_>,
        now: Moment,
        longest: Duration,
    ) -> Option<LivenessProbe> {
        let is_due = |at: Option<Moment>| at.is_some_and(|at| at <= now);
        let we_refresh = session.is_some_and(SessionTimer::we_refresh);
        // A session that the peer refreshes is only watched: it ends at `over`.
        if we_refresh && is_due(self.session_due()) {
            return Some(self.refresh(means));
        }
        is_due(self.silent_at(longest)).then(|| self.question(means))
    }

    /// Returns the method of refresh: the one in Allow, unless it was just refused.
    fn refresh(&self, means: ProbeMethods<'_>) -> LivenessProbe {
        let can_repeat = means.local_sdp.is_some();
        // Without an SDP to repeat there is no re-INVITE: UPDATE is tried even if Allow lacks it.
        let by_update = means.update || !can_repeat;
        match (by_update, self.refused) {
            (true, Some(LivenessProbe::Update)) if can_repeat => LivenessProbe::Reinvite,
            (false, Some(LivenessProbe::Reinvite)) | (true, _) => LivenessProbe::Update,
            (false, _) => LivenessProbe::Reinvite,
        }
    }

    /// Returns the request for a silent peer: one that refreshes if possible; OPTIONS only if the peer takes no UPDATE, and has refused
    /// re-INVITEs or would be disturbed by one.
    fn question(&self, means: ProbeMethods<'_>) -> LivenessProbe {
        let may_reinvite = || !self.refuses_reinvite && means.local_sdp.is_some_and(is_plain_audio);
        match means.update {
            true => LivenessProbe::Update,
            false if may_reinvite() => LivenessProbe::Reinvite,
            false => LivenessProbe::Options,
        }
    }

    /// Notes that the peer has refused a request, and so is up: a session that is due is refreshed by the other method (RFC 4028 §7.4), and after a
    /// while by the first one again.
    pub(crate) fn refuse(
        &mut self,
        question: LivenessProbe,
        status: u16,
        session: Option<SessionTimer>,
        means: ProbeMethods<'_>,
        now: Moment,
    ) -> ProbeRefusal {
        self.refuses_reinvite |= question == LivenessProbe::Reinvite && refuses_reinvite(status);
        let is_due = self.session_due().is_some_and(|due| due <= now);
        let Some(session) = session.filter(|_| is_due) else {
            return ProbeRefusal::Waits;
        };
        let is_first = self.refused.replace(question).is_none();
        if is_first && self.refresh(means) != question {
            return ProbeRefusal::OtherMethod;
        }
        self.refused = None;
        // An eighth of the interval leaves room for more tries before the session ends.
        ProbeRefusal::Later(Duration::from_secs(u64::from(session.interval() / 8)))
    }
}

/// Request that probes a peer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum LivenessProbe {
    Update,
    Reinvite,
    Options,
}

/// Methods by which a peer can be probed.
#[derive(Copy, Clone, Debug)]
pub(crate) struct ProbeMethods<'a> {
    /// It allows UPDATE.
    pub(crate) update: bool,
    /// The SDP that it has of us, which a re-INVITE repeats.
    pub(crate) local_sdp: Option<&'a [u8]>,
}

/// Consequence of a refusal.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum ProbeRefusal {
    /// Nothing until something is due.
    Waits,
    /// The other method follows at once.
    OtherMethod,
    /// It is probed again after that time.
    Later(Duration),
}

/// Returns whether a description neither holds the call nor sends a fax: repeating one that does could end that.
fn is_plain_audio(sdp: &[u8]) -> bool {
    let is_open = |direction| direction == Direction::SendRecv;
    let mut lines = sdp.split(|octet| *octet == b'\n');
    let has_image = lines.any(|line| line.starts_with(b"m=image"));
    !has_image && direction::of(sdp).into_iter().all(is_open)
}

/// Returns whether a peer that answers so takes no re-INVITE that changes nothing.
const fn refuses_reinvite(status: u16) -> bool {
    matches!(status, 403 | 405 | 415 | 420 | 488 | 501 | 603 | 606)
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
        let mut liveness = PeerLiveness::default();
        liveness.begin(None, START);
        assert_eq!(liveness.silent_at(LONGEST), Some(after(300)));
        assert_eq!(liveness.silent_at(Duration::ZERO), None, "switched off");
        liveness.hear(after(100));
        assert_eq!(liveness.silent_at(LONGEST), Some(after(400)));

        assert!(liveness.miss(after(432)), "the first");
        assert_eq!(liveness.silent_at(LONGEST), Some(after(492)));
        assert_eq!(liveness.silent_at(Duration::ZERO), Some(after(492)));
        assert!(!liveness.miss(after(524)), "the second");

        liveness.hear(after(525));
        assert_eq!(liveness.silent_at(LONGEST), Some(after(825)));
        assert!(liveness.miss(after(825)), "it had been heard");
    }

    /// Over TLS, each new connection that a dead peer refuses looks like one that broke.
    #[test]
    fn a_probe_whose_connection_broke_is_repeated_once_until_the_peer_is_heard() {
        let mut liveness = PeerLiveness::default();
        liveness.begin(None, START);
        assert!(liveness.repeat_broken(START));
        assert!(!liveness.repeat_broken(START));
        assert!(liveness.miss(after(1)), "asked again a minute later");
        assert!(!liveness.repeat_broken(after(61)), "nothing was heard");
        assert!(!liveness.miss(after(61)), "it is gone");

        liveness.hear(after(62));
        assert!(liveness.repeat_broken(after(62)));
    }

    #[test]
    fn a_peer_without_media_is_asked_at_once_and_once_more() {
        let silence = Duration::from_secs(30);
        let begun = || {
            let mut liveness = PeerLiveness::default();
            liveness.begin(None, START);
            liveness
        };

        let mut liveness = begun();
        liveness.hear(after(1));
        let asked = liveness.doubt_silent(silence, after(30));
        assert_eq!(asked, Some(after(31)), "its ACK came later");
        liveness.hear(after(30));
        let never = liveness.silent_at(Duration::ZERO);
        assert_eq!(never, None, "a message is life");

        let mut liveness = begun();
        assert_eq!(liveness.doubt_silent(silence, after(30)), Some(after(30)));
        assert_eq!(
            liveness.doubt_silent(silence, after(31)),
            None,
            "it is asked"
        );
        assert!(liveness.miss(after(62)), "the first");
        assert_eq!(liveness.silent_at(Duration::ZERO), Some(after(72)));
        assert!(liveness.is_silent());
        assert!(!liveness.miss(after(104)), "the second: it is gone");

        let mut liveness = begun();
        let _ = liveness.doubt_silent(silence, after(30));
        liveness.hear(after(31));
        assert!(!liveness.is_silent(), "it has answered");
        assert_eq!(liveness.silent_at(LONGEST), Some(after(331)));

        let mut liveness = begun();
        let _ = liveness.doubt_silent(silence, after(30));
        assert!(liveness.miss(after(62)));
        assert!(liveness.trust_heard(after(65)), "its media is back");
        assert_eq!(liveness.silent_at(LONGEST), Some(after(365)));
        assert!(liveness.miss(after(400)), "and counts as an answer");
        assert!(
            !liveness.trust_heard(after(401)),
            "asked for another reason"
        );
    }

    #[test]
    fn a_doubt_has_a_peer_asked_once_a_minute() {
        let mut liveness = PeerLiveness::default();
        liveness.begin(None, START);
        assert_eq!(liveness.doubt(after(1), LONGEST), Some(after(1)));
        assert_eq!(liveness.silent_at(LONGEST), Some(after(1)));
        assert_eq!(liveness.doubt(after(1), LONGEST), None, "it is asked");
        liveness.hear(after(2));
        assert_eq!(liveness.doubt(after(3), LONGEST), Some(after(61)));
        liveness.hear(after(61));
        assert_eq!(liveness.doubt(after(200), LONGEST), Some(after(200)));

        assert!(liveness.miss(after(232)));
        assert_eq!(liveness.doubt(after(233), LONGEST), None, "the second");
        assert_eq!(liveness.silent_at(LONGEST), Some(after(292)));
        liveness.hear(after(292));
        assert_eq!(liveness.doubt(after(592), LONGEST), None, "for its silence");
    }

    /// A session that our INVITE has agreed on; `refresher` is `uac` for us.
    fn session(interval: u32, refresher: &str) -> SessionTimer {
        let octets = format!(
            "SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP h;branch=z9hG4bK1\r\nFrom: <sip:a@b>;tag=1\r\nTo: <sip:c@d>;tag=2\r\n\
             Call-ID: x\r\nCSeq: 1 INVITE\r\nSession-Expires: {interval};refresher={refresher}\r\n\r\n"
        );
        let answer = lex(octets.as_bytes(), Framing::Datagram).expect("a response");
        SessionTimer::for_uac(&answer, Some(interval)).expect("a session")
    }

    const PLAIN: &[u8] = b"v=0\r\nc=IN IP4 192.0.2.1\r\nm=audio 9 RTP/AVP 0\r\n";
    const HELD: &[u8] = b"v=0\r\nc=IN IP4 192.0.2.1\r\nm=audio 9 RTP/AVP 0\r\na=sendonly\r\n";

    /// The refresher acts at half the interval, and the session is over 32 s before its end (RFC 4028 §10).
    #[test]
    fn what_is_due_first_is_a_refresh_a_probe_or_the_end() {
        for (refresher, longest, due) in [
            ("uac", LONGEST, 300),
            ("uac", Duration::ZERO, 900),
            ("uas", Duration::ZERO, 1_768),
        ] {
            let mut liveness = PeerLiveness::default();
            liveness.begin(Some(&session(1_800, refresher)), START);
            assert_eq!(liveness.due(longest), Some(after(due)), "{refresher}");
            assert_eq!(liveness.over(), Some(after(1_768)));
            assert!(!liveness.is_over(after(1_767)));
            assert!(liveness.is_over(after(1_768)));
        }

        let mut without = PeerLiveness::default();
        without.begin(None, START);
        assert_eq!(without.due(LONGEST), Some(after(300)));
        assert_eq!((without.due(Duration::ZERO), without.over()), (None, None));
        assert!(!without.is_over(after(100_000)));
    }

    #[test]
    fn a_session_is_refreshed_by_its_refresher_and_a_silent_peer_asked() {
        // For a peer on hold without UPDATE the two differ.
        let means = ProbeMethods {
            update: false,
            local_sdp: Some(HELD),
        };
        for (refresher, heard, now, expected) in [
            ("uac", 899, 899, None),
            ("uac", 899, 900, Some(LivenessProbe::Reinvite)),
            ("uac", 100, 399, None),
            ("uac", 100, 400, Some(LivenessProbe::Options)),
            ("uas", 1_700, 1_768, None),
            ("uas", 1_400, 1_700, Some(LivenessProbe::Options)),
        ] {
            let session = session(1_800, refresher);
            let mut liveness = PeerLiveness::default();
            liveness.begin(Some(&session), START);
            liveness.hear(after(heard));
            let probe = liveness.next_probe(Some(&session), means, after(now), LONGEST);
            assert_eq!(probe, expected, "{refresher}, {heard}, {now}");
        }
    }

    #[test]
    fn a_refused_refresh_is_tried_by_the_other_method_and_then_later() {
        let session = session(1_800, "uac");
        let both = ProbeMethods {
            update: true,
            local_sdp: Some(PLAIN),
        };
        let begun = || {
            let mut liveness = PeerLiveness::default();
            liveness.begin(Some(&session), START);
            liveness
        };
        let later = ProbeRefusal::Later(Duration::from_secs(225));
        let (update, reinvite) = (LivenessProbe::Update, LivenessProbe::Reinvite);

        let mut liveness = begun();
        let mut refuse = |probe, now| liveness.refuse(probe, 500, Some(session), both, after(now));
        assert_eq!(refuse(update, 899), ProbeRefusal::Waits, "not due");
        assert_eq!(refuse(update, 900), ProbeRefusal::OtherMethod);
        assert_eq!(refuse(reinvite, 901), later);
        assert_eq!(refuse(update, 1_126), ProbeRefusal::OtherMethod, "anew");

        let alone = ProbeMethods {
            local_sdp: None,
            ..both
        };
        let refused = begun().refuse(update, 500, Some(session), alone, after(900));
        assert_eq!(refused, later, "there is no other method");
        let refused = begun().refuse(update, 500, None, both, after(900));
        assert_eq!(refused, ProbeRefusal::Waits, "no session");
    }

    #[test]
    fn a_peer_that_takes_no_re_invites_gets_options() {
        let means = ProbeMethods {
            update: false,
            local_sdp: Some(PLAIN),
        };
        for (probe, status, next) in [
            (LivenessProbe::Reinvite, 488, LivenessProbe::Options),
            (LivenessProbe::Reinvite, 405, LivenessProbe::Options),
            (LivenessProbe::Reinvite, 500, LivenessProbe::Reinvite),
            (LivenessProbe::Update, 488, LivenessProbe::Reinvite),
        ] {
            let mut liveness = PeerLiveness::default();
            let refused = liveness.refuse(probe, status, None, means, START);
            assert_eq!(refused, ProbeRefusal::Waits);
            assert_eq!(liveness.question(means), next, "{probe:?} {status}");
        }
    }

    #[test]
    fn a_second_probe_must_end_before_the_session() {
        for (now, asks_again) in [(1_707, true), (1_708, false)] {
            let mut liveness = PeerLiveness::default();
            liveness.begin(Some(&session(1_800, "uac")), START);
            assert_eq!(liveness.miss(after(now)), asks_again, "{now}");
        }
    }

    #[test]
    fn no_question_waits_beyond_the_end_of_a_session() {
        for (interval, asks_again) in [(90, false), (240, false), (1_800, true)] {
            let mut liveness = PeerLiveness::default();
            liveness.begin(Some(&session(interval, "uac")), START);
            let half = u64::from(interval) / 2;
            assert_eq!(liveness.session_due(), Some(after(half)));
            // The refresh at half the interval had no answer.
            assert_eq!(liveness.miss(after(half + 32)), asks_again, "{interval}");
        }
    }

    #[test]
    fn what_refreshes_comes_before_options() {
        let (plain, held) = (PLAIN, HELD);
        let fax: &[u8] = b"v=0\r\nc=IN IP4 192.0.2.1\r\nm=image 9 udptl t38\r\n";

        for (case, update, refuses_reinvite, sdp, question) in [
            (
                "UPDATE is listed",
                true,
                false,
                Some(plain),
                LivenessProbe::Update,
            ),
            ("held", true, false, Some(held), LivenessProbe::Update),
            (
                "no UPDATE",
                false,
                false,
                Some(plain),
                LivenessProbe::Reinvite,
            ),
            (
                "both refused",
                false,
                true,
                Some(plain),
                LivenessProbe::Options,
            ),
            (
                "held, no UPDATE",
                false,
                false,
                Some(held),
                LivenessProbe::Options,
            ),
            ("a fax", false, false, Some(fax), LivenessProbe::Options),
            (
                "nothing to repeat",
                false,
                false,
                None,
                LivenessProbe::Options,
            ),
        ] {
            let liveness = PeerLiveness {
                refuses_reinvite,
                ..PeerLiveness::default()
            };
            let means = ProbeMethods {
                update,
                local_sdp: sdp,
            };
            assert_eq!(liveness.question(means), question, "{case}");
        }
    }

    #[test]
    fn a_session_is_refreshed_by_what_has_not_just_been_refused() {
        let (update, reinvite) = (LivenessProbe::Update, LivenessProbe::Reinvite);

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
            let liveness = PeerLiveness {
                refused,
                ..PeerLiveness::default()
            };
            let means = ProbeMethods {
                update: lists_update,
                local_sdp: has_sdp.then_some(&b"v=0\r\n"[..]),
            };
            assert_eq!(liveness.refresh(means), question, "{case}");
        }
    }
}
