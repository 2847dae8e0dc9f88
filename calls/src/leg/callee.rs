//! Callee of an INVITE of ours, and the caller identity that it sees: through an outbound trunk to its host, or at the registered PBX.

use std::collections::VecDeque;
use std::sync::Arc;

use smallvec::SmallVec;
use trunkline_model::address::NamedBy;
use trunkline_model::tied::TiedPeers;
use trunkline_model::view::OutboundRoute;
use trunkline_routing::E164;
use trunkline_sip::flow::Transport;
use trunkline_sip::slot::CallId;
use trunkline_sip::wire::print::Head;

use crate::invite::invite_client::{
    CallIds, ClientParts, FailoverRule, InviteText, Patience, PeerPlan, RedirectRule,
    TransportChoice,
};
use crate::parts::allow::to_peer;
use crate::parts::role::LegRole;
use crate::parts::target;
use crate::parts::target::{DialTarget, Target, UnresolvedTarget, default_port};
use crate::registrar::bindings::BindingTarget;
use crate::trust::challenge_report::Challenger;
use crate::trust::credentials::LegCredentials;

/// Most requests to one target of a callee: the first, and those with credentials or a longer session. After them a challenge or a 422
/// counts as a refusal.
const MAX_REQUESTS: u32 = 8;

/// Parameter of a SIP URI whose user part is a phone number (RFC 3261 §19.1.1).
const USER_PHONE: &str = ";user=phone";

/// Callee, and the caller identity that it sees.
#[derive(Clone, Debug)]
pub(crate) struct Callee {
    /// Places at which it may be reached, in order.
    pub(crate) dial_targets: VecDeque<DialTarget>,
    /// The hosts that a redirection may name.
    pub(crate) hosts: SmallVec<[String; 1]>,
    /// The URI in To.
    pub(crate) to: Box<str>,
    /// The display name in From, with its quotes; empty: none.
    pub(crate) from_name: Box<[u8]>,
    /// The user part in From.
    pub(crate) from_user: Box<str>,
    /// The host in From; `None`: our own.
    pub(crate) from_host: Option<Box<str>>,
    /// True if the user part in From is marked as a number (`user=phone`).
    pub(crate) user_phone: bool,
    /// True if P-Asserted-Identity repeats From (RFC 3325).
    pub(crate) asserts: bool,
    /// Credentials for challenges: a trunk's pair, or that of each device of a PBX that has registered.
    pub(crate) credentials: SmallVec<[LegCredentials; 1]>,
    /// Challenger named in reports on its challenges.
    pub(crate) challenger: Option<Challenger>,
    /// Further header lines, each with its line end.
    pub(crate) lines: Box<[u8]>,
    /// It is the PBX on the caller's side, to which the bounds on outbound calls don't apply.
    pub(crate) leads_back: bool,
    /// Rule for the transport of an INVITE whose URI names none.
    pub(crate) transport: TransportChoice,
}

/// Leg for which a callee is dialled.
#[derive(Copy, Clone, Debug)]
pub(crate) struct CalleeLeg {
    pub(crate) role: LegRole,
    /// Max-Forwards of the INVITE.
    pub(crate) hops: u8,
    /// Call-ID of the INVITEs to all of its places.
    pub(crate) call_id: CallId,
}

/// Words of the INVITE to a callee.
#[derive(Debug)]
pub(crate) struct CalleeText {
    hops: u8,
    allow: &'static [u8],
    to: Box<str>,
    from_name: Box<[u8]>,
    from_user: Box<str>,
    from_host: Option<Box<str>>,
    user_phone: bool,
    asserts: bool,
    lines: Box<[u8]>,
    /// The SDP that is offered.
    offer: Box<[u8]>,
}

impl CalleeText {
    /// Sets the SDP that is offered.
    pub(crate) fn offering(&mut self, offer: Box<[u8]>) {
        self.offer = offer;
    }

    /// Returns the SDP that was offered.
    pub(crate) fn into_offer(self) -> Box<[u8]> {
        self.offer
    }
}

impl InviteText for CalleeText {
    fn hops(&self) -> u8 {
        self.hops
    }

    fn from(&self, own_host: &str) -> Vec<u8> {
        let host = self.from_host.as_deref().unwrap_or(own_host);
        let mut from = self.from_name.to_vec();
        if !from.is_empty() {
            from.push(b' ');
        }
        let phone = if self.user_phone { USER_PHONE } else { "" };
        from.extend_from_slice(format!("<sip:{}@{host}{phone}>", self.from_user).as_bytes());
        from
    }

    fn to(&self) -> Vec<u8> {
        format!("<{}>", self.to).into_bytes()
    }

