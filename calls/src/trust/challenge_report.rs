//! Reports of the challenges that PBXs and carriers send us: realms to remember, and challenges that weren't answered.

use std::net::IpAddr;

use trunkline_model::auth_realms::KnownRealm;
use trunkline_model::view::OutboundRoute;
use trunkline_sip::auth::client;
use trunkline_sip::header::text::unescape_pairs;
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::Message;
use uuid::Uuid;

use super::credentials::Unanswerable;

/// Octets of a realm that are reported; a longer one is cut.
const LONGEST_REALM: usize = 128;

/// The challenge of a PBX or a carrier.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChallengeReport {
    /// The peer that challenges.
    pub challenger: Challenger,
    /// Time.
    pub at: Moment,
    /// Its outcome.
    pub news: ChallengeOutcome,
}

/// A peer that challenges.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Challenger {
    /// The org.
    pub org: Uuid,
    /// The outbound trunk whose host it is; `None`: the PBX of the org's inbound trunk.
    pub trunk: Option<Uuid>,
}

impl Challenger {
    pub(crate) const fn pbx(org: Uuid) -> Self {
        Self { org, trunk: None }
    }

    pub(crate) fn of_trunk(way: &OutboundRoute) -> Self {
        Self {
            org: way.org,
            trunk: Some(way.id),
        }
    }
}

/// Outcome of a challenge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ChallengeOutcome {
    /// A realm to be remembered.
    Seen(KnownRealm),
    /// It wasn't answered.
    Unanswered {
        /// The reason.
        why: Unanswerable,
        /// The status that it came with: 401 or 407.
        status: u16,
        /// The method of the request that it answered.
        method: Box<str>,
        /// The realm, if it could be read.
        realm: Box<str>,
        /// Address that the request went to.
        peer: IpAddr,
    },
}

impl ChallengeOutcome {
    /// Returns the outcome for a challenge in `response`, from `peer`, that isn't answered.
    pub(crate) fn unanswered(why: Unanswerable, response: &Message<'_>, peer: IpAddr) -> Self {
        let challenge = client::challenge(response);
        let realm = challenge.map(|(_, challenge)| unescape_pairs(challenge.realm));
        let realm = realm.as_deref().unwrap_or_default();
        let realm = &realm[..realm.len().min(LONGEST_REALM)];
        Self::Unanswered {
            why,
            status: response.status(),
            method: String::from_utf8_lossy(response.method_token()).into(),
            realm: String::from_utf8_lossy(realm).into(),
            peer: peer.to_canonical(),
        }
    }
}
