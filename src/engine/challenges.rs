//! Stores what peers' challenges showed: realms of outbound trunks, and challenges that could not be answered.
//! `trunkline doctor` reads them.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::runtime;
use tokio::sync::mpsc;
use trunkline_calls::{ChallengeOutcome, ChallengeReport, Challenger, Unanswerable};
use trunkline_sip::moment::Moment;
use trunkline_store::{Store, UnansweredChallenge, challenges, outbound_trunks};

use crate::jobs;

/// Challenges waiting to be stored; further ones are dropped.
const QUEUE: usize = 256;
/// Time during which the same unanswered challenge isn't stored again.
const REPEAT_INTERVAL: Duration = Duration::from_secs(60);
/// Unanswered challenges remembered to recognize repetitions. Beyond, no other is stored.
const MAX_REMEMBERED: usize = 1_024;
/// Those of one org, so that its peers can't keep the challenges of other orgs from being stored. Beyond, no other of this org is stored.
const MAX_OF_ORG: usize = 32;

/// Starts the task that stores challenges, and returns its sender.
pub(super) fn start(store: Store, runtime: &runtime::Handle) -> mpsc::Sender<Box<ChallengeReport>> {
    let (sender, mut challenges) = mpsc::channel::<Box<ChallengeReport>>(QUEUE);
    jobs::CHALLENGES.spawn(runtime, async move {
        let mut written = Written::default();
        while let Some(challenged) = challenges.recv().await {
            if !written.should_store(&challenged) {
                continue;
            }
            if let Err(error) = write(&store, *challenged).await {
                tracing::warn!(%error, "a peer's challenge was not recorded");
            }
        }
    });
    sender
}

/// Unanswered challenges stored recently, oldest first.
#[derive(Debug, Default)]
struct Written(VecDeque<(Challenger, Unanswerable, Moment)>);

impl Written {
    /// Returns true if the challenge should be stored, and remembers it as stored.
    fn should_store(&mut self, challenged: &ChallengeReport) -> bool {
        let ChallengeOutcome::Unanswered { why, .. } = &challenged.news else {
            // Not remembered here: `learn_realm` leaves a realm that is known as it is.
            return true;
        };
        let (challenger, at) = (challenged.challenger, challenged.at);
        let Self(held) = self;
        while held
            .front()
            .is_some_and(|(.., then)| at.since(*then) >= REPEAT_INTERVAL)
        {
            held.pop_front();
        }

        let of_org = || {
            let held = held.iter();
            held.filter(|(known, ..)| known.org == challenger.org)
        };
        let is_known = of_org().any(|(known, cause, _)| (*known, *cause) == (challenger, *why));
        if is_known || of_org().count() >= MAX_OF_ORG || held.len() >= MAX_REMEMBERED {
            return false;
        }

        held.push_back((challenger, *why, at));
        true
    }
}

async fn write(store: &Store, challenged: ChallengeReport) -> Result<(), trunkline_store::Error> {
    let ChallengeReport {
        challenger,
        at,
        news,
    } = challenged;

    match (news, challenger.trunk) {
        (ChallengeOutcome::Seen(seen), Some(trunk)) => {
            store
                .write(move |tx| outbound_trunks::learn_realm(tx, challenger.org, trunk, &seen, at))
                .await
        }
        (ChallengeOutcome::Seen(_), None) => Ok(()),

        (
            ChallengeOutcome::Unanswered {
                why,
                status,
                method,
                realm,
                peer,
            },
            trunk,
        ) => {
            tracing::info!(org.id = %challenger.org, trunk.id = ?trunk, reason = why.as_str(), status, method, %peer, "a peer's challenge could not be answered");

            // PostgreSQL refuses this character in a text, and with it the row.
            let text = |sent: Box<str>| sent.replace('\0', "");
            let challenge = UnansweredChallenge {
                reason: why.as_str().to_owned(),
                status,
                method: text(method),
                realm: text(realm),
                peer: peer.to_string(),
                at: at.as_micros(),
            };

            store
                .write(move |tx| challenges::note(tx, challenger.org, trunk, &challenge))
                .await
        }
    }
}

#[cfg(test)]
mod tests {
    use trunkline_model::auth_realms::KnownRealm;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn the_same_is_written_once_a_minute() {
        let mut written = Written::default();
        let unanswered = |org: u128, why, second| ChallengeReport {
            challenger: Challenger {
                org: Uuid::from_u128(org),
                trunk: None,
            },
            at: Moment::from_secs(second),
            news: ChallengeOutcome::Unanswered {
                why,
                status: 401,
                method: "BYE".into(),
                realm: "pbx".into(),
                peer: [192, 0, 2, 1].into(),
            },
        };
        for (case, org, why, second, is_news) in [
            ("first", 1, Unanswerable::NoQop, 0, true),
            ("again", 1, Unanswerable::NoQop, 59, false),
            ("another org", 2, Unanswerable::NoQop, 59, true),
            ("another reason", 1, Unanswerable::NoPair, 59, true),
            ("later", 1, Unanswerable::NoQop, 60, true),
        ] {
            let challenged = unanswered(org, why, second);
            assert_eq!(written.should_store(&challenged), is_news, "{case}");
        }

        for org in 0..2 * MAX_REMEMBERED as u128 {
            written.should_store(&unanswered(org, Unanswerable::Refused, 61));
        }

        assert_eq!(written.0.len(), MAX_REMEMBERED);

        // One org with many trunks takes no more than its share.
        let mut written = Written::default();
        let taken = (0..2 * MAX_REMEMBERED as u128).filter(|trunk| {
            let mut challenged = unanswered(1, Unanswerable::NoQop, 61);
            challenged.challenger.trunk = Some(Uuid::from_u128(*trunk));
            written.should_store(&challenged)
        });
        assert_eq!(taken.count(), MAX_OF_ORG);
        assert!(written.should_store(&unanswered(2, Unanswerable::NoQop, 61)));

        let seen = ChallengeReport {
            news: ChallengeOutcome::Seen(KnownRealm {
                realm: "pbx".into(),
                offers_qop: true,
            }),
            ..unanswered(1, Unanswerable::NoQop, 61)
        };
        assert!(written.should_store(&seen) && written.should_store(&seen));
    }
}
