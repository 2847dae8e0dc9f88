//! `/phone/sip/inbound-trunk`: the trunk that the org's PBX logs in to. An org has one.
//!
//! `phone_numbers` are verified numbers of the org, in the order in which routing tries them. `auth_password` is shown
//! to keys with `phone:write`. A change applies to the next call.

use std::borrow::Cow;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trunkline_calls::registrar::bindings::Binding;
use trunkline_model::address;
use trunkline_model::settings::{ReferFormat, TransferWay};
use trunkline_routing::{Country, E164};
use trunkline_store::{
    Error, InboundTrunk, InboundTrunkChange, Kind, Tx, Versioned, Wrong, inbound_trunks,
};
use uuid::Uuid;

use super::transfer_way::{MethodInForceView, TRANSFER_WAY};
use super::{CALLS_AT_ONCE, OF_ORG, WRITE};
use crate::api::body::{Body, Fields};
use crate::api::caller::Caller;
use crate::api::field_type::{Bool, Choice, ListOf, NAME, NETWORK, NUMBER, Parsed};
use crate::api::idempotency::once;
use crate::api::openapi::{no_fields, read_by};
use crate::api::operations::Operations;
use crate::api::path::Named;
use crate::api::query::Query;
use crate::api::time::written;
use crate::api::version::{HasVersion, IfMatch, Tagged};
use crate::api::{Api, ApiError, Success};
use crate::config::HostPort;

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Inbound trunk", OF_ORG);
    of.get(
        "/phone/sip/inbound-trunk",
        show,
        "showInboundTrunk",
        "The org's trunk",
        |op| {
            op.may_refuse(&[404])
                .note("`auth_password` is `null` for keys without `phone:write`.")
                .gives_versioned::<InboundTrunkView>()
        },
    );

    of.post_once(
        "/phone/sip/inbound-trunk",
        once(create),
        "createInboundTrunk",
        "Creates the org's trunk; without `phone_numbers` it lists every verified number",
        |op| op.versioned().makes::<InboundTrunkView>(read_by(new_trunk)),
    );

    of.patch(
        "/phone/sip/inbound-trunk",
        update,
        "updateInboundTrunk",
        "Updates the trunk; `phone_numbers` replaces the list",
        |op| {
            op.may_refuse(&[404])
                .of_version()
                .body(read_by(change))
                .gives_versioned::<InboundTrunkView>()
        },
    );

    of.delete(
        "/phone/sip/inbound-trunk",
        delete,
        "deleteInboundTrunk",
        "Deletes the trunk: its credentials stop working",
        |op| op.may_refuse(&[404]).of_version().deletes(),
    );

    of.post(
        "/phone/sip/inbound-trunk/phone-numbers",
        add_numbers,
        "addTrunkNumbers",
        "Adds numbers to the list; listed ones change nothing",
        |op| {
            op.may_refuse(&[404])
                .of_version()
                .body(read_by(more_numbers))
                .gives_versioned::<InboundTrunkView>()
        },
    );

    of.delete(
        "/phone/sip/inbound-trunk/phone-numbers/{phone_number}",
        remove_number,
        "removeTrunkNumber",
        "Removes a number from the list",
        |op| {
            op.may_refuse(&[404])
                .of_version()
                .gives_versioned::<InboundTrunkView>()
        },
    );

    of.post(
        "/phone/sip/inbound-trunk/sync",
        sync,
        "syncTrunkNumbers",
        "Lists every verified number and removes those that are no longer verified",
        |op| {
            op.may_refuse(&[404])
                .of_version()
                .body(no_fields())
                .gives_versioned::<SyncedView>()
        },
    );

    of.post_once(
        "/phone/sip/inbound-trunk/rotate-credentials",
        once(rotate_credentials),
        "rotateTrunkCredentials",
        "Creates new credentials; the last ten old ones work for another 24 hours",
        |op| {
            op.may_refuse(&[404])
                .of_version()
                .body(no_fields())
                .gives_versioned::<InboundTrunkView>()
        },
    );
}

