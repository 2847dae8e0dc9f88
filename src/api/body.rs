//! Reads JSON bodies field by field. A missing, unknown or wrong field is a fault named by its path, and all faults are
//! answered together. Requests with a body take no query parameters, so these are faults too.
//!
//! This is our own reader because serde's derive stops at the first fault and doesn't name its path.
//!
//! Extracting a body never refuses a request, so that 401, 403 and 404 come before any fault of the body.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts as _, Request};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse as _;
use serde_json::{Map, Value, json};
use trunkline_store::Acting;

use super::error::ApiError;
use super::field_type::FieldType;
use super::json;
use super::query::Query;

/// Maximum length of a body, in octets.
pub(super) const LONGEST: usize = 1 << 20;

/// Body of one request, not parsed yet.
#[derive(Debug)]
pub(crate) struct Body {
    query: Query,
    content_type: Option<String>,
    octets: Result<Bytes, BodyFault>,
}

/// Fault of the `Idempotency-Key`, reported together with the faults of the body.
#[derive(Copy, Clone, Debug)]
pub(super) struct KeyFault(pub(super) &'static str);

/// Reason why a body did not arrive whole.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum BodyFault {
    TooLong,
    Late,
    Broken,
}

impl<S: Send + Sync> FromRequest<S> for Body {
    type Rejection = Infallible;

    async fn from_request(request: Request, state: &S) -> Result<Self, Infallible> {
        let (mut parts, body) = request.into_parts();
        let mut query = Query::from_request_parts(&mut parts, state).await?;
        // `idempotency` found this fault before the handler checked the credential, and left it for here.
        if let Some(KeyFault(fault)) = parts.extensions.get() {
            query.refuse(*fault);
        }

        let request = Request::from_parts(parts, body);
        let content_type = request
            .headers()
            .get(header::CONTENT_TYPE)
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());

        // A body that declares itself too long isn't read.
        let declared = request.headers().get(header::CONTENT_LENGTH);
        let length = declared.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if length.is_some_and(|length| length > LONGEST as u64) {
            return Ok(Self {
                query,
                content_type,
                octets: Err(BodyFault::TooLong),
            });
        }

        let octets = Bytes::from_request(request, state)
            .await
            .map_err(|rejection| match is_late(&rejection) {
                true => BodyFault::Late,
                false if rejection.into_response().status() == StatusCode::PAYLOAD_TOO_LARGE => {
                    BodyFault::TooLong
                }
                false => BodyFault::Broken,
            });

        Ok(Self {
            query,
            content_type,
            octets,
        })
    }
}

/// Returns true if the error is the body's timeout (see `connection`).
pub(super) fn is_late(fault: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(fault), |fault| fault.source()).any(|fault| {
        let io = fault.downcast_ref::<std::io::Error>();
        io.is_some_and(|fault| fault.kind() == std::io::ErrorKind::TimedOut)
    })
}

impl Body {
    /// Parses the body as an object and returns its fields. An empty body without a type, or of JSON, counts as `{}`.
    ///
    /// # Errors
    /// 408, 413, 415, or 400 if it isn't a JSON object.
    pub(super) fn fields(self) -> Result<Fields, ApiError> {
        let octets = self.octets.map_err(|cut| match cut {
            BodyFault::TooLong => ApiError::TooLarge,
            BodyFault::Late => ApiError::Late,
            BodyFault::Broken => ApiError::bad("the body did not arrive whole"),
        })?;

        let mut faults = self.query.faults();
        let map = match self.content_type.as_deref() {
            None if octets.is_empty() => Map::new(),
            // Some clients send `Content-Type` with every request, even without a body.
            Some(content_type) if is_json(content_type) && octets.trim_ascii().is_empty() => {
                Map::new()
            }
            Some(content_type) if is_json(content_type) => object(&octets).map_err(|fault| {
                faults.push(fault);
                ApiError::BadRequest(std::mem::take(&mut faults))
            })?,
            Some(_) | None => return Err(ApiError::MediaType),
        };

        // Also names that no reader knows: such a request is refused, so they don't reach the audit log.
        Acting::fields(map.keys().map(String::as_str));
        Ok(Fields {
            faults,
            ..Fields::of(map, String::new())
        })
    }

    /// Checks that the body has no fields, for requests whose path says everything.
    ///
    /// # Errors
    /// As [`fields`](Self::fields), and 400 for any field.
    pub(super) fn empty(self) -> Result<(), ApiError> {
        self.fields()?.done(|| Some(()))
    }
}

/// Makes a schema that accepts `null` as well.
fn or_null(mut schema: Value) -> Value {
    if let Some(words) = schema.get_mut("enum").and_then(Value::as_array_mut) {
        words.push(Value::Null);
    }
    match schema.get_mut("type") {
        Some(kind) => *kind = json!([kind.clone(), "null"]),
        None => return json!({"anyOf": [schema, {"type": "null"}]}),
    }
    schema
}

fn object(octets: &[u8]) -> Result<Map<String, Value>, String> {
    match json::read(octets)? {
        Value::Object(map) => Ok(map),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err("the body is not a JSON object".to_owned())
        }
    }
}

