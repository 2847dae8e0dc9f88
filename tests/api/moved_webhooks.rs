//! A webhook whose URL is changed while an attempt at the old one is under way.

use std::time::Duration;

use serde_json::json;

use crate::receiver::{Manner, Receiver};
use crate::webhooks::WebhookTest;

#[tokio::test]
async fn a_late_410_of_the_old_receiver_leaves_the_webhook_to_the_new_one() {
    let test = WebhookTest::new().await;
    let old = Receiver::new(Manner::Held).await;
    let new = Receiver::new(Manner::Status(200)).await;
    let (webhook, _) = test.webhook(&old).await;
    test.emit(1).await;

    let moved = async {
        let asked = loop {
            match old.take().pop() {
                Some(asked) => break asked,
                None => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        };
        let url = json!({"url": new.url()});
        let changed = test.api.patch(&webhook, &test.tenant.token, url).await;
        changed.with(200);
        old.behave(Manner::Status(410));
        asked
    };
    let (attempts, asked) = tokio::join!(test.deliver(), moved);

    assert_eq!(attempts, 2, "one at each receiver");
    let got = new.take();
    assert_eq!((got.len(), got[0].id()), (1, asked.id()));

    let delivery = test.delivery(&webhook).await;
    assert_eq!(delivery["status"], "delivered", "{delivery}");
    assert_eq!(delivery["log"][0]["fault"], "gone", "{delivery}");
    assert_eq!(test.get(&webhook).await["enabled"], true);

    test.emit(2).await;
    assert_eq!(test.deliver().await, 1);
    assert_eq!(new.take().len(), 1, "later events reach it as well");
}
