//! `/phone/sip/outbound-trunks`: carriers and PBXs that agents dial through.
//!
//! A trunk has a `host`, or with `to_registered` it leads to the PBX registered with the org's inbound trunk. Its
//! password is never returned. Only the name, `transfer_way` and `digest_require_qop` can be changed, and `auth_realms`
//! can be cleared.

use std::borrow::Cow;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use trunkline_calls::parts::target::default_port;
use trunkline_calls::peers::registrations::{self, RegistrationStatus};
use trunkline_model::auth_realms::AuthRealms;
use trunkline_model::settings::TransferWay;
use trunkline_routing::E164;
use trunkline_sip::flow::Transport;
use trunkline_store::{
    Kind, NewOutboundTrunk, OutboundTrunk, OutboundTrunkChange, Password, Tx, Versioned,
    outbound_trunks,
};
use uuid::Uuid;

use super::sip_uri::may_name;
use super::transfer_way::{MethodInForceView, TRANSFER_WAY};
use super::{CALLS_AT_ONCE, OF_ORG};
use crate::api::body::{Body, Fields};
use crate::api::caller::Caller;
use crate::api::field_type::{
    Bool, Choice, Count, FieldType as _, ListOf, NAME, NUMBER, Parsed, Text,
};
use crate::api::idempotency::once;
use crate::api::openapi::read_by;
use crate::api::operations::Operations;
use crate::api::page::{Page, Paging};
use crate::api::path::Named;
use crate::api::query::{Query, text_schema};
use crate::api::time::written;
use crate::api::version::{HasVersion, IfMatch, Tagged};
use crate::api::{Api, ApiError, Success};
use crate::config::HostPort;

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Outbound trunks", OF_ORG);
    of.get(
        "/phone/sip/outbound-trunks",
        list,
        "listOutboundTrunks",
        "The org's outbound trunks, newest first",
        |op| {
            op.query("name", text_schema(), "Only trunks of this name.")
                .query(
                    "transport",
                    json!({"type": "string", "enum": ["udp", "tcp", "tls"]}),
                    "Only trunks of this transport.",
                )
                .lists::<OutboundTrunkView>()
        },
    );

    of.post_once(
        "/phone/sip/outbound-trunks",
        once(create),
        "createOutboundTrunk",
        "Creates an outbound trunk; its password is never returned",
        |op| {
            op.versioned()
                .makes::<OutboundTrunkView>(read_by(new_trunk))
        },
    );

    of.get(
        "/phone/sip/outbound-trunks/{trunk_id}",
        one,
        "showOutboundTrunk",
        "One outbound trunk",
        |op| op.gives_versioned::<OutboundTrunkView>(),
    );

    of.patch(
        "/phone/sip/outbound-trunks/{trunk_id}",
        update,
        "renameOutboundTrunk",
        "Updates the name, the transfer method or the digest settings of an outbound trunk",
        |op| {
            let op = op.of_version().body(read_by(change));
            op.gives_versioned::<OutboundTrunkView>()
        },
    );

    of.delete(
        "/phone/sip/outbound-trunks/{trunk_id}",
        delete,
        "deleteOutboundTrunk",
        "Deletes an outbound trunk that no agent uses",
        |op| op.may_refuse(&[409]).of_version().deletes(),
    );
}

/// An outbound trunk as the API shows it.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OutboundTrunk")]
pub(crate) struct OutboundTrunkView {
    pub(crate) id: Uuid,
    pub(crate) name: String,
    /// `null` under `to_registered`, like `port`.
    pub(crate) host: Option<String>,
    pub(crate) port: Option<u16>,
    pub(crate) transport: Cow<'static, str>,
    pub(crate) username: Option<String>,
    pub(crate) caller_number: E164,
    pub(crate) to_registered: bool,
    from_host: Option<String>,
    p_asserted_identity: bool,
    register: bool,
    max_concurrent_calls: Option<u32>,
    calls_per_second: Option<u32>,
    /// The only realm whose challenges are answered; `null` where the carrier's first challenges say which.
    auth_realm: Option<String>,
    /// The realms whose challenges are answered, at most four: `auth_realm`, or those that the carrier has challenged with so far.
    auth_realms: Vec<String>,
    /// True if challenges without `qop` are left unanswered.
    digest_require_qop: bool,
    /// True if INVITEs carry `user=phone` in Request-URI, To and From.
    user_phone: bool,
    pub(crate) transfer_way: TransferWay,
    pub(crate) transfer_way_in_force: MethodInForceView,
    /// True if the peer answers; `null` while nothing is known.
    pub(crate) reachable: Option<bool>,
    /// State of our registration with the peer; `null` without `register`.
    pub(crate) registration: Option<CarrierRegistrationView>,
    created_at: String,
    pub(crate) updated_at: String,
}