    fn allow(&self) -> &'static [u8] {
        self.allow
    }

    fn supported(&self) -> &'static [u8] {
        // No 100rel: the callee's 18x isn't relayed to another leg, so none has to arrive reliably.
        b"timer"
    }

    fn write_rest(&self, head: &mut Head<'_>, said: &ClientParts<'_>) {
        if self.asserts {
            head.line("P-Asserted-Identity", said.from);
        }
        head.raw(&self.lines);
        said.digest_answers.lines(head);
        head.line("Content-Type", b"application/sdp");
    }

    fn body(&self) -> &[u8] {
        &self.offer
    }
}

impl Callee {
    /// Splits the callee into the plan to reach it and the text of its INVITE. `leg` is its leg in the call.
    pub(crate) fn split(self, leg: CalleeLeg, patience: Patience) -> (PeerPlan, CalleeText) {
        let CalleeLeg {
            role,
            hops,
            call_id,
        } = leg;

        let redirects = match self.leads_back {
            true => RedirectRule::ByTheSameWay,
            false => RedirectRule::Callable,
        };
        let plan = PeerPlan {
            dial_targets: self.dial_targets,
            hosts: self.hosts,
            credentials: self.credentials,
            challenger: self.challenger,
            transport: self.transport,
            max_requests: MAX_REQUESTS,
            fails_over: FailoverRule::BeforeRinging,
            redirects,
            patience,
            call_ids: CallIds::One(call_id),
        };

        let text = CalleeText {
            hops,
            allow: to_peer(role),
            to: self.to,
            from_name: self.from_name,
            from_user: self.from_user,
            from_host: self.from_host,
            user_phone: self.user_phone,
            asserts: self.asserts,
            lines: self.lines,
            offer: Box::default(),
        };
        (plan, text)
    }

    /// A number, reached through an outbound trunk with its caller number. `None` for a trunk that leads to the registered PBX.
    pub(crate) fn through(trunk: &OutboundRoute, number: E164) -> Option<Self> {
        let (host, port) = trunk.peer.as_ref()?;
        let transport = trunk.transport;

        // Without a port, a name may have SRV records (RFC 3263 §4.2).
        let port = Some(*port).filter(|port| *port != default_port(transport));
        let host_port = port.map_or_else(|| host.to_string(), |port| format!("{host}:{port}"));
        let parameter = match transport {
            Transport::Udp => "",
            Transport::Tcp => ";transport=tcp",
            Transport::Tls => ";transport=tls",
        };

        let number = number.as_str();
        let phone = if trunk.user_phone { USER_PHONE } else { "" };
        let uri: Box<str> = format!("sip:{number}@{host_port}{parameter}{phone}").into();
        // The trunk's transport is a setting: neither the URI nor a DNS record changes it.
        let dial_target = match target::dial_target(&uri)? {
            DialTarget::Resolved(target) => DialTarget::Resolved(Target {
                transport,
                ..target
            }),
            DialTarget::Unresolved(wanted) => DialTarget::Unresolved(UnresolvedTarget {
                transport: Some(transport),
                ..wanted
            }),
        };

        Some(Self {
            hosts: target::host_of(uri.as_bytes()).into_iter().collect(),
            dial_targets: VecDeque::from([dial_target.named(trunk.named)]),
            to: format!("sip:{number}@{host_port}{phone}").into(),
            from_name: Box::default(),
            from_user: trunk.caller_number.as_str().into(),
            from_host: trunk.from_host.clone(),
            user_phone: trunk.user_phone,
            asserts: trunk.p_asserted_identity,
            credentials: LegCredentials::of_trunk(trunk).into_iter().collect(),
            challenger: Some(Challenger::of_trunk(trunk)),
            lines: Box::default(),
            leads_back: false,
            transport: TransportChoice::Given,
        })
    }

    /// Reaches its places along the route that the carrier of its trunk has given at registration, if it has (RFC 3608 §6.1). The org's tied peers
    /// may be hops of it.
    pub(crate) fn along(self, service_route: Option<&str>, tied: &TiedPeers) -> Self {
        let Some(route) = service_route else {
            return self;
        };
        let dial_targets = self.dial_targets.into_iter();
        Self {
            // The route was checked when it came (`peers::service_route`).
            dial_targets: dial_targets
                .map(|place| place.along(route).map_or(place, |along| along.of_org(tied)))
                .collect(),
            ..self
        }
    }

    /// Marks the places that are among the tied peers of an org.
    pub(crate) fn of_org(self, tied: &TiedPeers) -> Self {
        let dial_targets = self.dial_targets.into_iter();
        Self {
            dial_targets: dial_targets
                .map(|dial_target| dial_target.of_org(tied))
                .collect(),
            ..self
        }
    }

