//! `/webhooks`, and the requests that receivers get: signed, retried over days, and never another body under the same id.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpListener;
use trunkline::config::Webhooks;
use trunkline::webhooks::{WebhookSender, trusted};
use trunkline_store::{EventType, NewEvent, deliveries};
use uuid::Uuid;

use crate::receiver::{Got, Manner, Receiver};
use crate::test_api::{
    Tenant, TestApi, all_absent, all_lack, found, id_of, masked, now, pass, walk,
};

const WEBHOOKS: &str = "/webhooks";
const PRIVATE: &str = "[webhooks]\nallow_private_addresses = true\n";

/// An API whose webhooks may lead to loopback, with a sender that sends when the test calls `deliver`.
pub(crate) struct WebhookTest {
    pub(crate) api: TestApi,
    sender: WebhookSender,
    pub(crate) tenant: Tenant,
}

impl WebhookTest {
    pub(crate) async fn new() -> Self {
        let api = TestApi::with(PRIVATE).await;
        let tenant = api.tenant("Acme").await;
        let sender = sender(&api, true);
        Self {
            api,
            sender,
            tenant,
        }
    }

    async fn post(&self, path: &str, body: Value) -> crate::test_api::Answer {
        self.api.post(path, &self.tenant.token, body).await
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.api.get(path, &self.tenant.token).await.with(200)
    }

    /// Makes a webhook for this receiver; returns its path and its secret.
    pub(crate) async fn webhook(&self, receiver: &Receiver) -> (String, String) {
        let made = self.post(WEBHOOKS, json!({"url": receiver.url()})).await;
        let made = made.with(201);
        let secret = made["secret"].as_str().expect("a secret").to_owned();
        (format!("{WEBHOOKS}/{}", id_of(&made)), secret)
    }

    pub(crate) async fn emit(&self, number: u32) {
        emit(&self.api, self.tenant.org, EventType::TrunkLost, number).await;
    }

    pub(crate) async fn deliver(&self) -> usize {
        self.sender.deliver_due().await.expect("attempted")
    }

    /// Returns the only delivery of a webhook.
    pub(crate) async fn delivery(&self, webhook: &str) -> Value {
        let page = self.get(&format!("{webhook}/deliveries")).await;
        assert_eq!(page["total"], 1, "{page}");
        page["items"][0].clone()
    }
}

fn sender(api: &TestApi, allow_private_addresses: bool) -> WebhookSender {
    let config = Webhooks {
        allow_private_addresses,
        timeout: Duration::from_secs(5),
        tls_ca: None,
    };
    let roots = trusted(&config).expect("the system's");
    WebhookSender::new(api.store.clone(), &config, roots, 0, now)
}

async fn emit(api: &TestApi, org: Uuid, kind: EventType, number: u32) {
    let event = NewEvent::new(org, kind, &json!({ "number": number }), now());
    api.store.emit(event).await.expect("emitted");
}

#[tokio::test]
async fn webhooks_are_made_changed_and_deleted() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let new = json!({
        "url": "https://hooks.example.com/in?x=y",
        "description": "CRM",
        "types": ["call.ended", "call.started", "call.ended"],
    });

    let mut made = api.post(WEBHOOKS, &tenant.token, new).await.with(201);
    let secret = made["secret"].take();
    assert!(
        secret
            .as_str()
            .is_some_and(|secret| secret.starts_with("whsec_") && secret.len() == 50)
    );
    insta::assert_json_snapshot!("a_webhook", masked(made.clone()));

    let path = format!("{WEBHOOKS}/{}", id_of(&made));
    let shown = api.get(&path, &tenant.token).await;
    assert!(!shown.text.contains("whsec_"), "{}", shown.text);
    assert_eq!(
        shown.with(200)["types"],
        json!(["call.started", "call.ended"])
    );
    pass(1);

    let change = json!({"types": [], "enabled": false, "description": null});
    let changed = api.patch(&path, &tenant.token, change).await.with(200);
    assert_eq!(
        (
            &changed["url"],
            &changed["types"],
            &changed["enabled"],
            &changed["description"]
        ),
        (&made["url"], &json!([]), &json!(false), &Value::Null)
    );
    assert_eq!(changed["updated_at"], "2026-01-31T12:00:01.000Z");

    pass(1);
    let rotated = api
        .post(&format!("{path}/rotate-secret"), &tenant.token, json!({}))
        .await
        .with(200);
    assert_ne!(rotated["secret"], secret);
    assert_eq!(rotated["old_secret_expires_at"], "2026-02-01T12:00:02.000Z");

    for turn in 1..20 {
        let new = json!({"url": format!("https://example.com/{turn}")});
        api.post(WEBHOOKS, &tenant.token, new).await.with(201);
    }

    let one_more = json!({"url": "https://example.com/"});
    let refused = api.post(WEBHOOKS, &tenant.token, one_more).await.with(409);
    assert_eq!(
        refused["message"],
        "The org may have 20 webhooks, and has them already"
    );
    assert_eq!(walk(&api, WEBHOOKS, &tenant.token, 7, "id").await.len(), 20);

    let deleted = api.delete(&path, &tenant.token).await.with(200);
    assert_eq!(deleted, json!({"success": true}));
    all_absent(&[api.get(&path, &tenant.token).await], "webhook");
}

