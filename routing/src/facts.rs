//! Facts of an INVITE that routing reads, and the called and calling number derived from them.
//!
//! Knows no SIP: user parts come unescaped and without scheme or host (RFC 3261 §19.1.1), and a `tel:` URI's number (RFC 3966) counts as
//! its user part.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::directory::Org;
use crate::numbers::reduce;
use crate::{Country, E164};

/// Parts of an INVITE that routing reads, taken from the message once its sender has authenticated.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// Value of the header that selects an agent.
    pub agent_header: Option<String>,
    /// Second, different value of that header. If there is one, neither value selects an agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_agent_header: Option<Box<str>>,
    /// User part of the Request-URI.
    pub request_user: Option<String>,
    /// User part of To.
    pub to_user: Option<String>,
    /// User part of From.
    pub from_user: Option<String>,
    /// User parts in P-Asserted-Identity (RFC 3325), in order. Empty unless the peer may assert an identity.
    pub asserted: Box<[String]>,
    /// The caller asked not to be named (RFC 3323).
    pub anonymous: bool,
}

/// The called number.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "DialledNumber")]
pub struct Dialled {
    /// Text as the peer sent it.
    pub raw: Box<str>,
    /// E.164 form, if the text is a number.
    pub e164: Option<E164>,
}

/// The calling number.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "CallerNumber")]
pub struct Caller {
    /// Text as the peer sent it.
    pub raw: Box<str>,
    /// E.164 form. `None` for an anonymous caller too: no contact is looked up or created then.
    pub e164: Option<E164>,
}

/// Returns the called number: the Request-URI's user if it is a number, else that of To. Text that is no number is kept as `raw`.
pub fn dialled(facts: &Facts, org: &Org) -> Dialled {
    let held = |number: &E164| org.holds(number);
    let candidates = [facts.request_user.as_deref(), facts.to_user.as_deref()];
    let (raw, e164) = first_number(candidates.into_iter().flatten(), org.country(), &held);
    Dialled { raw, e164 }
}

/// Returns the calling number: the asserted identity, else the user of From.
///
/// From doesn't replace an asserted identity that is no number, since anyone behind the peer may have written From.
pub fn caller(facts: &Facts, org: &Org) -> Caller {
    let asserted = facts.asserted.iter().map(String::as_str);
    let (raw, e164) = if facts.asserted.is_empty() {
        first_number(
            facts.from_user.as_deref().into_iter(),
            org.country(),
            &|_| false,
        )
    } else {
        first_number(asserted, org.country(), &|_| false)
    };

    Caller {
        raw,
        e164: e164.filter(|_| !facts.anonymous),
    }
}

/// Returns the first of the texts that is a number; if none is, the first text.
fn first_number<'a>(
    texts: impl Iterator<Item = &'a str> + Clone,
    country: Option<Country>,
    held: &dyn Fn(&E164) -> bool,
) -> (Box<str>, Option<E164>) {
    let number = texts
        .clone()
        .find_map(|text| reduce(text, country, held).map(|number| (text.into(), Some(number))));
    number.unwrap_or_else(|| (texts.into_iter().next().unwrap_or_default().into(), None))
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use uuid::Uuid;

    use super::*;
    use crate::directory::Trunk;

    fn german_org() -> Org {
        let number = E164::parse("+493012345678").unwrap();
        let trunk = Trunk {
            id: Uuid::from_u128(2),
            numbers: vec![number],
            default_country: Country::parse("DE").ok(),
            max_concurrent_calls: None,
        };
        Org {
            id: Uuid::from_u128(1),
            agents: Vec::new(),
            held: HashMap::new(),
            numbers: HashSet::from([number]),
            trunk: Some(trunk),
            max_concurrent_calls: None,
        }
    }

    #[test]
    fn the_dialled_number_is_the_request_uris_else_tos() {
        let cases = [
            (
                "Request-URI",
                Some("03012345678"),
                Some("+4930999999"),
                "03012345678",
                Some("+493012345678"),
            ),
            (
                "To, as the Request-URI is no number",
                Some("trunk"),
                Some("+4930999999"),
                "+4930999999",
                Some("+4930999999"),
            ),
            (
                "To alone",
                None,
                Some("493012345678"),
                "493012345678",
                Some("+493012345678"),
            ),
            (
                "neither is a number",
                Some("s"),
                Some("reception"),
                "s",
                None,
            ),
            ("neither is there", None, None, "", None),
        ];

        for (name, request, to, raw, e164) in cases {
            let facts = Facts {
                request_user: request.map(str::to_owned),
                to_user: to.map(str::to_owned),
                ..Facts::default()
            };
            let dialled = dialled(&facts, &german_org());
            assert_eq!(
                (&*dialled.raw, dialled.e164.as_ref().map(E164::as_str)),
                (raw, e164),
                "{name}"
            );
        }
    }

    #[test]
    fn the_caller_is_the_asserted_identity_else_from() {
        let cases: [(_, &[&str], _, _, _, _); 7] = [
            (
                "From",
                &[],
                Some("0171 2345678"),
                false,
                "0171 2345678",
                Some("+491712345678"),
            ),
            (
                "asserted",
                &["+441632960000"],
                Some("+1"),
                false,
                "+441632960000",
                Some("+441632960000"),
            ),
            (
                "the asserted number among two",
                &["alice", "01712345678"],
                None,
                false,
                "01712345678",
                Some("+491712345678"),
            ),
            (
                "asserted, no number",
                &["alice"],
                Some("+491712345678"),
                false,
                "alice",
                None,
            ),
            (
                "anonymous",
                &["+441632960000"],
                Some("anonymous"),
                true,
                "+441632960000",
                None,
            ),
            ("an extension", &[], Some("201"), false, "201", None),
            ("nobody", &[], None, false, "", None),
        ];

        for (name, asserted, from, anonymous, raw, e164) in cases {
            let facts = Facts {
                asserted: asserted.iter().map(|user| user.to_string()).collect(),
                from_user: from.map(str::to_owned),
                anonymous,
                ..Facts::default()
            };
            let caller = caller(&facts, &german_org());
            assert_eq!(
                (&*caller.raw, caller.e164.as_ref().map(E164::as_str)),
                (raw, e164),
                "{name}"
            );
        }
    }
}
