//! Check of recent calls from whose peer audio was withheld: SDP named an address that might have been a third party's.

use std::net::SocketAddr;

use trunkline_model::media::{MediaStep, MediaStepKind};
use trunkline_store::{Store, calls};
use uuid::Uuid;

use super::orgs::CheckedOrgs;
use crate::explain::finding::Finding;

const CHECK: &str = "withheld_audio";

/// Newest calls of each org that are looked at.
const CALLS: usize = 20;

pub(super) async fn examine(store: &Store, orgs: &CheckedOrgs) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, org, recorded) in orgs.by_org() {
        let newest = recorded.iter().take(CALLS).map(|call| call.id);
        let ids: Vec<Uuid> = newest.collect();
        let all = ids.len();
        let withheld = store.read(move |tx| {
            let mut found = Vec::new();
            for id in ids {
                let steps = calls::media_steps(tx, org, id)?;
                found.extend(withheld_from(&steps).map(|from| (id, from)));
            }
            Ok::<_, trunkline_store::Error>(found)
        });
        // The check of the database says why it can't be read.
        let withheld = withheld.await.unwrap_or_default();
        findings.extend(finding(name, &withheld, all));
    }
    findings
}

/// Returns the address that audio of a call was withheld from.
fn withheld_from(steps: &[MediaStep]) -> Option<SocketAddr> {
    steps.iter().find_map(|step| {
        let MediaStepKind::Withheld { from } = step.kind else {
            return None;
        };
        Some(from)
    })
}

/// The finding for calls, newest first, each with the address that audio was withheld from.
fn finding(org: &str, withheld: &[(Uuid, SocketAddr)], all: usize) -> Option<Finding> {
    let (call, from) = withheld.first()?;
    let (count, ip) = (withheld.len(), from.ip());
    Some(Finding::warning(
        CHECK,
        format!(
            "The agent wasn't heard at first in {count} of the last {all} calls of {org:?}: audio is withheld from an address that has sent nothing and isn't where the signalling comes from. The last: {ip}, in call {call}."
        ),
        format!(
            "If the media of the org's phone system or carrier is there: trunkline trunk media-address {ip} --org {org:?}"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use trunkline_sip::moment::Moment;

    use super::*;

    #[test]
    fn the_newest_call_says_which_address_to_list() {
        let from: SocketAddr = "203.0.113.9:4000".parse().unwrap();
        let step = |kind| MediaStep {
            at: Moment::from_secs(1),
            kind,
        };
        let steps = [
            step(MediaStepKind::Opened),
            step(MediaStepKind::Withheld { from }),
        ];
        assert_eq!(withheld_from(&steps), Some(from));
        assert_eq!(withheld_from(&steps[..1]), None);

        assert!(finding("Acme", &[], 3).is_none());
        let withheld = [(Uuid::from_u128(2), from), (Uuid::from_u128(1), from)];
        let found = finding("Acme", &withheld, 3).unwrap();
        assert!(found.text.contains("2 of the last 3 calls"), "{found}");
        let fix = found.fix.as_deref().unwrap_or_default();
        assert!(
            fix.ends_with("media-address 203.0.113.9 --org \"Acme\""),
            "{found}"
        );
    }
}
