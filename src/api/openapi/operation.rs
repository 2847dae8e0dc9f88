//! One operation of the document: its credentials, its request and its answers.

use axum::http::StatusCode;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};
use trunkline_routing::E164;

use crate::api::Success;
use crate::api::page::Page;

/// Operation under construction.
pub(crate) struct Operation<'g> {
    generator: &'g mut SchemaGenerator,
    value: Value,
    partners: bool,
    is_read: bool,
    has_version: bool,
    /// Further media types of the answer.
    others: Vec<&'static str>,
}

/// Header that identifies a request.
const IDEMPOTENCY_KEY: &str = "Idempotency-Key";
/// Header that names the version that a change was made for.
const IF_MATCH: &str = "If-Match";
/// Header that names the answer that the client has already.
const IF_NONE_MATCH: &str = "If-None-Match";

/// Statuses that refuse a request, each with its general reason.
const REFUSALS: [(u16, &str); 14] = [
    (
        400,
        "The request is wrong: `message` names every fault by its path.",
    ),
    (401, "No credential, or an invalid one."),
    (403, "The credential lacks the permission."),
    (404, "No such object, or none that this credential may see."),
    (
        409,
        "The request conflicts with what is stored, or the same request is still in progress.",
    ),
    (408, "The body did not arrive in time."),
    (
        412,
        "The object was changed since the version that `If-Match` names: read it again.",
    ),
    (413, "The body is longer than 1 MiB."),
    (415, "The body is not JSON in UTF-8."),
    (
        422,
        "The `Idempotency-Key` was used before with another body.",
    ),
    (
        429,
        "Too many requests; `Retry-After` says when the next one may pass.",
    ),
    (500, "An internal error; `message` quotes the request's id."),
    (
        503,
        "The database does not answer now, or this node has no room for it; `Retry-After` says when to try again.",
    ),
    (502, "A third party that has to be asked doesn't answer."),
];

/// Response components for all refusals, in the form of the org API and in that of the partner API.
pub(super) fn refusals() -> Value {
    let mut all = json!({});
    for (status, description) in REFUSALS {
        for (partners, schema) in [(false, "Error"), (true, "PartnerError")] {
            let waits = matches!(status, 429 | 503);
            let headers = if waits {
                &["RequestId", "RetryAfter"][..]
            } else {
                &["RequestId"]
            };
            all[name(status, partners)] = json!({
                "description": description,
                "headers": carries(headers),
                "content": {"application/json": {"schema": {"$ref": format!("#/components/schemas/{schema}")}}},
            });
        }
    }

    all
}

/// Response headers: name of the component, name on the wire, type and description.
const HEADERS: [(&str, &str, &str, &str); 6] = [
    (
        "RequestId",
        "X-Request-Id",
        "string",
        "The request's id, for the log and for support.",
    ),
    (
        "RateLimit",
        "RateLimit",
        "string",
        "Requests left within the limits, and seconds until the limits are full again.",
    ),
    (
        "RateLimitPolicy",
        "RateLimit-Policy",
        "string",
        "The limits that apply to this credential.",
    ),
    (
        "RetryAfter",
        "Retry-After",
        "integer",
        "Seconds after which the request may pass.",
    ),
    (
        "ETag",
        "ETag",
        "string",
        "Version of the object, for `If-Match` and `If-None-Match`: its `updated_at` and a checksum of the answer.",
    ),
    (
        "IdempotentReplayed",
        "Idempotent-Replayed",
        "string",
        "`true` if this is the answer to an earlier request with the same `Idempotency-Key`.",
    ),
];

/// Components for all response headers.
pub(super) fn headers() -> Value {
    let mut all = json!({});
    for (component, _, kind, description) in HEADERS {
        all[component] = json!({"description": description, "schema": {"type": kind}});
    }
    all
}

/// References to header components, by their names on the wire.
fn carries(components: &[&str]) -> Value {
    let mut carried = json!({});
    for (component, name, ..) in HEADERS {
        if components.contains(&component) {
            carried[name] = json!({"$ref": format!("#/components/headers/{component}")});
        }
    }
    carried
}

/// Name of a refusal's component: `NotFound`, `PartnerNotFound`.
fn name(status: u16, partners: bool) -> String {
    let reason = StatusCode::from_u16(status).ok();
    let reason = reason.and_then(|status| status.canonical_reason());
    let reason = reason.unwrap_or("Error").replace(' ', "");
    if partners {
        format!("Partner{reason}")
    } else {
        reason
    }
}

impl<'g> Operation<'g> {
    pub(super) fn new(
        generator: &'g mut SchemaGenerator,
        method: &str,
        path: &str,
        id: &str,
        summary: &str,
    ) -> Self {
        let mut operation = Self {
            generator,
            value: json!({"operationId": id, "summary": summary, "responses": {}}),
            partners: path.starts_with("/partner/v1"),
            is_read: method == "get",
            has_version: false,
            others: Vec::new(),
        };
        for part in path.split('/') {
            if let Some(parameter) = part
                .strip_prefix('{')
                .and_then(|part| part.strip_suffix('}'))
            {
                operation.parameter("path", parameter, in_path(path, parameter), true, None);
                // A partner gets 403 also for an org that doesn't exist. Operations on something within an org
                // add their 404.
                if !operation.partners {
                    operation.refuses(404);
                }
            }
        }

        operation
    }

