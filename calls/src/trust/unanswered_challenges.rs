//! Callers that send no credentials and don't answer the challenge: perhaps a PBX that should be authenticated by its address and uses another one.
//! Such a caller is reported after it has had time to answer, since the first INVITE of every PBX has no credentials. Bounded, since unauthenticated
//! peers call any number.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;
use std::time::Duration;

use smallvec::SmallVec;
use trunkline_sip::flow::Flow;
use trunkline_sip::header::uri::Uri;
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::Message;
use uuid::Uuid;

/// Time to answer a challenge: a retransmission or two.
const PATIENCE: Duration = Duration::from_secs(4);
/// Sources kept per number. Further ones aren't reported, so that forged ones take little of the list.
const SOURCES: usize = 4;
/// Challenged callers kept. While the list is full, further ones aren't reported.
const KEPT: usize = 64;
/// Longer Call-IDs are cut.
const LONGEST: usize = 255;
/// Digits of a number in any format.
const DIGITS: std::ops::RangeInclusive<usize> = 6..=17;

/// A call that nothing was proven for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnansweredChallenge {
    /// The packet's source.
    pub source: IpAddr,
    /// Digits of the called number, without the prefix of an international number; it may be in a national format.
    pub dialled: Box<str>,
    /// Time.
    pub at: Moment,
    /// Orgs whose trunks allowed the source then, though not for this number.
    pub allowed_by: SmallVec<[Uuid; 2]>,
    /// Call-ID of the INVITE.
    pub call_id: Box<str>,
}

/// Unproven callers of a shard.
#[derive(Debug, Default)]
pub(crate) struct UnansweredChallenges {
    waiting: VecDeque<(u64, UnansweredChallenge)>,
}

impl UnansweredChallenges {
    /// Notes a challenged INVITE without credentials. `allowed_by` is called only if it is kept.
    pub(crate) fn challenged(
        &mut self,
        message: &Message<'_>,
        request_uri: Option<&Uri<'_>>,
        flow: &Flow,
        allowed_by: impl FnOnce() -> SmallVec<[Uuid; 2]>,
        now: Moment,
    ) {
        let source = flow.peer.ip().to_canonical();
        let Some(dialled) = request_uri.and_then(dialled) else {
            return;
        };
        let Ok(dialled) = std::str::from_utf8(&dialled) else {
            return;
        };

        let mut of_number = self
            .waiting
            .iter()
            .filter(|(_, of)| *of.dialled == *dialled);
        // A full list pushes nothing out: a flood of forged INVITEs may keep later callers off it, but loses none.
        if self.waiting.len() >= KEPT
            || of_number.clone().count() >= SOURCES
            || of_number.any(|(_, of)| of.source == source)
        {
            return;
        }

        let call_id = String::from_utf8_lossy(message.call_id());
        let end = call_id.char_indices().nth(LONGEST);
        let call_id = &call_id[..end.map_or(call_id.len(), |(at, _)| at)];
        self.waiting.push_back((
            key(message),
            UnansweredChallenge {
                source,
                dialled: dialled.into(),
                at: now,
                allowed_by: allowed_by(),
                call_id: call_id.into(),
            },
        ));
    }

    /// Notes that a sender has answered its challenge, rightly or not.
    pub(crate) fn answered(&mut self, message: &Message<'_>) {
        if !self.waiting.is_empty() {
            let key = key(message);
            self.waiting.retain(|(known, _)| *known != key);
        }
    }

    /// Returns when the next caller has had its time.
    pub(crate) fn next_timeout(&self) -> Option<Moment> {
        self.waiting.front().map(|(_, of)| of.at + PATIENCE)
    }

    /// Takes a caller that has had its time.
    pub(crate) fn pop(&mut self, now: Moment) -> Option<UnansweredChallenge> {
        self.next_timeout().filter(|due| *due <= now)?;
        let (_, of) = self.waiting.pop_front()?;
        Some(of)
    }
}

fn key(message: &Message<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    message.call_id().hash(&mut hasher);
    hasher.finish()
}

