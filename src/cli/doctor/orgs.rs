//! Checks of the database and its contents: tenants that can't be called, failed log-ins, clocks, and how PBXs speak
//! SIP.

use std::collections::BTreeMap;
use std::time::Duration;

use ipnet::IpNet;
use trunkline_calls::Reason;
use trunkline_model::address::{AddressPolicy, Refusal};
use trunkline_model::settings::TransferWay;
use trunkline_sip::moment::Moment;
use trunkline_store::{AgentKind, Error, OrgRows, Recorded, Store, auth_failures, explained};
use uuid::Uuid;

use super::deployment::{Deployment, OwnAddresses, is_of_pbx};
use crate::engine::configured_policy;
use crate::engine::skew::{Off, REPORTED};
use crate::explain::finding::Finding;
use crate::explain::{log_in, pbx};

/// Most calls of each org that are examined.
const MAX_CALLS: u32 = 50;
/// Period whose calls are examined.
const PERIOD: Duration = Duration::from_secs(7 * 24 * 3_600);
const DAY: Duration = Duration::from_secs(24 * 3_600);
/// Most orgs that are examined.
const MAX_ORGS: usize = 200;

/// Orgs and calls read for the checks.
pub(super) struct CheckedOrgs {
    pub(super) rows: Vec<OrgRows>,
    calls: Vec<(Uuid, Vec<Recorded>)>,
    took: Duration,
    total: usize,
}

impl CheckedOrgs {
    pub(super) async fn read(store: &Store, now: Moment) -> Result<Self, Error> {
        let began = crate::engine::clock::now();
        let mut rows = store.read(|tx| trunkline_store::rows_of(tx, None)).await?;
        let took = crate::engine::clock::now().since(began);
        rows.sort_by_key(|rows| rows.org.id);
        let total = rows.len();
        rows.truncate(MAX_ORGS);
        let (from, until) = (now - PERIOD, now + DAY);

        let mut calls = Vec::with_capacity(rows.len());
        for rows in &rows {
            let org = rows.org.id;
            let recorded = store
                .read(move |tx| explained::recorded(tx, org, from, until, None, MAX_CALLS))
                .await?;
            calls.push((org, recorded));
        }

        Ok(Self {
            rows,
            calls,
            took,
            total,
        })
    }

    /// Number of orgs, examined or not.
    pub(super) const fn total(&self) -> usize {
        self.total
    }

    /// Calls of all orgs.
    pub(super) fn calls(&self) -> Vec<Recorded> {
        let all = self.calls.iter().flat_map(|(_, calls)| calls);
        all.cloned().collect()
    }

    /// Names and ids of the orgs, each with its calls, newest first.
    pub(super) fn by_org(&self) -> impl Iterator<Item = (&str, Uuid, &[Recorded])> {
        let calls = self.rows.iter().zip(&self.calls);
        calls.map(|(rows, (org, calls))| (rows.org.name.as_str(), *org, calls.as_slice()))
    }

    pub(super) async fn examine(
        &self,
        store: &Store,
        deployment: &Deployment<'_>,
        now: Moment,
    ) -> Vec<Finding> {
        let policy = configured_policy(deployment.config);
        let mut findings = vec![self.database()];
        findings.extend(clock(store).await);
        for (rows, (_, calls)) in self.rows.iter().zip(&self.calls) {
            findings.extend(set_up(rows));
            findings.extend(sources(rows, &policy));
            findings.extend(vouched(rows));
            findings.extend(spoken(rows, calls, &deployment.own));
            findings.extend(families(&rows.org.name, calls));
            findings.extend(log_ins(store, rows, now).await);
        }
        findings
    }

    fn database(&self) -> Finding {
        let shown = self.rows.len();
        let orgs = match self.total {
            1 => "one org".to_owned(),
            total if total > shown => format!("{total} orgs, of which {shown} are examined"),
            total => format!("{total} orgs"),
        };

        let millis = self.took.as_millis();
        if self.took > Duration::from_secs(1) {
            return Finding::warning(
                "database",
                format!("The database took {millis} ms to read {orgs}."),
                "Check its load and the network to it; calls don't wait for it, but the API does.",
            );
        }

        Finding::ok(
            "database",
            format!("The database answers, and holds {orgs}."),
        )
    }
}

/// Compares the database's clock with this machine's. A failing database is the finding of another check.
async fn clock(store: &Store) -> Option<Finding> {
    Some(skew(Off::measure(store).await.ok().flatten()?))
}

fn skew(off: Off) -> Finding {
    if off.by() > REPORTED {
        Finding::warning(
            "clock",
            format!(
                "This machine's clock and the database's are {} seconds apart: it is {off} the database's.",
                off.by().as_secs()
            ),
            "Set both by NTP: calls, keys and certificates depend on it, and a node that is more than 5 seconds off doesn't start.",
        )
    } else {
        Finding::ok("clock", "This machine's clock and the database's agree.")
    }
}

