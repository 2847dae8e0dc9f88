//! Attributes a failed log-in to an org where the credentials don't name one: a user name that is a trunk's in another spelling, one that ended with
//! a rotation, or any user name from an address that belongs to one org. Any tenant may list any address on its trunk, so its own list makes an
//! address its own only for calls to its numbers.
//!
//! Only that org's people see the finding. The peer gets the same challenge as any other.

use std::net::{IpAddr, SocketAddr};

use trunkline_model::view::{Login, OrgView, Source, View};
use trunkline_sip::auth::WrongPart;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

/// A failed log-in with an unknown user name. It is logged for the operator and not stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownUser {
    /// Source of the packet. It has received a challenge of ours before, but a UDP packet may be forged.
    pub source: SocketAddr,
    /// The beginning of the user name.
    pub username: Box<str>,
}

impl UnknownUser {
    /// Octets of a user name that are kept.
    const MOST: usize = 64;

    pub(crate) fn new(source: SocketAddr, username: &[u8]) -> Self {
        let kept = &username[..username.len().min(Self::MOST)];
        Self {
            source,
            username: String::from_utf8_lossy(kept).into(),
        }
    }
}

/// Returns the org and trunk that this log-in was meant for, and the fault. `is_called`: the request dials a number of this org's trunk.
pub(crate) fn attribute_unknown_user(
    view: &View,
    source: IpAddr,
    username: &[u8],
    is_called: impl Fn(&OrgView) -> bool,
    wall_time: Moment,
) -> Option<(Uuid, Uuid, WrongPart)> {
    // A pair that ended with a rotation is still in the view, for this answer.
    if let Some(login) = view.login(username) {
        let part = if login.is_valid(wall_time) {
            WrongPart::User
        } else {
            WrongPart::Expired
        };
        return Some((login.org, login.trunk, part));
    }
    if let Some(login) = meant(view, username) {
        return Some((login.org, login.trunk, WrongPart::User));
    }
    let (org, trunk) = of_address(view, source.to_canonical(), is_called)?;
    Some((org, trunk, WrongPart::User))
}

/// Returns the trunk of credentials for another realm: only by its exact user name.
pub(crate) fn attribute_other_realm(
    view: &View,
    username: &[u8],
) -> Option<(Uuid, Uuid, WrongPart)> {
    let login = view.login(username)?;
    Some((login.org, login.trunk, WrongPart::Realm))
}

/// Finds a trunk by its user name in capitals, as a SIP URI, or with a domain appended.
fn meant<'v>(view: &'v View, username: &[u8]) -> Option<&'v Login> {
    let name = std::str::from_utf8(username).ok()?.trim();
    let name = name.strip_prefix("sip:").unwrap_or(name);
    let name = name.split('@').next()?.to_ascii_lowercase();
    view.login(name.as_bytes())
}

/// Returns the only org that an address belongs to, if it has a trunk: by the operator's word, or by the org's own list if the request dials one
/// of its numbers.
fn of_address(
    view: &View,
    source: IpAddr,
    is_called: impl Fn(&OrgView) -> bool,
) -> Option<(Uuid, Uuid)> {
    let org = match view.by_source(source) {
        Source::Dedicated(org) => org,
        Source::Allowed(orgs) => {
            let is_its = |org: &&Uuid| {
                view.operator_allows(source, **org)
                    || view.org(**org).is_some_and(|org| is_called(org))
            };
            let mut orgs = orgs.iter().filter(is_its);
            match (orgs.next(), orgs.next()) {
                (Some(org), None) => *org,
                (None | Some(_), _) => return None,
            }
        }
        Source::Unknown => return None,
    };
    let trunk = view.org(org)?.trunk.as_ref()?;
    Some((org, trunk.id))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use trunkline_sip::auth::Secret;

    use super::*;

    const NOW: Moment = Moment::from_secs(1_000);

    fn view() -> View {
        let mut view = View::default();
        let login = |org: u128, ends: Option<u64>| Login {
            org: Uuid::from_u128(org),
            trunk: Uuid::from_u128(org + 100),
            secret: Arc::new(Secret::new("u", "r", "p")),
            pair: Arc::new(trunkline_model::view::PeerLogin {
                user: "u".into(),
                password: "p".into(),
            }),
            expires_at: ends.map(Moment::from_secs),
        };
        view.by_username.insert("trunk-a".into(), login(1, None));

        view.by_username
            .insert("trunk-old".into(), login(1, Some(999)));
        view.by_username
            .insert("trunk-new".into(), login(2, Some(1_001)));
        view
    }

    #[test]
    fn a_user_name_is_recognised_though_misspelt() {
        let view = view();
        let nowhere: IpAddr = "192.0.2.1".parse().expect("an address");
        for (name, sent, expected) in [
            (
                "with a domain",
                "trunk-a@sip.example.com",
                Some((1, WrongPart::User)),
            ),
            ("in capitals", "Trunk-A", Some((1, WrongPart::User))),
            ("as a URI", "sip:trunk-a@h", Some((1, WrongPart::User))),
            (
                "from before a rotation",
                "trunk-old",
                Some((1, WrongPart::Expired)),
            ),
            ("nobody's", "100", None),
            ("empty", "", None),
            ("no text", "\u{fffd}@", None),
        ] {
            let found = attribute_unknown_user(&view, nowhere, sent.as_bytes(), |_| false, NOW);
            let found = found.map(|(org, _, part)| (org.as_u128(), part));
            assert_eq!(found, expected, "{name}");
        }

        assert_eq!(attribute_other_realm(&view, b"Trunk-A"), None);
        assert!(attribute_other_realm(&view, b"trunk-a").is_some());
    }

    #[test]
    fn an_address_of_several_orgs_stands_for_none() {
        let mut view = view();
        let network = "198.51.100.0/24".parse().expect("a network");
        view.allowed.insert(network, Uuid::from_u128(1));
        view.allowed.insert(network, Uuid::from_u128(2));
        let shared = "198.51.100.7".parse().expect("an address");
        let found = attribute_unknown_user(&view, shared, b"100", |_| true, NOW);
        assert_eq!(found, None);
    }
}
