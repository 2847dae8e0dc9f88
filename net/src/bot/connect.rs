//! Handshake with a bot: TCP, TLS, and the upgrade of HTTP/1.1 (RFC 6455 §4.1).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use sha1::{Digest as _, Sha1};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::connected::Bot;
use super::request::{BotError, BotRequest};

/// Most octets of the response's head.
const MAX_HEAD: usize = 16 * 1_024;

/// Appended to the key before it is hashed (RFC 6455 §1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Connects to a bot and completes the handshake. Must be called within a runtime of tokio.
///
/// # Errors
/// The bot doesn't accept the WebSocket within `timeout`.
pub async fn connect(request: BotRequest, timeout: Duration) -> Result<Bot, BotError> {
    tokio::time::timeout(timeout, dial(request))
        .await
        .unwrap_or(Err(BotError::Timeout))
}

async fn dial(request: BotRequest) -> Result<Bot, BotError> {
    let url = Url::read(&request.url).ok_or(BotError::Url)?;
    let key = key();
    let head = head(&url, &request.headers, &key)?;
    let mut stream = reach(request.address).await?;

    let (stream, tls, rest) = if url.is_tls {
        let (mut stream, name) = (stream, server_name(url.host)?);
        let connector = TlsConnector::from(over_http1(&request.tls));
        let connecting = connector.connect(name, &mut stream).await;
        let mut secured = connecting.map_err(|error| BotError::Tls(error.to_string()))?;
        let rest = upgrade(&mut secured, &head, &key, &request.headers).await?;
        // tokio's TLS had the socket on loan; a media thread gets it with the state of rustls.
        let tls = secured.into_inner().1;
        (stream, Some(Box::new(tls)), rest)
    } else {
        let rest = upgrade(&mut stream, &head, &key, &request.headers).await?;
        (stream, None, rest)
    };

    // The socket leaves the runtime, and stays non-blocking.
    let socket = stream.into_std().map_err(refused)?;

    Ok(Bot {
        socket,
        tls,
        rest,
        url: request.url,
        start: request.start,
        descriptor: request.descriptor,
    })
}

async fn reach(address: SocketAddr) -> Result<TcpStream, BotError> {
    let stream = TcpStream::connect(address).await.map_err(refused)?;
    // Nagle's algorithm would hold frames of 20 ms back until the last one is acknowledged.
    stream.set_nodelay(true).map_err(refused)?;
    Ok(stream)
}

#[expect(clippy::needless_pass_by_value, reason = "passed to map_err")]
fn refused(error: std::io::Error) -> BotError {
    BotError::Refused(error.to_string())
}

/// Returns the configuration with HTTP/1.1 as the only protocol, since a server that prefers HTTP/2 couldn't upgrade. Sessions aren't resumed,
/// so that bots' tickets don't displace those of SIP peers in the store that `config` has.
fn over_http1(config: &Arc<ClientConfig>) -> Arc<ClientConfig> {
    let mut config = ClientConfig::clone(config);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = Resumption::disabled();
    Arc::new(config)
}

fn server_name(host: &str) -> Result<ServerName<'static>, BotError> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    ServerName::try_from(bare.to_owned()).map_err(|_| BotError::Url)
}

/// Parts of a WebSocket's URL (RFC 6455 §3).
struct Url<'u> {
    is_tls: bool,
    /// Host and port as given.
    authority: &'u str,
    host: &'u str,
    /// Path and query; empty if the URL has none.
    target: &'u str,
}

impl<'u> Url<'u> {
    fn read(url: &'u str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let is_tls = match scheme.to_ascii_lowercase().as_str() {
            "wss" => true,
            "ws" => false,
            _ => return None,
        };
        // The URL goes into the request line and `Host`: a line break in it would begin a header.
        if !rest.bytes().all(|octet| octet.is_ascii_graphic()) {
            return None;
        }

        let rest = rest.split('#').next()?;
        let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        // A colon before `]` is part of an IPv6 address.
        let is_port = |at: usize| !authority[at..].contains(']');
        let host = match authority.rfind(':').filter(|at| is_port(*at)) {
            Some(at) => &authority[..at],
            None => authority,
        };

        // RFC 6455 §3 knows no user and password in the URL. Left in, they would go into `Host`.
        (!host.is_empty() && !authority.contains('@')).then_some(Self {
            is_tls,
            authority,
            host,
            target,
        })
    }
}

