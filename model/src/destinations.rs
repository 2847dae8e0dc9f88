//! Destinations to which an agent may transfer a caller, and the look-up of one by id, name, number or URI.
//!
//! Pure. A destination that isn't on the agent's list can't be reached, regardless of who asks.

use trunkline_routing::numbers::reduce;
use trunkline_routing::{Country, E164};
use trunkline_sip::header::uri::{Host, Scheme, Uri};
use uuid::Uuid;

use super::settings::{TransferTarget, Via};

/// Name of the agent's number for human escalation.
pub const HUMAN: &str = "human";

/// A transfer destination of an agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Destination {
    /// Id of the destination; the number for human escalation has none.
    pub id: Option<Uuid>,
    /// Name by which the agent refers to the destination.
    pub name: Box<str>,
    /// Number or URI.
    pub target: TransferTarget,
    /// Trunk over which Trunkline calls the destination in a bridged transfer.
    pub via: Via,
}

impl Destination {
    /// Returns all destinations of an agent: the `assigned` ones, and the `handoff` number unless an assigned one is named [`HUMAN`] too.
    pub fn of_agent(assigned: Vec<Self>, handoff: Option<E164>) -> Vec<Self> {
        let mut own = assigned;
        if let Some(number) = handoff
            && Self::named(&own, HUMAN).is_none()
        {
            own.push(Self {
                id: None,
                name: HUMAN.into(),
                target: TransferTarget::Phone(number),
                via: Via::default(),
            });
        }
        own
    }

    /// Returns the destination of this name, ignoring case.
    pub fn named<'d>(list: &'d [Self], name: &str) -> Option<&'d Self> {
        let folded = name.to_lowercase();
        list.iter().find(|own| own.name.to_lowercase() == folded)
    }

    /// Returns the destination that a URI denotes: by its SIP URI, by its number, or by its name as the user part, in this order.
    pub fn meant<'d>(
        list: &'d [Self],
        uri: &Uri<'_>,
        country: Option<Country>,
    ) -> Option<&'d Self> {
        let user = uri.user_unescaped();
        let user = std::str::from_utf8(&user).ok()?;

        if uri.scheme == Scheme::Other {
            return None;
        }

        // Of several readings of the digits, one that is a destination takes precedence.
        let leads = |number: &E164| list.iter().any(|own| own.target.is_number(number));
        let number = reduce(user, country, &leads);
        let by_number = |own: &&Self| number.is_some_and(|number| own.target.is_number(&number));
        let by_uri = |own: &&Self| match &own.target {
            TransferTarget::Sip(own) => Uri::parse(own.as_bytes()).is_ok_and(|own| same(&own, uri)),
            TransferTarget::Phone(_) => false,
        };

        list.iter()
            .find(by_uri)
            .or_else(|| list.iter().find(by_number))
            .or_else(|| Self::named(list, user).filter(|_| uri.scheme != Scheme::Tel))
    }

    /// Returns the destination with this id.
    pub fn of_id(list: &[Self], id: Uuid) -> Option<&Self> {
        list.iter().find(|own| own.id == Some(id))
    }
}

/// Returns whether two SIP URIs denote the same user at the same host (RFC 3261 §19.1.4, without parameters).
fn same(own: &Uri<'_>, given: &Uri<'_>) -> bool {
    let same_host = match (&own.host, &given.host) {
        (Host::Name(own), Host::Name(given)) => own.eq_ignore_ascii_case(given),
        (own, given) => own == given,
    };
    given.scheme != Scheme::Tel
        && same_host
        // RFC 3261 §19.1.4: "a URI omitting the optional port component will not match a URI explicitly declaring port
        // 5060".
        && own.port == given.port
        && own.user_unescaped() == given.user_unescaped()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> [Destination; 3] {
        let phone = |number| TransferTarget::Phone(E164::parse(number).expect("a number"));
        let own = |name: &str, target| Destination {
            id: None,
            name: name.into(),
            target,
            via: Via::default(),
        };
        [
            own("Front Desk", phone("+442071838751")),
            own(
                "Billing",
                TransferTarget::Sip("sip:bill@pbx.example:5070".into()),
            ),
            own("Night", TransferTarget::Sip("sip:night@pbx.example".into())),
        ]
    }

    #[test]
    fn a_uri_means_what_is_on_the_list_and_nothing_else() {
        let list = list();
        for (uri, meant) in [
            ("tel:+442071838751", Some("Front Desk")),
            ("tel:+44-20-7183-8751", Some("Front Desk")),
            ("sip:+442071838751@anywhere.example", Some("Front Desk")),
            (
                "sip:442071838751@anywhere.example;user=phone",
                Some("Front Desk"),
            ),
            ("sip:bill@PBX.example:5070;transport=tcp", Some("Billing")),
            ("sip:bill@pbx.example", None),
            ("sip:bill@evil.example:5070", None),
            ("sip:night@pbx.example?Subject=x", Some("Night")),
            ("sip:front%20desk@anywhere.example", Some("Front Desk")),
            ("sip:BILLING@anywhere.example", Some("Billing")),
            ("tel:+442071838752", None),
            ("sip:+19005550100@pbx.example", None),
            ("mailto:night@pbx.example", None),
            ("sip:pbx.example", None),
        ] {
            let parsed = Uri::parse(uri.as_bytes()).expect(uri);
            let found = Destination::meant(&list, &parsed, None);
            assert_eq!(found.map(|own| &*own.name), meant, "{uri}");
        }
    }
}
