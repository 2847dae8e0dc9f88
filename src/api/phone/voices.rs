//! `/phone/voices`: voices for agents, as the operator lists them.

use axum::extract::State;
use serde_json::{Value, json};

use super::OF_ORG;
use crate::api::caller::Caller;
use crate::api::field_type::{FieldType, shown};
use crate::api::operations::Operations;
use crate::api::page::{self, Page};
use crate::api::query::{Query, text_schema};
use crate::api::{Api, ApiError};
use crate::config::Voice;

pub(super) fn operations(api: &mut Operations<'_>) {
    let _voices = &api.config().phone.voices;
    let mut of = api.area("Phone agents", OF_ORG);
    of.get(
        "/phone/voices",
        list,
        "listVoices",
        "The voices that agents may have",
        |op| {
            op.query(
                "language",
                text_schema(),
                "Only voices of this language code.",
            )
            .lists::<Voice>()
        },
    );
}

/// `GET /phone/voices?limit&cursor`, in the operator's order. The cursor is the last voice seen.
pub(crate) async fn list(
    State(api): State<Api>,
    _: Caller,
    mut query: Query,
) -> Result<Page<Voice>, ApiError> {
    let language = query.text("language");
    let is_wanted =
        |voice: &&Voice| language.is_none() || voice.language.as_deref() == language.as_deref();
    let voices = api.config().phone.voices.iter().filter(is_wanted);
    let voices: Vec<Voice> = voices.cloned().collect();

    let limit = page::read_limit(&mut query) as usize;
    // Sought among the voices of the language: a cursor of another language names none of them and is refused.
    let start = query.read("cursor", |last| {
        let place = voices.iter().position(|voice| *voice.id == *last);
        place.map_or_else(|| Err(page::NO_CURSOR.to_owned()), |place| Ok(place + 1))
    });

    query.finish()?;
    let rest = &voices[start.unwrap_or(0)..];
    let items = &rest[..rest.len().min(limit)];
    let more = items.len() < rest.len();
    Ok(Page {
        next: items
            .last()
            .filter(|_| more)
            .map(|voice| voice.id.to_string()),
        items: items.to_vec(),
        total: voices.len() as u64,
        total_is_bounded: false,
    })
}

/// Type of a voice's id.
#[derive(Copy, Clone, Debug)]
pub(super) struct VoiceId<'a>(pub(super) &'a [Voice]);

impl FieldType for VoiceId<'_> {
    type Read = String;

    fn schema(&self) -> Value {
        json!({"type": "string", "description": "The id of a voice that `GET /phone/voices` lists."})
    }

    fn read(&self, value: Value, path: &str, faults: &mut Vec<String>) -> Option<String> {
        let known = |id: &str| self.0.iter().any(|voice| *voice.id == *id);

        match value {
            Value::String(id) if known(&id) => Some(id),
            Value::String(id) => {
                let id = shown(&id);
                faults.push(format!(
                    "{path}: {id} is none of the voices that GET /phone/voices lists"
                ));
                None
            }
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_) => {
                faults.push(format!("{path}: expected the id of a voice"));
                None
            }
        }
    }
}