/// An inbound trunk as the API shows it.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "InboundTrunk")]
pub(crate) struct InboundTrunkView {
    pub(crate) id: Uuid,
    pub(crate) name: String,
    pub(crate) sip_endpoint: String,
    /// Realm of the challenges that its credentials answer.
    auth_realm: Box<str>,
    pub(crate) auth_username: String,
    /// `null` for keys that only read.
    pub(crate) auth_password: Option<String>,
    pub(crate) phone_numbers: Vec<E164>,
    pub(crate) krisp_enabled: bool,
    pub(crate) rtp_from_any_address: bool,
    agent_id_header: String,
    #[schemars(with = "Vec<String>")]
    pub(crate) allowed_addresses: Vec<IpNet>,
    pub(crate) default_country: Option<String>,
    refer_to_format: ReferFormat,
    refer_host: Option<String>,
    refer_headers_in_uri: bool,
    pub(crate) transfer_way: TransferWay,
    transfer_way_in_force: MethodInForceView,
    pub(crate) bridge_when_refer_fails: bool,
    pub(crate) max_concurrent_calls: Option<u32>,
    /// True while the PBX is registered, with this node or another.
    registered: bool,
    /// Registered contacts, preferred first.
    pub(crate) registrations: Vec<RegistrationView>,
    created_at: String,
    pub(crate) updated_at: String,
}

impl HasVersion for InboundTrunkView {
    fn version(&self) -> &str {
        &self.updated_at
    }
}

/// One contact that a PBX has registered.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "PbxRegistration")]
pub(crate) struct RegistrationView {
    /// The Contact URI as the PBX wrote it.
    pub(crate) contact: String,
    /// Source of the REGISTER.
    pub(crate) source: String,
    pub(crate) transport: Cow<'static, str>,
    pub(crate) user_agent: Option<String>,
    pub(crate) registered_at: String,
    pub(crate) expires_at: String,
    /// False while a PBX behind NAT has left an `OPTIONS` or a call unanswered and hasn't been heard since.
    pub(crate) reachable: bool,
}

impl From<Binding> for RegistrationView {
    fn from(binding: Binding) -> Self {
        Self {
            contact: binding.contact.into(),
            source: binding.flow.peer.to_string(),
            transport: binding.flow.transport.uri_name().into(),
            user_agent: binding.user_agent.map(Into::into),
            registered_at: written(binding.registered_at),
            expires_at: written(binding.expires_at),
            reachable: !binding.liveness.is_unreachable(),
        }
    }
}

/// Result of a sync.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "SyncedInboundTrunk")]
pub(crate) struct SyncedView {
    #[serde(flatten)]
    trunk: InboundTrunkView,
    /// Verified numbers that were not listed.
    added: Vec<E164>,
    /// Listed numbers that were no longer verified.
    removed: Vec<E164>,
}

impl InboundTrunkView {
    fn new(api: &Api, caller: &Caller, trunk: InboundTrunk) -> Self {
        let sip = &api.config().sip;
        let registrations: Vec<_> = api
            .engine()
            .map(|engine| engine.registrations(trunk.id))
            .unwrap_or_default()
            .into_iter()
            .map(RegistrationView::from)
            .collect();

        Self {
            registered: !registrations.is_empty(),
            registrations,
            id: trunk.id,
            name: trunk.name,
            sip_endpoint: sip.endpoint(),
            auth_realm: sip.realm(),
            auth_username: trunk.username,
            auth_password: caller
                .may(WRITE)
                .then(|| trunk.password.reveal().to_owned()),
            phone_numbers: trunk.numbers,
            krisp_enabled: trunk.krisp_enabled,
            rtp_from_any_address: trunk.rtp_from_any_address,
            agent_id_header: format!("{}-AGENT-ID", sip.header_prefix),
            allowed_addresses: trunk.allowed_addresses,
            default_country: trunk
                .default_country
                .map(|country| country.as_str().to_owned()),
            refer_to_format: trunk.refer_to_format,
            refer_host: trunk.refer_host,
            refer_headers_in_uri: trunk.refer_headers_in_uri,
            transfer_way: trunk.transfer_way,
            transfer_way_in_force: MethodInForceView::of(
                trunk.transfer_way,
                trunk.refer_kept_caller_at,
            ),
            bridge_when_refer_fails: trunk.bridge_when_refer_fails,
            max_concurrent_calls: trunk.max_concurrent_calls,
            created_at: written(trunk.created_at),
            updated_at: written(trunk.updated_at),
        }
    }
}

