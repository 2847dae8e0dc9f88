//! A peer that has proven a password and sends a request from an address unknown to its dialog: a phone that has changed networks, or an
//! attacker who has read the tags. Only the phone can prove the leg's pair, user name and password, again (RFC 3261 §22.2).
//!
//! The 401 keeps no state, and the dialog's CSeq doesn't advance without the proof. Every request but ACK and CANCEL can be challenged (§22.1): INFO
//! carries keys, NOTIFY the outcome of a transfer, PRACK an SDP.

use std::net::IpAddr;
use std::sync::Arc;

use trunkline_model::view::{PeerLogin, View};
use trunkline_sip::auth;
use trunkline_sip::auth::{ChallengeCause, Secret, Verdict};
use trunkline_sip::endpoint::Endpoint;
use trunkline_sip::flow::Flow;
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::Message;

use super::admission;
use crate::core::context::Core;
use crate::core::effect::{Effect, UnknownSource};
use crate::leg::SipPeer;
use crate::trust::credentials::LegCredentials;

/// Returns whether a request proves `pair`; otherwise challenges it.
pub(crate) fn proves_pair(
    core: &mut Core,
    endpoint: &mut Endpoint,
    view: &View,
    pair: &PeerLogin,
    flow: Flow,
    message: &Message<'_>,
    now: Moment,
) -> bool {
    let config = Arc::clone(&core.config);
    let credentials = auth::credentials(message, &config.realm);
    // Another trunk's pair proves nothing here, even if it is right.
    let is_legs = |name: &[u8]| *name == *pair.user.as_bytes();
    let credentials = credentials.filter(|held| is_legs(&held.username_unescaped()));

    let verdict = credentials.as_ref().map(|credentials| {
        let secret = Secret::new(&pair.user, &config.realm, &pair.password);
        let policy = config.digest_policy(&flow);
        let (nonces, window) = (&core.nonces, &core.window);
        auth::verify(credentials, message, &secret, nonces, window, policy, now)
    });

    let cause = match (verdict, &credentials) {
        (Some(Verdict::Ok), _) => return true,
        (Some(Verdict::Wrong(part)), Some(credentials)) => {
            let attributed = view.login(pair.user.as_bytes());
            let attributed = attributed.map(|login| (login.org, login.trunk, part));
            admission::failed(core, attributed, credentials, message, flow, now);
            ChallengeCause::Wrong(credentials.nonce)
        }
        (Some(Verdict::Stale), _) => ChallengeCause::Stale,
        (Some(Verdict::Wrong(_)) | None, _) => ChallengeCause::Bare,
    };

    core.effects
        .push_back(Effect::UnknownSource(UnknownSource::Challenged));
    admission::challenge(core, endpoint, flow, message, cause, now);
    false
}

/// Adds the address at which the peer has proven its pair; the digest may be sent there too.
pub(crate) fn add_proven_address(peer: &mut SipPeer, pair: Arc<PeerLogin>, flow: &Flow) {
    let source: IpAddr = flow.peer.ip();
    peer.known_addresses.learn(source);
    peer.credentials = Some(Box::new(LegCredentials::proven(pair, source)));
}
