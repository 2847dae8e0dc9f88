//! Digest challenges of PBXs and carriers that were not answered: the last one of each trunk, shown as the reason why calls fail.

use serde::{Deserialize, Serialize};
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use crate::driver::column::{from_row, json, to_json};
use crate::driver::error::Error;
use crate::driver::tx::Tx;

/// A 401 or 407 that wasn't answered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UnansweredChallenge {
    /// Stable code of the reason.
    pub reason: String,
    /// 401 or 407.
    pub status: u16,
    /// The method of the request.
    pub method: String,
    /// The realm.
    pub realm: String,
    /// Address of the challenged request.
    pub peer: String,
    /// Time of the challenge, in microseconds since the epoch.
    pub at: u64,
}

/// An unanswered challenge with its org and trunk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnansweredOf {
    /// The org.
    pub org_id: Uuid,
    /// The name of the outbound trunk; `None`: the inbound one.
    pub trunk: Option<String>,
    /// The challenge.
    pub challenge: UnansweredChallenge,
}

/// Stores a challenge as the last one of the outbound trunk or, with `None`, of the org's inbound trunk. Does nothing for a trunk that no
/// longer exists.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn note(
    tx: &mut Tx,
    org: Uuid,
    trunk: Option<Uuid>,
    challenge: &UnansweredChallenge,
) -> Result<(), Error> {
    let challenge = to_json(challenge);
    match trunk {
        Some(trunk) => {
            let sql = "UPDATE outbound_trunks SET unanswered_challenge = $3 WHERE org_id = $1 AND id = $2";
            tx.run(sql, &[&org, &trunk, &challenge])?;
        }
        None => {
            let sql = "UPDATE inbound_trunks SET unanswered_challenge = $2 WHERE org_id = $1";
            tx.run(sql, &[&org, &challenge])?;
        }
    }
    Ok(())
}

/// Returns the challenges since then, of all orgs.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn since(tx: &mut Tx, since: Moment) -> Result<Vec<UnansweredOf>, Error> {
    let sql = "SELECT org_id, name AS trunk, unanswered_challenge AS challenge FROM outbound_trunks
               WHERE unanswered_challenge IS NOT NULL
               UNION ALL SELECT org_id, NULL, unanswered_challenge FROM inbound_trunks
               WHERE unanswered_challenge IS NOT NULL";
    let rows: Vec<UnansweredOf> = tx.all(sql, &[])?;
    let is_recent = |row: &UnansweredOf| row.challenge.at >= since.as_micros();
    Ok(rows.into_iter().filter(is_recent).collect())
}

from_row!(UnansweredOf {
    org_id,
    trunk,
    challenge: json
});
