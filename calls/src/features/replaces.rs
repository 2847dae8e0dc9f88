//! INVITE with Replaces: a PBX that completes an attended transfer puts a new leg in the caller's place (RFC 3891). The agent is offered the new
//! leg's media; only after it has accepted them is the old leg ended. Until then, and if the agent refuses, the call stays as it was.
//!
//! A PBX finds only calls of its org, and only on its own side. On the agent's side the daemon itself sends the INVITE, for a runtime that joins two
//! of its calls (`transfer::own`): then the caller is offered the new leg's media.

use trunkline_sip::dialog::Dialog;
use trunkline_sip::dialog::session_timer::SessionTimer;
use trunkline_sip::endpoint::ServerTx;
use trunkline_sip::flow::Flow;
use trunkline_sip::wire::Message;

use crate::core::context::{Cx, MIN_SE};
use crate::core::traced::DialogIdentity;
use crate::dialog::{reoffer, successor};
use crate::leg::call_status::CallStatus;
use crate::leg::relay::Relay;
use crate::leg::{Abilities, ForkDialog, LegPeer, LegState, Replacing, SipPeer, keep_alive};
use crate::media::local_media;
use crate::parts::ids::{LegId, TagOwner};
use crate::parts::refusal::Reason;
use crate::parts::sips;
use crate::trust::credentials::LegCredentials;
use crate::{has_sdp, sdp_of};

/// Offers the other side the media of the new leg.
pub(crate) fn on_successor(
    relay: &mut Relay<'_>,
    cx: &mut Cx<'_>,
    replaces: LegId,
    credentials: Option<LegCredentials>,
    server: ServerTx,
    flow: Flow,
    message: &Message<'_>,
) {
    // Requests cross between dialogs of one fork number, so the new leg takes the one in use.
    let fork = relay.bridge.fork().unwrap_or_default();
    let state = LegState::Replacing(Replacing {
        server,
        replaces,
        is_behind_nat: keep_alive::sent_through_nat(&flow, message),
    });

    let leg = relay
        .bridge
        .legs
        .add(relay.bridge.role(replaces), LegPeer::Unknown, state);
    let key = relay.bridge.key;
    let owner = TagOwner { key, leg };
    cx.trace(owner, DialogIdentity::of_invite(message, flow));
    let tag = relay.bridge.mint_tag(cx, relay.ids.slot, leg, message);
    cx.endpoint.set_tag(server, tag.as_bytes());
    let Some(dialog) = Dialog::uas(message, tag.as_bytes()) else {
        relay.bridge.legs.remove(leg);
        return cx.respond(server, 400, None, |_| {}, b"");
    };

    let mut peer = SipPeer::begun(flow);
    peer.is_sips = sips::wants_sips(message.request_uri(), &dialog);
    peer.dialogs.push(ForkDialog::new(fork, dialog, None));
    peer.abilities = Abilities::of(message);
    peer.remote_sdp = has_sdp(message).then(|| sdp_of(message.body()).into());
    peer.credentials = credentials.map(Box::new);
    relay.bridge.legs.meet(leg, peer);

    // An interval that is too brief was refused at admission.
    let ours = cx.core.config.session_expires;
    let renewal = SessionTimer::for_uas(message, MIN_SE, ours).unwrap_or_default();
    match relay.bridge.is_local() {
        true => local_succeeds(relay, cx, renewal, server, message),
        false => {
            relay.bridge.legs.keep_origin(relay.bridge.other(replaces));
            reoffer::change(relay, cx, replaces, fork, server, message, renewal);
        }
    }
}

/// Answers the INVITE of a new leg with media of our own.
fn local_succeeds(
    relay: &mut Relay<'_>,
    cx: &mut Cx<'_>,
    renewal: Option<SessionTimer>,
    server: ServerTx,
    message: &Message<'_>,
) {
    match local_media::local_sdp(relay, message) {
        Ok(sdp) => {
            successor::succeed(relay, cx, server);
            local_media::accept_with_media(relay, cx, renewal, server, message, sdp);
        }
        Err(no) => {
            relay.bridge.legs.fail_successor(server);
            no.reject(cx, server);
        }
    }
}

/// Returns why a dialog of a call can't be replaced now, if it can't (RFC 3891 §3).
pub(crate) fn refusal(
    status: CallStatus,
    early_only: bool,
    is_changing: impl FnOnce() -> bool,
) -> Option<Reason> {
    match status {
        CallStatus::SettingUp | CallStatus::Over => Some(Reason::NothingReplaced),
        // RFC 3891 §3 refuses `early-only` with 486 where the dialog is confirmed.
        CallStatus::Answered | CallStatus::Up if early_only => Some(Reason::AnsweredAlready),
        CallStatus::Answered => Some(Reason::CallChanging),
        CallStatus::Up => is_changing().then_some(Reason::CallChanging),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dialog_is_replaced_where_nothing_is_being_agreed_on() {
        let (nothing, answered) = (Some(Reason::NothingReplaced), Some(Reason::AnsweredAlready));
        let changing = Some(Reason::CallChanging);
        // The call's status; the refusals of Replaces, of one with early-only, and of one during a negotiation.
        for (status, plain, early, busy) in [
            (CallStatus::SettingUp, nothing, nothing, nothing),
            (CallStatus::Answered, changing, answered, changing),
            (CallStatus::Up, None, answered, changing),
            (CallStatus::Over, nothing, nothing, nothing),
        ] {
            assert_eq!(refusal(status, false, || false), plain, "{status:?}");
            assert_eq!(refusal(status, true, || false), early, "{status:?}");
            assert_eq!(refusal(status, false, || true), busy, "{status:?}");
        }
    }
}
