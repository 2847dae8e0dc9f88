//! `/phone/names`: names of the org's objects. Lists of calls and usage name agents and trunks by their ids, of which this makes names; and a choice
//! among many finds them by a part of the name.

use std::borrow::Cow;

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use trunkline_store::names::{self, NamedKind, ObjectName};
use uuid::Uuid;

use super::OF_ORG;
use crate::api::caller::Caller;
use crate::api::field_type::{id, shown};
use crate::api::operations::Operations;
use crate::api::query::{Query, text_schema};
use crate::api::{Api, ApiError};

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Phone agents", OF_ORG);
    of.get(
        "/phone/names",
        list,
        "listNames",
        "Names of agents, numbers, trunks and destinations, by their ids or by a part of the name",
        |op| {
            let ids = json!({"type": "string", "pattern": IDS_PATTERN});
            op.note("Those names come first that begin with `search`. Ids of no object of the org are left out; without `ids` the newest 10,000 objects of each kind are searched, and all for one whose whole name is `search`.")
                .query("ids", ids, "Only these objects: up to 100 ids, separated by commas.")
                .query("kind", json!({"type": "string", "enum": NamedKind::ALL.map(NamedKind::as_str)}), "Only objects of this kind.")
                .query("search", text_schema(), "Only names with this text, in any case.")
                .gives::<NamesView>(200)
        },
    );
}

/// Ids in one request.
const MAX_IDS: usize = 100;
/// Regular expression for what [`ids`] reads.
const IDS_PATTERN: &str = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(,[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}){0,99}$";
/// Names that a search answers.
const MAX_FOUND: usize = 20;

/// Names of objects.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Names")]
pub(crate) struct NamesView {
    pub(crate) items: Vec<NameView>,
    /// True if more objects were found than are listed.
    has_more: bool,
}

/// Name of an object.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ObjectName")]
pub(crate) struct NameView {
    pub(crate) id: Uuid,
    /// `agent`, `destination`, `number` or `outbound_trunk`.
    kind: Cow<'static, str>,
    /// The name; of a number the number itself.
    pub(crate) name: String,
}

impl NameView {
    pub(crate) fn new(kind: NamedKind, object: ObjectName) -> Self {
        Self {
            id: object.id,
            kind: kind.as_str().into(),
            name: object.name,
        }
    }
}

/// `GET /phone/names?ids&kind&search`
async fn list(
    State(api): State<Api>,
    caller: Caller,
    mut query: Query,
) -> Result<Json<NamesView>, ApiError> {
    let ids = query.read("ids", ids);
    let kind = query.one_of("kind", &NamedKind::ALL.map(NamedKind::as_str));
    let search = query.text("search").unwrap_or_default();
    query.finish()?;

    let org = caller.org;
    let is_wanted = |known: &NamedKind| kind.as_deref().is_none_or(|kind| kind == known.as_str());
    let kinds: Vec<NamedKind> = NamedKind::ALL.into_iter().filter(is_wanted).collect();
    // All that were asked for by their ids are answered.
    let most = ids.as_ref().map_or(MAX_FOUND, Vec::len);
    let found = api.read_of(org, move |tx| {
        let objects = match ids {
            Some(ids) => names::of_ids(tx, org, &kinds, &ids)?,
            None => names::searched(tx, org, &kinds, &search)?,
        };
        Ok(names::with_text(objects, &search))
    });

    let found = found.await?;
    let has_more = found.len() > most;
    let items = found.into_iter().take(most);
    Ok(Json(NamesView {
        items: items
            .map(|(kind, object)| NameView::new(kind, object))
            .collect(),
        has_more,
    }))
}

fn ids(text: &str) -> Result<Vec<Uuid>, String> {
    let ids: Result<Vec<Uuid>, String> = text
        .split(',')
        .map(|text| id(text).ok_or_else(|| format!("{} is not an id", shown(text))))
        .collect();
    let ids = ids?;
    match ids.len() > MAX_IDS {
        true => Err(format!("expected at most {MAX_IDS} ids")),
        false => Ok(ids),
    }
}
