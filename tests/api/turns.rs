//! Turns at long lists: a tenant whose reads are under way waits for them, so that threads stay free for others.

use std::pin::pin;
use std::time::Duration;

use tokio::sync::mpsc;
use uuid::Uuid;

use crate::call_export::accepting;
use crate::test_api::{Answer, TestApi};
use crate::test_db::TestDb;

/// Reads of one tenant that run at the same time.
const AT_ONCE: usize = 2;
/// Time in which a request that needs no turn is answered.
const SHORT: Duration = Duration::from_millis(300);

/// Sends the request while the owner has used all of its turns: it is answered only afterwards.
async fn waits_for_a_turn(api: &TestApi, owner: Uuid, request: impl Future<Output = Answer>) {
    let (entered, mut reads) = mpsc::unbounded_channel();
    let mut held = Vec::new();
    for _ in 0..AT_ONCE {
        let (release, released) = std::sync::mpsc::channel::<()>();
        let (store, entered) = (api.store.clone(), entered.clone());
        let read = tokio::spawn(async move {
            let read = store.read_of(owner, move |_| {
                let _ = entered.send(());
                // Fails, and thereby ends, once the sender is dropped.
                let _ = released.recv();
                Ok(())
            });
            read.await
        });
        reads.recv().await.expect("a read that has begun");
        held.push((release, read));
    }

    let mut request = pin!(request);
    let early = tokio::time::timeout(SHORT, request.as_mut()).await;
    assert!(early.is_err(), "answered without a turn");

    for (release, read) in held {
        drop(release);
        read.await.expect("no panic").expect("a read");
    }
    let answer = request.await;
    assert_eq!(answer.status, 200, "{}", answer.text);
}

#[tokio::test]
async fn audit_logs_and_lists_of_a_partner_wait_for_the_tenants_turns() {
    let api = TestApi::built("", TestDb::sqlite()).await;
    let tenant = api.tenant("Acme").await;
    let partner = api.reseller("Reseller").await;

    let token = &tenant.token;
    waits_for_a_turn(&api, tenant.org, api.get("/phone/audit", token)).await;
    let export = accepting(&api, "/phone/audit", token, "text/csv");
    waits_for_a_turn(&api, tenant.org, export).await;

    for path in ["audit", "usage", "orgs"] {
        let path = format!("/partner/v1/{path}");
        waits_for_a_turn(&api, partner.id, api.get(&path, &partner.key)).await;
    }
}
