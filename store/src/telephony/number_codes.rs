//! Verification codes that a call speaks to the person who answers a number. A code is stored as a MAC. Calls to a number and tries of a
//! code are counted here, so that the limits hold over all nodes.

use std::time::Duration;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use trunkline_routing::E164;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::numbers::Number;
use super::numbers::{by_id, mark_verified};
use crate::driver::change::Change;
use crate::driver::column::micros;
use crate::driver::edit::lock_org;
use crate::driver::error::{Conflict, Error};
use crate::driver::ids::new_id;
use crate::driver::keyring::Keyring;
use crate::driver::tx::Tx;

/// Most calls to a number in 24 hours, by all orgs together.
const CALLS: i64 = 3;
/// Most calls of an org in 24 hours.
const ORG_CALLS: u8 = 10;
/// Most different numbers that an org calls in 24 hours.
const ORG_NUMBERS: u8 = 5;
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Validity of a code.
const LIFE: Duration = Duration::from_secs(600);
/// Most tries of a code, which is invalid after the last one.
pub const TRIES: u8 = 5;

/// Result of requesting a code.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum MadeCode {
    /// The number may be called now.
    Code {
        /// The code's id.
        id: Uuid,
        /// Expiry of the code.
        expires_at: Moment,
        /// Remaining calls to the number within 24 hours.
        calls_left: u8,
    },
    /// The number was called too often.
    TooOften {
        /// Time until it may be called again.
        wait: Duration,
    },
    /// The org has made its calls of a day.
    OrgUsedUp {
        /// Limit that is reached.
        limit: CodeLimit,
        /// Time until it may call this number.
        wait: Duration,
    },
    /// The deployment has made its calls of a day, or the org's partner its half of them.
    UsedUp {
        /// Time until one more may be made.
        wait: Duration,
    },
}

/// Limit on an org's calls in 24 hours.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum CodeLimit {
    /// So many calls.
    Calls(u8),
    /// Calls to so many different numbers.
    Numbers(u8),
}

/// Result of trying a code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TriedCode {
    /// The code is right: the number is verified.
    Right(Number),
    /// The code is wrong.
    Wrong {
        /// Remaining tries.
        left: u8,
    },
    /// The number has no valid code.
    None,
}

