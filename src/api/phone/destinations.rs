//! `/phone/sip/transfer-destinations` and `/phone/sip/agents/{agent_id}/transfer-destinations`: destinations that
//! callers can be transferred to.
//!
//! Names are unique in the org, ignoring case. An agent can transfer to its assigned destinations only.

use std::borrow::Cow;

use std::sync::LazyLock;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use trunkline_model::settings::{TransferTarget, Via};
use trunkline_store::{
    Destination, DestinationChange, Kind, Narrow, NewDestination, Tx, Versioned, destinations,
};
use uuid::Uuid;

use super::sip_uri::{SIP_URI, may_call};
use super::{OF_ORG, agents};
use crate::api::body::{Body, Fields};
use crate::api::caller::Caller;
use crate::api::field_type::{Choice, FieldType as _, ID, NAME, NUMBER, Text};
use crate::api::idempotency::once;
use crate::api::object::Object;
use crate::api::openapi::{Operation, read_by};
use crate::api::operations::Operations;
use crate::api::page::{Page, Paging};
use crate::api::path::Named;
use crate::api::query::{Query, text_schema};
use crate::api::time::written;
use crate::api::version::{HasVersion, IfMatch, Tagged};
use crate::api::{Api, ApiError, Success};

/// Filters of a list of destinations.
fn narrowed_destinations(op: Operation<'_>) -> Operation<'_> {
    op.query(
        "type",
        json!({"type": "string", "enum": ["phone", "sip"]}),
        "Only destinations of this type.",
    )
    .query("name", text_schema(), "Only destinations of this name.")
}

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Transfer destinations", OF_ORG);
    of.get(
        "/phone/sip/transfer-destinations",
        list,
        "listDestinations",
        "The org's transfer destinations, newest first",
        |op| narrowed_destinations(op).lists::<DestinationView>(),
    );

    of.post_once(
        "/phone/sip/transfer-destinations",
        once(create),
        "createDestination",
        "Creates a destination; names are unique in the org, ignoring case",
        |op| op.versioned().makes::<DestinationView>(read_by(described)),
    );

    of.get(
        "/phone/sip/transfer-destinations/{destination_id}",
        one,
        "showDestination",
        "One destination",
        |op| op.gives_versioned::<DestinationView>(),
    );

    of.patch(
        "/phone/sip/transfer-destinations/{destination_id}",
        update,
        "updateDestination",
        "Changes a destination; another `type` needs its `value`",
        |op| {
            let body = read_by(|fields| change(fields, &ANY));
            let op = op.may_refuse(&[409]).of_version();
            op.body(body).gives_versioned::<DestinationView>()
        },
    );

    of.delete(
        "/phone/sip/transfer-destinations/{destination_id}",
        delete,
        "deleteDestination",
        "Deletes a destination and its assignments",
        |op| op.of_version().deletes(),
    );

    let mut of = api.area("Assignments", OF_ORG);
    of.get(
        "/phone/sip/agents/{agent_id}/transfer-destinations",
        of_agent,
        "listAgentDestinations",
        "The agent's destinations, newest first",
        |op| narrowed_destinations(op).lists::<DestinationView>(),
    );

    of.post_once(
        "/phone/sip/agents/{agent_id}/transfer-destinations",
        once(assign),
        "assignDestination",
        "Assigns a destination: 200 for an existing one, 201 for a new one",
        |op| {
            let op = op
                .of_version()
                .versioned()
                .makes::<DestinationView>(read_by(assigned));
            op.gives::<DestinationView>(200)
        },
    );

    of.delete(
        "/phone/sip/agents/{agent_id}/transfer-destinations/{destination_id}",
        unassign,
        "unassignDestination",
        "Ends the assignment of a destination",
        |op| op.of_version().deletes(),
    );
}