fn key() -> String {
    let mut key = [0; 16];
    // An unpredictable key only keeps a cache between us and the bot from being poisoned, so a failure is ignored.
    let _ = ring::default_provider().secure_random.fill(&mut key);
    STANDARD.encode(key)
}

fn head(url: &Url<'_>, headers: &[(String, String)], key: &str) -> Result<String, BotError> {
    let slash = if url.target.starts_with('/') { "" } else { "/" };
    let (target, authority) = (url.target, url.authority);
    let mut head = format!(
        "GET {slash}{target} HTTP/1.1\r\nHost: {authority}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
    );
    for (name, value) in headers {
        // A line break in a name or value would begin a header of its own, or end the head.
        let is_token = |octet: u8| octet.is_ascii_alphanumeric() || b"-_.".contains(&octet);
        let is_text = |octet: u8| octet == b' ' || octet.is_ascii_graphic();
        if name.is_empty() || !name.bytes().all(is_token) || !value.bytes().all(is_text) {
            return Err(BotError::Header);
        }
        head.push_str(&format!("{name}: {value}\r\n"));
    }

    head.push_str("\r\n");
    Ok(head)
}

/// Sends the request and reads the response's head; returns the octets behind it.
async fn upgrade(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    head: &str,
    key: &str,
    headers: &[(String, String)],
) -> Result<Vec<u8>, BotError> {
    stream.write_all(head.as_bytes()).await.map_err(refused)?;
    stream.flush().await.map_err(refused)?;

    let mut answer = Vec::with_capacity(1_024);
    let end = loop {
        if let Some(at) = answer.windows(4).position(|octets| octets == b"\r\n\r\n") {
            break at + 4;
        }
        // A server that sends headers without end is stopped here; one that sends none by the caller's time limit.
        if answer.len() >= MAX_HEAD {
            return Err(BotError::NotWebSocket("its head is too long"));
        }
        if stream.read_buf(&mut answer).await.map_err(refused)? == 0 {
            return Err(BotError::NotWebSocket("it ends within its head"));
        }
    };

    let rest = answer.split_off(end);
    let asked = headers
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("Sec-WebSocket-Protocol"))
        .map(|(_, value)| value.as_str());
    examine(&answer, key, asked)?;

    Ok(rest)
}

/// Checks a response's head (RFC 6455 §4.1, steps 1 to 6 of the client's validation). `asked` are the subprotocols that we offered.
fn examine(head: &[u8], key: &str, asked: Option<&str>) -> Result<(), BotError> {
    let not = BotError::NotWebSocket;
    let head = str::from_utf8(head).map_err(|_| not("it isn't text"))?;
    let mut lines = head.split("\r\n");

    let status = lines.next().and_then(|line| {
        let rest = line.strip_prefix("HTTP/1.1 ")?;
        rest.get(..3)?.parse::<u16>().ok()
    });
    match status {
        Some(101) => {}
        Some(status) => return Err(BotError::Status(status)),
        None => return Err(not("it isn't HTTP/1.1")),
    }

    let fields: Vec<(&str, &str)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name, value.trim()))
        .collect();
    let value = |name: &str| {
        let mut named = fields
            .iter()
            .filter(|(of, _)| of.eq_ignore_ascii_case(name));
        named.next().map(|(_, value)| *value)
    };
    let lists = |list: &str, item: &str| {
        list.split(',')
            .any(|of| of.trim().eq_ignore_ascii_case(item))
    };

    if !value("Upgrade").is_some_and(|to| to.eq_ignore_ascii_case("websocket")) {
        return Err(not("it has no Upgrade: websocket"));
    }

    // A list may come in several lines (RFC 9110 §5.3).
    let mut connection = fields
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case("Connection"));
    if !connection.any(|(_, list)| lists(list, "upgrade")) {
        return Err(not("it has no Connection: upgrade"));
    }

    // Only a server that knows WebSocket can compute it: a cache or a plain HTTP server that echoes headers can't.
    if value("Sec-WebSocket-Accept") != Some(&accept(key)) {
        return Err(not("its Sec-WebSocket-Accept is wrong"));
    }
    if value("Sec-WebSocket-Extensions").is_some_and(|list| !list.is_empty()) {
        return Err(not("it chose an extension that was not offered"));
    }

    match value("Sec-WebSocket-Protocol") {
        Some(chosen) if !asked.is_some_and(|asked| lists(asked, chosen)) => {
            Err(not("it chose a subprotocol that was not offered"))
        }
        Some(_) | None => Ok(()),
    }
}