/// Stores a code for a number of the org, replacing an earlier one. `per_day` is the most calls of the deployment in 24 hours. The orgs of
/// one partner may make half of them together, and so may an org without a partner: the operator pays for all calls, and one customer must
/// not use up those of the others.
///
/// # Errors
/// [`Wrong::Absent`](crate::Wrong::Absent), [`Conflict::NumberVerifiedElsewhere`].
pub fn make(
    tx: &mut Tx,
    org: Uuid,
    number_id: Uuid,
    code: &[u8],
    per_day: u32,
    now: Moment,
) -> Result<MadeCode, Error> {
    lock_org(tx, org)?;
    let number = by_id(tx, org, number_id)?;

    let sql =
        "SELECT org_id FROM numbers WHERE number = $1 AND verified_at IS NOT NULL AND org_id <> $2";
    let other_org: Option<(Uuid,)> = tx.one(sql, &[&number.number, &org])?;
    if other_org.is_some() {
        return Err(Conflict::NumberVerifiedElsewhere(number.number).into());
    }

    if tx.is_shared() {
        // One transaction at a time. Otherwise two could count the same calls, and two that lock rows of one number in different orders could
        // wait for each other for ever.
        let turn = "SELECT pg_advisory_xact_lock(hashtextextended('number_codes', 0))";
        tx.run(turn, &[])?;
    }

    let id = new_id(now);
    let mac = mac(&tx.keyring(), id, code);
    let mac = mac.finalize().into_bytes().to_vec();
    let day_ago = micros(now).saturating_sub(micros_of(DAY));
    let expires_at = now + LIFE;

    if let Some((limit, wait)) = org_used_up(tx, org, number.number, day_ago)? {
        tx.mark_internal();
        return Ok(MadeCode::OrgUsedUp { limit, wait });
    }
    if let Some(wait) = used_up(tx, org, per_day, day_ago)? {
        tx.mark_internal();
        return Ok(MadeCode::UsedUp { wait });
    }

    // The places of a number bound the calls to it: each is free again a day after its call.
    for place in 0..CALLS {
        let sql = "INSERT INTO number_codes (number, place, id, org_id, partner_id, number_id, code_mac, tries, made_at, expires_at)
                   VALUES ($1, $2, $3, $4, (SELECT partner_id FROM orgs WHERE id = $4), $5, $6, 0, $7, $8)
                   ON CONFLICT (number, place) DO UPDATE SET id = excluded.id, org_id = excluded.org_id,
                     partner_id = excluded.partner_id, number_id = excluded.number_id, code_mac = excluded.code_mac, tries = 0, made_at = excluded.made_at, expires_at = excluded.expires_at
                   WHERE number_codes.made_at <= $9";
        let taken = tx.run(
            sql,
            &[
                &number.number,
                &place,
                &id,
                &org,
                &number_id,
                &mac,
                &now,
                &expires_at,
                &day_ago,
            ],
        )?;

        if taken == 1 {
            // Only the last code is valid; the rows of earlier ones go on counting their calls.
            let replace = "UPDATE number_codes SET code_mac = NULL WHERE org_id = $1 AND number_id = $2 AND id <> $3";
            tx.run(replace, &[&org, &number_id, &id])?;
            let calls_left = CALLS - called(tx, number.number, day_ago)?;
            return Ok(MadeCode::Code {
                id,
                expires_at,
                calls_left: u8::try_from(calls_left).unwrap_or(0),
            });
        }
    }

    let sql = "SELECT MIN(made_at) FROM number_codes WHERE number = $1";
    let (oldest,): (Option<i64>,) = tx.exactly_one(sql, &[&number.number])?;
    tx.mark_internal();
    let wait = until_it_leaves(oldest, day_ago);
    Ok(MadeCode::TooOften { wait })
}

/// Returns the org's limit that is reached, with the time until the org may call this number; `None` if it may now.
fn org_used_up(
    tx: &mut Tx,
    org: Uuid,
    number: E164,
    day_ago: i64,
) -> Result<Option<(CodeLimit, Duration)>, Error> {
    let sql = "SELECT number, COUNT(*), MIN(made_at), MAX(made_at) FROM number_codes WHERE org_id = $1 AND made_at > $2 GROUP BY number";
    // At most as many rows as numbers: the limits bound them.
    let called: Vec<(String, i64, i64, i64)> = tx.all(sql, &[&org, &day_ago])?;

    let calls: i64 = called.iter().map(|(_, calls, _, _)| calls).sum();
    if calls >= i64::from(ORG_CALLS) {
        let oldest = called.iter().map(|(_, _, first, _)| *first).min();
        let wait = until_it_leaves(oldest, day_ago);
        return Ok(Some((CodeLimit::Calls(ORG_CALLS), wait)));
    }

    let is_new = called
        .iter()
        .all(|(known, _, _, _)| known != number.as_str());
    if is_new && called.len() >= usize::from(ORG_NUMBERS) {
        // A number counts until its last call leaves.
        let oldest = called.iter().map(|(_, _, _, last)| *last).min();
        let wait = until_it_leaves(oldest, day_ago);
        return Ok(Some((CodeLimit::Numbers(ORG_NUMBERS), wait)));
    }

    Ok(None)
}

/// Returns the time until the deployment, and the org's partner, may make one more call; `None` if they may now.
fn used_up(tx: &mut Tx, org: Uuid, per_day: u32, day_ago: i64) -> Result<Option<Duration>, Error> {
    let sql = "SELECT COUNT(*), MIN(made_at), COUNT(*) FILTER (WHERE is_theirs), MIN(made_at) FILTER (WHERE is_theirs) FROM (
                   SELECT made_at, org_id = own.id OR (number_codes.partner_id IS NOT NULL AND number_codes.partner_id = own.partner_id) AS is_theirs
                   FROM number_codes JOIN orgs AS own ON own.id = $1
                   WHERE made_at > $2
               ) AS made";
    let (all, oldest, theirs, oldest_of_theirs): (i64, Option<i64>, i64, Option<i64>) =
        tx.exactly_one(sql, &[&org, &day_ago])?;

    let half = i64::from(per_day.div_ceil(2));
    Ok(if all >= i64::from(per_day) {
        Some(until_it_leaves(oldest, day_ago))
    } else if theirs >= half {
        Some(until_it_leaves(oldest_of_theirs, day_ago))
    } else {
        None
    })
}

