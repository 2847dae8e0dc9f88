//! Plan to reach a peer: targets to try, hosts that it may redirect to, credentials for its challenges, and the time for each target. A plain value
//! without the purpose of the call.

use std::collections::VecDeque;
use std::net::IpAddr;

use smallvec::SmallVec;
use trunkline_model::auth_realms::KnownRealm;
use trunkline_model::settings::FailoverOn;
use trunkline_model::tied::Namer;
use trunkline_sip::auth::client::ChallengedMessage;
use trunkline_sip::slot::CallId;
use trunkline_sip::wire::Message;

use crate::core::context::Cx;
use crate::invite::challenge_answer;
use crate::parts::crossing::{RuntimeRefusal, refusal};
use crate::parts::target::DialTarget;
use crate::trust::challenge_report::{ChallengeOutcome, Challenger};
use crate::trust::credentials::{ChallengedRequest, LegCredentials, Unanswerable};
use crate::trust::digest_answers::DigestAnswers;

/// The plan to reach a peer.
#[derive(Debug)]
pub(crate) struct PeerPlan {
    /// Places to try, in this order.
    pub(crate) dial_targets: VecDeque<DialTarget>,
    /// The hosts that a redirection may name.
    pub(crate) hosts: SmallVec<[String; 1]>,
    /// Credentials for its challenges: a trunk's or a runtime's pair, or that of each device of a PBX that has registered.
    pub(crate) credentials: SmallVec<[LegCredentials; 1]>,
    /// Peer that challenges, for reports.
    pub(crate) challenger: Option<Challenger>,
    /// Rule for the transport of an INVITE that is too large for a datagram.
    pub(crate) transport: TransportChoice,
    /// Requests to one target: the first, and those with credentials or a longer session.
    pub(crate) max_requests: u32,
    pub(crate) fails_over: FailoverRule,
    pub(crate) redirects: RedirectRule,
    pub(crate) patience: Patience,
    pub(crate) call_ids: CallIds,
}

/// Rule for the transport of an INVITE that is too large for a datagram.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum TransportChoice {
    /// The trunk, or the flow that leads back, sets it.
    Given,
    /// RFC 3261 §18.1.1 applies.
    Ours,
}

/// Refusals that lead to the next target.
#[derive(Debug)]
pub(crate) enum FailoverRule {
    /// 408, 500, 502, 503 and 504, unless something rang: a person may have declined.
    BeforeRinging,
    /// 408 and 503; 500, 502, 504 and those listed where another target is left.
    WhileOthersAreLeft { listed: Box<[FailoverOn]> },
}

/// Contacts of a redirection that are followed, all of them within the plan's hosts.
#[derive(Debug)]
pub(crate) enum RedirectRule {
    /// All, in the name of the party that named these hosts.
    NamedBy(Namer),
    /// Those that may be dialled, in the name of the party that named the target: a redirection must not lead to a forbidden number.
    Callable,
    /// All, by the flow of the target: it leads back to the PBX that called.
    ByTheSameWay,
}

/// Time for the last target.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Patience {
    /// It may be silent until the ringing time or the set-up deadline is over.
    WithLast,
    /// It has no longer than the others (4 s): something else is tried then.
    WithNone,
}

/// Call-IDs of the INVITEs. Those to one target always share one (RFC 3261 §8.1.3.5).
#[derive(Debug)]
pub(crate) enum CallIds {
    /// A new one for each target.
    PerTarget,
    /// One for all targets.
    One(CallId),
}

impl FailoverRule {
    /// Returns whether a refusal leads to the next target. `rang`: it has rung at this target or another. `has_more`: another target is left, or
    /// something else follows.
    pub(super) fn follows(&self, status: u16, rang: bool, has_more: bool) -> bool {
        match self {
            Self::BeforeRinging => matches!(status, 408 | 500 | 502..=504) && !rang,
            Self::WhileOthersAreLeft { listed } => match refusal(status) {
                RuntimeRefusal::FailOver => true,
                RuntimeRefusal::Trouble => has_more,
                RuntimeRefusal::Redirect
                | RuntimeRefusal::Brief
                | RuntimeRefusal::Unavailable
                | RuntimeRefusal::Same => {
                    has_more && cause_of(status).is_some_and(|cause| listed.contains(&cause))
                }
            },
        }
    }
}

