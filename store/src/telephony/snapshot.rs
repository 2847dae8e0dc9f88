//! The input of the daemon's directory: every org with its rows, read in one snapshot of the database.

use std::collections::HashMap;

use ipnet::IpNet;
use trunkline_model::destinations::Destination;
use trunkline_model::settings::{TransferTarget, Via};
use trunkline_model::tied::TiedPeers;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::agents::Agent;
use super::bot_tokens::{self, BotToken};
use super::dedications::Dedication;
use super::destinations::target;
use super::inbound_trunks;
use super::inbound_trunks::InboundTrunk;
use super::media_addresses::MediaAddress;
use super::numbers::Number;
use super::outbound_trunks;
use super::outbound_trunks::OutboundTrunk;
use super::tied_peers;
use super::tied_peers::TiedPeer;
use crate::driver::column::{count, from_row, moment, named, number};
use crate::driver::error::Error;
use crate::driver::tx::Tx;
use crate::tenants::org_limits;
use crate::tenants::org_limits::StoredLimits;
use crate::tenants::orgs::Org;
use crate::tenants::password::Password;

/// An org with its rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrgRows {
    /// The org.
    pub org: Org,
    /// Agents, oldest first.
    pub agents: Vec<Agent>,
    /// Numbers, verified or not.
    pub numbers: Vec<Number>,
    /// Its inbound trunk.
    pub trunk: Option<InboundTrunk>,
    /// Its outbound trunks.
    pub outbound_trunks: Vec<OutboundTrunk>,
    /// The trunk's earlier credentials.
    pub old_credentials: Vec<OldCredentials>,
    /// Networks dedicated to it.
    pub dedicated: Vec<IpNet>,
    /// Those of `dedicated` whose calls over UDP need no proof.
    pub without_proof: Vec<IpNet>,
    /// Peers that the operator has tied to it.
    pub tied: TiedPeers,
    /// Share of each node, in per cent, that the operator has set for the orgs of its partner together.
    pub node_share_percent: Option<u32>,
    /// Networks in which its PBX or carrier has its media.
    pub media_networks: Vec<IpNet>,
    /// Limits that were set for it.
    pub limits: StoredLimits,
    /// Tokens of its bots.
    pub bot_token: Option<BotToken>,
    /// Transfer destinations of its agents, each with the agent, in the order of their assignment.
    pub destinations: Vec<(Uuid, Destination)>,
}

/// Credentials from before a rotation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OldCredentials {
    /// Digest user name.
    pub username: String,
    /// Digest password.
    pub password: Password,
    /// Expiry.
    pub expires_at: Moment,
}

/// Returns the rows of one org, or of all.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn rows_of(tx: &mut Tx, org: Option<Uuid>) -> Result<Vec<OrgRows>, Error> {
    tx.snapshot()?;
    // Deleted orgs aren't among these, so that their other rows, which stay until the purge, are skipped below.
    let mut rows = orgs(tx, org)?;
    add_agents(tx, org, &mut rows)?;
    add_numbers(tx, org, &mut rows)?;
    add_trunks(tx, org, &mut rows)?;
    add_outbound_trunks(tx, org, &mut rows)?;
    add_old_credentials(tx, org, &mut rows)?;
    add_dedications(tx, org, &mut rows)?;
    add_tied(tx, org, &mut rows)?;
    add_media_addresses(tx, org, &mut rows)?;
    add_destinations(tx, org, &mut rows)?;
    add_node_shares(tx, org, &mut rows)?;
    add_limits(tx, org, &mut rows)?;
    add_bot_tokens(tx, org, &mut rows)?;
    Ok(rows.into_values().collect())
}

/// Rows by org.
type Rows = HashMap<Uuid, OrgRows>;

/// Statement for the rows of one org by its index, or for all rows.
macro_rules! of {
    ($tx:expr, $org:expr, $select:literal, $column:literal, $order:literal) => {
        match $org {
            Some(org) => $tx.all(
                concat!($select, " WHERE ", $column, " = $1 ", $order),
                &[&org],
            ),
            None => $tx.all(concat!($select, " ", $order), &[]),
        }
    };
}

fn orgs(tx: &mut Tx, org: Option<Uuid>) -> Result<Rows, Error> {
    let orgs: Vec<Org> = match org {
        Some(org) => {
            let sql = "SELECT * FROM orgs WHERE id = $1 AND deleted_at IS NULL";
            tx.all(sql, &[&org])?
        }
        None => tx.all("SELECT * FROM orgs WHERE deleted_at IS NULL", &[])?,
    };
    Ok(orgs
        .into_iter()
        .map(|org| (org.id, OrgRows::new(org)))
        .collect())
}