/// Returns the time until a call made then no longer counts.
fn until_it_leaves(made_at: Option<i64>, day_ago: i64) -> Duration {
    let micros = made_at.map_or(0, |made_at| made_at.saturating_sub(day_ago));
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

/// Withdraws a code whose call was never begun, so that it doesn't count.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn take_back(tx: &mut Tx, org: Uuid, id: Uuid) -> Result<(), Error> {
    lock_org(tx, org)?;
    let sql = "DELETE FROM number_codes WHERE org_id = $1 AND id = $2";
    tx.run(sql, &[&org, &id])?;
    Ok(())
}

/// Tries a code, and verifies the number if it is right. A verified number stays so, whatever the code.
///
/// # Errors
/// [`Wrong::Absent`](crate::Wrong::Absent), [`Conflict::NumberVerifiedElsewhere`].
pub fn try_code(
    tx: &mut Tx,
    org: Uuid,
    number_id: Uuid,
    code: &[u8],
    now: Moment,
) -> Result<TriedCode, Error> {
    lock_org(tx, org)?;
    let number = by_id(tx, org, number_id)?;
    if number.verified_at.is_some() {
        tx.mark_internal();
        return Ok(TriedCode::Right(number));
    }

    // Counted before the code is compared, so that two tries at once can't count as one.
    let sql = "UPDATE number_codes SET tries = tries + 1
               WHERE org_id = $1 AND number_id = $2 AND code_mac IS NOT NULL AND expires_at > $3 RETURNING id, code_mac, tries";
    let row: Option<(Uuid, Vec<u8>, i64)> = tx.one(sql, &[&org, &number_id, &now])?;
    let Some((id, kept, tries)) = row else {
        tx.mark_internal();
        return Ok(TriedCode::None);
    };

    let expected = mac(&tx.keyring(), id, code);
    let is_right = expected.verify_slice(&kept).is_ok();
    let left = u8::try_from(i64::from(TRIES) - tries).unwrap_or(0);
    if is_right || left == 0 {
        let sql = "UPDATE number_codes SET code_mac = NULL WHERE org_id = $1 AND id = $2";
        tx.run(sql, &[&org, &id])?;
    }

    if !is_right {
        return Ok(TriedCode::Wrong { left });
    }

    let number = mark_verified(tx, number, now)?;
    tx.changed(Change::Org(org), now);

    Ok(TriedCode::Right(number))
}

/// Deletes the counts of calls older than a day.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn prune(tx: &mut Tx, now: Moment) -> Result<(), Error> {
    let day_ago = micros(now).saturating_sub(micros_of(DAY));
    let sql = "DELETE FROM number_codes WHERE made_at <= $1";
    tx.run(sql, &[&day_ago])?;
    Ok(())
}

/// Returns the MAC of a code. A hash of six digits could be inverted at once; the MAC's key isn't in the database.
fn mac(keyring: &Keyring, id: Uuid, code: &[u8]) -> Hmac<Sha256> {
    let key = keyring.derive("number codes");
    let mut mac = Hmac::new_from_slice(&key).expect("HMAC takes a key of any length");
    mac.update(id.as_bytes());
    mac.update(code);
    mac
}

fn called(tx: &mut Tx, number: E164, day_ago: i64) -> Result<i64, Error> {
    let sql = "SELECT COUNT(*) FROM number_codes WHERE number = $1 AND made_at > $2";
    let (count,): (i64,) = tx.exactly_one(sql, &[&number, &day_ago])?;
    Ok(count)
}

fn micros_of(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