/// The cause that an agent may list.
const fn cause_of(status: u16) -> Option<FailoverOn> {
    match status {
        404 => Some(FailoverOn::NotFound),
        480 => Some(FailoverOn::Unavailable),
        300..=399 => Some(FailoverOn::Redirect),
        _ => None,
    }
}

impl PeerPlan {
    /// Returns the credentials for a challenge of the peer at `destination`.
    pub(super) fn credentials_at(&self, destination: IpAddr) -> Option<&LegCredentials> {
        let mut held = self.credentials.iter();
        held.find(|held| held.may_begin_at(destination))
    }

    /// Answers the challenge in a 401 or 407 to the INVITE `challenged`, which is sent again then; false if it isn't answered. Reports the outcome.
    pub(super) fn answer(
        &mut self,
        cx: &mut Cx<'_>,
        digest_answers: &mut DigestAnswers,
        message: &Message<'_>,
        challenged: &ChallengedMessage<'_>,
        stage: ChallengedRequest<'_>,
        destination: IpAddr,
    ) -> bool {
        let answered = match self.credentials_at(destination) {
            Some(held) => challenge_answer::answer(
                held,
                cx,
                digest_answers,
                message,
                challenged,
                stage,
                destination,
            ),
            None => Err(Unanswerable::NoPair),
        };

        match answered {
            Ok(Some(seen)) => {
                self.learn(destination, &seen);
                cx.report(self.challenger, || ChallengeOutcome::Seen(seen));
                true
            }
            Ok(None) => true,
            Err(why) => {
                cx.report(self.challenger, || {
                    ChallengeOutcome::unanswered(why, message, destination)
                });
                false
            }
        }
    }

    /// Remembers for this call what a challenge of that peer has shown.
    fn learn(&mut self, destination: IpAddr, seen: &KnownRealm) {
        let mut held = self.credentials.iter_mut();
        if let Some(held) = held.find(|held| held.may_begin_at(destination)) {
            held.learn(seen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_leads_on_as_the_plan_says() {
        let listed = || FailoverRule::WhileOthersAreLeft {
            listed: [FailoverOn::NotFound, FailoverOn::Redirect].into(),
        };
        let unavailable = || FailoverRule::WhileOthersAreLeft {
            listed: [FailoverOn::Unavailable].into(),
        };
        let people = || FailoverRule::BeforeRinging;

        for (case, plan, status, rang, has_more, follows) in [
            ("a carrier's 503", people(), 503, false, false, true),
            (
                "a carrier's 503 after it rang",
                people(),
                503,
                true,
                true,
                false,
            ),
            ("a carrier's 404", people(), 404, false, true, false),
            ("a carrier's 501", people(), 501, false, true, false),
            ("a runtime's 503", listed(), 503, true, false, true),
            (
                "a runtime's 500, another is left",
                listed(),
                500,
                true,
                true,
                true,
            ),
            (
                "a runtime's 500, the last",
                listed(),
                500,
                false,
                false,
                false,
            ),
            ("listed", listed(), 404, false, true, true),
            ("480 is listed", unavailable(), 480, false, true, true),
            ("listed, the last", listed(), 404, false, false, false),
            ("not listed", listed(), 480, false, true, false),
            (
                "a redirection that leads nowhere",
                listed(),
                302,
                false,
                true,
                true,
            ),
            ("busy", listed(), 486, false, true, false),
        ] {
            assert_eq!(plan.follows(status, rang, has_more), follows, "{case}");
        }
    }
}
