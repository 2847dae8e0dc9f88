//! Explanation of one call: the caller's authentication, the routing decision and its reason, and the end.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trunkline_calls::Reason;
use trunkline_model::attempt::Attempt;
use trunkline_model::invite_facts::InviteFacts;
use trunkline_routing::{Caller, Decision, Dialled, NearMiss, Outcome, TrailEntry};

use super::attempts::{AttemptView, sentence};
use super::log_in::{self, FailureView, LogInView};

/// A call's explanation. Of a call that was refused before an agent was looked for, and of an outbound one, there is no decision:
/// its fields are `null` or empty.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "CallExplanation")]
pub struct Explanation {
    outcome: Option<Outcome>,
    dialled: Option<Dialled>,
    caller: Option<Caller>,
    trail: Vec<TrailEntry>,
    /// Agents and numbers that the call nearly matched.
    pub near_misses: Vec<NearMiss>,
    /// Everything in sentences: how the caller proved who it is, the trail, near misses, and why the call was refused or failed.
    pub explanation: Vec<String>,
    /// `null` for an outbound call.
    pub log_in: Option<LogInView>,
    /// The attempts at targets, where one has failed: those at the agent's runtime and its fallbacks, at the callee of an outbound call, and
    /// at a transfer's destination that was called from here.
    pub attempts: Vec<AttemptView>,
}

impl Explanation {
    /// Combines what is known. `reason` is the code for why the call wasn't answered.
    pub fn new(
        decision: Option<Decision>,
        asked: Option<&InviteFacts>,
        reason: Option<&str>,
        failures: Vec<FailureView>,
        attempts: &[Attempt],
    ) -> Self {
        let explanation = sentences(decision.as_ref(), asked, reason, &failures, attempts);
        let attempts = attempts.iter().map(AttemptView::from).collect();
        let log_in = asked.map(|asked| LogInView::new(asked, failures));

        match decision {
            Some(decision) => Self {
                outcome: Some(decision.outcome),
                dialled: Some(decision.dialled),
                caller: Some(decision.caller),
                trail: decision.trail,
                near_misses: decision.near_misses,
                explanation,
                log_in,
                attempts,
            },
            None => Self {
                outcome: None,
                dialled: None,
                caller: None,
                trail: Vec::new(),
                near_misses: Vec::new(),
                explanation,
                log_in,
                attempts,
            },
        }
    }
}

/// Returns what the offer of a call that ended for lack of common media lacks, as the `Warning` of its 488 says.
pub fn mismatch<'a>(asked: Option<&'a InviteFacts>, reason: Option<&str>) -> Option<&'a str> {
    let is_why = reason == Some(Reason::NoCommonMedia.code());
    asked.filter(|_| is_why)?.traits.mismatch.as_deref()
}

fn sentences(
    decision: Option<&Decision>,
    asked: Option<&InviteFacts>,
    reason: Option<&str>,
    failures: &[FailureView],
    attempts: &[Attempt],
) -> Vec<String> {
    let failed = failures.iter().map(|failure| {
        format!(
            "A log-in of this call failed first. {}",
            failure.explanation
        )
    });
    let mut said: Vec<String> = failed.collect();
    said.extend(asked.map(log_in::proof));

    match (decision, asked) {
        (Some(decision), _) => said.extend(decision.sentences()),
        (None, Some(_)) => said.push("No agent was looked for.".to_owned()),
        // An outbound call looks for no agent.
        (None, None) => {}
    }

    let private = asked.and_then(|asked| asked.traits.private_media.as_deref());
    said.extend(private.map(|ip| {
        format!(
            "The caller's media address is {ip}, a private one, while its packets come from outside: a runtime in another network hears the caller, but can't send audio to that address."
        )
    }));

    said.extend(attempts.iter().map(sentence));
    said.extend(mismatch(asked, reason).map(|mismatch| format!("{mismatch}.")));
    let reason = reason.map(|code| match Reason::from_code(code) {
        Some(reason) => format!("{} ({code}).", reason.sentence()),
        None => format!("The call ended: {code}."),
    });
    said.extend(reason);

    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_without_a_decision_still_says_why() {
        let failures = vec![FailureView {
            at: String::new(),
            part: "password".to_owned(),
            explanation: log_in::sentence("password").into(),
        }];
        let explained = Explanation::new(None, None, Some("too_many_hops"), failures, &[]);
        assert_eq!(explained.explanation.len(), 2, "{explained:?}");
        assert!(explained.explanation[0].contains("password is wrong"));
        assert_eq!(
            explained.explanation[1],
            "Max-Forwards has reached 0 (too_many_hops)."
        );
    }
}
