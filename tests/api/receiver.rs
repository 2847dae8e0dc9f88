//! A receiver of webhooks on loopback with a chosen behaviour. It verifies signatures by the specification alone.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Behaviour of a receiver.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Manner {
    /// Answers with this status.
    Status(u16),
    /// Answers with this status and asks for a retry after this many seconds.
    RetryAfter(u16, u32),
    /// Redirects to another path of this receiver.
    Redirect,
    /// Reads the request and answers nothing.
    Silent,
    /// Answers with octets that aren't HTTP.
    Garbage,
    /// Begins a head that doesn't end.
    EndlessHead,
    /// Answers 200 and goes on sending for ever.
    EndlessBody,
    /// Announces a longer body than it sends, and closes.
    Liar,
    /// Reads the request and closes.
    Shut,
    /// Answers 200 without reading the request.
    Deaf,
    /// Reads the request and answers once it has another behaviour.
    Held,
}

/// A request as it came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Got {
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Got {
    pub(crate) fn id(&self) -> &str {
        &self.headers["webhook-id"]
    }

    /// Verifies the signature by the specification, without code of ours.
    pub(crate) fn is_signed_by(&self, secret: &str) -> bool {
        let key = STANDARD
            .decode(secret.strip_prefix("whsec_").expect("the prefix"))
            .expect("base64");
        let signed = format!(
            "{}.{}.{}",
            self.id(),
            self.headers["webhook-timestamp"],
            self.body
        );
        let mac = Hmac::<Sha256>::new_from_slice(&key).expect("any length");
        let mac = mac.chain_update(signed).finalize().into_bytes();
        let expected = format!("v1,{}", STANDARD.encode(mac));
        let signatures = &self.headers["webhook-signature"];
        signatures.split(' ').any(|signature| signature == expected)
    }
}

/// A receiver on loopback.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    scheme: &'static str,
    manner: Arc<Mutex<Manner>>,
    got: Arc<Mutex<Vec<Got>>>,
}

impl Receiver {
    pub(crate) async fn new(manner: Manner) -> Self {
        Self::start(manner, None).await
    }

    /// Starts a receiver that speaks TLS only.
    pub(crate) async fn secure(acceptor: TlsAcceptor) -> Self {
        Self::start(Manner::Status(200), Some(acceptor)).await
    }

    async fn start(manner: Manner, acceptor: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let receiver = Self {
            address,
            scheme: if acceptor.is_some() { "https" } else { "http" },
            manner: Arc::new(Mutex::new(manner)),
            got: Arc::default(),
        };

        let (manner, got) = (Arc::clone(&receiver.manner), Arc::clone(&receiver.got));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (manner, got) = (Arc::clone(&manner), Arc::clone(&got));
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    // Some manners make the sender close first.
                    let _ = match acceptor {
                        Some(acceptor) => match acceptor.accept(stream).await {
                            Ok(stream) => receive(stream, &manner, &got).await,
                            Err(refused) => Err(refused),
                        },
                        None => receive(stream, &manner, &got).await,
                    };
                });
            }
        });
        receiver
    }

    pub(crate) fn behave(&self, manner: Manner) {
        *self.manner.lock().expect("unpoisoned") = manner;
    }

    pub(crate) fn url(&self) -> String {
        self.url_of(&self.address.ip().to_string())
    }

    /// Returns the URL of this receiver under another host name.
    pub(crate) fn url_of(&self, name: &str) -> String {
        format!("{}://{name}:{}/hook?a=b", self.scheme, self.address.port())
    }

    pub(crate) fn take(&self) -> Vec<Got> {
        std::mem::take(&mut *self.got.lock().expect("unpoisoned"))
    }
}

async fn receive(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    manner: &Mutex<Manner>,
    got: &Mutex<Vec<Got>>,
) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let is = |other| *manner.lock().expect("unpoisoned") == other;
    if is(Manner::Deaf) {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        stream.write_all(answer).await?;
        stream.flush().await?;
        tokio::time::sleep(Duration::from_secs(60)).await;
        return Ok(());
    }

    let mut line = String::new();
    stream.read_line(&mut line).await?;

    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }

    let length = headers["content-length"].parse().expect("a length");
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;

    let body = String::from_utf8(body).expect("text");
    let request = Got {
        path,
        headers,
        body,
    };
    got.lock().expect("unpoisoned").push(request);

    while is(Manner::Held) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let manner = *manner.lock().expect("unpoisoned");
    let answer = match manner {
        Manner::Status(status) => format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n"),
        Manner::RetryAfter(status, seconds) => {
            format!("HTTP/1.1 {status} X\r\nRetry-After: {seconds}\r\nContent-Length: 0\r\n\r\n")
        }
        Manner::Redirect => {
            "HTTP/1.1 307 X\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n".to_owned()
        }
        Manner::Garbage => "220 mail.example.com ESMTP\r\n".to_owned(),
        Manner::Liar => "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nshort".to_owned(),
        Manner::Shut | Manner::Deaf | Manner::Held => return Ok(()),
        Manner::Silent => {
            tokio::time::sleep(Duration::from_secs(60)).await;
            return Ok(());
        }
        Manner::EndlessHead => {
            stream.write_all(b"HTTP/1.1 200 OK\r\n").await?;
            loop {
                stream
                    .write_all(b"X-More: of the same, and more of it\r\n")
                    .await?;
            }
        }
        Manner::EndlessBody => {
            stream
                .write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                .await?;
            loop {
                stream.write_all(b"4\r\nmore\r\n").await?;
            }
        }
    };

    stream.write_all(answer.as_bytes()).await?;
    stream.flush().await
}
