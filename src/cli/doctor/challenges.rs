//! Check for PBXs and carriers whose challenges could not be answered, with the fix.

use std::time::Duration;

use trunkline_calls::Unanswerable;
use trunkline_sip::moment::Moment;
use trunkline_store::{Store, UnansweredOf, challenges};

use super::orgs::CheckedOrgs;
use crate::explain::finding::Finding;

/// Length of the period that is searched.
const PERIOD: Duration = Duration::from_secs(7 * 24 * 3_600);

pub(super) async fn examine(store: &Store, orgs: &CheckedOrgs, now: Moment) -> Vec<Finding> {
    let unanswered = store
        .read(move |tx| challenges::since(tx, now - PERIOD))
        .await;
    // A failing database is the finding of another check.
    let unanswered = unanswered.unwrap_or_default();
    let named = unanswered.iter().filter_map(|one| {
        // Absent if the org is beyond those that are examined.
        let of_org = orgs.rows.iter().find(|rows| rows.org.id == one.org_id);
        Some(finding(one, &of_org?.org.name))
    });
    named.collect()
}

fn finding(one: &UnansweredOf, org: &str) -> Finding {
    let challenge = &one.challenge;
    let whose = match &one.trunk {
        Some(name) => format!("The carrier of outbound trunk {name:?} of {org:?}"),
        None => format!("The PBX of {org:?}"),
    };
    let (why, fix) = said(&challenge.reason, one.trunk.is_some());
    let text = format!(
        "{whose}, at {}, challenged {} with {} and realm {:?}, and got no answer: {why}.",
        challenge.peer, challenge.method, challenge.status, challenge.realm
    );
    Finding::error("challenges", text, fix)
}

/// Reason for which the challenge got no answer, and the fix.
fn said(reason: &str, is_carrier: bool) -> (&'static str, &'static str) {
    let is = |why: Unanswerable| why.as_str() == reason;

    if is(Unanswerable::NoPair) && is_carrier {
        (
            "the trunk has no user name and password",
            "Make the trunk anew with the carrier's user name and password, or have the carrier admit this node by its address.",
        )
    } else if is(Unanswerable::NoPair) {
        (
            "its call was admitted by address, so it has proven no password that could be answered with",
            "Let the PBX log in with the trunk's user name and password, or tell it not to challenge this node (FreePBX: Match (Permit)).",
        )
    } else if is(Unanswerable::OtherAddress) {
        (
            "the request went to another address than the one that the credentials belong to",
            "Let the Contact and the proxies of the call be at the address that it came from, or that the trunk names; or tell the PBX not to challenge this node.",
        )
    } else if is(Unanswerable::OwnRealm) {
        (
            "the realm or the nonce is this deployment's own",
            "Give the PBX a realm of its own, and find out what sends our challenges back.",
        )
    } else if is(Unanswerable::OtherRealm) {
        (
            "the realm is not one of the trunk's",
            "If the carrier has changed its realms, PATCH the trunk with {\"auth_realms\": []}; a trunk with auth_realm has to be made anew.",
        )
    } else if is(Unanswerable::NoQop) {
        (
            "the challenge has no qop, which it needs inside a call, once the realm has offered it, and under digest_require_qop",
            "Let the PBX or the carrier offer qop=\"auth\", or tell it not to challenge inside calls.",
        )
    } else if is(Unanswerable::Refused) {
        (
            "it refused the credentials that it got",
            "Enter user name and password again, at both ends.",
        )
    } else {
        (
            "its scheme, algorithm or qop isn't supported",
            "Let it offer Digest with MD5 or SHA-256 and qop=\"auth\".",
        )
    }
}

#[cfg(test)]
mod tests {
    use trunkline_store::UnansweredChallenge;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn every_reason_is_named() {
        let all = [
            Unanswerable::NoPair,
            Unanswerable::OtherAddress,
            Unanswerable::OwnRealm,
            Unanswerable::OtherRealm,
            Unanswerable::NoQop,
            Unanswerable::Refused,
            Unanswerable::Unknown,
        ];
        let mut seen = std::collections::HashSet::new();
        for reason in all {
            assert!(seen.insert(said(reason.as_str(), true)), "{reason:?}");
        }
        let one = UnansweredOf {
            org_id: Uuid::nil(),
            trunk: None,
            challenge: UnansweredChallenge {
                reason: Unanswerable::NoPair.as_str().to_owned(),
                status: 401,
                method: "BYE".to_owned(),
                realm: "asterisk".to_owned(),
                peer: "192.0.2.1".to_owned(),
                at: 1,
            },
        };
        assert_eq!(
            finding(&one, "Acme").text,
            "The PBX of \"Acme\", at 192.0.2.1, challenged BYE with 401 and realm \"asterisk\", and got no answer: \
             its call was admitted by address, so it has proven no password that could be answered with."
        );
    }
}
