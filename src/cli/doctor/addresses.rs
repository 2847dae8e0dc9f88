//! Check for peers that tenants have configured and that the address policy refuses, with the setting that allows each.

use std::collections::BTreeSet;

use trunkline_model::address::{AddressPolicy, Refusal};

use super::Deployment;
use super::orgs::CheckedOrgs;
use crate::engine::{ReservedNames, refused_peers};
use crate::explain::finding::Finding;

const CHECK: &str = "addresses";

pub(super) async fn examine(
    deployment: &Deployment<'_>,
    orgs: &CheckedOrgs,
    reserved: &ReservedNames,
    policy: &AddressPolicy,
) -> Vec<Finding> {
    let refused = refused_peers(&orgs.rows, &deployment.resolver, policy).await;
    let mut findings: Vec<Finding> = reserved.without_address().map(unresolved).collect();
    if refused.is_empty() {
        findings.push(Finding::ok(
            CHECK,
            "Every runtime, trunk and destination is at an address that may be contacted.",
        ));
        return findings;
    }

    // The setting replaces the whole list, so the line to enter repeats what is allowed already.
    let listed = deployment.config.sip.allow_private_peers.iter().flatten();
    let mut list: BTreeSet<String> = listed.map(|network| network.to_string()).collect();
    let is_private = |refusal| matches!(refusal, Refusal::Private | Refusal::Near | Refusal::Plain);
    let missing = refused.iter().filter(|peer| is_private(peer.refusal));
    list.extend(missing.map(|peer| peer.address.ip().to_string()));
    let quoted: Vec<String> = list.iter().map(|entry| format!("{entry:?}")).collect();
    let line = format!("sip.allow_private_peers = [{}]", quoted.join(", "));

    findings.extend(refused.into_iter().map(|peer| {
        let fix = match peer.refusal {
            Refusal::Private | Refusal::Near | Refusal::Plain => {
                format!("If every address named here is right, set in the configuration: {line}")
            }
            Refusal::Reserved => {
                "Tie it to the org with trunkline org tie, or remove it from sip.reserved_peers."
                    .to_owned()
            }
            Refusal::NoHost | Refusal::Own | Refusal::Wide => "Correct the address.".to_owned(),
        };
        let (whose, uri, address, refusal) = (peer.whose, peer.uri, peer.address, peer.refusal);
        let text = format!("{uri} ({whose}) leads to {address}, which {refusal}.");
        Finding::error(CHECK, text, fix)
    }));

    findings
}

/// Finding for a reserved name without an address: tenants may route calls to its address.
fn unresolved(name: &str) -> Finding {
    Finding::warning(
        CHECK,
        format!("{name} in sip.reserved_peers has no address: tenants may name its addresses."),
        "Correct the name or the name servers (sip.nameservers), or list the peer's addresses as well.",
    )
}
