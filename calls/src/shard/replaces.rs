//! INVITE with Replaces, brought to the call with the dialog that it names (RFC 3891 §3), of a PBX or of the daemon itself.

use trunkline_sip::endpoint::Endpoint;
use trunkline_sip::flow::Flow;
use trunkline_sip::header::replaces::Replaces;
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::{HeaderName, Message};
use uuid::Uuid;

use super::table::CallTable;
use super::{Calls, setup};
use crate::call::Call;
use crate::core::context::{Core, Cx};
use crate::dialog::successor;
use crate::features::replaces;
use crate::features::replaces::refusal;
use crate::inbound::admission;
use crate::inbound::admission::CallerInvite;
use crate::leg::ForkDialog;
use crate::leg::own_request::JoinPhase;
use crate::limits::attempt_counter::AttemptCounter;
use crate::parts::ids::{CallKey, LegId, owner_of};
use crate::parts::refusal::Reason;
use crate::parts::role::LegRole;
use crate::parts::sips;

impl Calls {
    /// Handles an authenticated INVITE that names a call to take over. It owes no proof of its source: its Replaces has our tag of that call.
    pub(super) fn replace(
        &mut self,
        endpoint: &mut Endpoint,
        admitted: CallerInvite<'_, '_>,
        now: Moment,
    ) {
        let (flow, message) = (admitted.flow, admitted.message);
        let found = sips::came_securely(admitted.request_uri.as_ref(), &flow)
            .and_then(|()| self.replaced(&admitted));

        // A refusal is recorded as a call of its own, which needs a key.
        let key = found.map_or_else(|_| self.table.reserve(), |(key, _)| key);
        let replaced = match found {
            Ok((_, leg)) => leg,
            Err(reason) => {
                let mut cx = Cx {
                    core: &mut self.core,
                    endpoint,
                    attempt_counter: &mut AttemptCounter::default(),
                    now,
                };
                return setup::turn_down(&mut cx, key, admitted, reason);
            }
        };

        let Ok(server) = endpoint.accept(message, flow, owner_of(Some(key)), now) else {
            let reason = Reason::Overload;
            return admission::turn_away(&mut self.core, endpoint, flow, message, reason);
        };

        self.with(key, endpoint, now, |call, cx| {
            replaces::on_successor(
                &mut call.relay(),
                cx,
                replaced,
                admitted.verified,
                server,
                flow,
                message,
            );
        });
    }

    /// Returns the call whose caller is to be replaced, if that is possible now (RFC 3891 §3). A leg by a less secure transport replaces none: a
    /// sender admitted by a forgeable address could get the media of a call on TLS.
    fn replaced(&self, admitted: &CallerInvite<'_, '_>) -> Result<(CallKey, LegId), Reason> {
        if admitted.difference.is_some() {
            return Err(Reason::BadRequest);
        }

        let (flow, message) = (admitted.flow, admitted.message);
        setup::acceptable(&self.core, admitted)?;
        // RFC 3891 §3: with more than one Replaces "the UAS MUST reject the request with a 400".
        let mut values = message.all(HeaderName::Replaces);
        let value = values.next().filter(|_| values.next().is_none());
        let replaces = value.and_then(Replaces::parse).ok_or(Reason::BadRequest)?;
        let org = admitted.org.routing.id;
        let (key, leg) = self
            .table
            .leg_replaced(&self.core, &replaces, org, LegRole::Trunk)?;
        let call = self.table.get(key);
        let peer = call.and_then(|call| call.bridge.legs.sip(leg));
        let is_as_secure = peer.is_some_and(|peer| peer.known_addresses.admits(flow.transport));

        is_as_secure
            .then_some((key, leg))
            .ok_or(Reason::NothingReplaced)
    }

    /// Lets the far end of another call replace the agent in one of ours.
    pub(super) fn join_own(
        &mut self,
        endpoint: &mut Endpoint,
        flow: Flow,
        message: &Message<'_>,
        org: Uuid,
        now: Moment,
    ) {
        let replaces = message
            .first(HeaderName::Replaces)
            .and_then(Replaces::parse);
        let found = replaces.ok_or(400).and_then(|replaces| {
            // A call in which we replace the agent's leg ourselves.
            let replaced = self
                .table
                .leg_replaced(&self.core, &replaces, org, LegRole::Agent);
            replaced.map_err(|reason| reason.status())
        });
        let (key, replaced) = match found {
            Ok(found) => found,
            Err(status) => return self.core.stateless(endpoint, message, flow, status, |_| {}),
        };

        match endpoint.accept(message, flow, owner_of(Some(key)), now) {
            Ok(server) => {
                self.with(key, endpoint, now, |call, cx| {
                    replaces::on_successor(
                        &mut call.relay(),
                        cx,
                        replaced,
                        None,
                        server,
                        flow,
                        message,
                    );
                });
            }
            Err(_) => self.core.stateless(endpoint, message, flow, 503, |_| {}),
        }
    }
}

impl CallTable {
    /// Returns the leg with the dialog that Replaces names, or the reason why it can't be replaced now.
    fn leg_replaced(
        &self,
        core: &Core,
        replaces: &Replaces<'_>,
        org: Uuid,
        role: LegRole,
    ) -> Result<(CallKey, LegId), Reason> {
        let (key, leg, call) = self
            .leg_named(core, replaces, org, role)
            .ok_or(Reason::NothingReplaced)?;
        let is_changing = || {
            successor::is_changing(&call.bridge)
                || call.transfer.is_under_way()
                || call.joining.phase() != JoinPhase::Idle
                || call.hold.is_turning()
        };
        match refusal(call.bridge.status(), replaces.early_only, is_changing) {
            Some(reason) => Err(reason),
            None => Ok((key, leg)),
        }
    }

    /// Finds the connected leg with the dialog that Replaces names, in a call of that org and with that role.
    fn leg_named(
        &self,
        core: &Core,
        replaces: &Replaces<'_>,
        org: Uuid,
        role: LegRole,
    ) -> Option<(CallKey, LegId, &Call)> {
        let tag = core.minter.read_tag(replaces.to_tag)?;
        let found = core.tags.get(&tag.bits)?;
        let call = self.get(found.key)?;
        // The sender may have read the tags in a trace: its own org and its side of the call have to match.
        let is_meant = call.ids.org == org
            && call.bridge.role(found.leg) == role
            && !call.bridge.has_left(found.leg);
        let peer = call.bridge.legs.sip(found.leg).filter(|_| is_meant)?;
        let is_it = |held: &ForkDialog| {
            held.dialog.call_id() == replaces.call_id
                && held.dialog.remote_tag() == replaces.from_tag
                && held.dialog.local_tag() == replaces.to_tag
        };
        let is_known = peer.dialogs.iter().any(is_it);

        is_known.then_some((found.key, found.leg, call))
    }
}
