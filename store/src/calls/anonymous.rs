//! Name of a caller who isn't named.

/// Replacement for a number or for a text that mentions a person: the anonymous user part of RFC 3323.
pub const ANONYMOUS: &str = "anonymous";
