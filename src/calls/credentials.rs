//! The credentials of a leg, and the 401 and 407 that they answer (RFC 3261 §22). A digest that is given to anybody who asks can be
//! carried to where the same pair is good, or be guessed at in peace; so each pair goes only where it has been at home before.

use std::net::IpAddr;
use std::sync::Arc;

use trunkline_sip::auth::client::{self, Asking};
use trunkline_sip::dialog::Dialog;
use trunkline_sip::header::auth::Challenge;
use trunkline_sip::header::text::unescape_pairs;
use trunkline_sip::header::uri::{Host, Uri};
use trunkline_sip::wire::Message;

use super::context::Cx;
use super::proofs::Proofs;
use crate::directory::view::PeerLogin;

/// Addresses of one trunk that are kept for a call.
const MAX_ADDRESSES: usize = 16;

/// The pair that a leg's peer is answered with, and where it may go.
#[derive(Clone, Debug)]
pub(crate) struct LegCredentials {
    login: Arc<PeerLogin>,
    home: Home,
}

/// Where a pair may go.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Home {
    /// The address that the INVITE came from whose digest verified with this very pair.
    Inbound(IpAddr),
    /// The outbound trunk. A request outside a dialog goes to the trunk's host by itself.
    Trunk {
        hosts: Box<[String]>,
        addresses: Box<[IpAddr]>,
    },
}

/// The request that was challenged.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Stage<'a> {
    /// An INVITE that begins a dialog.
    Initial,
    /// A request inside this dialog.
    InDialog(&'a Dialog),
}

/// What a challenge is judged by besides itself.
#[derive(Copy, Clone, Debug)]
struct Place<'a> {
    is_inside: bool,
    /// Whether the request with the answer would go where the pair belongs, and no further.
    leads_home: bool,
    own_realm: &'a str,
    /// Whether a node of this deployment has issued the nonce.
    is_own_nonce: bool,
    /// Whether the pair's user name is that of an inbound trunk here.
    is_inbound_user: bool,
}

impl LegCredentials {
    /// The pair that a caller's digest verified with; it came from `source`.
    pub(crate) fn proven(login: Arc<PeerLogin>, source: IpAddr) -> Self {
        Self {
            login,
            home: Home::Inbound(source.to_canonical()),
        }
    }

    /// The pair that the peer has proven itself by, if it has.
    pub(crate) fn proven_pair(&self) -> Option<Arc<PeerLogin>> {
        match self.home {
            Home::Inbound(_) => Some(Arc::clone(&self.login)),
            Home::Trunk { .. } => None,
        }
    }

    /// The pair of an outbound trunk that is yet to be called.
    pub(crate) fn of_trunk(login: Arc<PeerLogin>) -> Self {
        Self {
            login,
            home: Home::Trunk {
                hosts: Box::default(),
                addresses: Box::default(),
            },
        }
    }

    /// The same once the trunk has answered: inside the dialog its hosts and these addresses count.
    pub(crate) fn answered_at(&self, hosts: &[String], addresses: &[IpAddr]) -> Self {
        let home = match &self.home {
            Home::Inbound(source) => Home::Inbound(*source),
            Home::Trunk { .. } => Home::Trunk {
                hosts: hosts.into(),
                addresses: addresses.into(),
            },
        };
        Self {
            login: Arc::clone(&self.login),
            home,
        }
    }

    /// Whether it may be meant for a callee at `destination`: a request outside a dialog goes to the trunk's host by itself.
    pub(crate) fn may_begin_at(&self, destination: IpAddr) -> bool {
        matches!(self.home, Home::Trunk { .. }) || self.reaches(destination)
    }

    /// Whether an answer may go into a dialog whose next hop is `destination`. A trunk's proxy that has recorded its route would pass the
    /// answer on, so there the whole way has to be the trunk's.
    pub(crate) fn lead_home(&self, dialog: &Dialog, destination: IpAddr) -> bool {
        let is_trunks = |uri: &[u8]| match &self.home {
            Home::Inbound(_) => true,
            Home::Trunk { hosts, .. } => Uri::parse(uri).is_ok_and(|uri| match uri.host {
                Host::V4(ip) => self.reaches(ip.into()),
                Host::V6(ip) => self.reaches(ip.into()),
                Host::Name(name) => hosts
                    .iter()
                    .any(|host| host.as_bytes().eq_ignore_ascii_case(name)),
            }),
        };
        let whole_way = || {
            dialog
                .routes()
                .chain([dialog.remote_target()])
                .all(is_trunks)
        };

        self.reaches(destination) && (!dialog.has_route() || whole_way())
    }

    fn reaches(&self, destination: IpAddr) -> bool {
        let destination = destination.to_canonical();
        match &self.home {
            Home::Inbound(source) => *source == destination,
            Home::Trunk { addresses, .. } => addresses.contains(&destination),
        }
    }

