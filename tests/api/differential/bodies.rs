//! An org with one of everything, and a good body for each operation that takes one.

use serde_json::{Value, json};
use trunkline_model::record::Fact;
use trunkline_routing::Facts;
use trunkline_store::partners;
use uuid::Uuid;

use crate::calls::bare;
use crate::test_api::{NOW, TestApi, arc, done, id_of};

/// A call of the org, refused long ago.
const CALL: Uuid = Uuid::from_u128(0xca11);

/// The INVITE of a capture.
const INVITE: &str = "INVITE sip:+442071838750@192.0.2.10 SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK1\r\n\
    From: <sip:a@192.0.2.1>;tag=1\r\nTo: <sip:b@192.0.2.10>\r\nCall-ID: 1\r\nCSeq: 1 INVITE\r\nContact: <sip:a@192.0.2.1>\r\n\
    Max-Forwards: 70\r\nContent-Length: 0\r\n\r\n";

/// Objects that the requests name.
pub(super) struct Fixtures {
    partner: String,
    token: String,
    org: String,
    /// An org that may be suspended.
    spare: String,
    agent: String,
    number: String,
    trunk: String,
    destination: String,
    prompt: String,
    contact: String,
    webhook: String,
}

impl Fixtures {
    pub(super) async fn create(api: &TestApi) -> Self {
        let partner = api.reseller("Reseller").await;

        // Set before the partner's first request, which caches it.
        done(&api.store, move |tx, _| {
            partners::let_verify(tx, partner.id, true, NOW)
        })
        .await;
        let mut orgs = Vec::new();
        for name in ["A", "B"] {
            let made = api.post("/partner/v1/orgs", &partner.key, json!({"name": name}));
            orgs.push(id_of(&made.await.with(201)));
        }

        let [org, spare] = orgs.try_into().expect("two orgs");
        let org_id: Uuid = org.parse().expect("an id");
        let (_, token) = api.key(org_id, &trunkline::api::SCOPES).await;
        let agent = api.agent(org_id, "Agent").await.to_string();
        let number = api.number(org_id, "+442071838750").await.id.to_string();
        let made = |path: &'static str, body: Value| {
            let token = token.clone();
            async move { api.post(path, &token, body).await.json() }
        };
        made("/phone/sip/inbound-trunk", json!({})).await;
        let started = bare(CALL, org_id, &Facts::default());
        api.project(&[Fact::Started(arc(started))]).await;
        let trunk = made("/phone/sip/outbound-trunks", outbound_trunk()).await;
        let destination = made("/phone/sip/transfer-destinations", destination()).await;
        let prompt = made("/phone/prompts", prompt()).await;
        let contact = made(
            "/widget/authenticate-user",
            json!({"email": "eve@example.com"}),
        )
        .await;
        let webhook = made("/webhooks", webhook()).await;