/// Maximum number of phone numbers in one request; a trunk may list more.
const MAX_NUMBERS: usize = 10_000;
const NUMBERS: &str = "phone_numbers";
const ALLOWED: &str = "allowed_addresses";
const SOME_NUMBERS: ListOf<Parsed<E164>> = ListOf::new(NUMBER, 1..=MAX_NUMBERS);
const NETWORKS: ListOf<Parsed<IpNet>> = ListOf::new(NETWORK, 0..=100);
pub(super) const COUNTRY: Parsed<Country> =
    Parsed::new("an ISO 3166 country code such as GB", |text| {
        text.parse().ok()
    })
    .example("GB");
const REFER_TO: Choice<ReferFormat> =
    Choice(&[("sip", ReferFormat::Sip), ("tel", ReferFormat::Tel)]);
const HOST: Parsed<String> = Parsed::new("a host or host:port", |text| {
    text.parse::<HostPort>().ok().map(|host| host.to_string())
})
.example("pbx.example.com:5060");

/// `POST /phone/sip/inbound-trunk`: 201; without `phone_numbers` it lists every verified number. 409 if the org has a trunk.
pub(crate) async fn create(
    State(api): State<Api>,
    caller: Caller,
    body: Body,
) -> Result<(StatusCode, Tagged<InboundTrunkView>), ApiError> {
    let mut settings = new_trunk(body.fields()?)?;
    check_addresses(&api, &caller, None, &settings)?;
    note_operator(&caller, &mut settings);

    let trunk = api
        .write(move |tx, now| inbound_trunks::create(tx, caller.org, &settings, now))
        .await
        .map_err(|error| lacking_number(&api, error))?;
    Ok((
        StatusCode::CREATED,
        Tagged::new(InboundTrunkView::new(&api, &caller, trunk)),
    ))
}

/// Refusal of a trunk. If no number is verified, it also suggests a call that speaks a code, where such a call can be placed.
fn lacking_number(api: &Api, error: Error) -> ApiError {
    let speaks = api.config().phone.speaks_codes();
    match error {
        Error::Wrong(wrong @ Wrong::NoVerifiedNumber) if speaks => ApiError::bad(format!(
            "{NUMBERS}: {wrong}, or verify it by a call that speaks a code (POST /phone/numbers/{{number_id}}/verify)"
        )),
        Error::Wrong(_) | Error::Conflict(_) | Error::Broke(_) => {
            ApiError::in_field(NUMBERS)(error)
        }
    }
}

/// `GET /phone/sip/inbound-trunk`
pub(crate) async fn show(
    State(api): State<Api>,
    caller: Caller,
    query: Query,
) -> Result<Tagged<InboundTrunkView>, ApiError> {
    let trunk = find(&api, &caller).await?;
    query.finish()?;
    Ok(Tagged::new(InboundTrunkView::new(&api, &caller, trunk)))
}

/// `PATCH /phone/sip/inbound-trunk`: an absent field is unchanged; `null` clears a field that may be empty;
/// `phone_numbers` replaces the list.
pub(crate) async fn update(
    State(api): State<Api>,
    caller: Caller,
    version: IfMatch,
    body: Body,
) -> Result<Tagged<InboundTrunkView>, ApiError> {
    let trunk = find(&api, &caller).await?;
    let version = version.versions()?;
    let mut change = change(body.fields()?)?;
    check_addresses(&api, &caller, Some(&trunk), &change)?;
    note_operator(&caller, &mut change);

    let org = caller.org;
    let update = move |tx: &mut Tx, now| inbound_trunks::update(tx, org, &change, now);
    let trunk = api
        .change(org, Versioned::InboundTrunk, version, update)
        .await
        .map_err(ApiError::in_field(NUMBERS))?;
    Ok(Tagged::new(InboundTrunkView::new(&api, &caller, trunk)))
}

