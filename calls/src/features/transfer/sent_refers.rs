//! REFERs of ours whose subscriptions are open: "the Event header field of each NOTIFY MUST contain an id parameter" with the CSeq of its REFER,
//! which may be missing for the first REFER of a dialog (RFC 3515 §2.4.6).

use smallvec::SmallVec;
use trunkline_sip::header::subscription_state::SubscriptionState;

use super::event::{ReferAnswer, TransferEvent};
use crate::parts::ids::LegId;

/// Most open subscriptions of a call; the oldest one is given up.
const MOST: usize = 8;

/// REFERs without a final NOTIFY, the oldest first.
#[derive(Debug, Default)]
pub(super) struct SentRefers(SmallVec<[SentRefer; 2]>);

/// A REFER that was sent on a leg.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct SentRefer {
    leg: LegId,
    cseq: u32,
}

impl SentRefers {
    /// Follows what was sent, answered and notified.
    pub(super) fn follow(&mut self, event: &TransferEvent) {
        if let TransferEvent::ReferSent { leg, cseq } = *event {
            if self.0.len() == MOST {
                self.0.remove(0);
            }
            self.0.push(SentRefer { leg, cseq });
        }

        // A plain 202 opens the subscription: its last NOTIFY ends it, or the transfer's timer.
        if let TransferEvent::ReferAnswered {
            cseq,
            answer:
                ReferAnswer::AcceptedSilently | ReferAnswer::Challenged | ReferAnswer::Refused(_),
        }
        | TransferEvent::ReferUnanswered { cseq, .. }
        | TransferEvent::Notified {
            cseq,
            subscription: SubscriptionState::Terminated,
            ..
        } = *event
        {
            self.end(cseq);
        }
    }

    /// Ends the subscription of the last REFER with this CSeq.
    pub(super) fn end(&mut self, cseq: u32) {
        // Legs count CSeq apart, so a new leg's REFER may have the number of an older one.
        if let Some(at) = self.0.iter().rposition(|sent| sent.cseq == cseq) {
            self.0.remove(at);
        }
    }

    /// Returns the CSeq of the REFER that a NOTIFY on this leg belongs to: by its id, or the oldest one without.
    pub(super) fn of_notify(&self, leg: LegId, id: Option<u32>) -> Option<u32> {
        let is_it = |sent: &&SentRefer| sent.leg == leg && id.is_none_or(|id| id == sent.cseq);
        self.0.iter().find(is_it).map(|sent| sent.cseq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEG: LegId = LegId::FIRST;

    fn sent(cseqs: impl IntoIterator<Item = u32>) -> SentRefers {
        let mut refers = SentRefers::default();
        for cseq in cseqs {
            refers.follow(&TransferEvent::ReferSent { leg: LEG, cseq });
        }
        refers
    }

    fn notified(cseq: u32, subscription: SubscriptionState) -> TransferEvent {
        TransferEvent::Notified {
            cseq,
            status: Some(200),
            subscription,
        }
    }

    #[test]
    fn an_id_names_a_refer_and_a_missing_one_the_oldest() {
        for (name, refers, id, cseq) in [
            ("none was sent", &[][..], None, None),
            ("none of that id", &[], Some(7), None),
            ("the only one", &[7], None, Some(7)),
            ("by its id", &[7], Some(7), Some(7)),
            ("an earlier number", &[7], Some(6), None),
            ("a later number", &[7], Some(8), None),
            ("the first of two", &[7, 9], None, Some(7)),
            ("the second by its id", &[7, 9], Some(9), Some(9)),
        ] {
            let refers = sent(refers.iter().copied());
            assert_eq!(refers.of_notify(LEG, id), cseq, "{name}");
            assert_eq!(refers.of_notify(LegId::SECOND, id), None, "{name}");
        }
    }

    #[test]
    fn a_subscription_ends_by_refusal_silence_or_its_last_notify() {
        let answered = |answer| TransferEvent::ReferAnswered { cseq: 7, answer };
        let unanswered = TransferEvent::ReferUnanswered {
            cseq: 7,
            status: 408,
            was_connected: false,
        };
        for (name, event, is_open) in [
            ("202", answered(ReferAnswer::Accepted), true),
            (
                "202 without NOTIFY",
                answered(ReferAnswer::AcceptedSilently),
                false,
            ),
            ("401", answered(ReferAnswer::Challenged), false),
            ("603", answered(ReferAnswer::Refused(603)), false),
            ("no answer", unanswered, false),
            (
                "active",
                notified(7, SubscriptionState::Open { expires: None }),
                true,
            ),
            (
                "terminated",
                notified(7, SubscriptionState::Terminated),
                false,
            ),
            (
                "another's",
                notified(9, SubscriptionState::Terminated),
                true,
            ),
        ] {
            let mut refers = sent([7]);
            refers.follow(&event);
            let found = refers.of_notify(LEG, None);
            assert_eq!(found.is_some(), is_open, "{name}");
        }
    }

    #[test]
    fn the_oldest_of_too_many_is_given_up() {
        let most = u32::try_from(MOST).unwrap();
        let refers = sent(0..=most);
        assert_eq!(refers.of_notify(LEG, Some(0)), None);
        assert_eq!(refers.of_notify(LEG, None), Some(1));
        assert_eq!(refers.of_notify(LEG, Some(most)), Some(most));
    }
}
