//! Pages over plain HTTP, where other hosts on the network could read a session's cookie. Only this machine gets them, unless the configuration
//! allows more. A trusted proxy reports the browser's scheme by `X-Forwarded-Proto`.

use std::net::SocketAddr;

use axum::extract::ConnectInfo;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, StatusCode};

use super::page::ErrorPage;
use crate::api::client::{address, within};
use crate::api::connection::Encrypted;
use crate::config::Http;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Returns true if no other machine can read the request on its way, or if the operator has accepted that.
pub(super) fn is_permitted(parts: &Parts, http: &Http) -> bool {
    if http.allow_plain_console || parts.extensions.get::<Encrypted>().is_some() {
        return true;
    }
    // Requests without an address come by the control socket, or from this process.
    let Some(ConnectInfo(peer)) = parts.extensions.get::<ConnectInfo<SocketAddr>>() else {
        return true;
    };

    let peer = peer.ip().to_canonical();
    let headers = &parts.headers;
    let is_forwarded = headers.contains_key(FORWARDED_FOR) || headers.contains_key(FORWARDED_PROTO);
    // Only a trusted proxy's word counts. Others are judged by their own address.
    if is_forwarded && within(&http.trusted_proxies, peer) {
        let client = address(parts, &http.trusted_proxies);
        return came_encrypted(headers) || client.is_some_and(|client| client.is_loopback());
    }
    peer.is_loopback()
}

/// Returns true if each proxy reports that it was reached over TLS; one may report the scheme for the proxies before it.
fn came_encrypted(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(FORWARDED_PROTO).iter();
    let mut schemes = lines
        // An unreadable line counts as a hop without TLS.
        .flat_map(|line| line.to_str().unwrap_or("").split(','))
        .map(str::trim)
        .peekable();
    schemes.peek().is_some() && schemes.all(|scheme| scheme.eq_ignore_ascii_case("https"))
}

/// Page shown in place of every other.
pub(super) fn refused() -> ErrorPage {
    ErrorPage::new(
        StatusCode::FORBIDDEN,
        "The console needs HTTPS",
        "Over plain HTTP only the machine on which Trunkline runs has the console, because others on the network could read your session. The \
         operator sets http.tls_certificate, or puts a proxy with TLS in front and lists it in http.trusted_proxies, or accepts the risk with \
         http.allow_plain_console = true.",
    )
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;
    use crate::config::{Config, Sources};

    #[test]
    fn plain_http_is_for_this_machine() {
        let mut http = Config::load(&Sources::default()).unwrap().http;
        http.trusted_proxies = ["127.0.0.1/32", "10.0.0.1/32"]
            .map(|text| text.parse().unwrap())
            .into();

        for (name, peer, headers, permitted) in [
            ("this machine", "127.0.0.1:1", &[][..], true),
            ("this machine, IPv6", "[::1]:1", &[], true),
            ("this machine, mapped", "[::ffff:127.0.0.1]:1", &[], true),
            ("the network", "192.0.2.7:1", &[], false),
            (
                "a header that anybody writes",
                "192.0.2.7:1",
                &[("x-forwarded-proto", "https")],
                false,
            ),
            (
                "a proxy with TLS",
                "10.0.0.1:1",
                &[("x-forwarded-proto", "https")],
                true,
            ),
            (
                "a proxy here, with TLS",
                "127.0.0.1:1",
                &[
                    ("x-forwarded-for", "192.0.2.7"),
                    ("x-forwarded-proto", "https"),
                ],
                true,
            ),
            (
                "a proxy here, without TLS",
                "127.0.0.1:1",
                &[
                    ("x-forwarded-for", "192.0.2.7"),
                    ("x-forwarded-proto", "http"),
                ],
                false,
            ),
            (
                "a proxy here that doesn't say",
                "127.0.0.1:1",
                &[("x-forwarded-for", "192.0.2.7")],
                false,
            ),
            (
                "a proxy here, for this machine",
                "127.0.0.1:1",
                &[("x-forwarded-for", "127.0.0.1")],
                true,
            ),
            (
                "two proxies, one without TLS",
                "10.0.0.1:1",
                &[("x-forwarded-proto", "http, https")],
                false,
            ),
            ("a proxy that is asked itself", "10.0.0.1:1", &[], false),
        ] {
            let mut request = Request::get("/dashboard");
            for (header, value) in headers {
                request = request.header(*header, *value);
            }

            let (mut parts, ()) = request.body(()).unwrap().into_parts();
            parts
                .extensions
                .insert(ConnectInfo(peer.parse::<SocketAddr>().unwrap()));
            assert_eq!(is_permitted(&parts, &http), permitted, "{name}");

            parts.extensions.insert(Encrypted);
            assert!(is_permitted(&parts, &http), "{name}, over TLS");
        }

        http.allow_plain_console = true;
        let (mut parts, ()) = Request::get("/").body(()).unwrap().into_parts();
        parts
            .extensions
            .insert(ConnectInfo("192.0.2.7:1".parse::<SocketAddr>().unwrap()));
        assert!(is_permitted(&parts, &http));
    }
}
