//! Fields of the forms of orgs and partners.

use super::super::fields::{Field, Input};
use crate::api::control::PartnerView;
use crate::api::tenants::{RetentionView, WholeOrgView};

/// Settings of an org, or of a new one.
pub(super) fn of_org(org: Option<&WholeOrgView>) -> Vec<Field> {
    vec![
        Field::new("name", "Name", Input::Text).holds(org.map(|org| &*org.org.org.name)),
        Field::new("website", "Website", Input::Text)
            .holds(org.and_then(|org| org.website.as_deref())),
        Field::new("language", "Language", Input::Text)
            .holds(org.map_or("en", |org| &org.language))
            .help("A BCP 47 tag, such as en, de-CH or pt-BR."),
        Field::new("ai_instructions", "System prompt", Input::Area)
            .holds(org.and_then(|org| org.ai_instructions.as_deref()))
            .help("Sessions of the org carry it. Empty: the partner's."),
    ]
}

/// Retention of an org.
pub(super) fn of_retention(days: &RetentionView) -> Vec<Field> {
    let field = |name, label, days: Option<u32>| {
        Field::new(name, label, Input::Number)
            .holds(days)
            .help("Days. Empty: as the configuration says.")
    };
    vec![
        field(
            "calls_days",
            "Calls, with their transfers and events",
            days.calls_days,
        ),
        field(
            "sessions_days",
            "Headers and metadata of calls",
            days.sessions_days,
        ),
        field(
            "contacts_days",
            "Contacts that no call names any more",
            days.contacts_days,
        ),
        field("handoffs_days", "Handoffs", days.handoffs_days),
    ]
}

/// A new partner.
pub(super) fn of_new_partner() -> Vec<Field> {
    vec![name(None), networks(None)]
}

/// Settings of a partner.
pub(super) fn of_partner(partner: &PartnerView) -> Vec<Field> {
    vec![
        name(Some(partner)),
        Field::new("active", "Active: its keys work", Input::Check).holds(partner.active),
        Field::new(
            "verifies_numbers",
            "May verify numbers of its orgs",
            Input::Check,
        )
        .holds(partner.verifies_numbers),
        networks(Some(partner)),
    ]
}

fn name(partner: Option<&PartnerView>) -> Field {
    Field::new("name", "Name", Input::Text).holds(partner.map(|partner| &*partner.name))
}

fn networks(partner: Option<&PartnerView>) -> Field {
    Field::new("allowed_networks", "Allowed networks", Input::Lines)
        .holds(partner.and_then(|partner| partner.allowed_networks.as_deref()))
        .help("Addresses or networks that its requests may come from, one a line. Empty: any.")
}

/// Name of the field for a key's name. It isn't `name`, which on the same page is the partner's.
pub(super) const KEY_NAME: &str = "key_name";

/// A new key of a partner.
pub(super) fn of_key() -> [Field; 1] {
    [Field::new(KEY_NAME, "Name", Input::Text).help("Such as the program that uses it.")]
}