pub(super) fn accept(key: &str) -> String {
    let hash = Sha1::new().chain_update(key).chain_update(GUID).finalize();
    STANDARD.encode(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Key and accept of the example in RFC 6455 §1.3.
    const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
    const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

    #[test]
    fn urls_are_taken_apart() {
        let cases = [
            (
                "wss://bot.example/media?x=1",
                Some((true, "bot.example", "bot.example", "/media?x=1")),
            ),
            (
                "WS://10.0.0.1:8080",
                Some((false, "10.0.0.1:8080", "10.0.0.1", "")),
            ),
            (
                "wss://[2001:db8::1]:444/a#b",
                Some((true, "[2001:db8::1]:444", "[2001:db8::1]", "/a")),
            ),
            (
                "wss://[2001:db8::1]?q",
                Some((true, "[2001:db8::1]", "[2001:db8::1]", "?q")),
            ),
            ("https://bot.example/", None),
            ("wss:///media", None),
            ("wss://user:secret@bot.example/", None),
            ("wss://bot.example/a b", None),
            ("wss://bot.example/\r\nX: y", None),
            ("bot.example", None),
        ];

        for (url, expected) in cases {
            let read =
                Url::read(url).map(|read| (read.is_tls, read.authority, read.host, read.target));
            assert_eq!(read, expected, "{url}");
        }
    }

    #[test]
    fn a_header_that_would_end_its_line_is_refused() {
        let url = Url::read("ws://bot.example").unwrap();
        let with =
            |name: &str, value: &str| head(&url, &[(name.to_owned(), value.to_owned())], KEY);
        let good = with("X-Twilio-Signature", "a+/=").unwrap();
        assert!(good.starts_with("GET / HTTP/1.1\r\nHost: bot.example\r\n"));
        assert!(good.ends_with("\r\nX-Twilio-Signature: a+/=\r\n\r\n"));
        for (name, value) in [("X", "a\r\nY: b"), ("X:", "a"), ("", "a"), ("X Y", "a")] {
            assert_eq!(with(name, value), Err(BotError::Header), "{name}: {value}");
        }
    }

    #[test]
    fn answers_are_examined() {
        let good = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nconnection: keep-alive\r\nConnection: close, Upgrade\r\nSec-WebSocket-Accept: {ACCEPT}\r\n\r\n"
        );
        let with = |line: &str| good.replace("\r\n\r\n", &format!("\r\n{line}\r\n\r\n"));
        let not = |why| Err(BotError::NotWebSocket(why));
        let cases = [
            ("as in the RFC", good.clone(), None, Ok(())),
            (
                "403",
                "HTTP/1.1 403 Forbidden\r\n\r\n".to_owned(),
                None,
                Err(BotError::Status(403)),
            ),
            (
                "200",
                "HTTP/1.1 200 OK\r\n\r\n".to_owned(),
                None,
                Err(BotError::Status(200)),
            ),
            (
                "SSH",
                "SSH-2.0-x\r\n\r\n".to_owned(),
                None,
                not("it isn't HTTP/1.1"),
            ),
            (
                "no upgrade",
                good.replace("WebSocket", "h2c"),
                None,
                not("it has no Upgrade: websocket"),
            ),
            (
                "no connection",
                good.replace(", Upgrade", ""),
                None,
                not("it has no Connection: upgrade"),
            ),
            (
                "another key",
                good.replace("s3pP", "s3pp"),
                None,
                not("its Sec-WebSocket-Accept is wrong"),
            ),
            (
                "compression",
                with("Sec-WebSocket-Extensions: permessage-deflate"),
                None,
                not("it chose an extension that was not offered"),
            ),
            (
                "a subprotocol of its own",
                with("Sec-WebSocket-Protocol: chat"),
                None,
                not("it chose a subprotocol that was not offered"),
            ),
            (
                "the one offered",
                with("Sec-WebSocket-Protocol: chat"),
                Some("audio, chat"),
                Ok(()),
            ),
        ];

        for (name, answer, asked, expected) in cases {
            assert_eq!(examine(answer.as_bytes(), KEY, asked), expected, "{name}");
        }
    }
}
