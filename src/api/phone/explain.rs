//! `/phone/sip/explain`: explains an INVITE from a capture and the response to it. Changes nothing.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;
use trunkline_routing::decide;
use trunkline_sip::moment::Moment;
use trunkline_store::{Error, Kind, Wrong, explained, inbound_trunks, orgs};
use uuid::Uuid;

use super::ASKS_OF_CALLS;
use super::call_routing;
use super::calls::find;
use super::commands::outbound::caught_up;
use crate::api::body::{Body, Fields};
use crate::api::caller::Caller;
use crate::api::field_type::{Parsed, Text};
use crate::api::openapi::read_by;
use crate::api::operations::Operations;
use crate::api::{Api, ApiError, timestamp};
use crate::explain::captured::CapturedCall;
use crate::explain::log_in;
use crate::explain::suggested_commands::{commands, quoted};

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Inbound trunk", ASKS_OF_CALLS);
    of.post("/phone/sip/explain", explain, "explainInvite", "Explains an INVITE as a capture holds it: by the call's record if there is one, otherwise by today's directory; changes nothing", |op| {
            op.body(read_by(read_request))
                .gives::<ExplainedInviteView>(200)
        });
}

/// Maximum difference between the clock of a capture and that of this node.
const MAX_SKEW: Duration = Duration::from_secs(24 * 3_600);
/// Field type of a SIP message.
const MESSAGE: Text = Text::lines(1..=65_536);

/// INVITE to explain.
pub(super) struct ExplainRequest {
    invite: String,
    response: Option<String>,
    source: Option<SocketAddr>,
    sent_at: Option<Moment>,
}

/// Explanation of an INVITE.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ExplainedInvite")]
pub(super) struct ExplainedInviteView {
    /// The call, if it is recorded; otherwise today's directory decided.
    call_id: Option<Uuid>,
    /// Everything in sentences.
    explanation: Vec<String>,
    /// Commands of the command line that would fix a refusal.
    suggested_commands: Vec<String>,
}

/// `POST /phone/sip/explain {invite, response, source, sent_at}`: the last INVITE of the caller as it was sent, and its
/// final response; all but `invite` are optional.
pub(crate) async fn explain(
    State(api): State<Api>,
    caller: Caller,
    body: Body,
) -> Result<Json<ExplainedInviteView>, ApiError> {
    // The explanation may come from the record of a call.
    let request = read_request(body.fields()?)?;
    let seen = request.read(&api.config().sip.header_prefix)?;

    let org = caller.org;
    let org_name = api.read_inline(move |tx| orgs::by_id(tx, org)).await?.name;

    if let Some(view) = recorded(&api, org, &org_name, &seen).await? {
        return Ok(Json(view));
    }

    let view = match seen.is_locked_out() {
        true => locked_out(&api, org, &org_name, &seen).await?,
        false => decided(&api, org, &org_name, &seen).await?,
    };
    Ok(Json(view))
}

pub(super) fn read_request(mut fields: Fields) -> Result<ExplainRequest, ApiError> {
    const SOURCE: Parsed<SocketAddr> =
        Parsed::new("an IP address and port", |text| text.parse().ok()).example("192.0.2.1:5060");
    const TIME: Parsed<Moment> = Parsed::new("an RFC 3339 time", timestamp)
        .format("date-time")
        .example("2026-01-31T12:00:00Z");

    let invite = fields.required("invite", MESSAGE);
    let response = fields.optional("response", MESSAGE);
    let source = fields.optional("source", SOURCE);
    let sent_at = fields.optional("sent_at", TIME);

    fields.done(|| {
        Some(ExplainRequest {
            invite: invite?,
            response,
            source,
            sent_at,
        })
    })
}

impl ExplainRequest {
    fn read(&self, prefix: &str) -> Result<CapturedCall, ApiError> {
        let response = self.response.as_deref().map(str::as_bytes);
        CapturedCall::of(self.invite.as_bytes(), response, prefix)
            .map(|seen| seen.sent(self.sent_at, self.source))
            .ok_or_else(|| ApiError::bad("invite: is no INVITE that begins a call".to_owned()))
    }
}

/// Explains a call by its record; `None` if it has none.
async fn recorded(
    api: &Api,
    org: Uuid,
    org_name: &str,
    seen: &CapturedCall,
) -> Result<Option<ExplainedInviteView>, ApiError> {
    let at = seen.at.unwrap_or_else(|| api.now());
    let skew = u64::try_from(MAX_SKEW.as_micros()).unwrap_or(u64::MAX);
    let earliest = Moment::from_micros(at.as_micros().saturating_sub(skew));
    let (call_id, latest) = (seen.call_id.clone(), at + MAX_SKEW);
    let found = api.read_of(org, move |tx| {
        explained::of_call_id(tx, org, &call_id, earliest, latest)
    });
    let Some(found) = found.await? else {
        return Ok(None);
    };

    let call = find(api, org, found.id).await?;
    let known = call_routing::explained(api, &call).await?;
    Ok(Some(ExplainedInviteView {
        call_id: Some(found.id),
        suggested_commands: commands(&known.near_misses, org_name),
        explanation: known.explanation,
    }))
}

/// Explains a caller that didn't authenticate.
async fn locked_out(
    api: &Api,
    org: Uuid,
    org_name: &str,
    seen: &CapturedCall,
) -> Result<ExplainedInviteView, ApiError> {
    let org_name = quoted(org_name);
    let trunk = match api.read(move |tx| inbound_trunks::of_org(tx, org)).await {
        Ok(trunk) => trunk,
        Err(Error::Wrong(Wrong::Absent(_))) => {
            return Ok(ExplainedInviteView {
                call_id: None,
                explanation: vec!["The org has no inbound trunk: nobody can log in.".to_owned()],
                suggested_commands: vec![format!("trunkline trunk create --org {org_name}")],
            });
        }
        Err(error) => return Err(error.into()),
    };

    let part = seen.wrong_part(&trunk, &api.config().sip.realm());
    let mut suggested = Vec::new();
    if let ("address", Some(source)) = (part, seen.source) {
        let ip = source.ip();
        suggested.push(format!(
            "trunkline trunk update --org {org_name} --allow {ip}"
        ));
    }
    suggested.push(format!("trunkline trunk show --org {org_name}"));

    Ok(ExplainedInviteView {
        call_id: None,
        explanation: vec![log_in::sentence(part).to_owned()],
        suggested_commands: suggested,
    })
}

/// Explains a call without a record: routes it by the directory as it is now.
async fn decided(
    api: &Api,
    org: Uuid,
    org_name: &str,
    seen: &CapturedCall,
) -> Result<ExplainedInviteView, ApiError> {
    caught_up(api).await;
    let directory = api.directory().load();
    let org = directory
        .org(org)
        .ok_or_else(|| ApiError::absent(Kind::Org))?;
    // No agent counts as busy: how many calls each had at the time isn't known.
    let decision = decide(&seen.facts, &org.routing, &|_| false);

    let mut explanation = decision.sentences();
    explanation.extend(seen.warning.iter().map(|warning| {
        let reason = seen.reason.as_deref().unwrap_or("no reason given");
        format!("The answer said: {warning} ({reason}).")
    }));
    Ok(ExplainedInviteView {
        call_id: None,
        explanation,
        suggested_commands: commands(&decision.near_misses, org_name),
    })
}
