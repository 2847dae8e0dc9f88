//! The handshake over loopback sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::tls;

fn request(url: String, address: SocketAddr) -> BotRequest {
    BotRequest {
        url,
        address,
        tls: Arc::new(tls::client(rustls::RootCertStore::empty())),
        headers: Vec::new(),
        start: BotStart {
            protocol: BotProtocol::Twilio,
            account_sid: "AC".to_owned(),
            call_sid: "CA".to_owned(),
            stream_sid: "MZ".to_owned(),
            parameters: Vec::new(),
        },
        descriptor: None,
    }
}

/// Connects to a server that answers with `answer`; `None`: never.
async fn answered(scheme: &str, answer: Option<&'static [u8]>) -> BotError {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = [0; 1_024];
        let _ = stream.read(&mut head).await.unwrap();
        match answer {
            Some(answer) => stream.write_all(answer).await.unwrap(),
            None => std::future::pending().await,
        }
    });

    let asked = request(format!("{scheme}://{address}/media"), address);
    let failed = connect(asked, Duration::from_millis(500))
        .await
        .unwrap_err();

    server.abort();
    failed
}

#[tokio::test]
async fn a_failure_is_named() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let refused = connect(
        request(format!("ws://{address}"), address),
        Duration::from_secs(5),
    )
    .await;
    assert_eq!(refused.unwrap_err().as_str(), "refused");

    assert_eq!(
        answered("ws", Some(b"HTTP/1.1 403 No\r\n\r\n")).await,
        BotError::Status(403)
    );
    assert_eq!(
        answered("ws", Some(b"hello\r\n\r\n")).await.as_str(),
        "not_websocket"
    );
    assert_eq!(answered("ws", Some(b"")).await.as_str(), "not_websocket");
    assert_eq!(answered("ws", None).await, BotError::Timeout);
    assert_eq!(
        answered("wss", Some(b"HTTP/1.1 101 No TLS\r\n\r\n"))
            .await
            .as_str(),
        "tls"
    );
}

/// A server's certificate for `localhost`, and the client that trusts it.
fn certified() -> (Arc<rustls::ServerConfig>, Arc<rustls::ClientConfig>) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let certificate = made.cert.der().clone();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());

    let server = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();

    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).unwrap();
    (Arc::new(server), Arc::new(tls::client(roots)))
}

/// Accepts one WebSocket over TLS with a ping behind the answer; returns what the client sent until it closed.
fn serve_tls(
    listener: &std::net::TcpListener,
    config: Arc<rustls::ServerConfig>,
) -> std::io::Result<Vec<u8>> {
    use std::io::{Read as _, Write as _};

    let (socket, _) = listener.accept()?;
    let connection = rustls::ServerConnection::new(config).unwrap();
    let mut stream = rustls::StreamOwned::new(connection, socket);
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut octet = [0];
        stream.read_exact(&mut octet)?;
        head.push(octet[0]);
    }

    let head = String::from_utf8(head).unwrap();
    let key = head
        .lines()
        .find_map(|line| line.strip_prefix("Sec-WebSocket-Key: "))
        .unwrap();
    let accept = connect::accept(key);
    let answer = format!(
        "HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    stream.write_all(answer.as_bytes())?;
    stream.write_all(b"\x89\x02hi")?;
    stream.write_all(&[&[0x82, 126, 0xff, 0xff][..], &[0; 0xffff]].concat())?;

    let mut received = Vec::new();
    stream.read_to_end(&mut received)?;
    Ok(received)
}

/// Dials a server on TLS by this name; returns the server's thread as well.
async fn dial(
    (server, client): (Arc<rustls::ServerConfig>, Arc<rustls::ClientConfig>),
    host: &str,
) -> (
    Result<Bot, BotError>,
    std::thread::JoinHandle<std::io::Result<Vec<u8>>>,
) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serving = std::thread::spawn(move || serve_tls(&listener, server));
    let asked = BotRequest {
        tls: client,
        ..request(format!("wss://{host}:{}/media", address.port()), address)
    };
    (connect(asked, Duration::from_secs(5)).await, serving)
}

#[tokio::test]
async fn a_bot_on_tls_is_read_and_written() {
    let (server, client) = certified();
    let (bot, serving) = dial((server, client), "localhost").await;
    let bot = bot.unwrap();

    let (mut link, mut reader, _) = link::Link::new(bot).unwrap();
    let mut seen = Vec::new();
    while seen.len() < 2 {
        let turn = link.read(reader.buffer());
        assert!(!matches!(turn, link::LinkProgress::Ended(_)), "{turn:?}");
        while let Some(received) = reader.next().unwrap() {
            seen.push(format!("{received:?}"));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(seen, ["Ping([104, 105])", "Binary"]);

    for _ in 0..3 {
        link.send(frame::Opcode::Text, &[b'x'; 300], [0; 4])
            .unwrap();
    }
    link.finish();
    drop(link);
    let received = serving.join().unwrap().unwrap();
    assert_eq!(received.len(), 3 * 308);
    assert_eq!(received[..8], [0x81, 0x80 | 126, 1, 44, 0, 0, 0, 0]);
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused() {
    let (server, client) = certified();
    let (refused, serving) = dial((server, client), "bot.example").await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.as_str(), "tls");
    assert!(serving.join().unwrap().is_err());
}

/// Tickets carry no data, so without a bound a bot could send them without end and keep a turn from ending.
#[tokio::test]
async fn a_bot_that_sends_many_tickets_is_ended() {
    let (mut server, client) = certified();
    Arc::get_mut(&mut server).unwrap().send_tls13_tickets = 40;
    let (bot, serving) = dial((server, client), "localhost").await;
    let bot = bot.unwrap();

    let (mut link, mut reader, _) = link::Link::new(bot).unwrap();
    let end = loop {
        match link.read(reader.buffer()) {
            link::LinkProgress::Ended(end) => break end,
            link::LinkProgress::Emptied | link::LinkProgress::MoreToRead => {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    };
    assert_eq!(end, BotEnd::Protocol);

    drop(link);
    // The server's side may end with an error.
    let _ = serving.join().unwrap();
}
