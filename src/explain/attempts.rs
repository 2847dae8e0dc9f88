//! Attempts of a call at its targets, as data and as one sentence each.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trunkline_model::attempt::{Attempt, AttemptLeg, AttemptOutcome};

use trunkline_store::written;

/// One attempt at a target.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "CallAttempt")]
pub struct AttemptView {
    /// Number of the attempt, from 1; after the 16th no more are recorded.
    number: u8,
    /// Kind of target: the agent's runtime, the callee of an outbound call, or a transfer's destination.
    leg: AttemptLeg,
    /// The Request-URI.
    target: String,
    /// Address and port; `null` if the name resolved to none, or to one that may not be contacted.
    address: Option<String>,
    /// `udp`, `tcp` or `tls`; `null` if the name resolved to no address.
    transport: Option<String>,
    /// Time at which the target was tried, or its name resolved.
    began_at: String,
    /// Milliseconds until the outcome.
    took_ms: u64,
    outcome: AttemptOutcome,
    sip_code: Option<u16>,
    /// Details: what can't be reached, why TLS failed, or which rule forbids the address.
    detail: Option<String>,
    /// The attempt in a sentence.
    pub explanation: String,
}

impl From<&Attempt> for AttemptView {
    fn from(attempt: &Attempt) -> Self {
        Self {
            number: attempt.number,
            leg: attempt.leg,
            target: attempt.target.to_string(),
            address: attempt.address.map(|address| address.to_string()),
            transport: attempt.transport.as_deref().map(str::to_owned),
            began_at: written(attempt.began_at),
            took_ms: took_ms(attempt),
            outcome: attempt.outcome,
            sip_code: attempt.sip_code,
            detail: attempt.detail.as_deref().map(str::to_owned),
            explanation: sentence(attempt),
        }
    }
}

fn took_ms(attempt: &Attempt) -> u64 {
    let took = attempt.ended_at.since(attempt.began_at);
    u64::try_from(took.as_millis()).unwrap_or(u64::MAX)
}

/// Describes an attempt in a sentence.
pub fn sentence(attempt: &Attempt) -> String {
    let whose = match attempt.leg {
        AttemptLeg::Runtime => "Runtime",
        AttemptLeg::Callee => "Callee",
        AttemptLeg::Destination => "Destination",
    };
    let transport = attempt.transport.as_deref().unwrap_or_default();
    let transport = transport.to_uppercase();
    let way = match attempt.address {
        Some(address) => format!(" ({transport} {address})"),
        None => String::new(),
    };
    let (target, took) = (&attempt.target, took_ms(attempt));
    let came = came(attempt);
    format!("{whose} {target}{way}: {came} ({took} ms).")
}

fn came(attempt: &Attempt) -> String {
    let code = attempt.sip_code.unwrap_or_default();
    let said = match attempt.outcome {
        AttemptOutcome::Answered => "it answered the call",
        AttemptOutcome::SipStatus => match &attempt.detail {
            Some(why) => return format!("it answered {code}: {why}"),
            None => return format!("it answered {code}"),
        },
        // With a detail, an answer came that can't be read.
        AttemptOutcome::Timeout | AttemptOutcome::OnlyTrying | AttemptOutcome::NotAnswered => {
            return match &attempt.detail {
                Some(unreadable) => unreadable.to_string(),
                None => silence(attempt.outcome).to_owned(),
            };
        }
        AttemptOutcome::Unreachable => "it is unreachable",
        AttemptOutcome::ConnectionRefused => "the connection was refused",
        AttemptOutcome::ConnectTimeout => "the connection wasn't opened in time",
        AttemptOutcome::ConnectionLost => "the connection broke before an answer came",
        AttemptOutcome::TlsFailed => "TLS failed",
        AttemptOutcome::HandshakeFailed => "it didn't open the WebSocket",
        AttemptOutcome::DnsFailed => "the name couldn't be resolved",
        AttemptOutcome::NotAllowed => "its address may not be contacted from here",
        AttemptOutcome::KnownDown => {
            "it wasn't tried, since it refused OPTIONS or left it unanswered before"
        }
        AttemptOutcome::NoListener => {
            "this node has no listener of that transport and address family"
        }
        AttemptOutcome::Overloaded => "this node had no room for another connection or request",
        AttemptOutcome::Canceled => "the call ended before it answered",
        AttemptOutcome::Disconnected => "it had the call and went before its end",
    };

    match &attempt.detail {
        Some(detail) => format!("{said}: {detail}"),
        None => said.to_owned(),
    }
}

/// Silence of a target, by what came before it.
fn silence(outcome: AttemptOutcome) -> &'static str {
    if outcome == AttemptOutcome::OnlyTrying {
        "only a 100 came in time"
    } else if outcome == AttemptOutcome::NotAnswered {
        "it rang and wasn't answered in time"
    } else {
        "no answer came in time"
    }
}

#[cfg(test)]
mod tests {
    use trunkline_sip::moment::Moment;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn an_attempt_is_said_in_a_sentence() {
        let attempt = Attempt {
            call: Uuid::nil(),
            org: Uuid::nil(),
            number: 1,
            leg: AttemptLeg::Runtime,
            target: "sip:x@bot.test".into(),
            address: "192.0.2.1:5061".parse().ok(),
            transport: Some("tls".into()),
            began_at: Moment::from_micros(1_000_000),
            ended_at: Moment::from_micros(1_035_400),
            outcome: AttemptOutcome::TlsFailed,
            sip_code: None,
            detail: Some("its certificate has expired".into()),
        };

        assert_eq!(
            sentence(&attempt),
            "Runtime sip:x@bot.test (TLS 192.0.2.1:5061): TLS failed: its certificate has expired (35 ms)."
        );

        let refused = Attempt {
            leg: AttemptLeg::Callee,
            address: None,
            transport: None,
            outcome: AttemptOutcome::SipStatus,
            sip_code: Some(503),
            detail: None,
            ..attempt
        };

        assert_eq!(
            sentence(&refused),
            "Callee sip:x@bot.test: it answered 503 (35 ms)."
        );
    }
}
