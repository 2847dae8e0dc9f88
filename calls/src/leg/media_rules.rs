//! Rules for media of our own in one call, from the settings of its trunk and of its agent.

use std::net::IpAddr;
use std::time::Duration;

use trunkline_model::media_networks::MediaNetworks;
use trunkline_model::view::{OrgView, OutboundRoute, TrunkView};
use uuid::Uuid;

use crate::core::context::Config;

/// Rules for media of our own in one call.
#[derive(Clone, Debug, Default)]
pub(crate) struct MediaRules {
    /// The trunk. What is learnt of its peers' RTP addresses is shared by its calls.
    pub(crate) trunk: Uuid,
    /// The trunk allows RTP from another address than those of SDP and signalling.
    pub(crate) from_any: bool,
    /// Networks in which the org's peers have their media, by the operator's word.
    pub(crate) listed: MediaNetworks,
    /// Silence after which the peer is asked whether it is still there; `None`: never.
    pub(crate) silence: Option<Duration>,
}

impl MediaRules {
    /// Rules for a call of the org's PBX, through its inbound trunk if that is given.
    pub(crate) fn of_trunk(
        org: &OrgView,
        trunk: Option<&TrunkView>,
        agent: Uuid,
        config: &Config,
    ) -> Self {
        let own = org.media_silences.get(&agent);
        let silence = own.copied().unwrap_or(config.media_silence);
        Self {
            trunk: trunk.map_or(org.routing.id, |trunk| trunk.id),
            from_any: trunk.is_some_and(|trunk| trunk.rtp_from_any_address),
            listed: org.media_networks.clone(),
            silence: Some(silence).filter(|silence| !silence.is_zero()),
        }
    }

    /// Rules for a call by an outbound route. One without a peer leads to the PBX that has registered with the inbound trunk.
    pub(crate) fn of_route(
        org: &OrgView,
        way: &OutboundRoute,
        agent: Uuid,
        config: &Config,
    ) -> Self {
        let trunk = org.trunk.as_ref().filter(|_| way.peer.is_none());
        let rules = Self::of_trunk(org, trunk, agent, config);
        match trunk {
            Some(_) => rules,
            None => Self {
                trunk: way.id,
                ..rules
            },
        }
    }

    /// Returns whether the operator has listed the IP.
    pub(crate) fn lists(&self, ip: IpAddr) -> bool {
        self.listed.contains(ip)
    }
}
