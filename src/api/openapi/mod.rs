//! `/openapi.json`: the API as an OpenAPI 3.1 document, generated from the code. Request schemas come from the readers,
//! answer schemas from the types that are serialized.
//!
//! The `openapi` file of each area lists its operations, with credentials and statuses; a test compares them with the
//! router.

mod events;
mod form;
mod operation;
mod pages;
mod property_texts;

use std::sync::OnceLock;

use axum::body::Bytes;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::body::Fields;
use super::{ApiError, SCOPES};
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

/// Operations of one area for org keys, with one scope for reading and one for changes.
pub(super) struct Area<'b> {
    builder: &'b mut OpenApiBuilder,
    tag: &'static str,
    read: &'static str,
    write: &'static str,
}

/// Document and page, rendered when they are first requested. All answers share their octets: many that nobody reads take no more memory than one.
#[derive(Debug, Default)]
pub(super) struct RenderedDocs {
    pub(super) json: OnceLock<Bytes>,
    pub(super) page: OnceLock<Bytes>,
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
        let operation = describe(Operation::new(&mut self.generator, path, id, summary)).finish();
        let methods = self.paths.entry(path).or_insert_with(|| json!({}));
        methods[method] = operation;
    }

    /// Starts an area with this tag, and with a scope for reading and one for changes.
    pub(super) const fn area(
        &mut self,
        tag: &'static str,
        read: &'static str,
        write: &'static str,
    ) -> Area<'_> {
        Area {
            builder: self,
            tag,
            read,
            write,
        }
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

/// Defines a method of [`Area`] for each HTTP method.
macro_rules! methods {
    ($($method:ident $scope:ident),*) => {
        impl Area<'_> {$(
            /// Adds an operation with this method, as [`OpenApiBuilder::add`] does.
            pub(super) fn $method(
                &mut self,
                path: &str,
                id: &str,
                summary: &str,
                describe: impl FnOnce(Operation<'_>) -> Operation<'_>,
            ) {
                let (tag, scope) = (self.tag, self.$scope);
                self.builder.add(stringify!($method), path, id, summary, |op| describe(op.tag(tag).org(scope)));
            }
        )*}
    };
}
methods!(get read, post write, put write, patch write, delete write);

/// Returns the schema of what `reader` reads.
pub(super) fn read_by<T>(reader: impl FnOnce(Fields) -> Result<T, ApiError>) -> Value {
    Fields::schema_read_by(|fields| drop(reader(fields)))
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
            "description": "The `widget_token` of an org, which stands in the pages of its website: it names the org and proves nothing.",
        },
        "sessionToken": {
            "type": "http", "scheme": "bearer",
            "description": "The token that came with a call to the agent's runtime: it shows its session, hangs up and transfers its call, and ends with it.",
        },
    })
}
