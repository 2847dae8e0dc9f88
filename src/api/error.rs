//! Errors of the API and the body of their answers: `{statusCode, message, error}`, below `/partner/v1` without
//! `error`. Each has a `code` for programs, and a 400 lists its faults in `errors`.
//!
//! A 500 carries the id of the request and nothing of its cause, which is logged once under that id (see `request`).

use std::borrow::Cow;
use std::sync::Arc;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use trunkline_store::{Conflict, Error, Kind, OrgLimit, Wrong};

/// Reason why a request is refused or has failed.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// 400: the request is wrong. Every fault with its path.
    #[error("{}", listed(.0))]
    BadRequest(Vec<String>),
    /// 401: no credential, or an invalid one.
    #[error("{0}")]
    Unauthorized(&'static str),
    /// 403: the credential lacks the permission.
    #[error("{0}")]
    Forbidden(String),
    /// 404: nothing of this id exists for this credential.
    #[error("{0}")]
    NotFound(String),
    /// 409: the request conflicts with what is stored.
    #[error("{0}")]
    Conflict(String),
    /// 412: the object was changed since the version that `If-Match` names.
    #[error("{0}")]
    Outdated(String),
    /// 422: the request contradicts an earlier one with the same key.
    #[error("{0}")]
    Unprocessable(&'static str),
    /// 408: the body did not arrive in time.
    #[error("The body did not arrive in time")]
    Late,
    /// 413: the body is too long.
    #[error("A body may have at most 1 MiB")]
    TooLarge,
    /// 415: the body is of an unsupported type.
    #[error("A body must be JSON in UTF-8: Content-Type: application/json")]
    MediaType,
    /// 429: the credential has made too many requests.
    #[error("Too many requests: {limit} a minute are allowed; try again in {wait_s} s")]
    TooMany {
        /// Requests per minute.
        limit: u32,
        /// Seconds until the next request may pass.
        wait_s: u64,
    },
    /// 429: the credential holds as many at once as it may.
    #[error("{0}")]
    TooManyAtOnce(String),
    /// 429: a limit on what is in progress or was begun is reached.
    #[error("{message}")]
    AtLimit {
        /// Message that names the limit and the time.
        message: String,
        /// Seconds until another try may pass.
        wait_s: u64,
    },
    /// 503: this node takes nothing new now.
    #[error("{message}")]
    Unavailable {
        /// Message with the reason.
        message: String,
        /// Seconds until another try may pass.
        wait_s: u64,
    },
    /// 503: a command was sent to a node that hasn't answered. It may still be carried out.
    #[error("{0}")]
    OutcomeUnknown(String),
    /// 502: a third party that has to be asked doesn't answer.
    #[error("{0}")]
    BadGateway(String),
    /// Refusal with a code of its own.
    #[error("{of}")]
    Coded {
        /// Code in snake case. It never changes its meaning.
        code: Cow<'static, str>,
        /// Refusal that carries the code.
        of: Box<ApiError>,
    },
    /// 500: something of ours failed.
    #[error("{0}")]
    Broke(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Body of every refusal.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RefusalView<'a> {
    status_code: u16,
    pub(crate) message: Cow<'a, str>,
    /// Standard reason phrase; the partner API has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Cow<'a, str>>,
    code: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(!default)]
    pub(crate) errors: Vec<FaultView<'a>>,
}

/// One fault of a request.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct FaultView<'a> {
    /// Path of the field; `null` for the body as a whole.
    pub(crate) path: Option<Cow<'a, str>>,
    pub(crate) message: Cow<'a, str>,
}

/// Message of a refusal, on its way to `request`.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    message: Arc<str>,
    code: Cow<'static, str>,
    /// Faults of a 400.
    faults: Arc<[String]>,
}

impl Refusal {
    /// Makes a refusal with this message and code only.
    pub(super) fn new(message: &str, code: impl Into<Cow<'static, str>>) -> Self {
        Self {
            message: message.into(),
            code: code.into(),
            faults: Arc::new([]),
        }
    }