/// Returns true for `application/json` and other types of that syntax (RFC 6839 §3.1), in UTF-8 (RFC 8259 §8.1).
fn is_json(content_type: &str) -> bool {
    let mut parts = content_type.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default().to_ascii_lowercase();
    let utf8 = parts.all(|parameter| {
        let charset = parameter
            .split_once('=')
            .filter(|(name, _)| name.eq_ignore_ascii_case("charset"));
        charset.is_none_or(|(_, charset)| charset.trim_matches('"').eq_ignore_ascii_case("utf-8"))
    });
    let json = essence == "application/json"
        || (essence.starts_with("application/") && essence.ends_with("+json"));
    json && utf8
}

/// Fields of an object that haven't been read yet.
#[derive(Debug)]
pub(crate) struct Fields {
    map: Map<String, Value>,
    /// Prefix of field names in faults: empty, or for example `create.`.
    path: String,
    null_is_absent: bool,
    faults: Vec<String>,
    /// Schema to fill in, when the reader runs for the OpenAPI document instead of a request.
    sketch: Option<Sketch>,
}

/// JSON Schema that grows with each field that is read.
type Sketch = Arc<Mutex<Value>>;

impl Fields {
    pub(super) fn of(map: Map<String, Value>, path: String) -> Self {
        Self {
            map,
            path,
            null_is_absent: false,
            faults: Vec::new(),
            sketch: None,
        }
    }

    /// Returns the schema of the objects that `reader` accepts, by running it on an empty object and noting the fields
    /// that it reads.
    pub(super) fn schema_read_by(reader: impl FnOnce(Self)) -> Value {
        let schema = json!({"type": "object", "properties": {}, "additionalProperties": false});
        let sketch = Arc::new(Mutex::new(schema));
        let mut fields = Self::of(Map::new(), String::new());
        fields.sketch = Some(Arc::clone(&sketch));
        reader(fields);
        let mut schema = sketch.lock().expect("nothing panics while it is held");
        schema.take()
    }

    /// Lets `amend` add to the schema what the fields alone don't express.
    pub(super) fn amend_schema(&self, amend: impl FnOnce(&mut Value)) {
        if let Some(sketch) = &self.sketch {
            amend(&mut sketch.lock().expect("nothing panics while it is held"));
        }
    }

    fn note<S: FieldType>(&self, name: &str, field_type: &S, nullable: bool, required: bool) {
        self.amend_schema(|schema| {
            let field_type = field_type.schema();
            schema["properties"][name] = if nullable {
                or_null(field_type)
            } else {
                field_type
            };
            if required {
                let names = &mut schema["required"];
                match names.as_array_mut() {
                    Some(names) => names.push(name.into()),
                    None => *names = json!([name]),
                }
            }
        });
    }

    /// Treats `null` as absent. For requests that create an object by the fields of its update, where `null` has
    /// nothing to clear.
    pub(super) fn take_null_as_absent(&mut self) {
        self.null_is_absent = true;
    }

    /// Reads a required field. Notes a fault and returns `None` if it is absent or wrong.
    pub(super) fn required<S: FieldType>(&mut self, name: &str, field_type: S) -> Option<S::Read> {
        self.note(name, &field_type, false, true);
        match self.map.remove(name) {
            Some(value) => self.read(name, value, &field_type),
            None => {
                self.refuse(name, "is required");
                None
            }
        }
    }

    /// Reads a field that may be absent; `null` counts as absent.
    pub(super) fn optional<S: FieldType>(&mut self, name: &str, field_type: S) -> Option<S::Read> {
        self.note(name, &field_type, true, false);
        let value = self.map.remove(name).filter(|value| !value.is_null())?;
        self.read(name, value, &field_type)
    }

    /// Reads a field of an update that always has a value; absent leaves the value unchanged.
    pub(super) fn change<S: FieldType>(&mut self, name: &str, field_type: S) -> Option<S::Read> {
        self.note(name, &field_type, self.null_is_absent, false);
        let value = self.map.remove(name)?;
        if self.null_is_absent && value.is_null() {
            return None;
        }
        self.read(name, value, &field_type)
    }

    /// Reads a field of an update that may be empty: absent leaves it unchanged, `null` clears it.
    pub(super) fn clearable<S: FieldType>(
        &mut self,
        name: &str,
        field_type: S,
    ) -> Option<Option<S::Read>> {
        self.note(name, &field_type, true, false);
        let value = self.map.remove(name)?;
        if value.is_null() {
            return (!self.null_is_absent).then_some(None);
        }
        self.read(name, value, &field_type).map(Some)
    }

    /// Returns true if the field is present and hasn't been read yet.
    pub(super) fn has(&self, name: &str) -> bool {
        self.map.contains_key(name)
    }

    /// Returns true if the field is present, not `null`, and hasn't been read yet.
    pub(super) fn has_value(&self, name: &str) -> bool {
        self.map.get(name).is_some_and(|value| !value.is_null())
    }

    fn read<S: FieldType>(&mut self, name: &str, value: Value, field_type: &S) -> Option<S::Read> {
        let path = format!("{}{name}", self.path);
        field_type.read(value, &path, &mut self.faults)
    }