    /// Sets the tag.
    pub(crate) fn tag(mut self, tag: &str) -> Self {
        self.value["tags"] = json!([tag]);
        self
    }

    /// Adds a description beyond the summary.
    pub(crate) fn note(mut self, text: &str) -> Self {
        self.value["description"] = text.into();
        self
    }

    /// Requires an org key with all of the scopes.
    pub(crate) fn org(self, scopes: &[&str]) -> Self {
        self.credentials(json!([{"orgKey": scopes}]))
            .may_refuse(&[403])
    }

    /// Requires a partner key.
    pub(crate) fn partner(self) -> Self {
        self.credentials(json!([{"partnerKey": []}]))
            .may_refuse(&[403])
    }

    /// Requires the widget token of a visitor.
    pub(crate) fn visitor(self) -> Self {
        self.credentials(json!([{"widgetToken": []}]))
    }

    /// Requires the embed token of an org.
    pub(crate) fn site(self) -> Self {
        self.credentials(json!([{"embedToken": []}]))
    }

    /// Takes the session token of the runtime too, in place of a key.
    pub(crate) fn or_session(mut self) -> Self {
        if let Some(schemes) = self.value["security"].as_array_mut() {
            schemes.push(json!({"sessionToken": []}));
        }
        self
    }

    /// Requires no credential.
    pub(crate) fn public(mut self) -> Self {
        self.value["security"] = json!([]);
        self.may_refuse(&[400, 500])
    }

    fn credentials(mut self, security: Value) -> Self {
        self.value["security"] = security;
        self.may_refuse(&[400, 401, 429, 500, 503])
    }

    /// Adds `limit` and `cursor`, for a list in pages.
    pub(crate) fn paged(self) -> Self {
        let limit = json!({"type": "integer", "minimum": 1, "maximum": 100, "default": 50});
        // Without its maximum length: one octet more, percent-encoded, exceeds the head of a request before a cursor is judged.
        let cursor = json!({"type": "string"});
        self.query("limit", limit, "Items on a page.").query(
            "cursor",
            cursor,
            "`next` of the page before. It carries the filters.",
        )
    }

    /// Adds a query parameter.
    pub(crate) fn query(mut self, name: &str, schema: Value, description: &str) -> Self {
        self.parameter("query", name, schema, false, Some(description));
        self
    }

    /// Adds a query parameter of type `T`.
    pub(crate) fn query_of<T: JsonSchema>(self, name: &str, description: &str) -> Self {
        let schema = schema_of::<T>(self.generator);
        self.query(name, schema, description)
    }

    /// Sets the schema of the body, as [`read_by`](super::read_by) returns it.
    pub(crate) fn body(mut self, schema: Value) -> Self {
        let required = |schema: &Value| schema.get("required").is_some();
        // A choice of schemas has no `required` of its own; each alternative has fields that must be given.
        let any = ["oneOf", "anyOf"];
        let any = any.iter().any(|of| schema.get(of).is_some());
        self.value["requestBody"] = json!({
            "required": any || required(&schema),
            "content": {"application/json": {"schema": schema}},
        });
        self.may_refuse(&[408, 413, 415])
    }

    /// Adds the header `Idempotency-Key`.
    pub(crate) fn once(mut self) -> Self {
        let key = json!({"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]([ -~]*[!-~])?$"});
        let description = "Client's id of the request. For 24 hours, a repetition with the same id gets the same answer and does nothing.";
        self.parameter("header", IDEMPOTENCY_KEY, key, false, Some(description));
        self.may_refuse(&[409, 422])
    }

    /// Answers with the object's version, in `ETag`.
    pub(crate) fn versioned(mut self) -> Self {
        self.has_version = true;
        self
    }

    /// Answers an object with its version.
    pub(crate) fn gives_versioned<T: JsonSchema>(self) -> Self {
        self.versioned().gives::<T>(200)
    }

    /// Answers a further media type, if `Accept` prefers it. Only the description names it: with several types in one answer, client generators
    /// take one at random or none.
    pub(crate) fn also_as(mut self, content_type: &'static str) -> Self {
        self.others.push(content_type);
        self
    }