    /// Returns true if the outcome of the refused request isn't known.
    pub(super) fn is_of_unknown_outcome(&self) -> bool {
        self.code == OUTCOME_UNKNOWN
    }

    /// Text form, kept for an `Idempotency-Key` and sent to other nodes: the code in a line of its own, then the
    /// message.
    pub(super) fn written(&self) -> String {
        format!("{}\n{}", self.code, self.message)
    }

    /// Reads what [`written`](Self::written) made.
    pub(super) fn read(text: &str) -> Self {
        let (code, message) = text.split_once('\n').unwrap_or_default();
        Self::new(message, code.to_owned())
    }

    /// Returns the code and the message.
    pub(super) fn into_parts(self) -> (Cow<'static, str>, Arc<str>) {
        (self.code, self.message)
    }
}

/// Cause of a 500, on its way to the log.
#[derive(Clone, Debug)]
pub(crate) struct Cause(pub(crate) Arc<str>);

/// Code of a request whose outcome isn't known.
pub(super) const OUTCOME_UNKNOWN: &str = "outcome_unknown";

/// Maximum number of faults that one answer names.
const MOST_FAULTS: usize = 50;

/// `Retry-After` while the database is away, in seconds.
const DATABASE_BACK_S: u64 = 2;
/// `Retry-After` while the database's disk takes nothing, in seconds: somebody has to act first.
const DISK_BACK_S: u64 = 30;

impl ApiError {
    /// 404 for an object that doesn't exist, or that this credential may not see: the same answer for both.
    pub fn absent(kind: Kind) -> Self {
        Self::NotFound(format!("There is no such {kind}"))
    }

    /// Converts the store's refusal of a value into a fault of this field.
    pub(super) fn in_field(field: &'static str) -> impl Fn(Error) -> Self {
        move |error: Error| match error {
            Error::Wrong(Wrong::Entries(faults)) => {
                let named = |(place, fault)| format!("{field}[{place}]: {fault}");
                Self::BadRequest(faults.into_iter().map(named).collect())
            }
            Error::Wrong(
                wrong @ (Wrong::Unknown { .. } | Wrong::NotVerified(_) | Wrong::NoVerifiedNumber),
            ) => Self::bad(format!("{field}: {wrong}")),
            Error::Wrong(_) | Error::Conflict(_) | Error::Broke(_) => Self::from(error),
        }
    }

    /// 403 for a suspended org.
    pub(super) fn suspended() -> Self {
        Self::Forbidden("The org is suspended: ask its partner, or the operator".to_owned())
            .with_code("org_suspended")
    }

    /// Gives the refusal a code of its own, for programs.
    pub(super) fn with_code(self, code: impl Into<Cow<'static, str>>) -> Self {
        Self::Coded {
            code: code.into(),
            of: Box::new(self),
        }
    }

    /// 400 with one fault.
    pub fn bad(fault: impl Into<String>) -> Self {
        Self::BadRequest(vec![fault.into()])
    }
}

impl From<trunkline_store::Error> for ApiError {
    fn from(error: trunkline_store::Error) -> Self {
        match error {
            Error::Wrong(Wrong::Absent(kind)) => Self::absent(kind),
            Error::Wrong(wrong) => Self::bad(wrong.to_string()),
            Error::Conflict(refused) => Self::from(refused),
            Error::Broke(broke) if broke.is_away() => {
                tracing::debug!(
                    error = &broke as &dyn std::error::Error,
                    "refused: the database is away"
                );
                Self::Unavailable {
                    message: "The database does not answer now: try again".to_owned(),
                    wait_s: DATABASE_BACK_S,
                }
            }
            Error::Broke(broke) => match broke.disk_fault() {
                // Logged once by the store, with what to do: every change meets it.
                Some(fault) => {
                    tracing::debug!(
                        error = &broke as &dyn std::error::Error,
                        ?fault,
                        "refused: the database can't be written"
                    );
                    Self::Unavailable {
                        message: "The database can't be written now: try again".to_owned(),
                        wait_s: DISK_BACK_S,
                    }
                }
                None => Self::Broke(Box::new(broke)),
            },
        }
    }
}