/// Returns the digits of the number in the Request-URI.
fn dialled(request_uri: &Uri<'_>) -> Option<SmallVec<[u8; 20]>> {
    let user = request_uri.user_unescaped();
    let user = user.split(|octet| *octet == b';').next()?;
    let international = [&b"+"[..], b"00"];
    let written = international
        .iter()
        .find_map(|prefix| user.strip_prefix(*prefix));
    let mut digits = SmallVec::new();
    for octet in written.unwrap_or(user) {
        match octet {
            b'0'..=b'9' if digits.len() < *DIGITS.end() => digits.push(*octet),
            b' ' | b'-' | b'.' | b'(' | b')' | b'/' => {}
            _ => return None,
        }
    }
    DIGITS.contains(&digits.len()).then_some(digits)
}

#[cfg(test)]
mod tests {
    use trunkline_sip::flow::Transport;
    use trunkline_sip::wire::{Framing, lex};

    use super::*;

    const NOW: Moment = Moment::from_secs(1_790_000_000);

    fn flow(peer: &str) -> Flow {
        Flow {
            transport: Transport::Udp,
            listener: 0,
            connection: 0,
            local: "192.0.2.1:5060".parse().unwrap(),
            peer: peer.parse().unwrap(),
        }
    }

    fn invite(number: &str, call_id: &str) -> String {
        format!(
            "INVITE sip:{number}@b SIP/2.0\r\nVia: SIP/2.0/UDP h;branch=z9hG4bK1\r\nFrom: <sip:a>;tag=1\r\nTo: <sip:b>\r\n\
             Call-ID: {call_id}\r\nCSeq: 1 INVITE\r\n\r\n"
        )
    }

    #[test]
    fn a_caller_that_leaves_its_challenge_unanswered_is_reported() {
        let mut unanswered = UnansweredChallenges::default();
        let mut comes = |number: &str, call_id: &str, peer: &str, at: Moment| {
            let octets = invite(number, call_id);
            let message = lex(octets.as_bytes(), Framing::Datagram).expect("an INVITE");
            let uri = Uri::parse(message.request_uri()).ok();
            unanswered.challenged(&message, uri.as_ref(), &flow(peer), SmallVec::new, at);
            unanswered.waiting.len()
        };

        assert_eq!(comes("+442071838750", "a", "10.0.0.1:5060", NOW), 1);
        assert_eq!(
            comes("00442071838750", "b", "10.0.0.1:5070", NOW),
            1,
            "again"
        );
        assert_eq!(comes("442071838751", "c", "10.0.0.1:5060", NOW), 2);

        for (number, what) in [
            ("100", "no number"),
            ("alice", "no digits"),
            ("123456789012345678", "too many"),
        ] {
            assert_eq!(comes(number, "d", "10.0.0.1:5060", NOW), 2, "{what}");
        }

        let octets = invite("x", "c");
        let answer = lex(octets.as_bytes(), Framing::Datagram).expect("an INVITE");
        unanswered.answered(&answer);
        assert_eq!(unanswered.next_timeout(), Some(NOW + PATIENCE));
        assert_eq!(unanswered.pop(NOW), None, "it has time yet");

        let reported = unanswered.pop(NOW + PATIENCE).expect("one");
        assert_eq!(
            (&*reported.call_id, &*reported.dialled),
            ("a", "442071838750")
        );
        assert_eq!(unanswered.pop(NOW + PATIENCE), None);

        for place in 0..1_000 {
            let peer = format!("10.1.{}.{}:5060", place / 250, place % 250);
            let number = format!("+4420718387{:02}", place % 50);
            let octets = invite(&number, "e");
            let message = lex(octets.as_bytes(), Framing::Datagram).expect("an INVITE");
            let uri = Uri::parse(message.request_uri()).ok();
            unanswered.challenged(&message, uri.as_ref(), &flow(&peer), SmallVec::new, NOW);
            let waiting = || unanswered.waiting.iter();
            let of_number = waiting().filter(|(_, of)| *of.dialled == number[1..]);
            assert!(of_number.count() <= SOURCES && waiting().count() <= KEPT);
        }
    }
}
