//! Policies of the pages: sources that they may load from, and devices that they may use.

use axum::http::{HeaderName, HeaderValue};

/// Content policy of every page.
pub(super) const CONTENT: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; \
     frame-ancestors 'none'";

/// Name of the header with the devices that a page may use.
pub(super) const PERMISSIONS: HeaderName = HeaderName::from_static("permissions-policy");
/// Its value on every page but the phone's.
pub(super) const NO_DEVICES: &str = "camera=(), geolocation=(), microphone=()";
/// Its value on the phone's page.
pub(super) const MICROPHONE: HeaderValue =
    HeaderValue::from_static("camera=(), geolocation=(), microphone=(self)");

/// Content policy of a page that opens a WebSocket to the console's own address: not every browser takes that for `'self'`.
pub(super) fn with_web_socket(dashboard_url: &str) -> Option<HeaderValue> {
    let (scheme, rest) = dashboard_url.split_once("://")?;
    let authority = rest.split('/').next()?;
    let scheme = match scheme {
        "https" => "wss",
        _ => "ws",
    };
    let named = format!("connect-src 'self' {scheme}://{authority};");
    HeaderValue::from_str(&CONTENT.replace("connect-src 'self';", &named)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_web_socket_is_named_and_nothing_else_is_allowed() {
        let policy = with_web_socket("https://console.example:8443/base").unwrap();
        let policy = policy.to_str().unwrap();
        assert!(
            policy.contains("connect-src 'self' wss://console.example:8443;"),
            "{policy}"
        );
        assert!(policy.contains("script-src 'self';"), "{policy}");
    }
}