#[tokio::test]
async fn what_is_no_webhook_is_refused() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    for (body, fault) in [
        (json!({}), "url: is required"),
        (json!({"url": "example.com"}), "url: is not an https: URL"),
        (
            json!({"url": "http://example.com/"}),
            "url: must be an https: URL",
        ),
        (
            json!({"url": "https://10.0.0.7/"}),
            "url: names no address of the public Internet",
        ),
        (
            json!({"url": "https://a:b@example.com/"}),
            "url: must not hold a user name",
        ),
        (
            json!({"url": "https://example.com/", "types": ["call.lost"]}),
            "types[0]: \"call.lost\" is none of",
        ),
        (
            json!({"url": "https://example.com/", "colour": 1}),
            "colour: is no field",
        ),
    ] {
        let refused = api
            .post(WEBHOOKS, &tenant.token, body.clone())
            .await
            .with(400);
        let message = refused["message"].as_str().expect("a message");
        assert!(message.contains(fault), "{body}: {message}");
    }

    let (_, narrow) = api.key(tenant.org, &["calls:read"]).await;
    all_lack(
        &[
            api.get(WEBHOOKS, &narrow).await,
            api.post(WEBHOOKS, &narrow, json!({})).await,
            api.get("/webhooks/x/deliveries", &narrow).await,
        ],
        "webhooks:write",
    );
}

#[tokio::test]
async fn another_tenant_sees_nothing() {
    let test = WebhookTest::new().await;
    let receiver = Receiver::new(Manner::Status(200)).await;
    let (webhook, _) = test.webhook(&receiver).await;
    test.emit(1).await;
    test.deliver().await;
    let delivery = id_of(&test.delivery(&webhook).await);
    let delivery = format!("{webhook}/deliveries/{delivery}");

    let api = &test.api;
    let other = api.tenant("Bolt").await;
    emit(api, other.org, EventType::TrunkLost, 2).await;
    assert_eq!(test.deliver().await, 0, "another org's events aren't sent");

    let token = &other.token;
    all_absent(
        &[
            api.get(&webhook, token).await,
            api.patch(&webhook, token, json!({"enabled": false})).await,
            api.delete(&webhook, token).await,
            api.post(&format!("{webhook}/rotate-secret"), token, json!({}))
                .await,
            api.get(&format!("{webhook}/deliveries"), token).await,
            api.get(&delivery, token).await,
            api.post(&format!("{delivery}/redeliver"), token, json!({}))
                .await,
        ],
        "webhook",
    );

    let absent = format!("{webhook}/deliveries/{}", Uuid::now_v7());
    all_absent(&[api.get(&absent, &test.tenant.token).await], "delivery");
    assert_eq!(api.get(WEBHOOKS, token).await.with(200)["total"], 0);
}