        Self {
            partner: partner.key,
            org,
            spare,
            agent,
            number,
            trunk: id_of(&trunk),
            destination: id_of(&destination),
            prompt: id_of(&prompt),
            contact: id_of(&contact["contact"]),
            webhook: id_of(&webhook),
            token,
        }
    }

    pub(super) fn credential(&self, is_partners: bool) -> &str {
        if is_partners {
            &self.partner
        } else {
            &self.token
        }
    }

    /// Makes an org that nothing else needs, and returns its path.
    pub(super) async fn org_to_delete(&self, api: &TestApi) -> String {
        let org = json!({"name": "Gone"});
        let made = api.post("/partner/v1/orgs", &self.partner, org).await;
        format!("/partner/v1/orgs/{}", id_of(&made.with(201)))
    }

    /// Returns the path of an operation with ids that exist.
    pub(super) fn filled(&self, path: &str, operation: &str) -> String {
        let org = match operation {
            "rotateWidgetToken" | "suspendOrg" | "resumeOrg" | "restoreOrg" | "updateOrgLimits" => {
                &self.spare
            }
            _ => &self.org,
        };
        let call = CALL.to_string();
        let ids = [
            ("{orgId}", org),
            ("{phoneNumberId}", &self.number),
            ("{agent_id}", &self.agent),
            ("{number_id}", &self.number),
            ("{trunk_id}", &self.trunk),
            ("{destination_id}", &self.destination),
            ("{prompt_id}", &self.prompt),
            ("{contact_id}", &self.contact),
            ("{webhook_id}", &self.webhook),
            ("{call_id}", &call),
        ];

        ids.iter()
            .fold(path.to_owned(), |path, (name, id)| path.replace(name, id))
    }

    /// Good bodies of an operation: where it has several forms, one of each.
    pub(super) fn bodies(&self, operation: &str) -> Vec<Value> {
        match operation {
            "createOrg" | "updateOrg" => vec![
                json!({"name": "A", "website": "https://a.example/b", "language": "fr", "ai_instructions": "Be\nkind."}),
            ],
            "createOrgKey" => vec![
                json!({"name": "A", "scopes": ["calls:read"], "expires_at": "2036-01-31T12:00:00Z"}),
            ],

            "createLoginLink" => {
                vec![json!({"email": "ann@example.com", "name": "Ann", "role_ids": []})]
            }
            "createKey" => vec![
                json!({"name": "A", "scopes": ["phone:read", "calls:read"], "expires_at": "2036-01-31T12:00:00Z"}),
            ],

            "createAgent" | "updateAgent" => agents(),
            "confirmNumber" => vec![json!({"code": "123456"})],
            "updateOrgLimits" => vec![json!({
                "agents": 5, "api_keys": 5, "destinations": 5, "outbound_trunks": 5, "registrations": 5, "webhooks": 5,
                "contacts": 5,
                "numbers": 5,
                "requests_per_minute": 60, "streaming_requests_per_minute": 60,
            })],

            "createNumber" => vec![json!({"phone_number": "+442071838751"})],
            "placeCall" => vec![json!({
                "phone_agent_id": self.agent, "phone_number": "+442071838750", "metadata": {"a": 1},
                "ringing_timeout_s": 30, "max_duration_s": 60,
            })],
            "addInboundNumber" => vec![json!({"phone_number_id": self.number})],
            "setInboundNumbers" => vec![json!({"phone_number_ids": [self.number]})],
            "setOutboundTrunk" => vec![json!({"trunk_id": self.trunk}), json!({"trunk_id": null})],

            "assignDestination" => vec![
                json!({"destination_id": self.destination}),
                json!({"create": destination()}),
            ],
            "createInboundTrunk" | "updateInboundTrunk" => vec![inbound_trunk()],
            "addTrunkNumbers" => vec![json!({"phone_numbers": ["+442071838750"]})],

            "createOutboundTrunk" => vec![
                outbound_trunk(),
                json!({"name": "P", "to_registered": true, "caller_number": "+442071838750"}),
                json!({
                    "name": "L", "host": "sip.example.com", "username": "a", "password": "s3cret-enough", "auth_realm": "r",
                    "register": true, "caller_number": "+442071838750", "digest_require_qop": true, "transfer_way": "auto",
                }),
            ],
            "renameOutboundTrunk" => vec![
                json!({"name": "C", "transfer_way": "auto", "digest_require_qop": false, "auth_realms": []}),
            ],

            "explainInvite" => vec![json!({
                "invite": INVITE, "response": "SIP/2.0 480 Temporarily Unavailable\r\nVia: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK1\r\n\
                    From: <sip:a@192.0.2.1>;tag=1\r\nTo: <sip:b@192.0.2.10>;tag=2\r\nCall-ID: 1\r\nCSeq: 1 INVITE\r\nContent-Length: 0\r\n\r\n",
                "source": "192.0.2.1:5060", "sent_at": "2026-01-31T12:00:00Z",
            })],
            "replayRoutes" => vec![json!({
                "limit": 10, "start_date": "2026-01-01", "end_date": "2026-01-31",
                "changes": {
                    "agents": [{"id": self.agent, "enabled": true, "max_concurrent_calls": 5, "type": "inbound", "deleted": false}],
                    "numbers": [{"phone_number": "+442071838750", "agent_id": self.agent, "deleted": false}],
                    "trunk": {"default_country": "GB", "phone_numbers": ["+442071838750"]},
                },
            })],

            "testRoute" => vec![
                json!({"to": "+442071838750", "from": "+442071838751", "agent_id": "x", "busy": [self.agent]}),
            ],

            "createPrompt" => vec![prompt()],
            "createDestination" => vec![
                destination(),
                json!({"name": "Line", "type": "phone", "value": "+442071838750", "via": "trunk"}),
            ],
            "updateDestination" => vec![json!({"name": "Desk", "via": "pbx"})],

            "reportHandoff" => vec![json!({
                "session_id": "s", "summary": "a\nb", "explanation": "b", "reasons": ["prohibited_topic"], "sentiment": "angry",
            })],

            "createWebhook" | "updateWebhook" => vec![webhook()],
            "authenticateUser" => vec![contact(), json!({"phone": "+442071838750"})],
            "authenticateUserByExternalId" => {
                let mut identified = contact();
                identified["external_id"] = json!("7");
                vec![identified]
            }
            "updateContact" => vec![contact()],

            "transferCall" => {
                let report = json!({"summary": "a\nb", "explanation": "b", "reasons": ["prohibited_topic"], "sentiment": "angry"});
                let with = |name: &str, value: &str| {
                    let mut body = report.clone();
                    body[name] = json!(value);
                    body
                };
                vec![
                    with("destination", "Desk"),
                    with("destination_id", &self.destination),
                ]
            }

            "hangUpCall"
            | "holdCall"
            | "resumeCall"
            | "verifyNumber"
            | "verifyOrgNumber"
            | "unverifyOrgNumber"
            | "rotateWidgetToken"
            | "suspendOrg"
            | "resumeOrg"
            | "restoreOrg"
            | "rotateTrunkCredentials"
            | "syncTrunkNumbers"
            | "rotateWebhookSecret"
            | "createBotToken"
            | "promoteBotToken" => {
                vec![json!({})]
            }
            operation => panic!("{operation} takes a body: give a good one"),
        }
    }
}