impl HasVersion for OutboundTrunkView {
    fn version(&self) -> &str {
        &self.updated_at
    }
}

/// Our registration with a carrier, as this node knows it.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "CarrierRegistration")]
pub(crate) struct CarrierRegistrationView {
    /// `registering`, `registered`, `failed`, or `elsewhere` where another node of the installation registers the trunk.
    #[schemars(with = "String")]
    pub(crate) status: registrations::State,
    /// Time since which it is registered.
    pub(crate) registered_at: Option<String>,
    /// Expiry, unless it is refreshed.
    pub(crate) expires_at: Option<String>,
    /// The status of the carrier's last answer; `null` if it gave none.
    pub(crate) sip_code: Option<u16>,
    /// Time of the next REGISTER.
    next_at: Option<String>,
}

impl CarrierRegistrationView {
    fn of(known: Option<RegistrationStatus>) -> Self {
        let status = known.unwrap_or(RegistrationStatus::bare(registrations::State::Registering));
        Self {
            status: status.state,
            registered_at: status.registered_at.map(written),
            expires_at: status.expires_at.map(written),
            sip_code: status.sip_code,
            next_at: status.next_at.map(written),
        }
    }
}

impl From<OutboundTrunk> for OutboundTrunkView {
    fn from(trunk: OutboundTrunk) -> Self {
        let settings = trunk.settings;
        let realms = AuthRealms::new(settings.auth_realm.as_deref(), &trunk.auth_realms, false);
        let to_registered = settings.peer.is_none();
        let (host, port) = settings.peer.unzip();

        Self {
            id: trunk.id,
            name: settings.name,
            host,
            port,
            transport: settings.transport.uri_name().into(),
            username: settings.credentials.map(|(username, _)| username),
            caller_number: settings.caller_number,
            to_registered,
            from_host: settings.from_host,
            p_asserted_identity: settings.p_asserted_identity,
            register: settings.register,
            max_concurrent_calls: settings.max_concurrent_calls,
            calls_per_second: settings.calls_per_second,
            auth_realms: realms.names(),
            auth_realm: settings.auth_realm,
            digest_require_qop: settings.digest_require_qop,
            user_phone: settings.user_phone,
            transfer_way: settings.transfer_way,
            transfer_way_in_force: MethodInForceView::of(
                settings.transfer_way,
                trunk.refer_kept_caller_at,
            ),
            reachable: None,
            registration: settings.register.then(|| CarrierRegistrationView::of(None)),
            created_at: written(trunk.created_at),
            updated_at: written(trunk.updated_at),
        }
    }
}

impl OutboundTrunkView {
    /// Makes the view, including what this node knows of the peer.
    pub(super) fn seen(api: &Api, trunk: OutboundTrunk) -> Self {
        let (engine, id) = (api.engine(), trunk.id);
        let mut view = Self::from(trunk);
        view.reachable = engine.and_then(|engine| engine.reachable(id));
        let status = engine.and_then(|engine| engine.registration_status(id));
        view.registration = view.register.then(|| CarrierRegistrationView::of(status));
        view
    }
}

const HOST: Parsed<String> = Parsed::new("a host name or an IP address", |text| {
    let host = text.parse::<HostPort>().ok();
    host.filter(|host| host.port.is_none())
        .map(|host| host.to_string())
})
.like(r"^(([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)*[A-Za-z]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?|((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\.){3}(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9]))$")
.at_most(253)
.example("sip.example.com");
const PORT: Count = Count::new(1..=65_535);
const TRANSPORT: Choice<Transport> = Choice(&[
    ("udp", Transport::Udp),
    ("tcp", Transport::Tcp),
    ("tls", Transport::Tls),
]);
pub(super) const CREDENTIAL: Text = Text::line(1..=255);
const REALM: Text = Text::line(1..=255);
/// Realms are learnt. The only list that can be set is the empty one, which forgets them.
const NO_REALMS: ListOf<Text> = ListOf::new(REALM, 0..=0);
const CALLS_PER_SECOND: Count = Count::new(1..=10_000);

/// `POST /phone/sip/outbound-trunks`: 201, or 400.
pub(crate) async fn create(
    State(api): State<Api>,
    caller: Caller,
    body: Body,
) -> Result<(StatusCode, Tagged<OutboundTrunkView>), ApiError> {
    let new = new_trunk(body.fields()?)?;

    let host = new.peer.iter();
    let host = host.map(|(host, port)| ("host".to_owned(), host.clone(), *port));
    may_name(&api, caller.org, host.collect()).await?;
    let registrations = api.config().limits.registrations_per_org;
    let trunk = api
        .write(move |tx, now| outbound_trunks::create(tx, caller.org, &new, registrations, now))
        .await?;
    Ok((StatusCode::CREATED, Tagged::new(trunk.into())))
}

