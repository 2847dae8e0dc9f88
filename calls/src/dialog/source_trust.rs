//! Trust in the source of a message inside a call: addresses from which a dialog's requests and answers may come.
//!
//! Tags and Call-ID are sent in the clear, and every reader of a trace has them: they name a dialog and prove nothing. A request counts if its source
//! is an IP that this leg has sent to or heard from, that the configured host has, that Contact or Record-Route lead to, or that the trunk allows.
//! The port may change, as it does behind NAT. A less secure transport than the dialog's first one never counts.
//!
//! From any other source a request has to prove the leg's own pair of user name and password, if the peer has proven it before
//! (`address_change`); on any other leg it is 403. The first check is a few comparisons; names and allowed networks are consulted only for
//! an unknown IP.

use std::net::IpAddr;

use trunkline_model::view::{Source, View};
use trunkline_sip::flow::Flow;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use crate::core::context::Core;
use crate::core::next_hop::ways_of;
use crate::leg::SipPeer;
use crate::leg::bridge::Bridge;
use crate::parts::ids::DialogPlace;
use crate::parts::role::LegRole;
use crate::parts::target;
use crate::parts::target::DialTarget;

/// Trust in the source address of a message inside a call.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum SourceTrust {
    Known,
    /// A name that may lead there is being resolved, for 5 s at most (`resolver_cache`).
    Awaited,
    Unknown,
    /// No source counts: the dialog began on a more secure transport.
    LessSecure,
}

/// Returns the trust in an address on that leg. Without a view, the trunk's allowed networks don't count: an answer comes from the address of its
/// request.
pub(crate) fn trust(
    bridge: &mut Bridge,
    core: &mut Core,
    view: Option<&View>,
    org: Uuid,
    at: DialogPlace,
    flow: &Flow,
    now: Moment,
) -> SourceTrust {
    let DialogPlace { leg: id, fork } = at;
    let is_runtimes = bridge.role(id) == LegRole::Agent;
    let Some(leg) = bridge.legs.sip_mut(id) else {
        return SourceTrust::Unknown;
    };
    let ip = flow.peer.ip();
    let known = &leg.known_addresses;
    // Checked first: by a less secure transport not even a known IP counts.
    if !known.admits(flow.transport) {
        return SourceTrust::LessSecure;
    }
    if known.knows(ip) {
        return SourceTrust::Known;
    }

    let ip = ip.to_canonical();
    let is_allowed = view.is_some_and(|view| !is_runtimes && is_of_trunk(view, ip, org));
    let trust = match is_allowed {
        true => SourceTrust::Known,
        false => by_dialog(core, leg, fork, ip, now),
    };
    if trust == SourceTrust::Known {
        leg.known_addresses.learn(ip);
    }
    trust
}

/// Returns whether the org's trunk allows this source, or it belongs to the org alone.
fn is_of_trunk(view: &View, ip: IpAddr, org: Uuid) -> bool {
    match view.by_source(ip) {
        Source::Dedicated(of) => of == org,
        Source::Allowed(orgs) => orgs.contains(&org),
        Source::Unknown => false,
    }
}

/// Returns whether Contact or a recorded route leads there.
fn by_dialog(core: &mut Core, leg: &SipPeer, fork: u8, ip: IpAddr, now: Moment) -> SourceTrust {
    let Some(dialog) = leg.dialog_ref(fork) else {
        return SourceTrust::Unknown;
    };
    let mut trust = SourceTrust::Unknown;
    for uri in ways_of(dialog) {
        match leads_to(core, uri, ip, now) {
            Some(true) => return SourceTrust::Known,
            Some(false) => {}
            // A name that is still being resolved may lead there: by UDP the request is then dropped, and its
            // retransmission decides.
            None => trust = SourceTrust::Awaited,
        }
    }
    trust
}

/// Returns whether a URI's host is at that IP; `None` while its name is being resolved.
fn leads_to(core: &mut Core, uri: &[u8], ip: IpAddr, now: Moment) -> Option<bool> {
    match std::str::from_utf8(uri).ok().and_then(target::dial_target) {
        Some(DialTarget::Resolved(target)) => Some(target.address.ip().to_canonical() == ip),
        Some(DialTarget::Unresolved(wanted)) => {
            let Core {
                resolver_cache,
                effects,
                ..
            } = core;
            resolver_cache.leads_to(wanted, ip, effects, now)
        }
        None => Some(false),
    }
}
