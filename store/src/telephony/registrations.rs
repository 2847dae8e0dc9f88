//! Registrations of PBXs, stored for restarts and followed by other nodes. Each node writes the contacts whose REGISTERs it has received;
//! of two nodes that write the same contact, the later REGISTER wins. A node always overwrites its own contacts, since the wall clock may
//! have been set back.

use std::time::Duration;

use trunkline_model::registration::BindingLoss;
use trunkline_model::registration::{StoredBinding, UnsavedBindings};
use trunkline_sip::flow::Transport;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use crate::driver::clock;
use crate::driver::column::{from_row, micros, moment};
use crate::driver::error::Error;
use crate::driver::event::NewEvent;
use crate::driver::tx::Tx;

/// Time for which ended contacts are stored, so that every node sees their end.
const ENDED: Duration = Duration::from_secs(600);
/// Time by which a row may become visible later than a newer one: the longest transaction that writes registrations.
const OVERLAP: Duration = Duration::from_secs(2);
/// Tolerance between two times of the same event, since the wall clock may be adjusted.
const SAME: Duration = Duration::from_millis(100);

/// Result of taking over the contacts of nodes that are gone.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TakenOver {
    /// Contacts that are now this node's.
    pub kept: Vec<StoredBinding>,
    /// Org and trunk of trunks that have no registration left.
    pub lost: Vec<(Uuid, Uuid)>,
}

#[derive(Debug)]
struct Row {
    trunk_id: Uuid,
    org_id: Uuid,
    node: i64,
    contact: String,
    instance: Option<String>,
    q: Option<i64>,
    transport: String,
    source: String,
    behind_nat: bool,
    username: String,
    user_agent: Option<String>,
    sip_call_id: Vec<u8>,
    cseq: i64,
    registered_at: Moment,
    refreshed_at: Moment,
    expires_at: Moment,
    saved_at: Moment,
    path: Option<String>,
}
from_row!(Row {
    trunk_id,
    org_id,
    node,
    contact,
    instance,
    q,
    transport,
    source,
    behind_nat,
    username,
    user_agent,
    sip_call_id,
    cseq,
    registered_at: moment,
    refreshed_at: moment,
    expires_at: moment,
    saved_at: moment,
    path,
});

impl Row {
    /// Returns the contact; `None` for a row of a newer version that this one can't read.
    fn kept(self) -> Option<StoredBinding> {
        let transports = [Transport::Udp, Transport::Tcp, Transport::Tls];
        let mut transports = transports.into_iter();

        Some(StoredBinding {
            org: self.org_id,
            trunk: self.trunk_id,
            node: u8::try_from(self.node).ok()?,
            contact: self.contact.into(),
            path: self.path.map(Into::into),
            instance: self.instance.map(Into::into),
            q: self.q.and_then(|q| u16::try_from(q).ok()),
            transport: transports.find(|known| known.uri_name() == self.transport)?,
            source: self.source.parse().ok()?,
            is_behind_nat: self.behind_nat,
            username: self.username.into(),
            user_agent: self.user_agent.map(Into::into),
            call_id: self.sip_call_id.into(),
            cseq: u32::try_from(self.cseq).ok()?,
            registered_at: self.registered_at,
            refreshed_at: self.refreshed_at,
            expires_at: self.expires_at,
        })
    }
}

/// Returns whether this contact of `node` was the last one of its trunk when another node ended it. `expires_at` lies before `saved_at`
/// only if another node ended the contact; a later `registered_at` means that the PBX has registered it again.
fn was_reported_lost(own: &StoredBinding, known: &[Row], node: u8, now: Moment) -> bool {
    let is_it = |row: &Row| {
        let apart = row
            .registered_at
            .as_micros()
            .abs_diff(own.registered_at.as_micros());
        row.node == i64::from(node)
            && row.contact == *own.contact
            && row.sip_call_id == *own.call_id
            && u128::from(apart) < SAME.as_micros()
            && row.expires_at < row.saved_at
    };
    known.iter().all(|row| row.expires_at <= now) && known.iter().any(is_it)
}

/// Returns all stored contacts, and the time from which [`since`] continues.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn all(tx: &mut Tx) -> Result<(Vec<StoredBinding>, Moment), Error> {
    since(tx, Moment::from_micros(0))
}

/// Returns the contacts stored since then; some may have been returned before.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn since(tx: &mut Tx, seen: Moment) -> Result<(Vec<StoredBinding>, Moment), Error> {
    let from = seen.as_micros().saturating_sub(OVERLAP.as_micros() as u64);
    let sql = "SELECT * FROM registrations WHERE saved_at > $1 ORDER BY saved_at";
    let rows: Vec<Row> = tx.all(sql, &[&Moment::from_micros(from)])?;
    let last = rows.last().map_or(seen, |row| row.saved_at);
    Ok((rows.into_iter().filter_map(Row::kept).collect(), last))
}

