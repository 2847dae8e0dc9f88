//! URL of a WebSocket (RFC 6455 §3), read as strictly as a connection needs it.

use std::net::IpAddr;

/// Longest URL in octets.
pub const LONGEST: usize = 500;

/// URL of a WebSocket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WsUrl<'u> {
    /// TLS is used.
    pub is_secure: bool,
    /// Name or address, without brackets.
    pub host: &'u str,
    /// The port, given or implied.
    pub port: u16,
    /// Value of `Host`.
    pub authority: &'u str,
    /// Path and query; at least `/`.
    pub path: &'u str,
}

impl<'u> WsUrl<'u> {
    /// Parses a URL. `None` if it isn't a WebSocket's, is longer than [`LONGEST`], holds a character that a URL can't, a user name or a
    /// fragment, or has a query without a path.
    pub fn parse(text: &'u str) -> Option<Self> {
        let (is_secure, rest) = match text.strip_prefix("wss://") {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix("ws://")?),
        };
        let is_octet = |octet: u8| octet.is_ascii_graphic() && !b"\"<>\\^`{|}#".contains(&octet);
        // Checked before anything is split: host and path go into the head of the handshake as they are, so no line break
        // may pass.
        if text.len() > LONGEST || !text.bytes().all(is_octet) {
            return None;
        }

        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);

        // A request line needs a path before its query.
        let path = match path {
            "" => "/",
            path if path.starts_with('?') => return None,
            path => path,
        };

        let (host, port) = host_and_port(authority)?;
        Some(Self {
            is_secure,
            host,
            port: match port {
                Some(port) => port,
                None if is_secure => 443,
                None => 80,
            },
            authority,
            path,
        })
    }
}

fn host_and_port(authority: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (host, port)
        }
        None => {
            let at = authority.find(':').unwrap_or(authority.len());
            authority.split_at(at)
        }
    };

    let is_label = |label: &str| {
        let is_octet = |octet: u8| octet.is_ascii_alphanumeric() || b"-_".contains(&octet);
        (1..=63).contains(&label.len()) && label.bytes().all(is_octet)
    };
    let name = host.strip_suffix('.').unwrap_or(host);
    if host.parse::<IpAddr>().is_err() && !name.split('.').all(is_label) {
        return None;
    }

    let port = match port.strip_prefix(':') {
        Some(digits) if digits.bytes().all(|octet| octet.is_ascii_digit()) => {
            Some(digits.parse().ok().filter(|port| *port > 0)?)
        }
        Some(_) => return None,
        None if port.is_empty() => None,
        None => return None,
    };
    Some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_read() {
        for (text, expected) in [
            (
                "wss://bot.example.com",
                (true, "bot.example.com", 443, "bot.example.com", "/"),
            ),
            (
                "ws://127.0.0.1:8765/ws",
                (false, "127.0.0.1", 8765, "127.0.0.1:8765", "/ws"),
            ),
            (
                "wss://[2001:db8::1]:1/a?b=c&d",
                (true, "2001:db8::1", 1, "[2001:db8::1]:1", "/a?b=c&d"),
            ),
            (
                "ws://localhost/",
                (false, "localhost", 80, "localhost", "/"),
            ),
        ] {
            let url = WsUrl::parse(text).expect(text);
            let read = (url.is_secure, url.host, url.port, url.authority, url.path);
            assert_eq!(read, expected, "{text}");
        }
    }

    #[test]
    fn what_is_none_is_refused() {
        let long = format!("wss://a/{}", "b".repeat(LONGEST));
        for text in [
            "",
            "wss://",
            "https://a",
            "wss:a",
            "wss://a b",
            "wss://a:0",
            "wss://a:99999",
            "wss://a:x",
            "wss://u@a",
            "wss://a/#b",
            "wss://a?b",
            "wss://[::1",
            "wss://[a]/",
            "wss://a..b",
            "WSS://a",
            "wss://a/{x}",
            "wss://\u{e9}",
            "wss://a:+1",
            &long,
        ] {
            assert_eq!(WsUrl::parse(text), None, "{text}");
        }
    }
}