impl From<Conflict> for ApiError {
    fn from(refused: Conflict) -> Self {
        match refused {
            Conflict::ExternalIdTaken(_)
            | Conflict::ClaimEnded
            | Conflict::PartnerInactive
            | Conflict::TooManyOrgs { .. }
            | Conflict::NumberExists(_)
            | Conflict::NumberVerifiedElsewhere(_)
            | Conflict::NumberHeld { .. }
            | Conflict::TrunkExists
            | Conflict::TrunkInUse { .. }
            | Conflict::AtLimit { .. }
            | Conflict::NameTaken(_)
            | Conflict::OrgNameTaken(_)
            | Conflict::PartnerNameTaken(_)
            | Conflict::NetworkDedicated { .. }
            | Conflict::NoNextToken
            | Conflict::LastAdministrator { .. }
            | Conflict::TooManyPrompts { .. }
            | Conflict::PromptInUse { .. }
            | Conflict::PromptAbsent(_)
            | Conflict::ContactOnCall => {
                let code = code_of_refused(&refused);
                Self::Conflict(sentence(&refused.to_string())).with_code(code)
            }

            // 400 instead of 409, since no state that may pass is the cause: the request itself asks for too much.
            Conflict::AboveAllowed { .. } => {
                let code = code_of_refused(&refused);
                Self::bad(refused.to_string()).with_code(code)
            }
            Conflict::Outdated { .. } => Self::Outdated(sentence(&refused.to_string())),
            // Only a start of a daemon can cause this, never a request.
            Conflict::NodeServed { .. } => Self::Broke(Box::new(refused)),
        }
    }
}

const fn code_of_refused(refused: &Conflict) -> &'static str {
    match refused {
        Conflict::ExternalIdTaken(_) => "external_id_taken",
        Conflict::ClaimEnded => "conflict",
        Conflict::PartnerInactive => "partner_inactive",
        Conflict::TooManyOrgs { .. } => "too_many_orgs",
        Conflict::NumberExists(_) => "number_exists",
        Conflict::NumberVerifiedElsewhere(_) => "number_verified_elsewhere",
        Conflict::NumberHeld { .. } => "number_assigned",
        Conflict::TrunkExists => "trunk_exists",
        Conflict::TrunkInUse { .. } => "trunk_in_use",
        Conflict::AtLimit { limit, .. } => match limit {
            OrgLimit::OutboundTrunks => "too_many_outbound_trunks",
            OrgLimit::Agents => "too_many_agents",
            OrgLimit::Destinations => "too_many_destinations",
            OrgLimit::ApiKeys => "too_many_api_keys",
            OrgLimit::Registrations => "too_many_registrations",
            OrgLimit::Webhooks => "too_many_webhooks",
            OrgLimit::Contacts => "too_many_contacts",
            OrgLimit::Numbers => "too_many_numbers",
            OrgLimit::Handoffs => "too_many_handoffs",
            // Counted in memory and answered 429 there, so the store never reports them.
            OrgLimit::Calls | OrgLimit::Requests | OrgLimit::Streams => "internal_error",
        },
        Conflict::AboveAllowed { .. } => "above_allowed",
        Conflict::NameTaken(_) => "name_taken",
        Conflict::NoNextToken => "no_next_token",
        Conflict::Outdated { .. } => "outdated",
        Conflict::LastAdministrator { .. } => "last_administrator",
        Conflict::ContactOnCall => "contact_on_call",
        Conflict::TooManyPrompts { .. } => "too_many_prompts",
        Conflict::PromptInUse { .. } => "prompt_in_use",
        Conflict::PromptAbsent(_) => "prompt_absent",
        Conflict::OrgNameTaken(_) => "org_name_taken",
        Conflict::PartnerNameTaken(_) => "partner_name_taken",
        Conflict::NetworkDedicated { .. } => "network_dedicated",
        Conflict::NodeServed { .. } => "internal_error",
    }
}

/// Makes the first letter a capital.
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars
        .next()
        .map(|first| first.to_uppercase().chain(chars).collect())
        .unwrap_or_default()
}

