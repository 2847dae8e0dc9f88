//! Routes as a flat list, which tests can walk.

use axum::Router;
use axum::routing::MethodRouter;

use super::Api;

/// Message for a method that a path doesn't take.
pub(super) const UNKNOWN_METHOD: &str = "This path does not take this method; see Allow";

/// Paths with their handlers.
#[derive(Debug, Default)]
pub(crate) struct Routes(Vec<(String, MethodRouter<Api>)>);

impl Routes {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds a path.
    pub(crate) fn route(mut self, path: &str, methods: MethodRouter<Api>) -> Self {
        self.0.push((path.to_owned(), methods));
        self
    }

    /// Adds a method of a path.
    pub(super) fn add(&mut self, path: &str, methods: MethodRouter<Api>) {
        match self.0.iter_mut().find(|(known, _)| known == path) {
            Some((_, known)) => *known = std::mem::take(known).merge(methods),
            None => self.0.push((path.to_owned(), methods)),
        }
    }

    /// Adds the paths of another list under `prefix`.
    pub(crate) fn nest(mut self, prefix: &str, beneath: Self) -> Self {
        let beneath = beneath.0.into_iter();
        self.0.extend(beneath.map(|(path, methods)| {
            let path = match path.as_str() {
                "/" => prefix.to_owned(),
                path => format!("{prefix}{path}"),
            };
            (path, methods)
        }));
        self
    }

    /// Adds the paths of another list unchanged.
    pub(crate) fn merge(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }

    /// Wraps the handlers of every path.
    pub(crate) fn wrapped(self, wrap: impl Fn(MethodRouter<Api>) -> MethodRouter<Api>) -> Self {
        let wrapped = self.0.into_iter();
        Self(
            wrapped
                .map(|(path, methods)| (path, wrap(methods)))
                .collect(),
        )
    }

    pub(super) fn into_router(self) -> Router<Api> {
        let routes = self.0.into_iter();
        routes.fold(Router::new(), |router, (path, methods)| {
            router.route(&path, methods)
        })
    }

    pub(crate) fn into_paths(self) -> Vec<String> {
        self.0.into_iter().map(|(path, _)| path).collect()
    }
}