/// A transfer destination as the API shows it.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Destination")]
pub(crate) struct DestinationView {
    pub(crate) id: Uuid,
    pub(crate) name: String,
    /// `phone` or `sip`.
    pub(crate) r#type: Cow<'static, str>,
    /// An E.164 number or a SIP URI.
    pub(crate) value: String,
    /// Way by which a bridge calls a phone number: `pbx` for the PBX that called, or `trunk` for the agent's outbound trunk.
    pub(crate) via: Via,
    created_at: String,
    pub(crate) updated_at: String,
}

impl HasVersion for DestinationView {
    fn version(&self) -> &str {
        &self.updated_at
    }
}

impl From<Destination> for DestinationView {
    fn from(destination: Destination) -> Self {
        Self {
            id: destination.id,
            name: destination.name,
            r#type: destination.target.kind().into(),
            value: destination.target.value().to_owned(),
            via: destination.via,
            created_at: written(destination.created_at),
            updated_at: written(destination.updated_at),
        }
    }
}

/// Field `type`, which decides what `value` is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Type {
    Phone,
    Sip,
}

const TYPE: Choice<Type> = Choice(&[("phone", Type::Phone), ("sip", Type::Sip)]);
const VIA: Choice<Via> = Choice(&[("pbx", Via::Pbx), ("trunk", Via::Trunk)]);

/// `POST /phone/sip/transfer-destinations {name, type, value}`: 201; 409 if the name is taken.
pub(crate) async fn create(
    State(api): State<Api>,
    caller: Caller,
    body: Body,
) -> Result<(StatusCode, Tagged<DestinationView>), ApiError> {
    let new = described(body.fields()?)?;
    may_call(&api, caller.org, uri_of(VALUE, &new.target)).await?;
    let made = api
        .write(move |tx, now| destinations::create(tx, caller.org, &new, now))
        .await?;
    Ok((StatusCode::CREATED, Tagged::new(made.into())))
}

/// `GET /phone/sip/transfer-destinations?type&name&limit&cursor`, newest first.
pub(crate) async fn list(
    State(api): State<Api>,
    caller: Caller,
    mut query: Query,
) -> Result<Page<DestinationView>, ApiError> {
    let narrow = [query.one_of("type", &["phone", "sip"]), query.text("name")];
    let paging = Paging::read(&mut query, "transfer-destinations", narrow);
    query.finish()?;

    paging
        .find(
            api.store(),
            caller.org,
            destinations::page,
            DestinationView::from,
        )
        .await
}

/// `GET /phone/sip/transfer-destinations/{destination_id}`
pub(crate) async fn one(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    query: Query,
) -> Result<Tagged<DestinationView>, ApiError> {
    let destination = find(&api, &caller, &named).await?;
    query.finish()?;
    Ok(Tagged::new(destination.into()))
}

/// `PATCH /phone/sip/transfer-destinations/{destination_id}`: an absent field is unchanged; another `type` needs its
/// `value`.
pub(crate) async fn update(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    version: IfMatch,
    body: Body,
) -> Result<Tagged<DestinationView>, ApiError> {
    let destination = find(&api, &caller, &named).await?;
    let version = version.versions()?;
    let change = change(body.fields()?, &destination.target)?;

    // An unchanged target isn't judged again, even if the address policy has changed since.
    let target = change.target.iter();
    let new = target.filter(|target| **target != destination.target);
    let uris = new.flat_map(|target| uri_of(VALUE, target));
    may_call(&api, caller.org, uris).await?;

    let (org, object) = (caller.org, Versioned::Destination(destination.id));
    let update =
        move |tx: &mut Tx, now| destinations::update(tx, org, destination.id, &change, now);
    let changed = api.change(org, object, version, update).await?;
    Ok(Tagged::new(changed.into()))
}

