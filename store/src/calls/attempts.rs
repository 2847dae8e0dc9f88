//! Attempts to reach the targets of calls: projected from the journal's facts, each once however often its fact comes, and read with their
//! calls.

use trunkline_model::attempt::Attempt;
use trunkline_model::record::Fact;
use uuid::Uuid;

use crate::driver::column::{from_row, maybe, micros, moment, named, parsed, small};
use crate::driver::error::Error;
use crate::driver::rows::Insert;
use crate::driver::tx::Tx;
use crate::driver::value::Value;

const ATTEMPTS: Insert = Insert {
    into: "call_attempts (call_id, number, org_id, leg, target, address, transport, began_at, ended_at, outcome, sip_code, detail)",
    ending: " ON CONFLICT (call_id, number) DO NOTHING",
};

/// A row; its columns are named differently from the fact's fields.
struct Row {
    call_id: Uuid,
    org_id: Uuid,
    number: u16,
    leg: trunkline_model::attempt::AttemptLeg,
    target: String,
    address: Option<std::net::SocketAddr>,
    transport: Option<String>,
    began_at: trunkline_sip::moment::Moment,
    ended_at: trunkline_sip::moment::Moment,
    outcome: trunkline_model::attempt::AttemptOutcome,
    sip_code: Option<u16>,
    detail: Option<String>,
}
from_row!(Row {
    call_id,
    org_id,
    number: small,
    leg: named,
    target,
    address: maybe(parsed),
    transport,
    began_at: moment,
    ended_at: moment,
    outcome: named,
    sip_code: maybe(small),
    detail,
});

impl From<Row> for Attempt {
    fn from(row: Row) -> Self {
        Self {
            call: row.call_id,
            org: row.org_id,
            number: u8::try_from(row.number).unwrap_or(u8::MAX),
            leg: row.leg,
            target: row.target.into(),
            address: row.address,
            transport: row.transport.map(Into::into),
            began_at: row.began_at,
            ended_at: row.ended_at,
            outcome: row.outcome,
            sip_code: row.sip_code,
            detail: row.detail.map(Into::into),
        }
    }
}

/// Returns the recorded attempts of a call, in order.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn of_call(tx: &mut Tx, org: Uuid, call: Uuid) -> Result<Vec<Attempt>, Error> {
    let rows: Vec<Row> = tx.all(
        "SELECT * FROM call_attempts WHERE call_id = $2 AND org_id = $1 ORDER BY number",
        &[&org, &call],
    )?;
    Ok(rows.into_iter().map(Attempt::from).collect())
}

/// Writes the attempts among these facts.
pub(crate) fn project(tx: &mut Tx, facts: &[Fact]) -> Result<(), Error> {
    let attempts = facts.iter().filter_map(|fact| match fact {
        Fact::Attempt(attempt) => Some(values(attempt)),
        Fact::Started(_)
        | Fact::Contact { .. }
        | Fact::Ringing { .. }
        | Fact::Answered { .. }
        | Fact::Joined { .. }
        | Fact::Held { .. }
        | Fact::Transfer(_)
        | Fact::Media(_)
        | Fact::Ended(_) => None,
    });

    let attempts: Vec<_> = attempts.collect();
    for some in tx.portions(&attempts) {
        tx.insert(ATTEMPTS, some)?;
    }

    Ok(())
}

fn values(attempt: &Attempt) -> [Value<'_>; 12] {
    // PostgreSQL accepts no NUL, which a peer's text may hold.
    let text = |text: &str| text.replace('\0', "\u{fffd}");
    [
        attempt.call.into(),
        i64::from(attempt.number).into(),
        attempt.org.into(),
        attempt.leg.as_str().into(),
        text(&attempt.target).into(),
        attempt.address.map(|address| address.to_string()).into(),
        attempt.transport.as_deref().into(),
        micros(attempt.began_at).into(),
        micros(attempt.ended_at).into(),
        attempt.outcome.as_str().into(),
        attempt.sip_code.map(i64::from).into(),
        attempt.detail.as_deref().map(text).into(),
    ]
}