    /// A number of the registered PBX: the Request-URI is its Contact with all parameters, the number is in To. `None` if no PBX is registered.
    pub(crate) fn registered(
        trunk: &OutboundRoute,
        number: E164,
        reach: Vec<BindingTarget>,
    ) -> Option<Self> {
        let best = reach.first()?;
        let host = target::host_of(best.uri.as_bytes())?;

        // A device's challenges are answered at the source of its REGISTER only, with the pair that it registered with.
        let proven =
            |reach: &BindingTarget| LegCredentials::proven(Arc::clone(&reach.pair), reach.source);
        let credentials = reach.iter().map(proven).collect();
        let dial_targets = reach.into_iter().map(|reach| {
            DialTarget::Resolved(Target {
                transport: reach.transport,
                address: reach.address,
                uri: reach.uri,
                by: reach.by,
                route: reach.route,
                named: NamedBy::Tenant,
            })
        });

        Some(Self {
            dial_targets: dial_targets.collect(),
            to: format!("sip:{}@{host}", number.as_str()).into(),
            hosts: SmallVec::from_buf([host]),
            from_name: Box::default(),
            from_user: trunk.caller_number.as_str().into(),
            from_host: trunk.from_host.clone(),
            user_phone: trunk.user_phone,
            asserts: trunk.p_asserted_identity,
            credentials,
            challenger: Some(Challenger::pbx(trunk.org)),
            lines: Box::default(),
            leads_back: false,
            transport: TransportChoice::Given,
        })
    }
}

#[cfg(test)]
mod tests {
    use trunkline_sip::entropy::Entropy;
    use trunkline_sip::slot::{Minter, Node, Slot};

    use super::*;

    fn trunk(host: &str, port: u16, transport: Transport) -> OutboundRoute {
        OutboundRoute {
            org: uuid::Uuid::nil(),
            id: uuid::Uuid::nil(),
            peer: Some((host.into(), port)),
            named: NamedBy::Tenant,
            transport,
            login: None,
            realms: Arc::default(),
            caller_number: E164::parse("+442071838750").unwrap(),
            from_host: None,
            p_asserted_identity: false,
            user_phone: false,
            register: false,
            max_concurrent_calls: None,
            calls_per_second: None,
            transfer_way: trunkline_model::settings::TransferWay::default(),
            keeps_caller: false,
        }
    }

    #[test]
    fn a_carrier_that_wants_numbers_marked_gets_them_so() {
        let number = E164::parse("+14155550100").unwrap();
        let minter = Minter::new(Node(0), [0; 16]);
        for (user_phone, phone) in [(false, ""), (true, ";user=phone")] {
            let trunk = OutboundRoute {
                user_phone,
                ..trunk("192.0.2.1", 5070, Transport::Tcp)
            };
            let callee = Callee::through(&trunk, number).unwrap();
            let uri = format!("sip:+14155550100@192.0.2.1:5070;transport=tcp{phone}");
            assert_eq!(callee.dial_targets[0].uri(), uri);
            let leg = CalleeLeg {
                role: LegRole::Trunk,
                hops: 70,
                call_id: minter.call_id(Slot::new(0).unwrap(), &mut Entropy::from_seed([0; 32])),
            };
            let (_, text) = callee.split(leg, Patience::WithLast);
            let to = format!("<sip:+14155550100@192.0.2.1:5070{phone}>");
            assert_eq!(text.to(), to.into_bytes());
            let from = format!("<sip:+442071838750@us.example{phone}>");
            assert_eq!(text.from("us.example"), from.into_bytes());
        }
    }

    #[test]
    fn a_trunk_is_dialled_at_its_host_by_its_transport() {
        let number = E164::parse("+14155550100").unwrap();

        for (host, port, transport, uri, wanted) in [
            (
                "192.0.2.1",
                5060,
                Transport::Udp,
                "sip:+14155550100@192.0.2.1",
                None,
            ),
            (
                "192.0.2.1",
                5070,
                Transport::Tcp,
                "sip:+14155550100@192.0.2.1:5070;transport=tcp",
                None,
            ),
            (
                "[2001:db8::1]",
                5061,
                Transport::Tls,
                "sip:+14155550100@[2001:db8::1];transport=tls",
                None,
            ),
            (
                "sip.example.com",
                5060,
                Transport::Udp,
                "sip:+14155550100@sip.example.com",
                Some(None),
            ),
            (
                "sip.example.com",
                5062,
                Transport::Udp,
                "sip:+14155550100@sip.example.com:5062",
                Some(Some(5062)),
            ),
        ] {
            let mut callee = Callee::through(&trunk(host, port, transport), number).unwrap();
            match callee.dial_targets.pop_front().unwrap() {
                DialTarget::Resolved(target) => {
                    assert_eq!((&*target.uri, target.transport), (uri, transport));
                    assert_eq!(target.address.port(), port);
                    assert_eq!(wanted, None);
                }
                DialTarget::Unresolved(name) => {
                    assert_eq!((&*name.uri, name.transport), (uri, Some(transport)));
                    assert_eq!(Some(name.port), wanted);
                }
            }
        }
    }
}
