//! Receivers of webhooks over TLS: a receiver whose certificate can't be verified is sent nothing.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_rustls::TlsAcceptor;
use trunkline::config::Webhooks;
use trunkline::webhooks::{WebhookSender, trusted};
use trunkline_store::{EventType, NewEvent};

use crate::receiver::{Manner, Receiver};
use crate::test_api::{Tenant, TestApi, id_of, now, pass};

/// A certificate authority, and the file that holds its certificate.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

/// Age of a receiver's certificate.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Age {
    Good,
    Expired,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let authority = Self {
            issuer: CertifiedIssuer::self_signed(params, key).expect("a certificate"),
            folder: tempfile::tempdir().expect("a folder"),
        };
        std::fs::write(authority.file(), authority.issuer.pem()).expect("it can be written");
        authority
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Returns an acceptor with a certificate for this name or address.
    fn acceptor(&self, name: &str, age: Age) -> TlsAcceptor {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        if age == Age::Expired {
            params.not_after = date_time_ymd(2020, 1, 1);
        }

        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("it is signed");
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key);
        Arc::new(config.expect("a pair")).into()
    }
}

struct WebhookTest {
    api: TestApi,
    tenant: Tenant,
    sender: WebhookSender,
    webhook: String,
}

impl WebhookTest {
    /// Makes a webhook to this URL, and a sender that trusts this authority beside the system's.
    async fn new(authority: Option<&Authority>, url: &str) -> Self {
        let api = TestApi::with("[webhooks]\nallow_private_addresses = true\n").await;
        let tenant = api.tenant("Acme").await;
        let config = Webhooks {
            allow_private_addresses: true,
            timeout: Duration::from_secs(5),
            tls_ca: authority.map(Authority::file),
        };
        let roots = trusted(&config).expect("authorities");
        let sender = WebhookSender::new(api.store.clone(), &config, roots, 0, now);
        let made = api
            .post("/webhooks", &tenant.token, json!({"url": url}))
            .await;
        let made = made.with(201);
        let event = NewEvent::new(
            tenant.org,
            EventType::TrunkLost,
            &json!({"number": 7}),
            now(),
        );
        api.store.emit(event).await.expect("emitted");

        Self {
            api,
            tenant,
            sender,
            webhook: format!("/webhooks/{}", id_of(&made)),
        }
    }

    /// Makes one attempt and returns the only delivery.
    async fn attempted(&self) -> Value {
        assert_eq!(self.sender.deliver_due().await.expect("attempted"), 1);
        let path = format!("{}/deliveries", self.webhook);
        let page = self.api.get(&path, &self.tenant.token).await.with(200);
        assert_eq!(page["total"], 1, "{page}");
        page["items"][0].clone()
    }
}

#[tokio::test]
async fn a_receiver_that_proves_its_name_is_sent_to() {
    let authority = Authority::new();
    for name in ["localhost", "127.0.0.1"] {
        let receiver = Receiver::secure(authority.acceptor(name, Age::Good)).await;
        let test = WebhookTest::new(Some(&authority), &receiver.url_of(name)).await;
        let delivery = test.attempted().await;
        assert_eq!(delivery["status"], "delivered", "{name}: {delivery}");
        let got = receiver.take();
        let body: Value = serde_json::from_str(&got[0].body).expect("JSON");
        assert_eq!((got.len(), &body["data"]), (1, &json!({"number": 7})));
    }
}

#[tokio::test]
async fn one_that_does_not_is_sent_nothing_and_tried_again() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let good = ours.acceptor("localhost", Age::Good);

    for (name, acceptor, trusted) in [
        (
            "another name",
            ours.acceptor("example.com", Age::Good),
            Some(&ours),
        ),
        (
            "a part of the name",
            ours.acceptor("*.localhost", Age::Good),
            Some(&ours),
        ),
        (
            "another authority",
            theirs.acceptor("localhost", Age::Good),
            Some(&ours),
        ),
        (
            "expired",
            ours.acceptor("localhost", Age::Expired),
            Some(&ours),
        ),
        ("nobody is trusted but by the system", good.clone(), None),
    ] {
        let receiver = Receiver::secure(acceptor).await;
        let test = WebhookTest::new(trusted, &receiver.url_of("localhost")).await;
        let delivery = test.attempted().await;

        assert_eq!(delivery["status"], "pending", "{name}: {delivery}");
        assert_eq!(delivery["log"][0]["fault"], "tls", "{name}: {delivery}");
        assert_eq!(receiver.take(), [], "{name}");

        if trusted.is_none() {
            continue;
        }
        // Once the receiver has a valid certificate, the pending delivery arrives.
        let repaired = Receiver::secure(good.clone()).await;
        let there = json!({"url": repaired.url_of("localhost")});
        let token = &test.tenant.token;
        test.api.patch(&test.webhook, token, there).await.with(200);
        pass(3600);
        assert_eq!(test.attempted().await["status"], "delivered", "{name}");
        assert_eq!(repaired.take()[0].id(), delivery["event_id"], "{name}");
    }
}

#[tokio::test]
async fn one_that_speaks_no_tls_is_sent_nothing() {
    let authority = Authority::new();
    let receiver = Receiver::new(Manner::Status(200)).await;
    let url = receiver.url().replace("http:", "https:");
    let test = WebhookTest::new(Some(&authority), &url).await;
    assert_eq!(test.attempted().await["log"][0]["fault"], "tls");
    assert!(
        receiver
            .take()
            .iter()
            .all(|got| !got.body.contains("trunk.lost"))
    );
}

#[test]
fn a_file_of_authorities_that_holds_none_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("ca.pem");
    let config = |file: PathBuf| Webhooks {
        allow_private_addresses: false,
        timeout: Duration::from_secs(1),
        tls_ca: Some(file),
    };
    assert!(trusted(&config(file.clone())).is_err(), "there is no file");
    std::fs::write(&file, "no certificate").expect("written");
    assert!(trusted(&config(file)).is_err());
}
