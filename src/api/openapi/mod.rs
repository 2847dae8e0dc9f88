//! `/openapi.json`: the API as an OpenAPI 3.1 document, generated from the code. Request schemas come from the readers,
//! answer schemas from the types that are serialized.
//!
//! [`Operations`](super::operations::Operations) declares the operations.

mod events;
mod form;
mod operation;
mod pages;
mod property_texts;

use std::sync::OnceLock;

use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE, VARY};
use axum::response::{IntoResponse as _, Response};
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::body::Fields;
use super::{ApiError, SCOPES, gzip};
use crate::config::Config;

pub(super) use operation::Operation;
pub(super) use pages::page;

/// Version of the API in the document.
const VERSION: &str = "1.0-beta";

/// OpenAPI document under construction.
pub(super) struct OpenApiBuilder {
    generator: SchemaGenerator,
    paths: Map<String, Value>,
}

/// Document and page, rendered when they are first requested. All answers share their octets: many that nobody reads take no more memory than one.
#[derive(Debug, Default)]
pub(super) struct RenderedDocs {
    pub(super) json: OnceLock<Rendered>,
    pub(super) page: OnceLock<Rendered>,
}

/// A text as it is, and in gzip.
#[derive(Debug)]
pub(super) struct Rendered {
    plain: Bytes,
    packed: Bytes,
}

impl Rendered {
    pub(super) fn new(text: String) -> Self {
        let packed = gzip::packed(text.as_bytes());
        Self {
            plain: text.into(),
            packed,
        }
    }

    /// Answers the text in the form that the client takes.
    pub(super) fn answer(&self, headers: &HeaderMap, content_type: &'static str) -> Response {
        let general = [(CONTENT_TYPE, content_type), (VARY, "accept-encoding")];
        match gzip::is_taken(headers) {
            true => (general, [(CONTENT_ENCODING, "gzip")], self.packed.clone()).into_response(),
            false => (general, self.plain.clone()).into_response(),
        }
    }
}

impl OpenApiBuilder {
    pub(super) fn new() -> Self {
        let settings = SchemaSettings::draft2020_12()
            .for_serialize()
            .with(|settings| {
                settings.definitions_path = "/components/schemas".into();
                settings.meta_schema = None;
            });
        Self {
            generator: settings.into_generator(),
            paths: Map::new(),
        }
    }

    /// Adds an operation: method in lower case, path, id and a one-sentence summary. `describe` adds the rest.
    pub(super) fn add(
        &mut self,
        method: &str,
        path: &str,
        id: &str,
        summary: &str,
        describe: impl FnOnce(Operation<'_>) -> Operation<'_>,
    ) {
        let operation = describe(Operation::new(
            &mut self.generator,
            method,
            path,
            id,
            summary,
        ))
        .finish();
        let methods = self.paths.entry(path).or_insert_with(|| json!({}));
        methods[method] = operation;
    }

    pub(super) fn finish(mut self, config: &Config) -> Value {
        let mut schemas = self.generator.take_definitions(true);
        schemas.insert("Error".to_owned(), error(true));
        schemas.insert("PartnerError".to_owned(), error(false));
        let (webhooks, of_events) = events::webhooks();
        schemas.extend(of_events);

        let mut document = json!({
            "openapi": "3.1.0",
            "info": {
                "title": "Trunkline",
                "version": VERSION,
                "description": "Phone agents, trunks, calls, widget contacts, handoff analytics and partner provisioning.\n\n\
                    Every answer has `X-Request-Id`; every authenticated one has `RateLimit` and `RateLimit-Policy`.",
            },
            "servers": [{"url": config.http.public_url.as_deref().unwrap_or("/")}],
            "paths": self.paths,
            "webhooks": webhooks,
            "components": {
                "schemas": schemas,
                "headers": operation::headers(),
                "responses": operation::refusals(),
                "securitySchemes": security(),
            },
        });

        form::shape(&mut document);
        // Components are answers and events. Schemas of requests are inline, and go on refusing unknown fields.
        if let Some(schemas) = document["components"]["schemas"].as_object_mut() {
            schemas.values_mut().for_each(form::open);
            form::name_branches(schemas);
        }

        document
    }
}

/// Returns the schema of what `reader` reads.
pub(super) fn read_by<T>(reader: impl FnOnce(Fields) -> Result<T, ApiError>) -> Value {
    Fields::schema_read_by(|fields| drop(reader(fields)))
}

/// Returns the schema of a body without fields.
pub(super) fn no_fields() -> Value {
    read_by(|fields| fields.done(|| Some(())))
}

fn error(reason: bool) -> Value {
    let mut schema = json!({
        "type": "object",
        "properties": {
            "statusCode": {"type": "integer"},
            "message": {"type": "string"},
            "code": {"type": "string", "pattern": "^[a-z0-9_]+$", "description": "What was refused, for programs. A code never changes its meaning; new ones may come."},
            "errors": {
                "type": "array",
                "description": "Every fault of the request, where its status is 400.",
                "items": {
                    "type": "object",
                    "properties": {
                        "path": {"type": ["string", "null"], "description": "The field or parameter; `null` for the body as a whole."},
                        "message": {"type": "string"},
                    },
                    "required": ["path", "message"],
                },
            },
        },
        "required": ["statusCode", "message"],
    });

    if reason {
        schema["properties"]["error"] =
            json!({"type": "string", "description": "The standard reason phrase."});
        schema["required"] = json!(["statusCode", "message", "error"]);
    }

    schema
}

fn security() -> Value {
    json!({
        "orgKey": {
            "type": "http", "scheme": "bearer", "bearerFormat": "JWT",
            "description": format!("An API key of an org. An operation names the scope that it needs, one of {}.", SCOPES.join(", ")),
        },
        "partnerKey": {"type": "http", "scheme": "bearer", "description": "A key of a partner."},
        "widgetToken": {
            "type": "http", "scheme": "bearer", "bearerFormat": "JWT",
            "description": "A token of a contact, which the widget operations answer. It ends after 24 hours; `/.well-known/jwks.json` has the keys to verify it.",
        },
        "embedToken": {
            "type": "http", "scheme": "bearer",
            "description": "The `widget_token` of an org, which the pages of its website show: it names the org and proves nothing.",
        },
        "sessionToken": {
            "type": "http", "scheme": "bearer",
            "description": "The token that came with a call to the agent's runtime: it shows its session, hangs up and transfers its call, and ends with it.",
        },
    })
}
