//! Describes what a request changes, for the audit log: action, kind of object, and its id if the path has it.

use axum::http::Method;
use axum::http::request::Parts;
use axum::response::Response;
use trunkline_store::{Acting, AuditedAction, audit};
use uuid::Uuid;

use super::field_type::id;
use super::idempotency::REPLAYED;
use super::{Api, client};

/// Words of a path and the kind of object that they lead to; the first match counts.
const RESOURCES: [(&str, &str); 32] = [
    // Pages of the operator's console write no entry: they change things by requests to the API, which write it.
    ("operator-console", ""),
    ("console-links", "login_link"),
    ("Calls", "call"),
    ("prompts", "prompt"),
    ("logout", "session"),
    ("login-links", "login_link"),
    ("sessions", "session"),
    ("members", "member"),
    // Other pages of the console write no entry: they change things by requests to the API, which write it.
    ("dashboard", ""),
    ("bot-token", "bot_token"),
    ("agents", "agent"),
    ("outbound-call", "call"),
    ("calls", "call"),
    ("api-keys", "api_key"),
    ("keys", "api_key"),
    ("inbound-trunk", "inbound_trunk"),
    ("outbound-trunks", "outbound_trunk"),
    ("transfer-destinations", "destination"),
    ("phone-numbers", "number"),
    ("numbers", "number"),
    ("deliveries", "delivery"),
    ("webhooks", "webhook"),
    ("contacts", "contact"),
    ("authenticate-user", "contact"),
    ("authenticate-user-by-external-id", "contact"),
    ("events", "handoff"),
    ("orgs", "org"),
    ("partners", "partner"),
    ("route-test", ""),
    ("route-replay", ""),
    ("explain", ""),
    ("phone", "agent"),
];

/// Kind of a call.
const CALL: &str = "call";

/// Kinds of objects in entries, including those of commands.
pub(crate) const KINDS: [&str; 20] = [
    "agent",
    "api_key",
    "bot_token",
    "call",
    "contact",
    "delivery",
    "destination",
    "handoff",
    "inbound_trunk",
    "installation",
    "login_link",
    "member",
    "number",
    "org",
    "outbound_trunk",
    "partner",
    "prompt",
    "session",
    "trunk",
    "webhook",
];

/// Returns the kind of object that a request to this route changes, and its id in the path; `None` if the route changes
/// nothing.
fn resource(route: &str, path: &str) -> Option<(&'static str, Option<Uuid>)> {
    let words: Vec<&str> = route.split('/').collect();
    let (place, kind) = RESOURCES.iter().find_map(|(word, kind)| {
        let place = words.iter().position(|known| known == word)?;
        Some((place, *kind))
    })?;
    let follows = words
        .get(place + 1)
        .is_some_and(|word| word.starts_with('{'));
    let named = path.split('/').nth(place + 1).filter(|_| follows);
    (!kind.is_empty()).then(|| (kind, named.and_then(id)))
}

/// Audit scope of a request that may change something.
pub(super) fn acting(api: &Api, parts: &Parts, route: &str, request_id: &str) -> Option<Acting> {
    if parts.method.is_safe() || parts.method == Method::TRACE {
        return None;
    }
    let (resource, resource_id) = resource(route, parts.uri.path())?;
    Some(Acting::new(AuditedAction {
        at: api.now(),
        address: client::address(parts, &api.config().http.trusted_proxies),
        action: format!("{} {route}", parts.method),
        resource,
        resource_id,
        request_id: Some(request_id.to_owned()),
    }))
}

/// Runs the request within its audit scope. What is done to a call changes no row, and gets its entry afterwards; any other request that has changed no
/// row gets none.
pub(super) async fn run_audited(
    api: &Api,
    acting: Option<Acting>,
    work: impl Future<Output = Response>,
) -> Response {
    let Some(acting) = acting else {
        return work.await;
    };
    let is_of_call = acting.resource() == CALL;
    let response = acting.clone().scope(work).await;
    let status = response.status();
    // A form of the console that has changed something is answered by a redirection.
    let is_done = status.is_success() || status.is_redirection();

    // A replay changes nothing: the first request has its entry.
    let is_replayed = response.headers().contains_key(REPLAYED);
    if is_of_call
        && is_done
        && !is_replayed
        && acting.is_due()
        && let Err(error) = audit::record(api.store(), acting).await
    {
        let error = &error as &dyn std::error::Error;
        tracing::error!(
            error,
            "writing the audit entry of a change without a row failed"
        );
    }

    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_what_it_changes() {
        const ID: &str = "0198c0de-0000-7000-8000-000000000001";

        let id = Uuid::parse_str(ID).unwrap();
        for (route, path, named) in [
            ("/phone", "/phone".to_owned(), Some(("agent", None))),
            (
                "/phone/{agent_id}",
                format!("/phone/{ID}"),
                Some(("agent", Some(id))),
            ),
            (
                "/phone/sip/agents/{agent_id}/transfer-destinations",
                format!("/phone/sip/agents/{ID}/transfer-destinations"),
                Some(("agent", Some(id))),
            ),
            (
                "/partner/v1/orgs/{orgId}/api-keys",
                format!("/partner/v1/orgs/{ID}/api-keys"),
                Some(("api_key", None)),
            ),
            (
                "/partner/v1/orgs/{orgId}/suspend",
                format!("/partner/v1/orgs/{ID}/suspend"),
                Some(("org", Some(id))),
            ),
            (
                "/phone/sip/route-test",
                "/phone/sip/route-test".to_owned(),
                None,
            ),
        ] {
            assert_eq!(resource(route, &path), named, "{route}");
        }
    }

    #[test]
    fn every_kind_is_known() {
        for (_, kind) in RESOURCES {
            assert!(kind.is_empty() || KINDS.contains(&kind), "{kind}");
        }
    }
}
