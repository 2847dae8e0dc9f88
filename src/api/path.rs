//! What the path names. As with a body, taking it refuses nothing: whoever lacks the scope is told that first.

use std::convert::Infallible;

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use trunkline_store::Kind;
use uuid::Uuid;

use super::error::ApiError;
use super::field_type::id;

/// The parameters of the path.
#[derive(Debug)]
pub(super) struct Named(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Infallible> {
        // Refused only where an escape is no UTF-8, which names nothing.
        let named = RawPathParams::from_request_parts(parts, state).await;
        Ok(Self(named.map_or_else(
            |_| Vec::new(),
            |named| {
                let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
                named.iter().map(owned).collect()
            },
        )))
    }
}

impl Named {
    /// The parameter as it stands there.
    pub(super) fn text(&self, parameter: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(name, _)| name == parameter)?;
        Some(value)
    }

    /// The id of a thing of this kind.
    ///
    /// # Errors
    /// What is no id names nothing: the same 404 as for another org's.
    pub(super) fn id(&self, parameter: &str, kind: Kind) -> Result<Uuid, ApiError> {
        self.text(parameter)
            .and_then(id)
            .ok_or_else(|| ApiError::absent(kind))
    }
}
