//! Names of properties and parameters that mean items: the list in which such an item is found, and its noun.

/// Path of the list in which a property or parameter names an item.
pub(super) fn list_of(property: &str) -> Option<&'static str> {
    match property {
        "agent_id" | "phone_agent_id" => Some("/phone"),
        "trunk_id" => Some("/phone/sip/outbound-trunks"),
        "destination_id" => Some("/phone/sip/transfer-destinations"),
        "prompt_id" => Some("/phone/prompts"),
        "orgId" => Some("/operator/orgs"),
        "partnerId" => Some("/operator/partners"),
        _ => None,
    }
}

/// Noun for what a property or parameter names.
pub(super) fn noun_of(property: &str) -> &'static str {
    match property {
        "agent_id" | "phone_agent_id" => "agent",
        "trunk_id" => "outbound-trunk",
        "destination_id" => "destination",
        "prompt_id" => "prompt",
        "number_id" | "phoneNumberId" => "number",
        "call_id" => "call",
        "contact_id" => "contact",
        "webhook_id" => "webhook",
        "api_key_id" => "key",
        "orgId" => "org",
        "partnerId" => "partner",
        "keyId" => "partner key",
        _ => "such item",
    }
}