/// `GET /phone/sip/outbound-trunks?limit&cursor`, newest first.
pub(crate) async fn list(
    State(api): State<Api>,
    caller: Caller,
    mut query: Query,
) -> Result<Page<OutboundTrunkView>, ApiError> {
    let narrow = [
        query.text("name"),
        query.one_of("transport", &["udp", "tcp", "tls"]),
    ];
    let paging = Paging::read(&mut query, "outbound-trunks", narrow);
    query.finish()?;
    paging
        .find(api.store(), caller.org, outbound_trunks::page, |trunk| {
            OutboundTrunkView::seen(&api, trunk)
        })
        .await
}

/// `GET /phone/sip/outbound-trunks/{trunk_id}`
pub(crate) async fn one(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    query: Query,
) -> Result<Tagged<OutboundTrunkView>, ApiError> {
    let trunk = find(&api, &caller, &named).await?;
    query.finish()?;
    Ok(Tagged::new(OutboundTrunkView::seen(&api, trunk)))
}

/// `PATCH /phone/sip/outbound-trunks/{trunk_id} {name, transfer_way, digest_require_qop, auth_realms}`: an absent field
/// is unchanged.
pub(crate) async fn update(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    version: IfMatch,
    body: Body,
) -> Result<Tagged<OutboundTrunkView>, ApiError> {
    let trunk = find(&api, &caller, &named).await?;
    let version = version.versions()?;
    let change = change(body.fields()?)?;

    let (org, object) = (caller.org, Versioned::OutboundTrunk(trunk.id));
    let update = move |tx: &mut Tx, now| outbound_trunks::update(tx, org, trunk.id, &change, now);
    let changed = api.change(org, object, version, update).await?;
    Ok(Tagged::new(OutboundTrunkView::seen(&api, changed)))
}

/// `DELETE /phone/sip/outbound-trunks/{trunk_id}`: 409, naming the agents, while agents dial through it.
pub(crate) async fn delete(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    version: IfMatch,
    query: Query,
) -> Result<Json<Success>, ApiError> {
    let trunk = find(&api, &caller, &named).await?;
    let version = version.versions()?;
    query.finish()?;
    let (org, object) = (caller.org, Versioned::OutboundTrunk(trunk.id));
    let delete = move |tx: &mut Tx, now| outbound_trunks::delete(tx, org, trunk.id, now);
    api.change(org, object, version, delete).await?;
    Ok(Json(Success::DONE))
}

async fn find(api: &Api, caller: &Caller, named: &Named) -> Result<OutboundTrunk, ApiError> {
    let id = named.id("trunk_id", Kind::OutboundTrunk)?;
    let org = caller.org;
    let found = api.read_inline(move |tx| outbound_trunks::by_id(tx, org, id));
    Ok(found.await?)
}

pub(super) fn change(mut fields: Fields) -> Result<OutboundTrunkChange, ApiError> {
    let change = OutboundTrunkChange {
        name: fields.change("name", NAME),
        transfer_way: fields.change("transfer_way", TRANSFER_WAY),
        digest_require_qop: fields.change("digest_require_qop", Bool),
        forgets_realms: fields.change("auth_realms", NO_REALMS).is_some(),
    };
    fields.done(|| Some(change))
}