fn add_numbers(tx: &mut Tx, org: Option<Uuid>, rows: &mut Rows) -> Result<(), Error> {
    let numbers: Vec<Number> = of!(
        tx,
        org,
        "SELECT * FROM numbers",
        "org_id",
        "ORDER BY created_at, id"
    )?;

    for number in numbers {
        if let Some(rows) = rows.get_mut(&number.org_id) {
            rows.numbers.push(number);
        }
    }

    Ok(())
}

fn add_dedications(tx: &mut Tx, org: Option<Uuid>, rows: &mut Rows) -> Result<(), Error> {
    let dedications: Vec<Dedication> = of!(
        tx,
        org,
        "SELECT * FROM dedications",
        "org_id",
        "ORDER BY network"
    )?;

    for dedication in dedications {
        if let Some(rows) = rows.get_mut(&dedication.org_id) {
            rows.dedicated.push(dedication.network);
            if dedication.no_proof {
                rows.without_proof.push(dedication.network);
            }
        }
    }

    Ok(())
}

fn add_media_addresses(tx: &mut Tx, org: Option<Uuid>, rows: &mut Rows) -> Result<(), Error> {
    let listed: Vec<MediaAddress> = of!(
        tx,
        org,
        "SELECT * FROM media_addresses",
        "org_id",
        "ORDER BY org_id, network"
    )?;

    for listed in listed {
        if let Some(rows) = rows.get_mut(&listed.org_id) {
            rows.media_networks.push(listed.network);
        }
    }

    Ok(())
}

fn add_tied(tx: &mut Tx, org: Option<Uuid>, rows: &mut Rows) -> Result<(), Error> {
    let tied: Vec<TiedPeer> = of!(
        tx,
        org,
        "SELECT * FROM tied_peers",
        "org_id",
        "ORDER BY org_id, peer"
    )?;

    for tied in tied.chunk_by(|one, next| one.org_id == next.org_id) {
        if let Some(rows) = rows.get_mut(&tied[0].org_id) {
            rows.tied = tied_peers::together(tied);
        }
    }

    Ok(())
}

fn add_bot_tokens(tx: &mut Tx, org: Option<Uuid>, rows: &mut Rows) -> Result<(), Error> {
    let tokens: Vec<bot_tokens::Row> = of!(tx, org, "SELECT * FROM bot_tokens", "org_id", "")?;
    for token in tokens {
        if let Some(rows) = rows.get_mut(&token.org_id) {
            rows.bot_token = Some(token.open(&tx.keyring())?);
        }
    }
    Ok(())
}

/// A partner's share of each node.
struct NodeShare {
    id: Uuid,
    node_share_percent: u32,
}
from_row!(NodeShare {
    id,
    node_share_percent: count,
});

fn add_node_shares(tx: &mut Tx, org: Option<Uuid>, rows: &mut Rows) -> Result<(), Error> {
    let shares: Vec<NodeShare> = match org {
        Some(org) => {
            let sql = "SELECT partners.id, node_share_percent FROM partners JOIN orgs ON orgs.partner_id = partners.id
                 WHERE orgs.id = $1 AND node_share_percent IS NOT NULL";
            tx.all(sql, &[&org])?
        }
        None => {
            let sql =
                "SELECT id, node_share_percent FROM partners WHERE node_share_percent IS NOT NULL";
            tx.all(sql, &[])?
        }
    };
    let shares: HashMap<Uuid, u32> = shares
        .into_iter()
        .map(|share| (share.id, share.node_share_percent))
        .collect();

    for rows in rows.values_mut() {
        let partner = rows.org.partner_id;
        rows.node_share_percent = partner.and_then(|partner| shares.get(&partner).copied());
    }
    Ok(())
}

fn add_limits(tx: &mut Tx, org: Option<Uuid>, rows: &mut Rows) -> Result<(), Error> {
    if let Some(org) = org {
        let stored = org_limits::stored(tx, org)?;
        if let Some(rows) = rows.get_mut(&org) {
            rows.limits = stored;
        }
        return Ok(());
    }

    for row in org_limits::of_all(tx)? {
        if let (Some((limit, stored)), Some(rows)) = (row.read(), rows.get_mut(&row.org_id)) {
            rows.limits.add(limit, stored);
        }
    }
    Ok(())
}