/// `DELETE /phone/sip/inbound-trunk`: deletes the trunk; its credentials stop working.
pub(crate) async fn delete(
    State(api): State<Api>,
    caller: Caller,
    version: IfMatch,
    query: Query,
) -> Result<Json<Success>, ApiError> {
    must_exist(&api, &caller).await?;
    let version = version.versions()?;
    query.finish()?;
    let org = caller.org;
    let delete = move |tx: &mut Tx, now| inbound_trunks::delete(tx, org, now);
    api.change(org, Versioned::InboundTrunk, version, delete)
        .await?;
    Ok(Json(Success::DONE))
}

/// `POST /phone/sip/inbound-trunk/phone-numbers {phone_numbers}`: adds numbers to the list; listed ones change nothing.
pub(crate) async fn add_numbers(
    State(api): State<Api>,
    caller: Caller,
    version: IfMatch,
    body: Body,
) -> Result<Tagged<InboundTrunkView>, ApiError> {
    must_exist(&api, &caller).await?;
    let version = version.versions()?;
    let numbers = more_numbers(body.fields()?)?;
    let org = caller.org;
    let add = move |tx: &mut Tx, now| inbound_trunks::add_numbers(tx, org, &numbers, now);
    let trunk = api
        .change(org, Versioned::InboundTrunk, version, add)
        .await
        .map_err(ApiError::in_field(NUMBERS))?;
    Ok(Tagged::new(InboundTrunkView::new(&api, &caller, trunk)))
}

/// `DELETE /phone/sip/inbound-trunk/phone-numbers/{phone_number}`: 404 for a number that isn't listed.
pub(crate) async fn remove_number(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    version: IfMatch,
    query: Query,
) -> Result<Tagged<InboundTrunkView>, ApiError> {
    let trunk = find(&api, &caller).await?;
    let number = named
        .text("phone_number")
        .and_then(|text| E164::parse(text).ok())
        .filter(|number| trunk.numbers.contains(number))
        .ok_or_else(|| ApiError::absent(Kind::Number))?;
    let version = version.versions()?;
    query.finish()?;
    let org = caller.org;
    let remove = move |tx: &mut Tx, now| inbound_trunks::remove_number(tx, org, &number, now);
    let trunk = api
        .change(org, Versioned::InboundTrunk, version, remove)
        .await?;
    Ok(Tagged::new(InboundTrunkView::new(&api, &caller, trunk)))
}

/// `POST /phone/sip/inbound-trunk/sync`: lists every verified number and removes those that are no longer verified.
pub(crate) async fn sync(
    State(api): State<Api>,
    caller: Caller,
    version: IfMatch,
    body: Body,
) -> Result<Tagged<SyncedView>, ApiError> {
    must_exist(&api, &caller).await?;
    let version = version.versions()?;
    body.empty()?;
    let org = caller.org;
    let sync = move |tx: &mut Tx, now| inbound_trunks::sync(tx, org, now);
    let synced = api
        .change(org, Versioned::InboundTrunk, version, sync)
        .await?;
    let changed_at = synced.trunk.updated_at;
    let view = SyncedView {
        trunk: InboundTrunkView::new(&api, &caller, synced.trunk),
        added: synced.added,
        removed: synced.removed,
    };
    Ok(Tagged::at(view, changed_at))
}

/// `POST /phone/sip/inbound-trunk/rotate-credentials`: creates new credentials; the last ten old ones work for another 24 hours.
pub(crate) async fn rotate_credentials(
    State(api): State<Api>,
    caller: Caller,
    version: IfMatch,
    body: Body,
) -> Result<Tagged<InboundTrunkView>, ApiError> {
    must_exist(&api, &caller).await?;
    let version = version.versions()?;
    body.empty()?;
    let org = caller.org;
    let rotate = move |tx: &mut Tx, now| inbound_trunks::rotate_credentials(tx, org, now);
    let trunk = api
        .change(org, Versioned::InboundTrunk, version, rotate)
        .await?;
    Ok(Tagged::new(InboundTrunkView::new(&api, &caller, trunk)))
}

/// Records as the operator's own the networks that the operator lists in `allowed_addresses`.
fn note_operator(caller: &Caller, change: &mut InboundTrunkChange) {
    if caller.is_operator() {
        change
            .operator_addresses
            .clone_from(&change.allowed_addresses);
    }
}

