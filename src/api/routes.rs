//! A router that knows its paths, so that tests can walk all of them.

use axum::Router;
use axum::routing::MethodRouter;

use super::Api;

/// Routes and their paths.
#[derive(Debug, Default)]
pub(super) struct Routes {
    router: Router<Api>,
    paths: Vec<String>,
}

impl Routes {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Adds a path.
    pub(super) fn route(mut self, path: &str, methods: MethodRouter<Api>) -> Self {
        self.paths.push(path.to_owned());
        Self {
            router: self.router.route(path, methods),
            ..self
        }
    }

    /// Adds the paths of others beneath `prefix`.
    pub(super) fn nest(mut self, prefix: &str, beneath: Self) -> Self {
        let paths = beneath.paths.iter();
        self.paths.extend(paths.map(|path| match path.as_str() {
            "/" => prefix.to_owned(),
            path => format!("{prefix}{path}"),
        }));
        Self {
            router: self.router.nest(prefix, beneath.router),
            ..self
        }
    }

    /// Adds the paths of others as they are.
    pub(super) fn merge(mut self, others: Self) -> Self {
        self.paths.extend(others.paths);
        Self {
            router: self.router.merge(others.router),
            ..self
        }
    }

    /// Puts something around what answers; the paths stay.
    pub(super) fn wrapped(self, wrap: impl FnOnce(Router<Api>) -> Router<Api>) -> Self {
        Self {
            router: wrap(self.router),
            ..self
        }
    }

    pub(super) fn into_router(self) -> Router<Api> {
        self.router
    }

    pub(super) fn into_paths(self) -> Vec<String> {
        self.paths
    }
}