fn add_destinations(tx: &mut Tx, org: Option<Uuid>, rows: &mut Rows) -> Result<(), Error> {
    let assigned: Vec<Assigned> = of!(
        tx,
        org,
        "SELECT agent_destinations.org_id, agent_id, destinations.id, name, type || ' ' || value AS target, via
         FROM agent_destinations JOIN destinations ON destinations.org_id = agent_destinations.org_id
             AND destinations.id = agent_destinations.destination_id",
        "agent_destinations.org_id",
        "ORDER BY agent_destinations.created_at, agent_destinations.destination_id"
    )?;
    for assigned in assigned {
        if let Some(rows) = rows.get_mut(&assigned.org_id) {
            let destination = Destination {
                id: Some(assigned.id),
                name: assigned.name.into(),
                target: assigned.target,
                via: assigned.via,
            };
            rows.destinations.push((assigned.agent_id, destination));
        }
    }

    Ok(())
}

struct Assigned {
    org_id: Uuid,
    agent_id: Uuid,
    id: Uuid,
    name: String,
    target: TransferTarget,
    via: Via,
}
from_row!(Assigned {
    org_id,
    agent_id,
    id,
    name,
    target: target,
    via: named
});

fn add_agents(tx: &mut Tx, org: Option<Uuid>, rows: &mut Rows) -> Result<(), Error> {
    let agents: Vec<Agent> = of!(
        tx,
        org,
        "SELECT *, type AS kind FROM agents",
        "org_id",
        "ORDER BY created_at, id"
    )?;

    for mut agent in agents {
        if let Some(rows) = rows.get_mut(&agent.org_id) {
            agent.open_secrets(&tx.keyring())?;
            rows.agents.push(agent);
        }
    }

    Ok(())
}

fn add_trunks(tx: &mut Tx, org: Option<Uuid>, rows: &mut Rows) -> Result<(), Error> {
    let trunks: Vec<inbound_trunks::Row> =
        of!(tx, org, "SELECT * FROM inbound_trunks", "org_id", "")?;
    for trunk in trunks {
        if let Some(rows) = rows.get_mut(&trunk.org_id) {
            rows.trunk = Some(trunk.open(&tx.keyring(), Vec::new())?);
        }
    }

    let numbers: Vec<Listed> = of!(
        tx,
        org,
        "SELECT org_id, number FROM inbound_trunk_numbers",
        "org_id",
        "ORDER BY position"
    )?;
    for listed in numbers {
        if let Some(trunk) = rows
            .get_mut(&listed.org_id)
            .and_then(|rows| rows.trunk.as_mut())
        {
            trunk.numbers.push(listed.number);
        }
    }

    Ok(())
}

fn add_outbound_trunks(tx: &mut Tx, org: Option<Uuid>, rows: &mut Rows) -> Result<(), Error> {
    let trunks: Vec<outbound_trunks::Row> = of!(
        tx,
        org,
        "SELECT * FROM outbound_trunks",
        "org_id",
        "ORDER BY created_at, id"
    )?;

    for trunk in trunks {
        if let Some(rows) = rows.get_mut(&trunk.org_id) {
            rows.outbound_trunks.push(trunk.open(&tx.keyring())?);
        }
    }

    Ok(())
}

fn add_old_credentials(tx: &mut Tx, org: Option<Uuid>, rows: &mut Rows) -> Result<(), Error> {
    let pairs: Vec<Sealed> = of!(
        tx,
        org,
        "SELECT * FROM old_credentials",
        "org_id",
        "ORDER BY username"
    )?;
    for pair in pairs {
        if let Some(rows) = rows.get_mut(&pair.org_id) {
            let password =
                inbound_trunks::open_password(&tx.keyring(), &pair.username, &pair.password)?;
            let opened = OldCredentials {
                username: pair.username,
                password,
                expires_at: pair.expires_at,
            };
            rows.old_credentials.push(opened);
        }
    }

    Ok(())
}

struct Listed {
    org_id: Uuid,
    number: trunkline_routing::E164,
}
from_row!(Listed {
    org_id,
    number: number
});

struct Sealed {
    org_id: Uuid,
    username: String,
    password: Vec<u8>,
    expires_at: Moment,
}
from_row!(Sealed {
    org_id,
    username,
    password,
    expires_at: moment
});

impl OrgRows {
    fn new(org: Org) -> Self {
        Self {
            org,
            agents: Vec::new(),
            numbers: Vec::new(),
            trunk: None,
            outbound_trunks: Vec::new(),
            old_credentials: Vec::new(),
            dedicated: Vec::new(),
            without_proof: Vec::new(),
            tied: TiedPeers::default(),
            node_share_percent: None,
            media_networks: Vec::new(),
            limits: StoredLimits::default(),
            bot_token: None,
            destinations: Vec::new(),
        }
    }
}
