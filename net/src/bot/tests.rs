//! The handshake over sockets on loopback.

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
    }
}

/// Connects to a server that answers as given; `None`: never.
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