/// Finds settings that keep all calls from being answered.
fn set_up(rows: &OrgRows) -> Vec<Finding> {
    let name = &rows.org.name;
    let mut findings = Vec::new();
    let answers =
        |agent: &&trunkline_store::Agent| agent.enabled && agent.kind == AgentKind::Inbound;
    if rows.agents.iter().filter(answers).count() == 0 {
        findings.push(Finding::error(
            "agents",
            format!("{name:?} has no enabled inbound agent: every call to it is refused."),
            "Create or enable one: trunkline agent create, trunkline agent update ID --enabled.",
        ));
    }

    match &rows.trunk {
        None if rows.dedicated.is_empty() => findings.push(Finding::hint(
            "trunk",
            format!("{name:?} has no inbound trunk: nobody can call it."),
        )),
        None | Some(_) => {}
    }

    findings
}

/// Finds entries of the trunk's IP allow list that the policy no longer trusts, or that a tenant could no longer enter.
fn sources(rows: &OrgRows, policy: &AddressPolicy) -> Vec<Finding> {
    let Some(trunk) = &rows.trunk else {
        return Vec::new();
    };
    let finding = |(network, refusal): (IpNet, Refusal)| {
        let fix = match refusal {
            Refusal::Near | Refusal::Private => format!(
                "If it is right, add it to the configuration: sip.allow_private_peers = [\"{network}\"]"
            ),
            Refusal::Wide => format!(
                "If it is right, enter the whole list again as the operator: trunkline trunk update --org {} {}",
                rows.org.id,
                listed(&trunk.allowed_addresses)
            ),
            Refusal::NoHost | Refusal::Own | Refusal::Reserved | Refusal::Plain => {
                "Remove it from the trunk's list.".to_owned()
            }
        };

        let text = format!(
            "{:?}: the trunk's allowed_addresses hold {network}, which {refusal}.",
            rows.org.name
        );

        Finding::warning("allowed_addresses", text, fix)
    };

    let reported = policy.report_sources(&trunk.allowed_addresses, &trunk.operator_addresses);
    reported.into_iter().map(finding).collect()
}

/// Names the networks whose calls over UDP aren't asked to prove where they come from.
fn vouched(rows: &OrgRows) -> Vec<Finding> {
    let finding = |network: &IpNet| {
        let text = format!(
            "{:?}: calls over UDP from {network}, which is dedicated to it, need no proof of where they come from. Anybody who can forge the source of \
             a datagram can begin calls there. If the network is on the Internet, ask for the proof: trunkline trunk dedicate {network} --org {} \
             --no-proof false",
            rows.org.name, rows.org.id
        );
        Finding::hint("without_proof", text)
    };
    rows.without_proof.iter().map(finding).collect()
}

/// Networks as arguments of the command line.
fn listed(networks: &[IpNet]) -> String {
    let options = networks.iter().map(|network| format!("--allow {network}"));
    options.collect::<Vec<_>>().join(" ")
}

/// Limit on findings about PBXs of one org: those of the most calls are shown.
const MAX_SPOKEN: usize = 20;
/// Checks of what a NAT does between a PBX and this machine.
const NAT_CHECKS: [&str; 3] = ["private_contact", "private_media", "sip_alg"];

/// Problems that the org's PBXs show, each once for each `User-Agent`. Our own test call and calls from the console's page are left out. A call
/// from this machine isn't checked for problems of a NAT, and the codecs of a call are none where it was refused for another reason or not at
/// all: its runtime may speak them.
fn spoken(rows: &OrgRows, calls: &[Recorded], own: &OwnAddresses) -> Vec<Finding> {
    let trunk = rows.trunk.as_ref();
    let country = trunk.and_then(|trunk| trunk.default_country);
    let way = trunk.map_or_else(TransferWay::default, |trunk| trunk.transfer_way);
    let mut found = BTreeMap::<_, (usize, Finding)>::new();
    let asked = calls
        .iter()
        .filter_map(|call| Some((call, call.asked.as_ref()?)));
    let all: Vec<_> = asked.filter(|(_, asked)| is_of_pbx(asked)).collect();
    for (call, asked) in &all {
        let is_here = own.contains(asked.source.ip());
        let problems = pbx::examine(asked, country, way).into_iter();
        let problems = problems.filter(Finding::is_problem);
        for finding in problems.filter_map(|finding| told(call, finding, is_here)) {
            let is_problem = finding.is_problem();
            let by = (
                finding.check.clone(),
                asked.user_agent.as_deref(),
                is_problem,
            );
            let entry = found.entry(by).or_insert((0, finding));
            entry.0 += 1;
        }
    }

    let (name, all) = (&rows.org.name, all.len());
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
    found.truncate(MAX_SPOKEN);
    let said = found
        .into_iter()
        .map(|((_, user_agent, _), (count, finding))| {
            let by = user_agent.map(|user_agent| format!(" ({user_agent})"));
            let by = by.unwrap_or_default();
            Finding {
                text: format!(
                    "{count} of the last {all} calls of {name:?}{by}: {}",
                    finding.text
                ),
                ..finding
            }
        });
    said.collect()
}