impl ApiError {
    /// Stable code of the refusal.
    fn code(&self) -> Cow<'static, str> {
        let code = match self {
            Self::Coded { code, .. } => return code.clone(),
            Self::BadRequest(_) => "bad_request",
            Self::Unauthorized(_) => "unauthorized",
            Self::Forbidden(_) => "forbidden",
            Self::NotFound(_) => "not_found",
            Self::Conflict(_) => "conflict",
            Self::Outdated(_) => "outdated",
            Self::Unprocessable(_) => "idempotency_key_reused",
            Self::Late => "body_timeout",
            Self::TooLarge => "body_too_large",
            Self::MediaType => "unsupported_media_type",
            Self::TooMany { .. } | Self::AtLimit { .. } => "rate_limited",
            Self::TooManyAtOnce(_) => "too_many_at_once",
            Self::Unavailable { .. } => "unavailable",
            Self::OutcomeUnknown(_) => OUTCOME_UNKNOWN,
            Self::BadGateway(_) => "bad_gateway",
            Self::Broke(_) => "internal_error",
        };

        code.into()
    }

    pub(crate) const fn status(&self) -> StatusCode {
        match self {
            Self::Coded { of, .. } => of.status(),
            Self::BadRequest(_) => StatusCode::BAD_REQUEST,
            Self::Unauthorized(_) => StatusCode::UNAUTHORIZED,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::Conflict(_) => StatusCode::CONFLICT,
            Self::Outdated(_) => StatusCode::PRECONDITION_FAILED,
            Self::Unprocessable(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Late => StatusCode::REQUEST_TIMEOUT,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::MediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooMany { .. } | Self::TooManyAtOnce(_) | Self::AtLimit { .. } => {
                StatusCode::TOO_MANY_REQUESTS
            }
            Self::Unavailable { .. } | Self::OutcomeUnknown(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::BadGateway(_) => StatusCode::BAD_GATEWAY,
            Self::Broke(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl From<&ApiError> for Refusal {
    fn from(error: &ApiError) -> Self {
        Self::new(&error.to_string(), error.code())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut refusal = Refusal::from(&self);
        let plain = if let Self::Coded { of, .. } = self {
            *of
        } else {
            self
        };

        if let Self::BadRequest(faults) = &plain {
            // A body of 1 MiB can hold a hundred thousand faults.
            refusal.faults = faults.iter().take(MOST_FAULTS).cloned().collect();
        }

        let mut response = plain.status().into_response();
        response.extensions_mut().insert(refusal);

        match &plain {
            // A refusal that was given two codes: the answer has the one given last.
            Self::Coded { .. } => {}
            Self::Unauthorized(_) => {
                let bearer = HeaderValue::from_static("Bearer");
                let headers = response.headers_mut();
                headers.insert(header::WWW_AUTHENTICATE, bearer);
            }

            Self::TooMany { wait_s, .. }
            | Self::AtLimit { wait_s, .. }
            | Self::Unavailable { wait_s, .. } => {
                let headers = response.headers_mut();
                headers.insert(header::RETRY_AFTER, HeaderValue::from(*wait_s));
            }

            Self::OutcomeUnknown(_) => {
                /// Seconds after which the call may show the outcome.
                const RETRY_AFTER_S: u64 = 1;
                let headers = response.headers_mut();
                headers.insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_S));
            }

            Self::TooManyAtOnce(_) => {
                /// Seconds after which one of the held objects may be free.
                const RETRY_AFTER_S: u64 = 10;
                let headers = response.headers_mut();
                headers.insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_S));
            }

            Self::Broke(cause) => {
                let cause = Cause(chain(&**cause).into());
                response.extensions_mut().insert(cause);
            }

            Self::BadRequest(_)
            | Self::Forbidden(_)
            | Self::NotFound(_)
            | Self::Conflict(_)
            | Self::Outdated(_)
            | Self::Unprocessable(_)
            | Self::Late
            | Self::TooLarge
            | Self::MediaType
            | Self::BadGateway(_) => {}
        }

        response
    }
}

/// Text of the error and its causes, in one line.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let texts: Vec<_> = causes.map(ToString::to_string).collect();
    texts.join(": ")
}