    /// Adds the header `If-Match`.
    pub(crate) fn of_version(mut self) -> Self {
        let tags = json!({"type": "string", "minLength": 1, "maxLength": 255, "pattern": r#"^(\*|"[!#-~]*"(, ?"[!#-~]*")*)$"#});
        let description = "The `ETag` of the object that the change was made for; if it has another one by now, nothing is changed.";
        self.parameter("header", IF_MATCH, tags, false, Some(description));
        self.may_refuse(&[412])
    }

    /// Adds statuses of refusals beyond those implied by the rest.
    pub(crate) fn may_refuse(mut self, statuses: &[u16]) -> Self {
        statuses.iter().for_each(|status| self.refuses(*status));
        self
    }

    /// Answers `T` as JSON.
    pub(crate) fn gives<T: JsonSchema>(self, status: u16) -> Self {
        let schema = schema_of::<T>(self.generator);
        self.answers(status, "application/json", schema)
    }

    /// Answers a page of `T`, newest first.
    pub(crate) fn lists<T: JsonSchema>(self) -> Self {
        self.paged().gives::<Page<T>>(200)
    }

    /// Creates a `T` from the body.
    pub(crate) fn makes<T: JsonSchema>(self, body: Value) -> Self {
        self.body(body).gives::<T>(201)
    }

    /// Answers that the object was deleted.
    pub(crate) fn deletes(self) -> Self {
        self.gives::<Success>(200)
    }

    /// Answers text, octets, or JSON that has no schema here.
    pub(crate) fn gives_text(self, status: u16, content_type: &str) -> Self {
        let schema = match content_type {
            "application/json" => json!({"type": "object"}),
            "application/octet-stream" => json!({"type": "string", "format": "binary"}),
            _ => json!({"type": "string"}),
        };
        self.answers(status, content_type, schema)
    }

    fn answers(mut self, status: u16, content_type: &str, schema: Value) -> Self {
        let reason = StatusCode::from_u16(status).ok();
        let reason = reason.and_then(|status| status.canonical_reason());
        let answer = &mut self.value["responses"][status.to_string()];
        answer["description"] = reason.unwrap_or("Answer").into();
        answer["content"][content_type]["schema"] = schema;
        self
    }

    fn refuses(&mut self, status: u16) {
        let name = name(status, self.partners);
        self.value["responses"][status.to_string()] =
            json!({"$ref": format!("#/components/responses/{name}")});
    }

    fn parameter(
        &mut self,
        place: &str,
        name: &str,
        schema: Value,
        required: bool,
        description: Option<&str>,
    ) {
        let mut parameter =
            json!({"in": place, "name": name, "required": required, "schema": schema});
        if let Some(description) = description {
            parameter["description"] = description.into();
        }
        let parameters = &mut self.value["parameters"];
        match parameters.as_array_mut() {
            Some(parameters) => parameters.push(parameter),
            None => *parameters = json!([parameter]),
        }
    }

    pub(super) fn finish(mut self) -> Value {
        let mut headers = vec!["RequestId"];
        let secured = self.value["security"].as_array();
        if secured.is_some_and(|schemes| !schemes.is_empty()) {
            headers.extend(["RateLimit", "RateLimitPolicy"]);
        }

        let parameters = self.value["parameters"].as_array();
        if parameters.is_some_and(|all| all.iter().any(|one| one["name"] == IDEMPOTENCY_KEY)) {
            headers.push("IdempotentReplayed");
        }

        if self.has_version {
            headers.push("ETag");
            if self.is_read {
                self.may_be_known();
            }
        }

        if !self.others.is_empty() {
            let others: Vec<_> = self.others.iter().map(|kind| format!("`{kind}`")).collect();
            let also = format!("By `Accept` also as {}.", others.join(", "));
            let description = &mut self.value["description"];
            *description = match description.as_str() {
                Some(text) => format!("{text} {also}").into(),
                None => also.into(),
            };
        }

        if let Some(responses) = self.value["responses"].as_object_mut() {
            let succeed = responses
                .iter_mut()
                .filter(|(status, _)| status.starts_with('2'));
            succeed.for_each(|(_, answer)| answer["headers"] = carries(&headers));
        }

        self.value
    }
}

impl Operation<'_> {
    /// Adds the header `If-None-Match`, and the answer to a client that has the object already.
    fn may_be_known(&mut self) {
        // Anything else is no tag of an answer of ours, and refuses nothing.
        let tags = json!({"type": "string"});
        let description = "The `ETag` of an answer that the client has; if it would get the same again, it gets 304 without a body.";
        self.parameter("header", IF_NONE_MATCH, tags, false, Some(description));
        self.value["responses"]["304"] = json!({
            "description": "The client has this version.",
            "headers": carries(&["RequestId", "ETag"]),
        });
    }
}

fn in_path(path: &str, parameter: &str) -> Value {
    match parameter {
        // A runtime that isn't Trunkline's names its sessions as it likes.
        "session_id" if path.starts_with("/handoff-analytics") => {
            json!({"type": "string", "minLength": 1, "maxLength": 255})
        }
        "phone_number" => json!({"type": "string", "pattern": E164::PATTERN}),
        "externalId" => json!({"type": "string", "minLength": 1, "maxLength": 255}),
        _ => json!({"type": "string", "format": "uuid"}),
    }
}

fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    generator.subschema_for::<T>().to_value()
}
