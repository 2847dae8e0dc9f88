//! The API's operations, each declared once, beside its handler: a declaration makes the route, the check of scopes, and the operation of the OpenAPI
//! document. From that come the page of the API, and the options of the command line's verbs, which `cli::resource::nouns` names.

use std::convert::Infallible;

use axum::Extension;
use axum::handler::Handler;
use axum::routing::MethodRouter;
use serde_json::Value;

use super::Api;
use super::caller::RequiredScopes;
use super::idempotency::Idempotent;
use super::openapi::{OpenApiBuilder, Operation};
use super::routes::Routes;
use crate::config::Config;

/// Operations under construction.
pub(super) struct Operations<'c> {
    config: &'c Config,
    routes: Routes,
    /// Method, path and audience of each operation.
    declared: Vec<(String, String, Audience)>,
    /// `None` where only the routes are wanted.
    document: Option<OpenApiBuilder>,
}

/// Those who may use the operations of an area.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Audience {
    /// Everybody.
    Public,
    /// A key of the org with scopes: those for reading, and those for changes.
    Org {
        read: &'static [&'static str],
        write: &'static [&'static str],
    },
    /// A key of the partner, below `/partner/v1`.
    Partner,
    /// The widget token of a visitor.
    Visitor,
    /// The `widget_token` of an org, which its website shows to everybody.
    Site,
    /// The operator, on the control socket, below `/operator`.
    Operator,
}

impl Audience {
    /// Returns the beginning of the paths, which declarations leave out.
    const fn prefix(self) -> &'static str {
        match self {
            Self::Partner => "/partner/v1",
            Self::Operator => "/operator",
            Self::Public | Self::Org { .. } | Self::Visitor | Self::Site => "",
        }
    }

    /// Returns the scopes that a key of the org needs.
    pub fn scopes(self, method: &str) -> &'static [&'static str] {
        match self {
            Self::Org { read, .. } if method == "get" => read,
            Self::Org { write, .. } => write,
            Self::Public | Self::Partner | Self::Visitor | Self::Site | Self::Operator => &[],
        }
    }
}

/// Operations of one subject, which is a tag in the document.
pub(super) struct Area<'o, 'c> {
    all: &'o mut Operations<'c>,
    tag: &'static str,
    audience: Audience,
}

impl<'c> Operations<'c> {
    /// Starts a list of routes.
    pub(super) fn routes(config: &'c Config) -> Self {
        Self {
            config,
            routes: Routes::new(),
            declared: Vec::new(),
            document: None,
        }
    }

    /// Starts a list that is described as well.
    pub(super) fn described(config: &'c Config) -> Self {
        Self {
            document: Some(OpenApiBuilder::new()),
            ..Self::routes(config)
        }
    }

    pub(super) const fn config(&self) -> &'c Config {
        self.config
    }

    pub(super) const fn area(&mut self, tag: &'static str, audience: Audience) -> Area<'_, 'c> {
        Area {
            all: self,
            tag,
            audience,
        }
    }

    /// Area of those who manage orgs: [`Audience::Partner`] or [`Audience::Operator`].
    pub(super) const fn provisioning(&mut self, by: Audience) -> Area<'_, 'c> {
        let tag = if matches!(by, Audience::Operator) {
            "Operator"
        } else {
            "Partner provisioning"
        };
        self.area(tag, by)
    }

    /// Adds a path that the document leaves out.
    pub(super) fn undescribed(&mut self, path: &str, methods: MethodRouter<Api>) {
        self.routes.add(path, methods);
    }

    /// The operations, each with its method in lower case, its path and its audience.
    pub(super) fn into_declared(self) -> Vec<(String, String, Audience)> {
        self.declared
    }

    /// The routes of the operations.
    pub(super) fn into_routes(self) -> Routes {
        self.routes
    }

    /// The operations as an OpenAPI document, without any if they weren't described.
    pub(super) fn into_document(self) -> Value {
        let document = self.document.unwrap_or_else(OpenApiBuilder::new);
        document.finish(self.config)
    }
}

/// Defines a method of [`Area`] for each HTTP method.
macro_rules! methods {
    ($($method:ident),*) => {
        impl Area<'_, '_> {$(
            /// Declares an operation of this method: its path, its handler, its id in the document, a summary of one sentence, and what else the
            /// document says of it.
            pub(super) fn $method<H: Handler<T, Api>, T: 'static>(
                &mut self,
                path: &str,
                handler: H,
                id: &str,
                summary: &str,
                describe: impl FnOnce(Operation<'_>) -> Operation<'_>,
            ) {
                let route = axum::routing::$method(handler);
                self.add(stringify!($method), path, route, id, summary, describe);
            }
        )*}
    };
}
methods!(get, post, put, patch, delete);

impl Area<'_, '_> {
    /// Declares a `POST` that takes `Idempotency-Key`.
    pub(super) fn post_once<C, H, T: 'static>(
        &mut self,
        path: &str,
        handler: Idempotent<C, H>,
        id: &str,
        summary: &str,
        describe: impl FnOnce(Operation<'_>) -> Operation<'_>,
    ) where
        Idempotent<C, H>: Handler<T, Api>,
    {
        self.post(path, handler, id, summary, |operation| {
            describe(operation).once()
        });
    }

    /// Declares an operation whose route has more than a handler: its method and path, the route, and the rest as for the others.
    pub(super) fn add(
        &mut self,
        method: &str,
        path: &str,
        route: MethodRouter<Api>,
        id: &str,
        summary: &str,
        describe: impl FnOnce(Operation<'_>) -> Operation<'_>,
    ) {
        let (tag, audience) = (self.tag, self.audience);
        let path = format!("{}{path}", audience.prefix());
        let scopes = audience.scopes(method);
        let route = match scopes {
            [] => route,
            scopes => route.layer::<_, Infallible>(Extension(RequiredScopes(scopes))),
        };
        self.all.routes.add(&path, route);

        let declared = &mut self.all.declared;
        declared.push((method.to_owned(), path.clone(), audience));
        let Some(document) = &mut self.all.document else {
            return;
        };
        document.add(method, &path, id, summary, |operation| {
            let operation = operation.tag(tag);
            describe(match audience {
                Audience::Public => operation.public(),
                Audience::Org { .. } => operation.org(scopes),
                Audience::Partner => operation.partner(),
                Audience::Visitor => operation.visitor(),
                Audience::Site => operation.site(),
                Audience::Operator => operation,
            })
        });
    }
}