/// Stores the node's present contacts of these trunks. If another node took this one for gone and reported a trunk as lost, an event
/// reports it as registered again.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke); nothing was stored then.
pub fn save(tx: &mut Tx, node: u8, trunks: &[UnsavedBindings], now: Moment) -> Result<(), Error> {
    // The database's clock, since the clocks of nodes differ.
    let reported_at = clock::now(tx)?.unwrap_or(now);
    let at = micros(reported_at);
    let mut back = Vec::new();

    for UnsavedBindings {
        trunk,
        own,
        removed,
    } in trunks
    {
        if !own.is_empty() {
            let sql = "SELECT * FROM registrations WHERE trunk_id = $1";
            let known: Vec<Row> = tx.all(sql, &[trunk])?;
            let lost = own
                .iter()
                .find(|own| was_reported_lost(own, &known, node, now));
            back.extend(lost.map(|kept| NewEvent::trunk_registered(&kept.into(), reported_at)));
        }

        let sql = "SELECT contact FROM registrations WHERE trunk_id = $1 AND node = $2 AND expires_at > $3";
        let kept: Vec<(String,)> = tx.all(sql, &[trunk, &node, &now])?;
        let is_own = |contact: &str| own.iter().any(|own| *own.contact == *contact);
        let gone = kept.iter().map(|(contact,)| &**contact);
        let gone = gone.filter(|contact| !is_own(contact));

        for contact in gone.chain(removed.iter().map(|contact| &**contact)) {
            let sql = "UPDATE registrations SET expires_at = $4, node = $3, saved_at = $5 WHERE trunk_id = $1 AND contact = $2";
            let ended = micros(now) - 1;
            tx.run(sql, &[trunk, &contact, &node, &ended, &at])?;
        }

        // The condition of the update leaves another node's newer REGISTER alone: the PBX has moved there.
        for kept in own {
            // The insert selects the trunk: one that was deleted meanwhile gets no row.
            tx.run(
                "INSERT INTO registrations (trunk_id, contact, org_id, node, instance, q, transport, source, behind_nat, username,
                     user_agent, sip_call_id, cseq, registered_at, refreshed_at, expires_at, saved_at, path)
                 SELECT id, $2, org_id, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17
                 FROM inbound_trunks WHERE id = $1
                 ON CONFLICT (trunk_id, contact) DO UPDATE SET node = excluded.node, instance = excluded.instance, q = excluded.q,
                     transport = excluded.transport, source = excluded.source, behind_nat = excluded.behind_nat,
                     username = excluded.username, user_agent = excluded.user_agent, sip_call_id = excluded.sip_call_id,
                     cseq = excluded.cseq, registered_at = excluded.registered_at, refreshed_at = excluded.refreshed_at,
                     expires_at = excluded.expires_at, saved_at = excluded.saved_at, path = excluded.path
                 WHERE registrations.refreshed_at <= excluded.refreshed_at OR registrations.node = excluded.node",
                &[
                    &kept.trunk,
                    &&*kept.contact,
                    &node,
                    &kept.instance.as_deref(),
                    &kept.q,
                    &kept.transport.uri_name(),
                    &kept.source.to_string(),
                    &kept.is_behind_nat,
                    &&*kept.username,
                    &kept.user_agent.as_deref(),
                    &&*kept.call_id,
                    &kept.cseq,
                    &kept.registered_at,
                    &kept.refreshed_at,
                    &kept.expires_at,
                    &at,
                    &kept.path.as_deref(),
                ],
            )?;
        }
    }

    tx.record(back);
    Ok(())
}

/// Takes over the contacts of other nodes that are [gone](crate::tenants::nodes::left_registered). Contacts that were reachable only over such a
/// node's connections end; the others become this node's. If a trunk has no registration left, one node reports it as lost.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke); nothing was taken over then.
pub fn take_over(tx: &mut Tx, node: u8, gone: &[u8], now: Moment) -> Result<TakenOver, Error> {
    let mut taken = TakenOver::default();
    let at = clock::now(tx)?.unwrap_or(now);

    for gone in gone {
        // The update locks the rows: a second node that takes over at the same time finds them ended, or taken by this
        // node. Its `now` may be earlier than their end, if it began first and then waited.
        let held: Vec<Row> = tx.all(
            "UPDATE registrations SET saved_at = $3 WHERE node = $1 AND expires_at > $2 AND expires_at > saved_at RETURNING *",
            &[gone, &now, &at],
        )?;
        let held = held.into_iter().filter_map(Row::kept);
        let (direct, by_flow): (Vec<StoredBinding>, Vec<StoredBinding>) =
            held.partition(StoredBinding::has_way_without_flow);
        for mut kept in direct {
            let sql = "UPDATE registrations SET node = $3 WHERE trunk_id = $1 AND contact = $2";
            tx.run(sql, &[&kept.trunk, &&*kept.contact, &node])?;
            kept.node = node;
            taken.kept.push(kept);
        }

        for kept in by_flow {
            // The row keeps the number of its node. If that node was only stalled, `save` finds by it that the contact was reported as
            // lost.
            let sql =
                "UPDATE registrations SET expires_at = $3 WHERE trunk_id = $1 AND contact = $2";
            let ended = micros(now.min(at)) - 1;
            tx.run(sql, &[&kept.trunk, &&*kept.contact, &ended])?;
            let sql =
                "SELECT contact FROM registrations WHERE trunk_id = $1 AND expires_at > $2 LIMIT 1";
            let left: Vec<(String,)> = tx.all(sql, &[&kept.trunk, &now])?;

            if left.is_empty() {
                taken.lost.push((kept.org, kept.trunk));
            }
        }
    }

    let event =
        |&(org, trunk): &(Uuid, Uuid)| NewEvent::trunk_lost(org, trunk, BindingLoss::NodeLost, at);
    tx.record(taken.lost.iter().map(event));

    Ok(taken)
}

/// Deletes contacts that ended more than ten minutes ago.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn prune(tx: &mut Tx, now: Moment) -> Result<(), Error> {
    let sql = "DELETE FROM registrations WHERE expires_at < $1";
    tx.run(sql, &[&(now - ENDED)])?;
    Ok(())
}