/// `DELETE /phone/sip/transfer-destinations/{destination_id}`: deletes it and its assignments.
pub(crate) async fn delete(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    version: IfMatch,
    query: Query,
) -> Result<Json<Success>, ApiError> {
    let destination = find(&api, &caller, &named).await?;
    let version = version.versions()?;
    query.finish()?;
    let (org, object) = (caller.org, Versioned::Destination(destination.id));
    let delete = move |tx: &mut Tx, now| destinations::delete(tx, org, destination.id, now);
    api.change(org, object, version, delete).await?;
    Ok(Json(Success::DONE))
}

/// `GET /phone/sip/agents/{agent_id}/transfer-destinations?type&name&limit&cursor`: destinations assigned to the agent,
/// newest first.
pub(crate) async fn of_agent(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    mut query: Query,
) -> Result<Page<DestinationView>, ApiError> {
    let agent = agents::find(&api, &caller, &named).await?;
    let narrow = [query.one_of("type", &["phone", "sip"]), query.text("name")];
    let paging = Paging::read(&mut query, "agent-transfer-destinations", narrow);
    query.finish()?;

    let of_agent = move |tx: &mut Tx, org, narrow: &Narrow, after, limit| {
        destinations::page_of_agent(tx, org, agent.id, narrow, after, limit)
    };
    paging
        .find(api.store(), caller.org, of_agent, DestinationView::from)
        .await
}

/// Any target: the schema of a change is the same for all.
pub(super) static ANY: LazyLock<TransferTarget> =
    LazyLock::new(|| TransferTarget::Sip("sip:any".into()));

/// Destination to assign: an existing one, or a new one.
pub(super) enum Assigned {
    Existing(Uuid),
    New(NewDestination),
}

/// `POST /phone/sip/agents/{agent_id}/transfer-destinations {destination_id}` or `{create: {name, type, value}}`:
/// answers the destination, with 201 if it was created. Idempotent for an existing destination.
pub(crate) async fn assign(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    version: IfMatch,
    body: Body,
) -> Result<(StatusCode, Tagged<DestinationView>), ApiError> {
    let agent = agents::find(&api, &caller, &named).await?.id;
    let version = version.versions()?;
    let assigned = assigned(body.fields()?)?;

    let (org, object) = (caller.org, Versioned::Agent(agent));
    let (status, destination) = match assigned {
        Assigned::Existing(id) => {
            let assign = move |tx: &mut Tx, now| destinations::assign(tx, org, agent, id, now);
            let existing = api.change(org, object, version, assign).await;
            let existing = existing.map_err(ApiError::in_field("destination_id"))?;
            (StatusCode::OK, existing)
        }
        Assigned::New(new) => {
            may_call(&api, org, uri_of("create.value", &new.target)).await?;
            let create =
                move |tx: &mut Tx, now| destinations::create_for(tx, org, agent, &new, now);
            let made = api.change(org, object, version, create).await?;
            (StatusCode::CREATED, made)
        }
    };

    Ok((status, Tagged::new(destination.into())))
}

/// `DELETE /phone/sip/agents/{agent_id}/transfer-destinations/{destination_id}`: 404 for a destination that isn't
/// assigned.
pub(crate) async fn unassign(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    version: IfMatch,
    query: Query,
) -> Result<Json<Success>, ApiError> {
    let agent = agents::find(&api, &caller, &named).await?;
    let destination = find(&api, &caller, &named).await?;

    // Asked before the query is judged: 404 comes before 400. The deletion would find it too late.
    let assigned = api
        .read_inline(move |tx| destinations::is_assigned(tx, caller.org, agent.id, destination.id))
        .await?;
    if !assigned {
        return Err(ApiError::absent(Kind::Destination));
    }

    let version = version.versions()?;
    query.finish()?;
    let (org, object) = (caller.org, Versioned::Agent(agent.id));
    let unassign =
        move |tx: &mut Tx, now| destinations::unassign(tx, org, agent.id, destination.id, now);
    api.change(org, object, version, unassign).await?;
    Ok(Json(Success::DONE))
}

const VALUE: &str = "value";

