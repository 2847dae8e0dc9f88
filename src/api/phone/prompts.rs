//! `/phone/prompts`: audio that an org has uploaded for its built-in agents. A WAV file is converted once to what telephones play; a prompt
//! never changes.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::Serialize;
use trunkline_net::media::{Clip, wav};
use trunkline_store::{Kind, Prompt, prompts};
use uuid::Uuid;

use super::OF_ORG;
use crate::api::body::{Body, Fields};
use crate::api::caller::Caller;
use crate::api::field_type::{NAME, Parsed};
use crate::api::idempotency::once;
use crate::api::openapi::read_by;
use crate::api::operations::Operations;
use crate::api::page::{Page, Paging};
use crate::api::path::Named;
use crate::api::query::{Query, text_schema};
use crate::api::time::written;
use crate::api::{Api, ApiError, Success, accept};

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Prompts", OF_ORG);
    of.get(
        "/phone/prompts",
        list,
        "listPrompts",
        "The org's prompts, newest first",
        |op| {
            op.query("name", text_schema(), "Only the prompt of this name.")
                .lists::<PromptView>()
        },
    );

    of.post_once("/phone/prompts", once(create), "createPrompt", "Uploads a prompt of at most 60 s; it is converted once to what telephones play", |op| {
            op.note("Accepted are WAV files of PCM (8, 16, 24 and 32 bits), 32-bit floats, A-law and µ-law, with one channel or two, of 8 to 48 kHz. As µ-law of 8 kHz a minute fits into a body of 1 MiB.")
                .makes::<PromptView>(read_by(described))
        });
    of.get(
        "/phone/prompts/{prompt_id}",
        one,
        "showPrompt",
        "One prompt",
        |op| op.gives::<PromptView>(200),
    );

    of.get(
        "/phone/prompts/{prompt_id}/audio",
        audio,
        "downloadPrompt",
        "The audio as callers hear it: a WAV file of µ-law, 8 kHz",
        |op| {
            op.note("With `Accept: application/octet-stream` the same octets have that type.")
                .gives_text(200, WAV)
                .gives_text(200, OCTETS)
        },
    );

    of.delete(
        "/phone/prompts/{prompt_id}",
        delete,
        "deletePrompt",
        "Deletes a prompt that no agent plays",
        |op| op.may_refuse(&[409]).deletes(),
    );
}

/// Longest prompt.
pub(crate) const LONGEST: Duration = Duration::from_secs(60);

/// A prompt as the API shows it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Prompt")]
pub(crate) struct PromptView {
    id: Uuid,
    name: String,
    /// Length in milliseconds.
    duration_ms: u32,
    created_at: String,
}

impl From<Prompt> for PromptView {
    fn from(prompt: Prompt) -> Self {
        Self {
            id: prompt.id,
            name: prompt.name,
            // 8 kHz: eight samples in a millisecond.
            duration_ms: prompt.samples / 8,
            created_at: written(prompt.created_at),
        }
    }
}

/// A prompt to be made.
#[derive(Debug)]
pub(super) struct NewPrompt {
    name: String,
    file: Vec<u8>,
}

/// `POST /phone/prompts {name, audio}`: 201; 409 if the name is taken.
pub(crate) async fn create(
    State(api): State<Api>,
    caller: Caller,
    body: Body,
) -> Result<(StatusCode, Json<PromptView>), ApiError> {
    let NewPrompt { name, file } = described(body.fields()?)?;
    let clip = converted(file).await?;
    let made = api
        .write(move |tx, now| prompts::create(tx, caller.org, &name, clip.samples(), now))
        .await?;
    Ok((StatusCode::CREATED, Json(made.into())))
}

/// `GET /phone/prompts?limit&cursor`, newest first.
pub(crate) async fn list(
    State(api): State<Api>,
    caller: Caller,
    mut query: Query,
) -> Result<Page<PromptView>, ApiError> {
    let narrow = [query.text("name"), None];
    let paging = Paging::read(&mut query, "prompts", narrow);
    query.finish()?;
    paging
        .find(api.store(), caller.org, prompts::page, PromptView::from)
        .await
}

/// `GET /phone/prompts/{prompt_id}`
pub(crate) async fn one(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    query: Query,
) -> Result<Json<PromptView>, ApiError> {
    let id = named.id("prompt_id", Kind::Prompt)?;
    let prompt = api
        .read_inline(move |tx| prompts::by_id(tx, caller.org, id))
        .await?;
    query.finish()?;
    Ok(Json(prompt.into()))
}

/// `GET /phone/prompts/{prompt_id}/audio`: a WAV file of G.711 µ-law, as callers hear it.
pub(crate) async fn audio(
    State(api): State<Api>,
    caller: Caller,
    headers: HeaderMap,
    named: Named,
    query: Query,
) -> Result<Response, ApiError> {
    let id = named.id("prompt_id", Kind::Prompt)?;
    // Not inline: a minute of audio is too much for the thread of the request.
    let audio = api
        .store()
        .read(move |tx| prompts::audio(tx, caller.org, id))
        .await?;
    query.finish()?;

    // Clients that a generator made know octets, and not every audio type.
    let forms = [(WAV, WAV), (OCTETS, OCTETS)];
    let kind = accept::preferred(&headers, &forms).unwrap_or(WAV);
    let kind = (header::CONTENT_TYPE, kind);
    Ok(([accept::VARIES, kind], wav::write(&audio)).into_response())
}

/// `DELETE /phone/prompts/{prompt_id}`: 409 while an agent plays it.
pub(crate) async fn delete(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    query: Query,
) -> Result<Json<Success>, ApiError> {
    let id = named.id("prompt_id", Kind::Prompt)?;
    // An unknown prompt is 404, whatever the query.
    api.read_inline(move |tx| prompts::by_id(tx, caller.org, id))
        .await?;
    query.finish()?;
    api.write(move |tx, _| prompts::delete(tx, caller.org, id))
        .await?;
    Ok(Json(Success::DONE))
}

/// Types of the audio.
pub(super) const WAV: &str = "audio/wav";
const OCTETS: &str = "application/octet-stream";

/// WAV file in base64; the longest body bounds it.
const AUDIO: Parsed<Vec<u8>> = Parsed::new("a WAV file in base64", |text| {
    STANDARD.decode(text).ok()
})
.like("^[A-Za-z0-9+/]*={0,2}$")
.example(
    "UklGRjoAAABXQVZFZm10IBIAAAAHAAEAQB8AAEAfAAABAAgAAABmYWN0BAAAAAgAAABkYXRhCAAAAP//////////",
);

pub(super) fn described(mut fields: Fields) -> Result<NewPrompt, ApiError> {
    let name = fields.required("name", NAME);
    let file = fields.required("audio", AUDIO);
    fields.done(|| {
        Some(NewPrompt {
            name: name?,
            file: file?,
        })
    })
}

/// Converts a WAV file, off the threads that serve requests.
async fn converted(file: Vec<u8>) -> Result<Clip, ApiError> {
    let read = tokio::task::spawn_blocking(move || wav::read(&file, LONGEST)).await;
    let read = read.map_err(|panic| ApiError::Broke(Box::new(panic)))?;
    read.map_err(|fault| ApiError::bad(format!("audio: {fault}")))
}