/// Makes a refusing answer. `request`, which knows the path, adds its body.
pub(super) fn refusal(status: StatusCode, refusal: Refusal) -> Response {
    let mut response = status.into_response();
    response.extensions_mut().insert(refusal);
    response
}

/// Answers a request whose handler panicked. The panic hook printed the panic; `request` makes the body.
pub(super) fn panicked() -> Response {
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}

/// Code of a refusal that has none of its own.
pub(super) const fn code_of(status: StatusCode) -> &'static str {
    match status.as_u16() {
        400 => "bad_request",
        401 => "unauthorized",
        403 => "forbidden",
        404 => "not_found",
        405 => "method_not_allowed",
        409 => "conflict",
        _ => "internal_error",
    }
}

/// Adds the body to the refusal of a request for `path`.
pub(super) fn with_body(mut response: Response, path: &str, refusal: &Refusal) -> Response {
    let status = response.status();
    let reason = status.canonical_reason().unwrap_or("Error");
    let body = Json(RefusalView {
        status_code: status.as_u16(),
        message: Cow::Borrowed(&refusal.message),
        error: (!is_partners(path)).then_some(Cow::Borrowed(reason)),
        code: Cow::Borrowed(&refusal.code),
        errors: refusal.faults.iter().map(|text| fault(text)).collect(),
    });

    let (parts, body) = body.into_response().into_parts();
    *response.body_mut() = body;
    // The length is that of the empty body.
    response.headers_mut().remove(header::CONTENT_LENGTH);
    response.headers_mut().extend(parts.headers);

    response
}

/// Splits a fault, noted as `path: what is wrong`. A path has no blanks; a text with blanks before the colon is about
/// the whole body.
fn fault(text: &str) -> FaultView<'_> {
    match text.split_once(": ") {
        Some((path, message)) if !path.contains(' ') => FaultView {
            path: Some(path.into()),
            message: message.into(),
        },
        Some(_) | None => FaultView {
            path: None,
            message: text.into(),
        },
    }
}

fn is_partners(path: &str) -> bool {
    path.strip_prefix("/partner/v1")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// All faults in one sentence; of those beyond [`MOST_FAULTS`], only the number.
fn listed(faults: &[String]) -> String {
    let shown = faults.len().min(MOST_FAULTS);
    let mut text = faults[..shown].join("; ");
    if faults.len() > shown {
        text.push_str(&format!("; and {} more", faults.len() - shown));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_named_up_to_a_bound() {
        let faults: Vec<_> = (0..53).map(|at| format!("f{at}: is wrong")).collect();
        let text = listed(&faults);
        assert!(text.starts_with("f0: is wrong; f1: is wrong; "), "{text}");
        assert!(text.ends_with("f49: is wrong; and 3 more"), "{text}");
        assert_eq!(listed(&faults[..1]), "f0: is wrong");
    }

    #[test]
    fn a_fault_has_its_path_apart() {
        for (text, path, message) in [
            ("name: is required", Some("name"), "is required"),
            ("a.b[2].c: x: y", Some("a.b[2].c"), "x: y"),
            (
                "the body is not well-formed JSON: EOF",
                None,
                "the body is not well-formed JSON: EOF",
            ),
            (
                "the body is not a JSON object",
                None,
                "the body is not a JSON object",
            ),
        ] {
            let found = fault(text);
            let read = (found.path.as_deref(), &*found.message);
            assert_eq!(read, (path, message), "{text}");
        }
    }

    #[test]
    fn a_refusal_is_kept_with_its_code() {
        let refusal = Refusal::new("There is one", "name_taken");
        let read = Refusal::read(&refusal.written());
        assert_eq!(
            (&*read.message, &*read.code),
            ("There is one", "name_taken")
        );
    }

    #[test]
    fn the_partner_api_is_known_by_its_path() {
        for (path, partners) in [
            ("/partner/v1", true),
            ("/partner/v1/orgs", true),
            ("/partner/v10", false),
            ("/phone/partner/v1", false),
        ] {
            assert_eq!(is_partners(path), partners, "{path}");
        }
    }
}