    /// Answers the challenge in a 401 or 407 to the request `asking`, which is to be sent again to `destination` with
    /// [`Proofs::lines`]. False if it isn't answered.
    pub(crate) fn answer(
        &self,
        cx: &mut Cx<'_>,
        proofs: &mut Proofs,
        response: &Message<'_>,
        asking: &Asking<'_>,
        (stage, destination): (Stage<'_>, IpAddr),
    ) -> bool {
        let Some((_, challenge)) = client::challenge(response) else {
            return false;
        };
        let place = Place {
            is_inside: matches!(stage, Stage::InDialog(_)),
            leads_home: match stage {
                Stage::Initial => self.may_begin_at(destination),
                Stage::InDialog(dialog) => self.lead_home(dialog, destination),
            },
            own_realm: &cx.core.config.realm,
            is_own_nonce: cx.core.nonces.is_of_deployment(challenge.nonce),
            is_inbound_user: cx.core.is_inbound_user(&self.login.user),
        };
        let is_inbound = matches!(self.home, Home::Inbound(_));
        if !self.may_answer(&challenge, &place)
            || (is_inbound && proofs.has_answered(challenge.realm))
        {
            return false;
        }
        let random = cx.endpoint.entropy().bits128();
        proofs.answer(response, asking, &self.login, random)
    }

    fn may_answer(&self, challenge: &Challenge<'_>, place: &Place<'_>) -> bool {
        let is_ours =
            place.is_own_nonce || *unescape_pairs(challenge.realm) == *place.own_realm.as_bytes();
        // An answer without qop can be computed for any nonce that the asker likes, and inside a dialog the peer chooses who asks.
        if !place.leads_home || (place.is_inside && challenge.qop.is_none()) {
            return false;
        }
        match &self.home {
            Home::Inbound(_) => !is_ours,
            Home::Trunk { .. } => !(is_ours && place.is_inbound_user),
        }
    }
}

/// Addresses that a trunk has been called at or has answered from.
#[derive(Clone, Debug, Default)]
pub(crate) struct TrunkAddresses(Vec<IpAddr>);

impl TrunkAddresses {
    pub(crate) fn add(&mut self, address: IpAddr) {
        let Self(held) = self;
        let address = address.to_canonical();
        if held.len() < MAX_ADDRESSES && !held.contains(&address) {
            held.push(address);
        }
    }

    pub(crate) fn as_slice(&self) -> &[IpAddr] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use trunkline_sip::wire::{Framing, lex};

    use super::*;

    const OWN: &str = "our \"own\" realm";
    const OURS: &str = r#"Digest realm="our \"own\" realm", nonce="1", qop="auth""#;
    const OURS_ESCAPED: &str = r#"Digest realm="\o\ur \"own\" realm", nonce="1", qop="auth""#;
    const THEIRS: &str = r#"Digest realm="pbx", nonce="1", qop="auth""#;
    const OWN_NONCE: &str = r#"Digest realm="pbx", nonce="own", qop="auth""#;
    const WITHOUT_QOP: &str = r#"Digest realm="pbx", nonce="1""#;

    const INSIDE: bool = true;
    const OUTSIDE: bool = false;