/// Checks what is added to `allowed_addresses`; existing entries stay. Networks of the operator may be of any size.
fn check_addresses(
    api: &Api,
    caller: &Caller,
    existing: Option<&InboundTrunk>,
    change: &InboundTrunkChange,
) -> Result<(), ApiError> {
    let listed = change.allowed_addresses.as_deref().unwrap_or_default();
    let before = existing.map_or(&[][..], |trunk| &trunk.allowed_addresses);
    let operators = existing.map_or(&[][..], |trunk| &trunk.operator_addresses);
    let is_new = |network: &IpNet| !before.contains(network);
    if !listed.iter().any(is_new) {
        return Ok(());
    }

    let refused = |(place, network): (usize, &IpNet)| {
        let policy = api.addresses();
        let judged = match caller.is_operator() {
            true => policy.examine_source(*network),
            false => policy.examine_tenants_source(*network),
        };
        let refusal = judged.err()?;
        Some(format!("{ALLOWED}[{place}]: {network} {refusal}"))
    };
    let new = listed.iter().enumerate().filter(|(_, one)| is_new(one));
    let mut faults: Vec<String> = new.filter_map(refused).collect();

    // Entries of the operator don't count.
    let counts = |network: &IpNet| !caller.is_operator() && !operators.contains(network);
    let counted: Vec<IpNet> = listed.iter().copied().filter(counts).collect();
    if !address::are_few(&counted) {
        faults.push(format!(
            "{ALLOWED}: at most 1,024 IPv4 addresses and an IPv6 /48 in all; the operator can allow more with trunkline trunk update --allow"
        ));
    }

    match faults.is_empty() {
        true => Ok(()),
        false => Err(ApiError::BadRequest(faults)),
    }
}

/// Returns the org's trunk.
pub(super) async fn find(api: &Api, caller: &Caller) -> Result<InboundTrunk, ApiError> {
    let org = caller.org;
    let found = api.read_inline(move |tx| inbound_trunks::of_org(tx, org));
    Ok(found.await?)
}

/// Refuses a request for a trunk that the org doesn't have: its 404 comes before the 400 for a wrong body.
async fn must_exist(api: &Api, caller: &Caller) -> Result<(), ApiError> {
    find(api, caller).await.map(drop)
}

pub(super) fn new_trunk(mut fields: Fields) -> Result<InboundTrunkChange, ApiError> {
    fields.take_null_as_absent();
    let numbers = fields.change(NUMBERS, SOME_NUMBERS);
    settings(fields, numbers)
}

pub(super) fn change(mut fields: Fields) -> Result<InboundTrunkChange, ApiError> {
    let numbers = fields.change(NUMBERS, ListOf::new(NUMBER, 0..=MAX_NUMBERS));
    settings(fields, numbers)
}

pub(super) fn more_numbers(mut fields: Fields) -> Result<Vec<E164>, ApiError> {
    let numbers = fields.required(NUMBERS, SOME_NUMBERS);
    fields.done(|| numbers)
}

/// Reads the fields that creation and update have in common.
fn settings(
    mut fields: Fields,
    numbers: Option<Vec<E164>>,
) -> Result<InboundTrunkChange, ApiError> {
    let settings = InboundTrunkChange {
        numbers,
        name: fields.change("name", NAME),
        krisp_enabled: fields.change("krisp_enabled", Bool),
        rtp_from_any_address: fields.change("rtp_from_any_address", Bool),
        allowed_addresses: fields.change(ALLOWED, NETWORKS),
        operator_addresses: None,
        default_country: fields.clearable("default_country", COUNTRY),
        refer_to_format: fields.change("refer_to_format", REFER_TO),
        refer_host: fields.clearable("refer_host", HOST),
        refer_headers_in_uri: fields.change("refer_headers_in_uri", Bool),
        transfer_way: fields.change("transfer_way", TRANSFER_WAY),
        bridge_when_refer_fails: fields.change("bridge_when_refer_fails", Bool),
        max_concurrent_calls: fields.clearable("max_concurrent_calls", CALLS_AT_ONCE),
    };

    fields.done(|| Some(settings))
}
