//! Writes down whose log-in failed: the org that it belongs to is told, nobody else.

use tokio::runtime;
use tokio::sync::mpsc;
use trunkline_sip::auth::Part;

use crate::calls::{AuthFailure, Unproven};
use crate::store::{self, NewAuthFailure, Store};

/// Failed log-ins that wait to be written; a flood of them is cut.
const WAITING: usize = 1_024;

/// What a shard has seen fail.
#[derive(Debug)]
pub(crate) enum Failed {
    /// Credentials were wrong.
    LogIn(AuthFailure),
    /// There were none, and the challenge wasn't answered.
    Unproven(Unproven),
}

/// The task that writes them down.
pub(super) fn start(store: Store, runtime: &runtime::Handle) -> mpsc::Sender<Failed> {
    let (sender, mut failures) = mpsc::channel::<Failed>(WAITING);
    runtime.spawn(async move {
        let mut batch = Vec::new();
        while failures.recv_many(&mut batch, WAITING).await > 0 {
            if let Err(error) = record(&store, batch.drain(..)).await {
                tracing::warn!(%error, "failed log-ins were not recorded");
            }
        }
    });
    sender
}

async fn record(store: &Store, batch: impl Iterator<Item = Failed>) -> Result<(), store::Error> {
    let mut noted = Vec::new();
    for failed in batch {
        match failed {
            Failed::LogIn(failure) => noted.push(of_log_in(failure)),
            Failed::Unproven(unproven) => noted.extend(of_unproven(store, unproven).await?),
        }
    }
    if noted.is_empty() {
        return Ok(());
    }
    store.auth_failures().record(&noted).await
}

/// What a peer sent: of bounded length, and as PostgreSQL takes it.
fn text(sent: &str) -> Box<str> {
    let kept = sent.chars().filter(|char| *char != '\0').take(255);
    kept.collect::<String>().into()
}

fn of_log_in(failure: AuthFailure) -> NewAuthFailure {
    NewAuthFailure {
        org: failure.org,
        trunk: failure.trunk,
        username: text(&failure.username),
        source: failure.source.ip(),
        part: part_name(failure.part),
        at: failure.at,
        sip_call_id: text(&failure.call_id),
        dialled: failure.dialled.as_deref().map(text),
    }
}

/// For the org whose number was called. An address that its trunk allows was let in for the trunk's own numbers, so it is the number that
/// isn't among them.
async fn of_unproven(
    store: &Store,
    unproven: Unproven,
) -> Result<Option<NewAuthFailure>, store::Error> {
    let Some(org) = store.numbers().verified_in(&unproven.dialled).await? else {
        return Ok(None);
    };
    let trunk = match store.inbound_trunks().of_org(org).await {
        Ok(trunk) => trunk,
        Err(store::Error::Wrong(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let is_allowed = trunk
        .allowed_addresses
        .iter()
        .any(|network| network.contains(&unproven.source));
    Ok(Some(NewAuthFailure {
        org,
        trunk: trunk.id,
        username: Box::default(),
        source: unproven.source,
        part: if is_allowed { "number" } else { "address" },
        at: unproven.at,
        sip_call_id: text(&unproven.call_id),
        dialled: Some(unproven.dialled.as_str().into()),
    }))
}

/// The name of the wrong part as the API has it.
const fn part_name(part: Part) -> &'static str {
    match part {
        Part::Password => "password",
        Part::Uri => "uri",
        Part::Algorithm => "algorithm",
        Part::Malformed => "malformed",
        Part::User => "user",
        Part::Expired => "expired",
        Part::Realm => "realm",
        Part::Nonce => "nonce",
    }
}
