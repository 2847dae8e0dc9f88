//! INVITEs whose source may be forged: what their source gets is bounded until the user knows better.

use crate::flow::Flow;
use crate::moment::Moment;
use crate::wire::Message;

use super::machines::Machine;
use super::server::parts;
use super::{Endpoint, Owner, ServerTx, TableFull};

impl Endpoint {
    /// Accepts an INVITE whose source may be forged, as [`Endpoint::accept`] does, until [`Endpoint::trust`]. A 2xx is sent eight times within
    /// 6 s at most, a refusal four times; [`NoAck`](super::Event::NoAck) comes 8 s after a 2xx, and its source has the budget of an unauthenticated peer.
    ///
    /// # Errors
    /// The table of server transactions is full.
    pub fn accept_unproven(
        &mut self,
        invite: &Message<'_>,
        flow: Flow,
        owner: Owner,
        now: Moment,
    ) -> Result<ServerTx, TableFull> {
        let tx = self.accept_unverified(invite, flow, owner, now)?;
        if let Some(entry) = self.servers.entry_mut(tx.0)
            && let Machine::Invite(invite) = &mut entry.machine.machine
        {
            invite.doubt();
        }
        Ok(tx)
    }

    /// Notes that the source of an INVITE isn't forged ([`Endpoint::accept_unproven`]). A 2xx that is out gets the times of any other, from now on.
    pub fn trust(&mut self, tx: ServerTx, now: Moment) {
        let Some(entry) = self.servers.entry_mut(tx.0) else {
            return;
        };
        let flow = entry.flow();
        let (server, mut io) = parts(tx, entry, &mut self.shared, now);
        if let Machine::Invite(invite) = &mut server.machine {
            invite.trust(&mut io);
        }
        self.note_proven(&flow, now);
    }

    /// Sends the last provisional response above 100 of an unanswered INVITE once more.
    pub fn repeat_provisional(&mut self, tx: ServerTx, now: Moment) {
        let Some(entry) = self.servers.entry_mut(tx.0) else {
            return;
        };
        let (server, mut io) = parts(tx, entry, &mut self.shared, now);
        if let Machine::Invite(invite) = &server.machine {
            invite.repeat_provisional(&mut io);
        }
    }
}
