//! HTTPS: both versions of HTTP, and certificates that are replaced while connections are up.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode, Version};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use trunkline_testkit::{Daemon, DaemonSetup, process::Deadline};

/// A certificate authority, and the files that the daemon reads.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Self {
            issuer: CertifiedIssuer::self_signed(params, key).expect("a certificate"),
            folder: tempfile::tempdir().expect("a folder"),
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a new certificate for 127.0.0.1, and its key; returns the certificate.
    fn issue(&self) -> CertificateDer<'static> {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
        let leaf = params.signed_by(&key, &self.issuer).expect("a certificate");
        std::fs::write(self.file("chain.pem"), leaf.pem()).expect("written");
        std::fs::write(self.file("key.pem"), key.serialize_pem()).expect("written");
        leaf.der().clone()
    }

    fn serve(&self) -> Daemon {
        let chain = self.file("chain.pem").display().to_string();
        let key = self.file("key.pem").display().to_string();
        DaemonSetup::new()
            .set("TRUNKLINE__HTTP__TLS_CERTIFICATE", &chain)
            .set("TRUNKLINE__HTTP__TLS_KEY", &key)
            .serve()
    }

    /// Opens a TLS connection that trusts the authority and offers these protocols.
    async fn connect(&self, at: SocketAddr, protocols: &[&str]) -> TlsStream<TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).expect("a root");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| (*name).into()).collect();

        let stream = TcpStream::connect(at).await.expect("it connects");
        let name = ServerName::from(at.ip());
        let connecting = TlsConnector::from(Arc::new(config)).connect(name, stream);
        connecting.await.expect("a TLS handshake")
    }

    /// Returns the certificate that a new connection gets.
    async fn shown(&self, at: SocketAddr) -> CertificateDer<'static> {
        let stream = self.connect(at, &[]).await;
        let chain = stream.get_ref().1.peer_certificates().expect("a chain");
        chain[0].clone().into_owned()
    }
}

fn healthz(at: SocketAddr) -> Request<Body> {
    Request::get(format!("https://{at}/healthz"))
        .header("Host", at.to_string())
        .body(Body::empty())
        .expect("a sound request")
}

#[tokio::test]
async fn both_versions_of_http_are_spoken_over_tls() {
    let authority = Authority::new();
    authority.issue();
    let daemon = authority.serve();
    let at = daemon.setup.http;

    for (offered, version) in [
        (&["h2", "http/1.1"][..], Version::HTTP_2),
        (&["http/1.1"], Version::HTTP_11),
        (&[], Version::HTTP_11),
    ] {
        let stream = authority.connect(at, offered).await;
        let agreed = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
        assert_eq!(
            agreed.as_deref(),
            offered.first().map(|name| name.as_bytes())
        );

        let response = if version == Version::HTTP_2 {
            let (mut sender, connection) =
                http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                    .await
                    .expect("HTTP/2");
            tokio::spawn(connection);
            sender.send_request(healthz(at)).await
        } else {
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
                .await
                .expect("HTTP/1.1");
            tokio::spawn(connection);
            sender.send_request(healthz(at)).await
        };
        let response = response.expect("an answer");
        assert_eq!(
            (response.status(), response.version()),
            (StatusCode::OK, version)
        );
        let always = response.headers().get("Strict-Transport-Security");
        assert!(always.is_some_and(|always| always == "max-age=31536000"));
    }

    let plain = trunkline_testkit::http::get(at, "/healthz", None);
    assert_eq!(plain, None, "HTTP without TLS gets no answer");
    daemon.log_line(&[&format!("http=https://{at} ")]);
}

/// With HTTP/2 a client can begin many requests and read no answer, and each answer takes memory. So a connection that never authenticated gets
/// few of its requests run at once; one with a key has all of them answered.
#[tokio::test]
async fn a_client_without_credentials_has_few_requests_run_at_once() {
    const MANY: usize = 60;

    let authority = Authority::new();
    authority.issue();
    let daemon = authority.serve();
    let at = daemon.setup.http;
    let begin = async |path: &str, key: Option<&str>| {
        let stream = authority.connect(at, &["h2"]).await;
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(1)
            .handshake(TokioIo::new(stream))
            .await
            .expect("HTTP/2");
        tokio::spawn(connection);

        let mut answers = JoinSet::new();
        for _ in 0..MANY {
            let mut request = Request::get(format!("https://{at}{path}"));
            if let Some(key) = key {
                request = request.header("Authorization", format!("Bearer {key}"));
            }
            let request = request.body(Body::empty()).expect("a sound request");
            let mut sender = sender.clone();
            answers.spawn(async move { sender.send_request(request).await });
        }
        answers
    };

    let mut answers = begin("/docs", None).await;
    let first = answers.join_next().await.expect("an answer");
    let mut unread = vec![first.expect("it runs")];
    while let Ok(answer) = timeout(Duration::from_secs(2), answers.join_next()).await {
        unread.push(answer.expect("one more").expect("it runs"));
    }
    assert!(unread.len() < 10, "{} run at once", unread.len());

    // An answer that is given up makes room for the next request.
    unread.pop();
    assert!(answers.join_next().await.is_some(), "the next one runs");

    let mut answers = begin("/phone", Some(daemon.key())).await;
    let mut unread = Vec::new();
    while let Some(answer) = answers.join_next().await {
        unread.push(answer.expect("it runs").expect("an answer"));
    }
    let answered = unread.iter().filter(|answer| answer.status() == 200);
    assert_eq!(answered.count(), MANY);
}

#[tokio::test]
async fn a_certificate_is_replaced_without_cutting_a_connection() {
    let authority = Authority::new();
    let first = authority.issue();
    let daemon = authority.serve();
    let at = daemon.setup.http;
    assert_eq!(authority.shown(at).await, first);

    let stream = authority.connect(at, &["http/1.1"]).await;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("HTTP");
    tokio::spawn(connection);

    let second = authority.issue();
    assert_ne!(first, second);
    assert_eq!(authority.shown(at).await, first, "not read before SIGHUP");

    reload(&daemon, READ, "the second certificate");
    assert_eq!(authority.shown(at).await, second);
    let answer = sender
        .send_request(healthz(at))
        .await
        .expect("the old connection is up");
    assert_eq!(answer.status(), StatusCode::OK);

    let another = KeyPair::generate().expect("a key").serialize_pem();
    for (name, file, content) in [
        ("no PEM", "chain.pem", "rubbish".to_owned()),
        ("another's key", "key.pem", another),
    ] {
        authority.issue();
        std::fs::write(authority.file(file), content).expect("written");
        reload(&daemon, "the old one stays", name);
        assert_eq!(authority.shown(at).await, second, "{name}");
    }

    let third = authority.issue();
    reload(&daemon, READ, "the third certificate");
    assert_eq!(authority.shown(at).await, third);
    assert!(!daemon.log().contains("PRIVATE KEY"));
}

/// Text of the log line for a certificate that was taken.
const READ: &str = "certificate read again";

/// Sends SIGHUP, and waits until the log has one more line with this text.
fn reload(daemon: &Daemon, line: &str, case: &str) {
    let lines = || daemon.log().matches(line).count();
    let before = lines();
    daemon.process.signal("HUP");

    let logged = Deadline::after(Duration::from_secs(10)).poll(|| (lines() > before).then_some(()));
    assert!(logged.is_some(), "{case}: {}", daemon.log());
}
