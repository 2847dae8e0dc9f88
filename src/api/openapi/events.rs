//! `webhooks` section of the OpenAPI document: the events sent to an org's receivers, from the schema published with
//! the docs.

use serde_json::{Map, Value, json};

use super::form::camel;

/// The schema of events as receivers get it.
const PUBLISHED: &str = include_str!("../../../docs/events.schema.json");

/// Schema of the data of each event, and its name in the document.
const DATA: [(&str, &str); 7] = [
    ("call", "CallEvent"),
    ("transfer", "TransferEvent"),
    ("registration", "TrunkRegisteredEvent"),
    ("loss", "TrunkLostEvent"),
    ("handoff", "HandoffEvent"),
    ("revocation", "KeyRevokedEvent"),
    ("verification", "NumberVerifiedEvent"),
];

/// Returns one entry per event type, and the schemas that the entries refer to.
pub(super) fn webhooks() -> (Map<String, Value>, Map<String, Value>) {
    let (mut webhooks, mut schemas) = (Map::new(), Map::new());
    let published: Value = serde_json::from_str(PUBLISHED).unwrap_or_default();
    for branch in published["oneOf"].as_array().into_iter().flatten() {
        let data = &branch["properties"]["data"]["$ref"];
        let data = data.as_str().unwrap_or_default();
        let named = DATA
            .iter()
            .find(|(definition, _)| data.strip_prefix("#/$defs/") == Some(*definition));
        let Some((definition, name)) = named else {
            continue;
        };

        let types = &branch["properties"]["type"]["enum"];
        schemas.insert(
            format!("{name}Data"),
            published["$defs"][*definition].clone(),
        );
        schemas.insert((*name).to_owned(), event(name, types));

        for kind in types.as_array().into_iter().flatten() {
            let kind = kind.as_str().unwrap_or_default();
            webhooks.insert(kind.to_owned(), webhook(kind, name));
        }
    }

    (webhooks, schemas)
}

fn event(name: &str, types: &Value) -> Value {
    json!({
        "type": "object",
        "properties": {
            "id": {"type": "string", "format": "uuid", "description": "The event's id, the same in every attempt."},
            "type": {"type": "string", "enum": types, "description": "What happened."},
            "timestamp": {"type": "string", "format": "date-time", "description": "When it happened."},
            "data": {"$ref": format!("#/components/schemas/{name}Data")},
        },
        "required": ["id", "type", "timestamp", "data"],
    })
}

fn webhook(kind: &str, schema: &str) -> Value {
    let header = |name: &str, description: &str| json!({"in": "header", "name": name, "required": true, "description": description, "schema": {"type": "string"}});

    json!({"post": {
        "operationId": format!("on{}", camel(kind)),
        "summary": format!("`{kind}`, sent to the webhooks that take it"),
        "tags": ["Webhooks"],
        "security": [],
        "parameters": [
            header("webhook-id", "The event's id."),
            header("webhook-timestamp", "Seconds since 1970 of this attempt."),
            header("webhook-signature", "`v1,` and the base64 of HMAC-SHA-256 over `{webhook-id}.{webhook-timestamp}.{body}`; two with a blank in between while two secrets sign."),
        ],
        "requestBody": {
            "required": true,
            "content": {"application/json": {"schema": {"$ref": format!("#/components/schemas/{schema}")}}},
        },
        "responses": {
            "2XX": {"description": "The event has arrived. Any other answer, or none within `webhooks.timeout_s`, is tried again."},
        },
    }})
}

#[cfg(test)]
mod tests {
    use trunkline_store::EventType;

    use super::*;

    #[test]
    fn every_type_of_event_is_a_webhook() {
        let (webhooks, schemas) = webhooks();
        let known = EventType::ALL.map(EventType::as_str);
        let described: Vec<&str> = webhooks.keys().map(String::as_str).collect();
        let mut known = Vec::from(known);
        known.sort_unstable();
        assert_eq!(described, known);
        assert_eq!(schemas.len(), 2 * DATA.len());
    }
}