#[tokio::test]
async fn events_are_sent_signed_and_logged() {
    let test = WebhookTest::new().await;
    let receiver = Receiver::new(Manner::Status(204)).await;
    let (webhook, secret) = test.webhook(&receiver).await;
    let narrow = json!({"types": ["key.revoked"]});
    let (other, _) = test.webhook(&receiver).await;
    let token = &test.tenant.token;
    test.api.patch(&other, token, narrow).await.with(200);

    test.emit(7).await;
    assert_eq!(test.deliver().await, 1);

    let got = receiver.take();
    let [got] = got.as_slice() else {
        panic!("one request: {got:?}")
    };
    assert!(got.is_signed_by(&secret));
    assert_eq!(got.path, "/hook?a=b");
    assert_eq!(got.headers["content-type"], "application/json");
    assert_eq!(got.headers["host"], receiver.address.to_string());
    assert_eq!(
        got.headers["webhook-timestamp"],
        now().as_secs().to_string()
    );

    let body: Value = serde_json::from_str(&got.body).expect("JSON");
    assert_eq!(
        (&body["type"], &body["data"]),
        (&json!("trunk.lost"), &json!({"number": 7}))
    );
    assert_eq!(body["id"], got.id());

    let delivery = test.delivery(&webhook).await;
    insta::assert_json_snapshot!("a_delivery", masked(delivery.clone()));

    let whole = test
        .get(&format!("{webhook}/deliveries/{}", id_of(&delivery)))
        .await;
    assert_eq!(whole["event"], body);
    let failed = test
        .get(&format!("{webhook}/deliveries?status=failed"))
        .await;
    assert_eq!(failed["total"], 0);
}

#[tokio::test]
async fn both_secrets_sign_for_a_day_after_a_rotation() {
    let test = WebhookTest::new().await;
    let receiver = Receiver::new(Manner::Status(200)).await;
    let (webhook, old) = test.webhook(&receiver).await;
    pass(1);
    let rotated = test
        .post(&format!("{webhook}/rotate-secret"), json!({}))
        .await
        .with(200);
    let new = rotated["secret"].as_str().expect("a secret");

    for (passed, old_signs) in [(0, true), (86_399, true), (1, false)] {
        pass(passed);
        test.emit(1).await;
        test.deliver().await;
        let got = receiver.take().remove(0);
        assert!(got.is_signed_by(new));
        assert_eq!(
            got.is_signed_by(&old),
            old_signs,
            "{}",
            got.headers["webhook-signature"]
        );
    }
}

#[tokio::test]
async fn an_hour_of_500_loses_nothing_and_sends_no_other_body_under_an_id() {
    let test = WebhookTest::new().await;
    let receiver = Receiver::new(Manner::Status(500)).await;
    let (webhook, secret) = test.webhook(&receiver).await;
    let mut sent: BTreeMap<String, String> = BTreeMap::new();
    let mut attempts = 0;

    let mut check = |got: Vec<Got>| {
        for got in &got {
            assert!(got.is_signed_by(&secret));
            let body = sent.entry(got.id().to_owned()).or_insert(got.body.clone());
            assert_eq!(*body, got.body, "another body under the same id");
        }
        (got.len(), sent.len())
    };

    for minute in 0..60 {
        if minute < 30 {
            test.emit(minute).await;
        }
        attempts += test.deliver().await;
        assert!(check(receiver.take()).0 > 0 || minute >= 30, "{minute}");
        pass(60);
    }
    assert!(attempts > 120, "{attempts}");

    receiver.behave(Manner::Status(200));

    let mut delivered = HashSet::new();
    for _ in 0..240 {
        test.deliver().await;
        let got = receiver.take();
        delivered.extend(got.iter().map(|got| got.id().to_owned()));
        check(got);
        pass(60);
    }
    assert_eq!((delivered.len(), check(Vec::new()).1), (30, 30));

    let page = test
        .get(&format!("{webhook}/deliveries?status=delivered"))
        .await;
    assert_eq!(page["total"], 30);

    pass(7 * 86_400);
    assert_eq!(test.deliver().await, 0, "what was delivered is sent once");
}

