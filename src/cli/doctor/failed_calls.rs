//! Check of recent calls that their agent's runtime didn't take, with what it answered.

use trunkline_calls::Reason;
use trunkline_model::attempt::{Attempt, AttemptLeg};
use trunkline_store::{Recorded, Store, attempts};
use uuid::Uuid;

use super::deployment::RUNTIME;
use super::orgs::CheckedOrgs;
use crate::explain::attempts::sentence;
use crate::explain::finding::Finding;

pub(super) async fn examine(store: &Store, orgs: &CheckedOrgs) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, org, calls) in orgs.by_org() {
        let Some((call, failed)) = newest(calls) else {
            continue;
        };
        let id = call.id;
        let tried = store.read(move |tx| attempts::of_call(tx, org, id)).await;
        let is_newest = calls.first().is_some_and(|first| first.id == id);
        let tried = tried.unwrap_or_default();
        findings.push(finding(name, failed, calls.len(), is_newest, id, &tried));
    }

    findings
}

/// The newest call that a runtime didn't take, and the number of such calls.
fn newest(calls: &[Recorded]) -> Option<(&Recorded, usize)> {
    let codes = [Reason::RuntimeUnreachable, Reason::RuntimeRefused].map(Reason::code);
    let is_failed = |call: &&Recorded| {
        call.reason
            .as_deref()
            .is_some_and(|reason| codes.contains(&reason))
    };
    let newest = calls.iter().find(is_failed)?;
    Some((newest, calls.iter().filter(is_failed).count()))
}

fn finding(
    org: &str,
    failed: usize,
    all: usize,
    is_newest: bool,
    call: Uuid,
    tried: &[Attempt],
) -> Finding {
    let tried = tried
        .iter()
        .rfind(|attempt| attempt.leg == AttemptLeg::Runtime);
    let tried = tried.map_or_else(|| "No attempt is recorded.".to_owned(), sentence);

    let text = format!(
        "{failed} of the last {all} calls of {org:?} were not taken by the agent's runtime. The last: {tried}"
    );
    let fix = format!("Look at the runtime and its log. Every attempt: trunkline explain {call}");
    // A warning if a newer call had no such failure.
    match is_newest {
        true => Finding::error(RUNTIME, text, fix),
        false => Finding::warning(RUNTIME, text, fix),
    }
}

#[cfg(test)]
mod tests {
    use trunkline_sip::moment::Moment;

    use super::*;
    use crate::explain::finding::Level;

    fn call(number: u128, reason: Option<&str>) -> Recorded {
        Recorded {
            id: Uuid::from_u128(number),
            from_number: String::new(),
            to_number: String::new(),
            to_e164: None,
            started_at: Moment::from_secs(1),
            ended_at: None,
            reason: reason.map(str::to_owned),
            decision: None,
            asked: None,
        }
    }

    #[test]
    fn calls_that_failed_at_a_runtime_are_counted() {
        let calls = [
            call(3, None),
            call(2, Some("runtime_refused")),
            call(1, Some("no_agent")),
            call(0, Some("runtime_unreachable")),
        ];
        let found = newest(&calls).map(|(call, count)| (call.id, count));
        assert_eq!(found, Some((Uuid::from_u128(2), 2)));
        assert_eq!(newest(&calls[..1]), None);

        for (is_newest, level) in [(true, Level::Error), (false, Level::Warning)] {
            let found = finding("Acme", 2, 4, is_newest, calls[1].id, &[]);
            assert_eq!(found.level, level, "{found}");
            assert!(
                found.text.starts_with("2 of the last 4 calls of \"Acme\""),
                "{found}"
            );
        }
    }
}