    fn login() -> Arc<PeerLogin> {
        Arc::new(PeerLogin {
            user: "u".into(),
            password: "p".into(),
        })
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn answers(
        credentials: &LegCredentials,
        challenge: &str,
        (is_inside, destination): (bool, &str),
        is_inbound_user: bool,
    ) -> bool {
        let destination = address(destination);
        let place = Place {
            is_inside,
            leads_home: match is_inside {
                true => credentials.reaches(destination),
                false => credentials.may_begin_at(destination),
            },
            own_realm: OWN,
            is_own_nonce: challenge.contains("nonce=\"own"),
            is_inbound_user,
        };
        credentials.may_answer(&Challenge::parse(challenge.as_bytes()).unwrap(), &place)
    }

    #[test]
    fn a_proven_pair_goes_back_to_its_source_alone() {
        let proven = LegCredentials::proven(login(), address("192.0.2.1"));
        for (case, challenge, destination, answered) in [
            ("its source", THEIRS, "192.0.2.1", true),
            ("the same, mapped", THEIRS, "::ffff:192.0.2.1", true),
            ("another address", THEIRS, "192.0.2.2", false),
            ("our realm", OURS, "192.0.2.1", false),
            ("our realm, escaped", OURS_ESCAPED, "192.0.2.1", false),
            ("our nonce", OWN_NONCE, "192.0.2.1", false),
            ("no qop", WITHOUT_QOP, "192.0.2.1", false),
        ] {
            let at = (INSIDE, destination);
            assert_eq!(answers(&proven, challenge, at, true), answered, "{case}");
        }
        for (challenge, destination, answered) in [
            (THEIRS, "192.0.2.1", true),
            (WITHOUT_QOP, "192.0.2.1", true),
            (THEIRS, "192.0.2.2", false),
            (OURS, "192.0.2.1", false),
        ] {
            let at = (OUTSIDE, destination);
            assert_eq!(answers(&proven, challenge, at, true), answered, "{at:?}");
        }
    }

    #[test]
    fn a_trunks_pair_goes_to_the_trunks_addresses() {
        let mut addresses = TrunkAddresses::default();
        for known in ["198.51.100.1", "::ffff:198.51.100.2", "198.51.100.1"] {
            addresses.add(address(known));
        }
        assert_eq!(addresses.as_slice().len(), 2);
        let trunk = LegCredentials::of_trunk(login());
        let answered = trunk.answered_at(&[], addresses.as_slice());
        for (case, challenge, at, inbound_user, expected) in [
            ("resolved", THEIRS, "198.51.100.1", false, true),
            ("answered from", THEIRS, "198.51.100.2", false, true),
            ("another address", THEIRS, "198.51.100.3", false, false),
            ("no qop", WITHOUT_QOP, "198.51.100.1", false, false),
            ("our realm", OURS, "198.51.100.1", false, true),
            ("our realm and user", OURS, "198.51.100.1", true, false),
            ("escaped", OURS_ESCAPED, "198.51.100.1", true, false),
            ("our nonce", OWN_NONCE, "198.51.100.1", true, false),
            (
                "our nonce, another user",
                OWN_NONCE,
                "198.51.100.1",
                false,
                true,
            ),
            ("a user of ours", THEIRS, "198.51.100.1", true, true),
        ] {
            let at = (INSIDE, at);
            let given = answers(&answered, challenge, at, inbound_user);
            assert_eq!(given, expected, "{case}");
        }
        for (case, challenge, inbound_user, expected) in [
            ("outside a dialog", THEIRS, false, true),
            ("without qop", WITHOUT_QOP, false, true),
            ("our realm", OURS, false, true),
            ("our realm and user", OURS, true, false),
        ] {
            let at = (OUTSIDE, "198.51.100.1");
            let given = answers(&trunk, challenge, at, inbound_user);
            assert_eq!(given, expected, "{case}");
        }
        let unanswered = (INSIDE, "198.51.100.1");
        assert!(!answers(&trunk, THEIRS, unanswered, false));
    }

    #[test]
    fn a_trunks_pair_stays_on_a_way_that_is_all_the_trunks() {
        const REQUEST_URI: &[u8] = b"sip:+14155550001@carrier.example.com";
        let dialog = |contact: &str, routes: &[&str]| {
            let routes: String = routes
                .iter()
                .map(|route| format!("Record-Route: <{route};lr>\r\n"))
                .collect();
            let text = format!(
                "SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP h;branch=z9hG4bK1\r\nFrom: <sip:a@b>;tag=1\r\n\
                 To: <sip:c@d>;tag=2\r\nCall-ID: x\r\nCSeq: 1 INVITE\r\nContact: <{contact}>\r\n{routes}\
                 Content-Length: 0\r\n\r\n"
            );
            let message = lex(text.as_bytes(), Framing::Datagram).unwrap();
            Dialog::uac(REQUEST_URI, &message).unwrap()
        };
        let home = address("198.51.100.1");
        let hosts = ["carrier.example.com".to_owned()];
        let trunk = LegCredentials::of_trunk(login()).answered_at(&hosts, &[home]);
        for (contact, routes, leads_home) in [
            ("sip:c@198.51.100.1", &[][..], true),
            ("sip:c@10.0.0.1", &[], true), // Behind NAT: requests go to where the answer came from.
            ("sip:c@198.51.100.1", &["sip:198.51.100.1"], true),
            (
                "sip:c@Carrier.example.com",
                &["sip:carrier.example.com"],
                true,
            ),
            ("sip:c@203.0.113.66", &["sip:198.51.100.1"], false),
            (
                "sip:c@198.51.100.1",
                &["sip:203.0.113.66", "sip:198.51.100.1"],
                false,
            ),
            ("sip:c@evil.example.com", &["sip:198.51.100.1"], false),
        ] {
            let dialog = dialog(contact, routes);
            assert_eq!(
                trunk.lead_home(&dialog, home),
                leads_home,
                "{contact} {routes:?}"
            );
            assert!(!trunk.lead_home(&dialog, address("203.0.113.66")));
        }
    }

    #[test]
    fn few_addresses_are_kept() {
        let mut addresses = TrunkAddresses::default();
        for last in 0..=255_u8 {
            addresses.add(IpAddr::from([198, 51, 100, last]));
        }
        assert_eq!(addresses.as_slice().len(), MAX_ADDRESSES);
    }
}
