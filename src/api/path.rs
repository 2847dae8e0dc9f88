//! Parameters of the path. Like extracting a body, extracting them refuses nothing, so that 401 and 403 come first.

use std::convert::Infallible;

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use trunkline_store::Kind;
use uuid::Uuid;

use super::error::ApiError;
use super::field_type::id;

/// The parameters of the path.
#[derive(Debug)]
pub(crate) struct Named(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Infallible> {
        // This fails only if an escape isn't UTF-8, and such a path names nothing.
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
    /// Text of a parameter; `None` if it holds the character NUL, which no name has and PostgreSQL refuses.
    pub(crate) fn text(&self, parameter: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(name, _)| name == parameter)?;
        (!value.contains('\0')).then_some(value)
    }

    /// Returns the id of an object of this kind.
    ///
    /// # Errors
    /// 404 for a text that is no id, the same as for another org's object.
    pub(crate) fn id(&self, parameter: &str, kind: Kind) -> Result<Uuid, ApiError> {
        self.text(parameter)
            .and_then(id)
            .ok_or_else(|| ApiError::absent(kind))
    }
}