    /// Notes a fault of the field `name`. A fault between several fields is noted under one of them.
    pub(super) fn refuse(&mut self, name: &str, fault: impl std::fmt::Display) {
        self.faults.push(format!("{}{name}: {fault}", self.path));
    }

    /// Notes a fault of every field that is left.
    pub(super) fn refuse_rest(&mut self, fault: &str) {
        for name in std::mem::take(&mut self.map).keys() {
            self.refuse(name, fault);
        }
    }

    /// Finishes reading; fields that are left are unknown. `build` runs only without faults, so it finds every required
    /// field.
    ///
    /// # Errors
    /// 400 with every fault.
    pub(super) fn done<T>(self, build: impl FnOnce() -> Option<T>) -> Result<T, ApiError> {
        // There are no values: `build` would find every required field missing, and panic.
        if self.sketch.is_some() {
            return Err(ApiError::bad("nothing was read"));
        }
        let faults = self.faults();
        if faults.is_empty() {
            Ok(build().expect("what is missing is a fault"))
        } else {
            Err(ApiError::BadRequest(faults))
        }
    }

    /// Finishes reading and returns every fault.
    pub(super) fn faults(mut self) -> Vec<String> {
        let path = &self.path;
        let unknown = self.map.keys();
        self.faults
            .extend(unknown.map(|name| format!("{path}{name}: is no field of this request")));
        self.faults
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::field_type::{Bool, Count, Text};
    use super::*;

    fn fields(value: Value) -> Fields {
        Fields::of(value.as_object().unwrap().clone(), String::new())
    }

    #[test]
    fn the_body_of_json_is_told_by_its_type() {
        for (content_type, json) in [
            ("application/json", true),
            ("Application/JSON; charset=UTF-8", true),
            ("application/json;charset=\"utf-8\"; q=1", true),
            ("application/merge-patch+json", true),
            ("application/json; charset=latin1", false),
            ("text/json", false),
            ("text/plain", false),
            ("application/x-www-form-urlencoded", false),
            ("", false),
        ] {
            assert_eq!(is_json(content_type), json, "{content_type}");
        }
    }

    #[test]
    fn a_body_is_an_object_or_refused() {
        let json = Some("application/json");
        for (content_type, octets, status) in [
            (None, "", None),
            (json, "{}", None),
            (json, "", None),
            (json, " \n", None),
            (
                Some("text/plain"),
                "",
                Some(StatusCode::UNSUPPORTED_MEDIA_TYPE),
            ),
            (json, "[]", Some(StatusCode::BAD_REQUEST)),
            (json, "{\"a\":", Some(StatusCode::BAD_REQUEST)),
            (None, "{}", Some(StatusCode::UNSUPPORTED_MEDIA_TYPE)),
            (
                Some("text/plain"),
                "{}",
                Some(StatusCode::UNSUPPORTED_MEDIA_TYPE),
            ),
        ] {
            let body = Body {
                query: Query::default(),
                content_type: content_type.map(str::to_owned),
                octets: Ok(Bytes::from_static(octets.as_bytes())),
            };
            let refused = body
                .empty()
                .err()
                .map(|error| error.into_response().status());
            assert_eq!(refused, status, "{content_type:?} {octets}");
        }

        let cut = Body {
            query: Query::default(),
            content_type: None,
            octets: Err(BodyFault::TooLong),
        };

        assert!(matches!(cut.empty(), Err(ApiError::TooLarge)));
    }

    #[test]
    fn absent_null_and_given_are_told_apart() {
        let given = json!({"null": null, "given": 7});

        for (name, optional, change, clearable) in [
            ("absent", None, None, None),
            ("null", None, None, Some(None)),
            ("given", Some(7), Some(7), Some(Some(7))),
        ] {
            let count = || Count::new(1..=9);
            let fields = || fields(given.clone());
            assert_eq!(fields().optional(name, count()), optional, "{name}");
            assert_eq!(fields().change(name, count()), change, "{name}");
            assert_eq!(fields().clearable(name, count()), clearable, "{name}");
            let mut new = fields();
            new.take_null_as_absent();
            assert_eq!(new.change(name, count()), optional, "{name}");
            let mut new = fields();
            new.take_null_as_absent();
            assert_eq!(new.clearable(name, count()), optional.map(Some), "{name}");
        }
    }

    #[test]
    fn every_fault_is_named_by_its_path() {
        let mut fields = fields(json!({"name": "", "on": 1, "colour": "red", "gone": null}));
        let name = fields.required("name", Text::line(1..=9));
        let size = fields.required("size", Count::new(1..=9));
        let on = fields.optional("on", Bool);
        let gone = fields.change("gone", Bool);
        assert_eq!((name.as_deref(), size, on, gone), (None, None, None, None));
        let fault = fields.done(|| Some(())).unwrap_err().to_string();
        assert_eq!(
            fault,
            "name: must not be empty; size: is required; on: expected true or false, not a number; \
             gone: expected true or false, not null; colour: is no field of this request"
        );
    }
}
