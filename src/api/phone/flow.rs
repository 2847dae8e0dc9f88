//! Field `flow` of a runtime: the steps of a built-in agent. Its faults are named by their paths from the body on.

use serde_json::{Value, json};
use trunkline_model::builtin::{
    Bundled, CALL_SECONDS, ECHO_DELAY, ECHO_SECONDS, Flow, LONGEST_DESTINATION, LONGEST_TEXT,
    MENU_RETRIES, MENU_SECONDS, MOST_STEPS,
};

use crate::api::field_type::FieldType;

/// Steps of a built-in agent.
#[derive(Copy, Clone, Debug)]
pub(super) struct Steps;

impl FieldType for Steps {
    type Read = Box<Flow>;

    fn schema(&self) -> Value {
        let says = |text: &str, schema: &Value| {
            let mut schema = schema.clone();
            schema["description"] = json!(text);
            schema
        };

        let name = json!({"type": "string", "pattern": "^[a-z0-9_-]{1,40}$"});
        let next = says("Name of the step that follows.", &name);
        let otherwise = says(
            "Name of the step that follows where the caller gave no answer, or could not be handed off.",
            &name,
        );
        let number = |text: &str, range: std::ops::RangeInclusive<u32>, default: u32| {
            or_null(
                json!({"type": "integer", "minimum": range.start(), "maximum": range.end(), "default": default, "description": text}),
            )
        };

        let choices = json!({"type": "object", "propertyNames": {"pattern": r"^([0-9*#]|any)$"}, "additionalProperties": name,
            "description": "Step for each digit (`0` to `9`, `*`, `#`); `any` means all others."});
        let mut chosen = choices.clone();
        chosen["minProperties"] = json!(1);

        let prompt = says("Prompt to play.", &prompt_schema());
        let optional_prompt = or_null(prompt.clone());
        let invalid = or_null(says(
            "Prompt after a digit without a step.",
            &prompt_schema(),
        ));

        let destination = or_null(
            json!({"type": "string", "minLength": 1, "maxLength": LONGEST_DESTINATION,
            "description": "Name of the destination; without one, the first of the agent."}),
        );

        let step = |action: &str, properties: Value, required: &[&str]| {
            let mut properties = properties;
            properties["do"] = json!({"const": action, "description": "What the step does."});
            let required: Vec<_> = ["do"].iter().chain(required).collect();
            json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
        };
        let skippable =
            or_null(json!({"type": "boolean", "description": "A digit ends the prompt."}));

        let steps = json!({"oneOf": [
            step("play", json!({"prompt": prompt, "skippable": skippable, "next": next}), &["prompt", "next"]),
            step("menu", json!({"prompt": optional_prompt, "choices": chosen, "timeout_s": number("Seconds to wait for a digit.", MENU_SECONDS, 5),
                "retries": number("Times that it asks again.", MENU_RETRIES, 2), "invalid": invalid, "otherwise": otherwise}),
                &["choices", "otherwise"]),
            step("echo", json!({"delay_ms": number("Milliseconds by which the echo comes late.", ECHO_DELAY, 500), "choices": or_null(choices),
                "longest_s": number("Seconds after which the next step follows.", ECHO_SECONDS, 300), "next": next}), &["next"]),
            step("say_digits", json!({"next": next}), &["next"]),
            step("transfer", json!({"destination": destination, "otherwise": otherwise}), &["otherwise"]),
            step("next_runtime", json!({}), &[]),
            step("hang_up", json!({}), &[]),
        ]});

        json!({
            "type": "object",
            "description": "Steps of a built-in agent. Every step that is named exists, every step is reached from `start`, and every loop holds a menu or an echo.",
            "properties": {
                "start": says("Name of the first step.", &name),
                "longest_s": number("Seconds after which the agent hangs up.", CALL_SECONDS, 600),
                "steps": {"type": "object", "description": "Steps by their names.", "minProperties": 1, "maxProperties": MOST_STEPS,
                    "propertyNames": {"pattern": "^[a-z0-9_-]{1,40}$"}, "additionalProperties": steps},
            },
            "required": ["start", "steps"],
            "additionalProperties": false,
            "example": {"start": "hello", "steps": {"hello": {"do": "play", "prompt": {"bundled": "welcome"}, "next": "end"}, "end": {"do": "hang_up"}}},
        })
    }

    fn read(&self, value: Value, path: &str, faults: &mut Vec<String>) -> Option<Box<Flow>> {
        match Flow::read(&value) {
            Ok(flow) => Some(Box::new(flow)),
            Err(found) => {
                faults.extend(found.iter().map(|fault| format!("{path}{fault}")));
                None
            }
        }
    }
}

/// Returns the schema of a field that may be absent, where null counts as absent.
pub(super) fn or_null(mut schema: Value) -> Value {
    match schema.get_mut("oneOf") {
        Some(Value::Array(kinds)) => kinds.push(json!({"type": "null"})),
        Some(_) | None => schema["type"] = json!([schema["type"], "null"]),
    }
    schema
}

fn prompt_schema() -> Value {
    let bundled: Vec<_> = Bundled::ALL.iter().map(|(name, _)| name).collect();
    let one = |kind: &str, of: Value| json!({"type": "object", "properties": {kind: of}, "required": [kind], "additionalProperties": false});
    json!({"oneOf": [
        one("id", json!({"type": "string", "format": "uuid", "description": "Id of a prompt that the org has uploaded."})),
        one("text", json!({"type": "string", "minLength": 1, "maxLength": LONGEST_TEXT, "description": "Text to speak."})),
        one("bundled", json!({"enum": bundled, "description": "Name of a prompt that comes with Trunkline."})),
    ]})
}
