//! A leg that takes another's place in the call: INVITE with Replaces (`features::replaces`). It answers to the offer that crosses, and the leg that it
//! replaces ends once that is accepted.

use trunkline_sip::endpoint::ServerTx;

use crate::core::context::Cx;
use crate::leg::Replacing;
use crate::leg::bridge::Bridge;
use crate::leg::keep_alive;
use crate::leg::relay::Relay;
use crate::parts::bye::ByeContent;
use crate::parts::role::LegRole;

impl Bridge {
    /// Returns whether an exchange or a dialled leg is pending that a new leg would disturb.
    pub(crate) fn is_changing(&self) -> bool {
        self.dialing().is_some()
            || self.legs.successor().is_some()
            // A call has room for four legs, and the replaced one stays until its BYE is answered.
            || self.legs.is_full()
            || self.awaited().next().is_some()
            || self.requests.offering().is_some()
    }

    /// Answers the cancelled INVITE of a new leg at once (RFC 3261 §9.2). False if it was another INVITE.
    pub(crate) fn cancel_successor(&mut self, cx: &mut Cx<'_>, server: ServerTx) -> bool {
        let is_meant = self.legs.successor_by(server).is_some();
        if is_meant {
            self.requests.cancel_relayed(cx, server, b"");
            self.give_up_successor(cx, 487);
        }
        is_meant
    }

    /// Refuses the new leg: it is cancelled, or the agent doesn't answer the offer in time. If the agent accepts later, it gets the caller's media
    /// back.
    pub(crate) fn give_up_successor(&mut self, cx: &mut Cx<'_>, status: u16) {
        let Some((leg, Replacing { server, .. })) = self.legs.successor() else {
            return;
        };
        self.legs.remove(leg);
        self.requests.forget_relayed(server);
        cx.respond(server, status, None, |_| {}, b"");
    }
}

impl Relay<'_> {
    /// Puts the new leg in place and ends the old one, if this answers the new leg's INVITE. Returns the role of the old one.
    pub(crate) fn succeed(&mut self, cx: &mut Cx<'_>, server: ServerTx) -> Option<LegRole> {
        let (leg, successor) = self.bridge.legs.accept_successor(server)?;
        let replaces = successor.replaces;
        let (key, role) = (self.bridge.key, self.bridge.role(replaces));
        if let Some(peer) = self.bridge.legs.sip_mut(leg) {
            let keeps = successor.is_behind_nat;
            peer.keep_alive = keeps.then(|| keep_alive::schedule(cx, key, leg));
            if let Some(sdp) = peer
                .remote_sdp
                .as_deref()
                .filter(|_| role == LegRole::Trunk)
            {
                self.bridge.held.take_offer(sdp);
            }
        }

        self.bridge.legs.stop_timers(cx, replaces);
        self.bridge.requests.abandon_replaced(cx, replaces);
        self.bridge.legs.put_in_place_of(replaces, leg);

        match role {
            LegRole::Trunk => self.bridge.held.forget_proposal(),
            // The agent has handed its caller to its peer in another call.
            LegRole::Agent | LegRole::Destination => {
                self.bridge.legs.set_role(leg, LegRole::Destination);
            }
        }
        self.bridge.send_bye(cx, replaces, ByeContent::default());
        Some(role)
    }
}