#[tokio::test]
async fn receivers_that_misbehave_are_tried_again() {
    let test = WebhookTest::new().await;

    for (manner, status, fault) in [
        (Manner::Status(404), json!(404), "status"),
        (Manner::Redirect, json!(307), "redirect"),
        (Manner::Silent, Value::Null, "timeout"),
        (Manner::Garbage, Value::Null, "no_http_answer"),
        (Manner::EndlessHead, Value::Null, "no_http_answer"),
        (Manner::Shut, Value::Null, "no_http_answer"),
    ] {
        let receiver = Receiver::new(manner).await;
        let (webhook, _) = test.webhook(&receiver).await;
        test.emit(1).await;
        assert_eq!(test.deliver().await, 1, "{manner:?}");

        let delivery = test.delivery(&webhook).await;
        assert_eq!(delivery["status"], "pending", "{manner:?}: {delivery}");
        assert_eq!(
            (
                &delivery["log"][0]["http_status"],
                &delivery["log"][0]["fault"]
            ),
            (&status, &json!(fault)),
            "{manner:?}"
        );

        let got = receiver.take();
        assert_eq!(got.len(), 1, "{manner:?}");
        assert_eq!(got[0].path, "/hook?a=b", "no redirect is followed");

        receiver.behave(Manner::Status(200));
        pass(3600);
        assert_eq!(test.deliver().await, 1, "{manner:?}");
        let again = receiver.take();
        assert_eq!(
            (again[0].id(), &again[0].body),
            (got[0].id(), &got[0].body),
            "{manner:?}"
        );

        let token = &test.tenant.token;
        test.api.delete(&webhook, token).await.with(200);
    }
}

#[tokio::test]
async fn a_body_that_lies_or_never_ends_changes_nothing() {
    let test = WebhookTest::new().await;
    for manner in [Manner::Liar, Manner::EndlessBody, Manner::Deaf] {
        let receiver = Receiver::new(manner).await;
        let (webhook, _) = test.webhook(&receiver).await;
        test.emit(1).await;
        let delivered = tokio::time::timeout(Duration::from_secs(60), test.deliver());
        assert_eq!(delivered.await.expect("bounded"), 1);
        let delivery = test.delivery(&webhook).await;
        assert_eq!(delivery["status"], "delivered", "{manner:?}");
        let token = &test.tenant.token;
        test.api.delete(&webhook, token).await.with(200);
    }
}

#[tokio::test]
async fn a_receiver_that_is_down_is_tried_for_days_and_then_given_up() {
    let test = WebhookTest::new().await;
    let receiver = Receiver::new(Manner::Status(200)).await;
    let (webhook, _) = test.webhook(&receiver).await;

    // A port that nothing listens on.
    let closed = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = closed.local_addr().expect("an address");
    drop(closed);
    let token = &test.tenant.token;
    let nowhere = json!({"url": format!("http://{address}/")});
    test.api.patch(&webhook, token, nowhere).await.with(200);

    test.emit(1).await;
    let mut attempts = 0;
    for _ in 0..100 {
        attempts += test.deliver().await;
        pass(3600);
    }

    let failed = test.delivery(&webhook).await;
    assert_eq!(
        (attempts, &failed["status"], &failed["attempts"]),
        (14, &json!("failed"), &json!(14))
    );
    assert_eq!(failed["log"][13]["fault"], "not_connected");
    assert_eq!(failed["next_attempt_at"], Value::Null);

    // A manual retry sends the same request.
    let here = json!({"url": receiver.url()});
    test.api.patch(&webhook, token, here).await.with(200);
    let path = format!("{webhook}/deliveries/{}", id_of(&failed));
    let queued = test
        .post(&format!("{path}/redeliver"), json!({}))
        .await
        .with(200);
    assert_eq!(
        (&queued["status"], &queued["attempts"]),
        (&json!("pending"), &json!(0))
    );
    assert_eq!(test.deliver().await, 1);

    let got = receiver.take().remove(0);
    assert_eq!(got.id(), failed["event_id"]);

    let whole = test.get(&path).await;
    assert_eq!(
        whole["event"],
        serde_json::from_str::<Value>(&got.body).expect("JSON")
    );
    assert_eq!(
        (&whole["status"], &whole["attempts"]),
        (&json!("delivered"), &json!(1))
    );
    assert_eq!(whole["log"].as_array().expect("a log").len(), 15);
}

