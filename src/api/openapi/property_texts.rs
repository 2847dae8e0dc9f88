//! Descriptions of the API's properties, by name: one name means the same in requests and in answers. A type with a
//! narrower meaning says so in its own doc comment, which takes precedence.

/// Name, description, and an example as JSON; no example where values are made here or name something of the org's.
const WORDS: &[(&str, &str, &str)] = &[
    (
        "accepted_at",
        "When the PBX took the REFER, or the bridged call began.",
        "",
    ),
    ("access", "Permissions of the role's members.", ""),
    (
        "account_id",
        "The account that the servers belong to.",
        r#""acct_17""#,
    ),
    (
        "actionIds",
        "Ids of actions that the agent may take, as your own systems know them.",
        r#"["book_table"]"#,
    ),
    ("agent", "The agent.", ""),
    ("agent_busy", "The requested agent is at its limit.", ""),
    ("agent_id", "The agent's id.", ""),
    (
        "agent_id_header",
        "The header of an INVITE that names the agent.",
        "",
    ),
    (
        "agent_name",
        "The header has an agent's name instead of its id.",
        "",
    ),
    (
        "agents",
        "Changes to agents; among limits, the number of agents that the org may have.",
        "",
    ),
    (
        "ai_instructions",
        "The system prompt for the org's agents; without one, the partner's applies.",
        r#""You answer the phone of a bakery.""#,
    ),
    (
        "ai_instructions_in_force",
        "The system prompt that sessions carry.",
        "",
    ),
    ("alg", "The algorithm of the signatures: `EdDSA`.", ""),
    (
        "allowed_addresses",
        "Addresses and networks whose INVITEs need no credentials.",
        r#"["203.0.113.7", "198.51.100.0/28"]"#,
    ),
    (
        "answer_confirmed",
        "Whether the PBX showed that somebody answered, and not only that it took the REFER; `null` before the outcome.",
        "",
    ),
    (
        "answered_at",
        "When the call was answered; `null` before.",
        "",
    ),
    ("api_key", "The key itself. It is shown only this once.", ""),
    ("api_key_id", "The key's id.", ""),
    ("api_keys", "Number of API keys that the org may have.", ""),
    ("app_key", "The application's key.", ""),
    ("at", "Time.", ""),
    (
        "auth_password",
        "The password that the PBX registers and calls with.",
        "",
    ),
    (
        "auth_realm",
        "The only realm whose challenges are answered with the trunk's credentials; `null`: those that the carrier challenges with first.",
        r#""carrier.example.com""#,
    ),
    (
        "auth_realms",
        "The realms whose challenges are answered, at most four; `[]` in a change forgets them.",
        r#"["carrier.example.com"]"#,
    ),
    (
        "auth_username",
        "The user name that the PBX registers and calls with.",
        "",
    ),
    (
        "avatar_url",
        "A picture of the contact.",
        r#""https://example.com/a.png""#,
    ),
    (
        "before",
        "Other digits stand before those that both share.",
        "",
    ),
    ("behind", "Digits that follow the number.", ""),
    (
        "bridge_when_refer_fails",
        "Whether a transfer continues as a bridged call if the PBX refuses the REFER.",
        "",
    ),
    ("busy", "Ids of agents to treat as busy.", ""),
    ("call_id", "The call's id.", ""),
    ("caller", "The number that calls.", ""),
    ("caller_call_id", "The `Call-ID` of the caller's leg.", ""),
    (
        "caller_may_be_gone",
        "The transfer failed after the PBX had accepted it, and this PBX then drops its caller.",
        "",
    ),
    (
        "caller_number",
        "The number that the trunk's calls come from.",
        "",
    ),
    ("calls_days", "Days for which calls are kept.", "365"),
    (
        "calls_per_second",
        "Maximum number of calls that the trunk begins per second; `null`: no limit of its own.",
        "5",
    ),
    ("changes", "Hypothetical changes to the directory.", ""),
    (
        "chat_context",
        "Text about the contact for the agent.",
        r#""Asked about opening hours yesterday.""#,
    ),
    (
        "code",
        "The six digits that the call to the number spoke.",
        r#""407190""#,
    ),
    (
        "confirm",
        "Whether a confirmation page comes first, so that software which opens links doesn't use it up.",
        "",
    ),
    ("contact", "The contact.", ""),
    (
        "contact_id",
        "The contact's id; `null` if the call has none.",
        "",
    ),
    ("contacts_days", "Days for which contacts are kept.", "365"),
    (
        "country",
        "A country, as ISO 3166 abbreviates it.",
        r#""GB""#,
    ),
    ("create", "A destination to create and assign.", ""),
    ("created_at", "Time of creation.", ""),
    ("credentials", "The credentials of the account.", ""),
    ("crv", "The curve: `Ed25519`.", ""),
    (
        "customData",
        "Anything of your own about the contact.",
        r#"{"plan": "gold"}"#,
    ),
    ("data", "The items of the page.", ""),
    ("database", "Whether the database answers.", ""),
    (
        "default_company_shortname",
        "The company to use if none is named.",
        "",
    ),
    (
        "default_country",
        "The country in which numbers without a country code are read, as ISO 3166 abbreviates it.",
        "",
    ),
    ("deleted", "Whether the object is treated as deleted.", ""),
    (
        "delivered_at",
        "Time at which the receiver accepted it; `null` before.",
        "",
    ),
    (
        "description",
        "A note for people.",
        r#""Our ticket system""#,
    ),
    ("destination", "The destination of the transfer.", ""),
    ("destination_id", "The transfer destination's id.", ""),
    (
        "destinations",
        "Number of transfer destinations that the org may have.",
        "",
    ),
    (
        "dialled",
        "The number that was called, as the peer sent it.",
        "",
    ),
    ("differs", "Difference of the numbers.", ""),
    (
        "digest_require_qop",
        "Whether challenges without `qop` are left unanswered.",
        "false",
    ),
    ("direction", "Who began the call.", ""),
    (
        "e164",
        "The number in E.164 form; `null` where it can't be read as one.",
        "",
    ),
    ("email", "An e-mail address.", r#""ada@example.com""#),
    ("enabled", "Whether it is in use.", "true"),
    ("end_date", "End of the period.", ""),
    ("ended_at", "When it ended; `null` before.", ""),
    ("erasure_id", "The erasure's id.", ""),
    ("event", "The event as it is sent.", ""),
    ("event_id", "The event's id.", ""),
    ("event_type", "What happened.", ""),
    ("expires_at", "When it ends unless it is renewed.", ""),
    (
        "explanation",
        "Explanation in sentences.",
        r#""The caller asked for the billing department.""#,
    ),
    (
        "external_id",
        "The id that your own system has for it.",
        r#""crm-4711""#,
    ),
    (
        "failover_on",
        "Answers after which the next runtime is called, besides 408, 500, 502, 503 and 504: status codes, or `3xx`.",
        r#"["404", "480", "3xx"]"#,
    ),
    (
        "fallbacks",
        "URIs that are tried in turn when the runtime doesn't answer.",
        "",
    ),
    ("fault", "The error; `null` if there was none.", ""),
    (
        "first_message",
        "What the agent says first.",
        r#""Hello, how can I help?""#,
    ),
    ("found", "Value that was found.", ""),
    ("from", "The number that calls.", r#""+442071838750""#),
    (
        "from_e164",
        "The calling number in E.164 form; `null` where it can't be read as one.",
        "",
    ),
    (
        "from_host",
        "The host of the trunk's `From`; `null` for the trunk's own.",
        "",
    ),
    ("from_number", "The calling number as the peer sent it.", ""),
    ("further", "Number of further ones.", ""),
    ("handoff_id", "The handoff's id.", ""),
    (
        "handoff_phone_number",
        "The number that callers are transferred to.",
        "",
    ),
    ("handoffs_days", "Days for which handoffs are kept.", ""),
    (
        "hangup_by",
        "Party that ended the call; `null` while it is up.",
        "",
    ),
    ("header", "The header's value.", ""),
    (
        "host",
        "The carrier's host: a name or an address.",
        r#""sip.carrier.example""#,
    ),
    (
        "http_action_overrides",
        "Values that replace those of the agent's HTTP actions.",
        "",
    ),
    (
        "http_status",
        "Status of the receiver's answer; `null` without an answer.",
        "",
    ),
    ("id", "The id.", ""),
    (
        "integrations",
        "The org's accounts with other systems, under the key of each.",
        "",
    ),
    (
        "invite",
        "The INVITE that began the call, as it was sent; the last one, if the caller sent several.",
        "",
    ),
    ("items", "The items of the page.", ""),
    ("kid", "The key's id, as tokens name it.", ""),
    (
        "krisp_enabled",
        "Whether the runtime is asked to remove noise from the call's audio: its INVITE carries `X-PLATFORM-KRISP-ENABLED: true`, with the deployment's own prefix. Trunkline itself filters nothing.",
        "",
    ),
    ("kty", "The type of key: `OKP`.", ""),
    ("language", "A language, as BCP 47 writes it.", r#""en-GB""#),
    (
        "last_used_at",
        "When the key was last used; `null` if never.",
        "",
    ),
    ("limit", "Maximum number of calls to route.", ""),
    (
        "max_concurrent_calls",
        "Maximum number of concurrent calls; `null`: no limit of its own.",
        "10",
    ),
    (
        "max_duration_s",
        "Maximum duration of the call after its answer, in seconds.",
        "3600",
    ),
    (
        "mcp_access",
        "Servers that the agent may use on the contact's behalf.",
        "",
    ),
    ("message", "What is wrong, in a sentence.", ""),
    ("name", "A name for people.", r#""Front desk""#),
    (
        "national_form",
        "It is the national form of the number, which the trunk doesn't accept.",
        "",
    ),
    ("near_misses", "Near misses of the routing decision.", ""),
    (
        "next_attempt_at",
        "Time of the next attempt; `null` if there is none.",
        "",
    ),
    ("number", "A phone number.", ""),
    ("numbers", "Changes to numbers.", ""),
    (
        "on_close",
        "What follows when the bot closes the WebSocket during a call: the call ends, or the next WebSocket of the list takes it.",
        "",
    ),
    ("org", "The org.", ""),
    (
        "outbound_trunk",
        "The trunk that the agent calls through.",
        "",
    ),
    (
        "outbound_trunk_id",
        "The trunk that the agent calls through; `null` if none.",
        "",
    ),
    (
        "outbound_trunks",
        "Number of outbound trunks that the org may have.",
        "",
    ),
    ("outcome", "The outcome.", ""),
    (
        "p_asserted_identity",
        "Whether the trunk's INVITEs carry `P-Asserted-Identity`.",
        "",
    ),
    ("password", "The password that the carrier gave.", ""),
    ("phone", "A phone number.", r#""+442071838750""#),
    ("phone_agent_id", "The agent that calls.", ""),
    ("phone_number", "A phone number in E.164 form.", ""),
    ("phone_number_id", "The number's id.", ""),
    ("phone_number_ids", "Ids of numbers of the org.", ""),
    (
        "phone_numbers",
        "Phone numbers in E.164 form.",
        r#"["+442071838750"]"#,
    ),
    (
        "port",
        "A port; `null` for the transport's own and for SRV records.",
        "5060",
    ),
    (
        "protocol",
        "Format of a bot's messages: Twilio's bidirectional Media Streams, or Telnyx' media streaming.",
        "",
    ),
    ("reason", "Reason of the end, as a stable code.", ""),
    ("reasons", "Reasons of the handoff.", ""),
    (
        "refer_headers_in_uri",
        "Whether a REFER's context stands in the URI of `Refer-To` as well as in headers.",
        "",
    ),
    (
        "refer_host",
        "The host of `Refer-To`; `null` for the PBX's own.",
        "",
    ),
    (
        "refer_to_format",
        "How `Refer-To` names a phone number.",
        "",
    ),
    (
        "register",
        "Whether this trunk registers with the carrier.",
        "",
    ),
    ("registered_at", "When it was registered.", ""),
    (
        "registrations",
        "Number of the org's outbound trunks that register with their carriers.",
        "",
    ),
    ("requested_at", "When it was asked for.", ""),
    (
        "requests_per_minute",
        "Requests per minute for all keys of the org together.",
        "",
    ),
    ("response", "The final response to the INVITE.", ""),
    ("retention", "Days after which data is deleted.", ""),
    ("revoked_at", "When the key was revoked.", ""),
    ("ringing_at", "When it rang; `null` if it hasn't.", ""),
    (
        "ringing_timeout_s",
        "Maximum time that the call rings, in seconds.",
        "30",
    ),
    ("role_ids", "Ids of the roles that the login gets.", ""),
    (
        "rtp_from_any_address",
        "Whether RTP that ends at Trunkline, as the echo agent's, may come from another address than that of SDP or of the call's signalling, where SDP names a private one.",
        "",
    ),
    ("runtime", "Software that answers for the agent.", ""),
    ("runtime_call_id", "The `Call-ID` of the runtime's leg.", ""),
    ("scopes", "Scopes of the key.", ""),
    (
        "secret",
        "The secret that signs requests to the receiver. It is shown only this once.",
        "",
    ),
    ("sent_at", "When the INVITE was sent.", ""),
    ("sentiment", "Sentiment of the person.", ""),
    ("server_ids", "Ids of the servers.", ""),
    (
        "session_id",
        "The session's id, as headers and events carry it.",
        "",
    ),
    (
        "session_token",
        "Whether the runtime gets `X-PLATFORM-SESSION-TOKEN`, which opens the session's context.",
        "",
    ),
    ("sessions_days", "Days for which sessions are kept.", ""),
    (
        "short",
        "Digits of the number that are missing at the end.",
        "",
    ),
    (
        "sip_code",
        "The final SIP status; `null` where there was none.",
        "",
    ),
    ("sip_endpoint", "Where the PBX sends its calls.", ""),
    ("source", "The address that it came from.", ""),
    ("start_date", "Start of the period.", ""),
    ("started_at", "When it began.", ""),
    ("state", "State.", ""),
    ("status", "State.", ""),
    ("statusCode", "The HTTP status.", ""),
    (
        "status_callback_events",
        "Stages of a call that are posted; without it its end alone.",
        r#"["initiated", "completed"]"#,
    ),
    ("step", "Step that decided.", ""),
    (
        "streaming_requests_per_minute",
        "Event streams per minute that all keys of the org together may open.",
        "",
    ),
    ("success", "Always `true`.", ""),
    (
        "summary",
        "Summary in a sentence or two.",
        r#""Wants to change the delivery address of order 4711.""#,
    ),
    ("text", "The text.", ""),
    ("to", "The number that is called.", r#""+442071838751""#),
    (
        "to_e164",
        "The called number in E.164 form; `null` where it can't be read as one.",
        "",
    ),
    ("to_number", "The called number as the peer sent it.", ""),
    (
        "to_registered",
        "Whether the trunk's calls go to the PBX that has registered with the org's inbound trunk.",
        "",
    ),
    ("token", "The token.", ""),
    ("took_ms", "Milliseconds that it took.", ""),
    ("trail", "Routing steps, in order.", ""),
    ("transfer_id", "The transfer's id.", ""),
    (
        "transfer_way",
        "Method of transfers: `refer` (bridged if the PBX refuses), `bridge`, or `auto`.",
        r#""auto""#,
    ),
    ("transport", "`udp`, `tcp` or `tls`.", ""),
    ("trunk", "Changes to the trunk.", ""),
    ("trunk_id", "The trunk's id.", ""),
    ("type", "Type of the object.", ""),
    ("types", "Types of events to send; empty for all.", ""),
    (
        "unassigned",
        "The number is the org's, and no agent has it.",
        "",
    ),
    ("updated_at", "When it was last changed.", ""),
    (
        "url",
        "An address on the web.",
        r#""https://example.com/hook""#,
    ),
    ("use", "What the key is for: `sig`.", ""),
    (
        "use_org_knowledgebase",
        "Whether the agent answers from the org's knowledge base.",
        "",
    ),
    (
        "user_agent",
        "The peer's `User-Agent`; `null` where it sent none.",
        "",
    ),
    ("user_key", "The user's key.", ""),
    ("username", "The user name that the carrier gave.", ""),
    ("value", "The number or URI.", ""),
    (
        "verified",
        "Whether the number is known to be the org's.",
        "",
    ),
    (
        "verified_at",
        "When the number was verified; `null` before.",
        "",
    ),
    (
        "via",
        "Where a bridge calls the destination: `pbx`, the PBX that called first, or `trunk`, the agent's outbound trunk.",
        r#""trunk""#,
    ),
    (
        "voice_id",
        "The voice that the agent speaks with; `null` for the runtime's own.",
        "",
    ),
    (
        "wake",
        "Moment of an outbound call at which the WebSocket is opened.",
        "",
    ),
    ("way", "The method of the transfer.", ""),
    ("webhook_id", "The webhook's id.", ""),
    ("webhooks", "Number of webhooks that the org may have.", ""),
    (
        "website",
        "The org's website.",
        r#""https://bakery.example""#,
    ),
    (
        "widget_token",
        "The token that a web page identifies the org with.",
        "",
    ),
    ("x", "The public key in base64url.", ""),
];

/// Returns the description of a property, and an example as JSON.
pub(super) fn of(property: &str) -> Option<(&'static str, Option<&'static str>)> {
    let found = WORDS.binary_search_by_key(&property, |(name, ..)| name);
    let (_, description, example) = WORDS.get(found.ok()?)?;
    Some((description, (!example.is_empty()).then_some(*example)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_in_order_and_their_examples_are_json() {
        assert!(WORDS.is_sorted_by_key(|(name, ..)| name));
        for (name, _, example) in WORDS {
            let json = serde_json::from_str::<serde_json::Value>(example);
            assert!(example.is_empty() || json.is_ok(), "{name}: {example}");
        }
    }
}
