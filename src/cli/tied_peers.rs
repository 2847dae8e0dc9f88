//! `trunkline org tie`: reserved and private peers that the operator allows an org to name.

use serde::Serialize;
use trunkline_model::peer_pattern::PeerPattern;
use trunkline_store::{Store, TiedPeer, tied_peers};
use uuid::Uuid;

use super::output::{Output, Tabular, time};
use super::{Failure, now};
use crate::config;

/// Peer as the operator names it.
#[derive(Debug, clap::Args)]
pub(super) struct Peer {
    /// The host as the org writes it, an address or a CIDR block.
    #[arg(value_parser = config::peer)]
    peer: PeerPattern,
}

#[derive(Debug, Serialize)]
struct TiedView {
    peer: String,
    org_id: Uuid,
    created_at: String,
}

impl From<TiedPeer> for TiedView {
    fn from(tied: TiedPeer) -> Self {
        Self {
            peer: tied.peer.to_string(),
            org_id: tied.org_id,
            created_at: time(tied.created_at),
        }
    }
}

impl Tabular for TiedView {
    const COLUMNS: &'static [&'static str] = &["peer", "org", "created"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.peer.clone(),
            self.org_id.to_string(),
            self.created_at.clone(),
        ]
    }
}

impl Peer {
    /// Ties the peer to the org, and lists the org's peers.
    pub(super) async fn tie(self, store: &Store, org: Uuid, output: Output) -> Result<(), Failure> {
        let tied = store.write(move |tx| tied_peers::tie(tx, org, &self.peer, now()));
        tied.await?;
        list(store, org, output).await
    }

    /// Ends the tie, and lists the org's peers.
    pub(super) async fn untie(
        self,
        store: &Store,
        org: Uuid,
        output: Output,
    ) -> Result<(), Failure> {
        let untied = store.write(move |tx| tied_peers::untie(tx, org, &self.peer, now()));
        untied.await?;
        list(store, org, output).await
    }
}

/// Lists the org's peers.
pub(super) async fn list(store: &Store, org: Uuid, output: Output) -> Result<(), Failure> {
    let listed = store.read(move |tx| tied_peers::list(tx, org)).await?;
    output.list(&listed.into_iter().map(TiedView::from).collect::<Vec<_>>());
    Ok(())
}