/// Returns the path of the field `value` and the URI in it, if the destination is of type `sip`.
fn uri_of<'t>(
    path: &'static str,
    target: &'t TransferTarget,
) -> impl Iterator<Item = (String, &'t str)> {
    let uri = match target {
        TransferTarget::Sip(uri) => Some((path.to_owned(), &**uri)),
        TransferTarget::Phone(_) => None,
    };
    uri.into_iter()
}

async fn find(api: &Api, caller: &Caller, named: &Named) -> Result<Destination, ApiError> {
    let id = named.id("destination_id", Kind::Destination)?;
    let org = caller.org;
    let found = api.read_inline(move |tx| destinations::by_id(tx, org, id));
    Ok(found.await?)
}

pub(super) fn described(mut fields: Fields) -> Result<NewDestination, ApiError> {
    let new = new_destination(&mut fields);
    fields.done(|| new)
}

fn new_destination(fields: &mut Fields) -> Option<NewDestination> {
    let name = fields.required("name", NAME);
    let target = match fields.required("type", TYPE) {
        Some(kind) => value(fields, kind),
        None => {
            // Read all the same: it would be reported as unknown, or its absence not at all.
            fields.required("value", Text::line(1..=500));
            None
        }
    };

    let via = fields.optional("via", VIA).unwrap_or_default();
    fields.amend_schema(value_by_type);
    Some(NewDestination {
        name: name?,
        target: target?,
        via,
    })
}

/// Adds to the schema that `value` depends on `type`.
fn value_by_type(schema: &mut Value) {
    let of = |kind: &str, value: Value| {
        let mut schema = schema.clone();
        schema["properties"]["type"] = json!({"const": kind});
        schema["properties"]["value"] = value;
        schema
    };
    *schema = json!({"oneOf": [of("phone", NUMBER.schema()), of("sip", SIP_URI.schema())]});
}

fn value(fields: &mut Fields, kind: Type) -> Option<TransferTarget> {
    match kind {
        Type::Phone => fields.required("value", NUMBER).map(TransferTarget::Phone),
        Type::Sip => fields.required("value", SIP_URI).map(TransferTarget::Sip),
    }
}

pub(super) fn change(
    mut fields: Fields,
    target: &TransferTarget,
) -> Result<DestinationChange, ApiError> {
    let name = fields.change("name", NAME);

    let current = match target {
        TransferTarget::Phone(_) => Type::Phone,
        TransferTarget::Sip(_) => Type::Sip,
    };
    let kind = fields.change("type", TYPE).unwrap_or(current);
    fields.amend_schema(|schema| schema["properties"]["value"] = json!({"type": "string"}));
    // A value of the old type can't be one of the new, so another `type` makes `value` a required field.
    let target = if kind != current || fields.has("value") {
        value(&mut fields, kind)
    } else {
        None
    };

    let via = fields.clearable("via", VIA).map(Option::unwrap_or_default);
    fields.done(|| Some(DestinationChange { name, target, via }))
}

pub(super) fn assigned(mut fields: Fields) -> Result<Assigned, ApiError> {
    let (existing, new) = (
        fields.has_value("destination_id"),
        fields.has_value("create"),
    );
    if existing == new {
        fields.refuse("destination_id", "give either destination_id or create");
    }

    let id = fields.optional("destination_id", ID);
    let new = fields.optional("create", Object(new_destination));

    fields.amend_schema(|schema| {
        let of = |name: &str, shape: Value| {
            let mut schema = schema.clone();
            schema["properties"][name] = shape;
            for other in ["destination_id", "create"] {
                if other != name {
                    schema["properties"][other] = json!({"type": "null"});
                }
            }
            schema["required"] = json!([name]);
            schema
        };
        *schema = json!({"oneOf": [
            of("destination_id", ID.schema()),
            of("create", Object(new_destination).schema()),
        ]});
    });

    fields.done(|| id.map(Assigned::Existing).or(new.map(Assigned::New)))
}
