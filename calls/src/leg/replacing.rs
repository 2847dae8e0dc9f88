//! Legs that replace another (RFC 3891), from their INVITE with Replaces to its final answer.

use trunkline_sip::endpoint::ServerTx;

use super::state::{LegState, Replacing, Session};
use super::{LegId, Legs};

impl Legs {
    /// The leg that waits to replace another.
    pub(crate) fn successor(&self) -> Option<(LegId, Replacing)> {
        self.iter().find_map(|leg| Some((leg.id, leg.replacing()?)))
    }

    /// The leg that waits to replace another, if this is its INVITE.
    pub(crate) fn successor_by(&self, server: ServerTx) -> Option<(LegId, Replacing)> {
        let is_meant = |(_, replacing): &(LegId, Replacing)| replacing.server == server;
        self.successor().filter(is_meant)
    }

    /// Forgets the leg whose INVITE was refused.
    pub(crate) fn fail_successor(&mut self, server: ServerTx) {
        if let Some((leg, _)) = self.successor_by(server) {
            self.remove(leg);
        }
    }

    /// Makes the leg ready whose INVITE is accepted.
    pub(crate) fn accept_successor(&mut self, server: ServerTx) -> Option<(LegId, Replacing)> {
        let (leg, replacing) = self.successor_by(server)?;
        self.set_state(leg, LegState::Ready(Session::begun_by(server)));
        if let Some(peer) = self.sip_mut(leg) {
            for held in &mut peer.dialogs {
                held.dialog.confirm();
            }
        }
        Some((leg, replacing))
    }
}