#[tokio::test]
async fn a_receiver_that_is_gone_disables_its_webhook() {
    let test = WebhookTest::new().await;
    let receiver = Receiver::new(Manner::Status(500)).await;
    let (webhook, _) = test.webhook(&receiver).await;
    test.emit(1).await;
    assert_eq!(test.deliver().await, 1);

    receiver.behave(Manner::Status(410));
    test.emit(2).await;
    assert_eq!(test.deliver().await, 1);

    let shown = test.get(&webhook).await;
    assert_eq!(
        (&shown["enabled"], &shown["disabled_reason"]),
        (&json!(false), &json!("gone"))
    );

    let failed = test
        .get(&format!("{webhook}/deliveries?status=failed"))
        .await;
    assert_eq!(failed["total"], 2);

    test.emit(3).await;
    pass(86_400);
    assert_eq!(test.deliver().await, 0);

    let delivery = id_of(&failed["items"][0]);
    let redeliver = format!("{webhook}/deliveries/{delivery}/redeliver");
    test.post(&redeliver, json!({})).await.with(409);

    receiver.behave(Manner::Status(200));
    let enable = json!({"enabled": true});
    let enabled = test
        .api
        .patch(&webhook, &test.tenant.token, enable)
        .await
        .with(200);
    assert_eq!(enabled["disabled_reason"], Value::Null);

    test.post(&redeliver, json!({})).await.with(200);
    test.emit(4).await;
    assert_eq!(
        test.deliver().await,
        2,
        "what happened while it was disabled is not sent"
    );
}

#[tokio::test]
async fn a_receiver_may_say_when_to_come_back() {
    let test = WebhookTest::new().await;
    let receiver = Receiver::new(Manner::RetryAfter(503, 900)).await;
    test.webhook(&receiver).await;
    test.emit(1).await;
    assert_eq!(test.deliver().await, 1);
    pass(899);
    assert_eq!(test.deliver().await, 0);
    pass(1);
    assert_eq!(test.deliver().await, 1);
}

/// A URL is judged again when it is used, since the operator may allow less than when it was set.
#[tokio::test]
async fn private_addresses_are_refused_when_they_are_used() {
    let test = WebhookTest::new().await;
    let receiver = Receiver::new(Manner::Status(200)).await;
    let (webhook, _) = test.webhook(&receiver).await;
    let strict = sender(&test.api, false);

    test.emit(1).await;
    assert_eq!(strict.deliver_due().await.expect("attempted"), 1);
    let token = &test.tenant.token;

    // This API takes the URL because it allows private addresses. The strict sender must not leave it to a resolver, which may read `127.1` as
    // 127.0.0.1.
    let by_name = json!({"url": format!("https://127.1:{}/", receiver.address.port())});
    test.api.patch(&webhook, token, by_name).await.with(200);
    pass(3600);
    assert_eq!(strict.deliver_due().await.expect("attempted"), 1);
    assert_eq!(receiver.take(), []);

    let log = test.delivery(&webhook).await["log"].clone();
    for attempt in log.as_array().expect("a log") {
        assert_eq!(attempt["fault"], "name_not_resolved", "{attempt}");
    }
}

/// Two nodes share one queue, and one of them dies while it holds deliveries.
#[tokio::test]
async fn what_one_node_has_leased_no_other_sends_until_the_lease_expires() {
    let test = WebhookTest::new().await;
    let receiver = Receiver::new(Manner::Status(200)).await;
    test.webhook(&receiver).await;
    for number in 0..3 {
        test.emit(number).await;
    }

    let at = now();
    let webhook = found(&test.api.store, move |tx| deliveries::due(tx, at))
        .await
        .remove(0);
    let lease = Duration::from_secs(90);
    let held = test
        .api
        .store
        .write(move |tx| deliveries::lease(tx, webhook.webhook.id, "node 9", 2, lease, at))
        .await;
    assert_eq!(held.expect("held").len(), 2);

    assert_eq!(test.deliver().await, 1);
    pass(89);
    assert_eq!(test.deliver().await, 0);
    pass(1);
    assert_eq!(test.deliver().await, 2);

    let got = receiver.take();
    let ids: HashSet<_> = got.iter().map(Got::id).collect();
    assert_eq!((got.len(), ids.len()), (3, 3));
}