pub(super) fn new_trunk(mut fields: Fields) -> Result<NewOutboundTrunk, ApiError> {
    let name = fields.required("name", NAME);
    let to_registered = fields.optional("to_registered", Bool).unwrap_or(false);
    let transport = fields.optional("transport", TRANSPORT);
    let transport = transport.unwrap_or(Transport::Udp);
    let peer = peer(&mut fields, to_registered, transport);
    // Also under `to_registered`: the registered PBX may challenge calls.
    let credentials = credentials(&mut fields);
    let caller_number = fields.required("caller_number", NUMBER);
    let from_host = fields.optional("from_host", HOST);
    let p_asserted_identity = fields.optional("p_asserted_identity", Bool);
    let register = fields.optional("register", Bool).unwrap_or(false);
    let max_concurrent_calls = fields.optional("max_concurrent_calls", CALLS_AT_ONCE);
    let calls_per_second = fields.optional("calls_per_second", CALLS_PER_SECOND);
    let transfer_way = fields.optional("transfer_way", TRANSFER_WAY);
    let auth_realm = fields.optional("auth_realm", REALM);
    let digest_require_qop = fields.optional("digest_require_qop", Bool);
    let user_phone = fields.optional("user_phone", Bool).unwrap_or(false);

    if auth_realm.is_some() && (to_registered || matches!(credentials, GivenCredentials::Neither)) {
        fields.refuse("auth_realm", "needs a host, a username and a password");
    }

    // The registered PBX gets its own Contact as Request-URI.
    if user_phone && to_registered {
        fields.refuse("user_phone", "needs a host");
    }

    if register && (to_registered || matches!(credentials, GivenCredentials::Neither)) {
        fields.refuse("register", "needs a host, a username and a password");
    }

    fields.amend_schema(alternatives);
    fields.done(|| {
        Some(NewOutboundTrunk {
            name: name?,
            peer: if to_registered { None } else { Some(peer?) },
            transport,
            credentials: credentials.pair(),
            caller_number: caller_number?,
            from_host,
            p_asserted_identity: p_asserted_identity.unwrap_or(false),
            register,
            max_concurrent_calls,
            calls_per_second,
            transfer_way: transfer_way.unwrap_or_default(),
            auth_realm,
            digest_require_qop: digest_require_qop.unwrap_or(false),
            user_phone,
        })
    })
}

/// Adds to the schema: a named peer with or without credentials, or the registered PBX.
fn alternatives(schema: &mut Value) {
    let with = |fixed: Value, required: &[&str]| {
        let mut schema = schema.clone();
        for (name, value) in fixed.as_object().into_iter().flatten() {
            schema["properties"][name] = value.clone();
        }
        schema["required"] = json!(required);
        schema
    };

    let (none, off) = (
        json!({"type": "null"}),
        json!({"type": ["boolean", "null"], "not": {"const": true}}),
    );
    let credential = CREDENTIAL.schema();

    *schema = json!({"anyOf": [
        with(
            json!({"to_registered": off, "username": none, "password": none, "register": off, "auth_realm": none}),
            &["name", "host", "caller_number"],
        ),
        with(
            json!({"to_registered": off, "username": credential, "password": credential}),
            &["name", "host", "caller_number", "username", "password"],
        ),
        with(
            json!({"to_registered": {"const": true}, "host": none, "port": none, "username": none, "password": none, "register": off, "auth_realm": none, "user_phone": off}),
            &["name", "caller_number", "to_registered"],
        ),
        with(
            json!({"to_registered": {"const": true}, "host": none, "port": none, "username": credential, "password": credential, "register": off, "auth_realm": none, "user_phone": off}),
            &["name", "caller_number", "to_registered", "username", "password"],
        ),
    ]});
}

/// Reads host and port; neither under `to_registered`.
fn peer(fields: &mut Fields, to_registered: bool, transport: Transport) -> Option<(String, u16)> {
    if to_registered {
        for name in ["host", "port"] {
            if fields.has_value(name) {
                fields.refuse(name, "is the registered PBX's under to_registered");
            }
        }
    }

    // Read under `to_registered` too: it would be reported as unknown otherwise.
    let host = if to_registered {
        fields.optional("host", HOST)
    } else {
        fields.required("host", HOST)
    };
    let port = fields.optional("port", PORT);
    let port = port.and_then(|port| u16::try_from(port).ok());

    Some((host?, port.unwrap_or_else(|| default_port(transport))))
}

/// Outcome of reading `username` and `password`.
pub(super) enum GivenCredentials {
    Both(String, Password),
    Neither,
    /// A fault was noted.
    Wrong,
}

impl GivenCredentials {
    pub(super) fn pair(self) -> Option<(String, Password)> {
        match self {
            Self::Both(username, password) => Some((username, password)),
            Self::Neither | Self::Wrong => None,
        }
    }
}

pub(super) fn credentials(fields: &mut Fields) -> GivenCredentials {
    let given = ["username", "password"].map(|name| fields.has_value(name));
    let username = fields.optional("username", CREDENTIAL);
    let password = fields.optional("password", CREDENTIAL);

    match (given, username, password) {
        (_, Some(username), Some(password)) => {
            GivenCredentials::Both(username, Password::new(password))
        }
        ([false, false], ..) => GivenCredentials::Neither,
        // At least one of them is wrong, and has noted its fault.
        ([true, true], ..) => GivenCredentials::Wrong,
        ([true, false], ..) => {
            fields.refuse("password", "is required with username");
            GivenCredentials::Wrong
        }
        ([false, true], ..) => {
            fields.refuse("username", "is required with password");
            GivenCredentials::Wrong
        }
    }
}