/// Returns a problem that a call's INVITE shows, as far as the call had it: none of a NAT for a call from this machine; the codecs are a problem
/// of a call that was refused for lack of common media, and worth knowing of one that a runtime has taken.
fn told(call: &Recorded, finding: Finding, is_here: bool) -> Option<Finding> {
    if is_here && NAT_CHECKS.contains(&&*finding.check) {
        return None;
    }
    match call.reason.as_deref() {
        _ if finding.check != pbx::CODECS => Some(finding),
        Some(code) if code == Reason::NoCommonMedia.code() => Some(finding),
        Some(_) => None,
        None => Some(Finding::hint(
            finding.check,
            format!("{} Its calls are taken all the same.", finding.text),
        )),
    }
}

/// Finds calls whose two sides have media addresses of different families.
fn families(org: &str, calls: &[Recorded]) -> Option<Finding> {
    let code = Reason::MediaFamilies.code();
    let is_apart = |call: &&Recorded| call.reason.as_deref() == Some(code);
    let count = calls.iter().filter(is_apart).count();

    (count > 0).then(|| {
        Finding::error(
            "media_families",
            format!(
                "{count} of the last {} calls of {org:?} were refused with 488, since one side has media on IPv4 only and the other on IPv6 only ({code}).",
                calls.len()
            ),
            "Give the agent a runtime, or a fallback, whose media is of the caller's family: media goes directly between the two sides.",
        )
    })
}

/// Failed log-ins that are counted.
const MAX_FAILURES: u32 = 100;

async fn log_ins(store: &Store, rows: &OrgRows, now: Moment) -> Option<Finding> {
    let org = rows.org.id;
    let page = store
        .read(move |tx| auth_failures::list(tx, org, &Default::default(), None, MAX_FAILURES))
        .await
        // A failing database is the finding of another check.
        .ok()?;
    let late = page
        .items
        .iter()
        .filter(|failure| now.since(failure.at) <= DAY);

    let last = late.clone().next()?;
    let proof = log_in::as_whom(&last.username);
    Some(Finding::warning(
        "log_ins",
        format!(
            "{:?}: {} failed in the last 24 hours, the last from {} {proof} ({}).",
            rows.org.name,
            log_in::counted(late.count(), MAX_FAILURES),
            last.source,
            last.part
        ),
        log_in::sentence(&last.part),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::finding::Level;

    #[test]
    fn codecs_are_a_problem_of_calls_that_were_refused_for_them() {
        let call = |reason: Option<&str>| Recorded {
            id: Uuid::nil(),
            from_number: String::new(),
            to_number: String::new(),
            to_e164: None,
            started_at: Moment::from_secs(1),
            ended_at: None,
            reason: reason.map(str::to_owned),
            decision: None,
            asked: None,
        };
        for (name, reason, check, is_here, expected) in [
            ("answered", None, "codecs", false, Some(Level::Hint)),
            (
                "refused for them",
                Some("no_common_media"),
                "codecs",
                false,
                Some(Level::Error),
            ),
            (
                "refused for another reason",
                Some("agent_busy"),
                "codecs",
                false,
                None,
            ),
            ("keys", None, "dtmf", true, Some(Level::Error)),
            ("a NAT", None, "private_contact", false, Some(Level::Error)),
            ("a NAT on this machine", None, "private_contact", true, None),
        ] {
            let finding = Finding::error(check, "It offers opus.", "Allow G.711.");
            let told = told(&call(reason), finding, is_here);
            assert_eq!(told.map(|told| told.level), expected, "{name}");
        }
    }

    #[test]
    fn a_clock_that_is_off_is_told_either_way() {
        for (millis, level) in [(0, Level::Ok), (1_000, Level::Ok), (2_000, Level::Warning)] {
            let by = Duration::from_millis(millis);
            for off in [Off::Ahead(by), Off::Behind(by)] {
                let found = skew(off);
                assert_eq!(found.level, level, "{millis}: {found}");
                let is_told = found.text.contains("2 seconds apart");
                assert_eq!(is_told, level == Level::Warning, "{found}");
            }
        }
    }
}
