//! Fields of the forms of orgs and partners.

use super::super::fields::{Field, Input};

/// Settings of an org.
pub(super) fn of_org() -> [Field; 4] {
    [
        Field::new("name", "Name", Input::Text),
        Field::new("website", "Website", Input::Text),
        Field::new("language", "Language", Input::Text)
            .initially("en")
            .help("A BCP 47 tag, such as en, de-CH or pt-BR."),
        Field::new("ai_instructions", "System prompt", Input::Area)
            .help("Sessions of the org carry it. Empty: the partner's."),
    ]
}

/// Retention of an org.
pub(super) fn of_retention() -> [Field; 4] {
    let days = |name, label| {
        Field::new(name, label, Input::Number).help("Days. Empty: as the configuration says.")
    };
    [
        days("calls_days", "Calls, with their transfers and events"),
        days("sessions_days", "Headers and metadata of calls"),
        days("contacts_days", "Contacts that no call names any more"),
        days("handoffs_days", "Handoffs"),
    ]
}

/// A new partner.
pub(super) fn of_new_partner() -> [Field; 2] {
    [
        Field::new("name", "Name", Input::Text),
        Field::new("allowed_networks", "Allowed networks", Input::Lines)
            .help("Addresses or networks that its requests may come from, one a line. Empty: any."),
    ]
}

/// Settings of a partner.
pub(super) fn of_partner() -> [Field; 4] {
    let [name, networks] = of_new_partner();
    [
        name,
        Field::new("active", "Active: its keys work", Input::Check),
        Field::new(
            "verifies_numbers",
            "May verify numbers of its orgs",
            Input::Check,
        ),
        networks,
    ]
}

/// Name of the field for a key's name. It isn't `name`, which on the same page is the partner's.
pub(super) const KEY_NAME: &str = "key_name";

/// A new key of a partner.
pub(super) fn of_key() -> [Field; 1] {
    [Field::new(KEY_NAME, "Name", Input::Text).help("Such as the program that uses it.")]
}