fn agents() -> Vec<Value> {
    let mut sip = json!({
        "name": "Reception", "type": "inbound", "language": "en-GB", "first_message": "Hello\nyou", "use_org_knowledgebase": true,
        "handoff_phone_number": "+442071838750", "actionIds": ["a"], "enabled": true, "max_concurrent_calls": 5, "voice_id": "nova",
        "runtime": {
            "type": "sip", "uri": "sip:a@agents.example.com", "failover_on": ["404"], "session_token": true, "headers": {"X-A": "b"},
            "fallbacks": ["sip:b@agents.example.com", "wss://bot.example.com/ws"], "username": "u", "password": "p", "protocol": "telnyx",
        },
    });
    let full = sip.clone();
    sip["runtime"] = json!({"type": "echo"});
    sip["voice_id"] = json!(null);
    vec![full, sip]
}

fn inbound_trunk() -> Value {
    json!({
        "name": "T", "phone_numbers": ["+442071838750"], "krisp_enabled": true, "allowed_addresses": ["192.0.2.0/30"],
        "default_country": "GB", "refer_to_format": "tel", "refer_host": "pbx.example.com", "refer_headers_in_uri": false,
        "transfer_way": "auto", "bridge_when_refer_fails": true, "max_concurrent_calls": 5, "rtp_from_any_address": true,
    })
}

fn outbound_trunk() -> Value {
    json!({
        "name": "C", "host": "sip.example.com", "port": 5060, "transport": "udp", "caller_number": "+442071838750",
        "p_asserted_identity": true, "from_host": "sip.example.com", "max_concurrent_calls": 5, "calls_per_second": 2,
    })
}

fn prompt() -> Value {
    json!({"name": "Welcome", "audio": crate::prompts::WAV})
}

fn destination() -> Value {
    json!({"name": "Desk", "type": "sip", "value": "sip:desk@pbx.example.com", "via": "pbx"})
}

fn webhook() -> Value {
    json!({
        "url": "https://hooks.example.com/x", "types": ["call.ended"], "description": "a", "enabled": true,
    })
}

fn contact() -> Value {
    json!({
        "email": "ann@example.com", "phone": "+442071838750", "name": "Ann", "avatar_url": "https://a.example/a.png", "language": "en",
        "customData": {"a": 1}, "chat_context": "a\nb", "mcp_access": {"server_ids": ["01995a3e-8f4e-7d3b-9a51-0c6f2b7e4d10"], "account_id": "7"},
        "http_action_overrides": {"headers": {"a": "b"}, "query_params": {}, "path_params": {}, "body_params": {}},
    })
}
