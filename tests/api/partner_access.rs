//! Access to the partner API: keys, inactive partners, addresses, limits, and the order in which they are judged.

use std::net::SocketAddr;

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::Request;
use ipnet::IpNet;
use serde_json::json;
use trunkline_store::{NewPartner, partners};

use crate::test_api::{Answer, TestApi, done, found, pass};

const ORGS: &str = "/partner/v1/orgs";

/// Sends a request from an address, with the forwarding header of a proxy if any.
async fn from(api: &TestApi, key: &str, peer: &str, forwarded: Option<&str>) -> Answer {
    let peer: SocketAddr = format!("{peer}:4711").parse().expect("an address");
    let mut request = Request::get(ORGS)
        .header("Authorization", format!("Bearer {key}"))
        .extension(ConnectInfo(peer));
    if let Some(forwarded) = forwarded {
        request = request.header("X-Forwarded-For", forwarded);
    }
    api.send(request.body(Body::empty())).await
}

fn allowed(networks: &[&str]) -> NewPartner {
    let networks = networks
        .iter()
        .map(|network| network.parse().expect("a network"));
    NewPartner {
        name: "Reseller".to_owned(),
        allowed_networks: Some(networks.collect::<Vec<IpNet>>()),
        ..NewPartner::default()
    }
}

#[tokio::test]
async fn without_a_good_key_it_is_401() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    for key in ["", "garbage", "tlp_garbage", &tenant.token] {
        let refused = api.get(ORGS, key).await;
        refused.with(401);
        assert_eq!(refused.header("WWW-Authenticate"), Some("Bearer"), "{key}");
        assert_eq!(refused.header("RateLimit"), None, "{key}");
    }

    let refused = api.get(ORGS, "tlp_garbage").await;
    insta::assert_json_snapshot!("a_wrong_partner_key", refused.with(401));
    let partner = api.reseller("Reseller").await;
    api.get("/phone/calls", &partner.key).await.with(401);
    api.get(ORGS, &partner.key).await.with(200);
}

#[tokio::test]
async fn refusals_have_no_error_field_wherever_they_come_from() {
    let api = TestApi::new().await;
    let partner = api.reseller("Reseller").await;
    let unknown = api.get("/partner/v1/nowhere", &partner.key).await;
    assert_eq!(
        unknown.with(404),
        json!({"statusCode": 404, "message": "There is no such path", "code": "not_found"})
    );

    let method = api.delete(ORGS, &partner.key).await;
    let message = "This path does not take this method; see Allow";
    assert_eq!(
        method.with(405),
        json!({"statusCode": 405, "message": message, "code": "method_not_allowed"})
    );
    assert_eq!(method.header("Allow"), Some("GET,HEAD,POST"));

    api.break_by("ALTER TABLE orgs RENAME TO orgs_of_another_version")
        .await;
    let request = Request::get(ORGS)
        .header("Authorization", format!("Bearer {}", partner.key))
        .header("X-Request-Id", "seven");
    let broken = api.send(request.body(Body::empty())).await;
    let message = "Something broke on our side; quote the request id seven";

    assert_eq!(
        broken.with(500),
        json!({"statusCode": 500, "message": message, "code": "internal_error"})
    );
}

#[tokio::test]
async fn a_revoked_key_and_an_inactive_partner_are_refused() {
    let api = TestApi::new().await;
    let partner = api.reseller("Reseller").await;
    let set = async |active| {
        done(&api.store, move |tx, now| {
            partners::set_active(tx, partner.id, active, now)
        })
        .await
    };
    set(false).await;
    let refused = api.get(ORGS, &partner.key).await;
    insta::assert_json_snapshot!("an_inactive_partner", refused.with(401));
    assert_eq!(refused.header("WWW-Authenticate"), Some("Bearer"));

    set(true).await;

    // No server follows the change feed here: lookups are cached for a minute.
    pass(60);
    api.get(ORGS, &partner.key).await.with(200);
    let keys = found(&api.store, move |tx| partners::keys(tx, partner.id)).await;
    done(&api.store, move |tx, now| {
        partners::revoke_key(tx, partner.id, keys[0].id, now)
    })
    .await;
    pass(60);
    api.get(ORGS, &partner.key).await.with(401);
}

#[tokio::test]
async fn an_allow_list_is_held_against_the_clients_address() {
    let api = TestApi::with("[http]\ntrusted_proxies = [\"127.0.0.0/8\", \"10.0.0.1\"]").await;
    let open = api.reseller("Open").await;
    let listed = api
        .partner(allowed(&["192.0.2.0/24", "2001:db8::/32"]))
        .await;
    let closed = api.partner(allowed(&[])).await;

    for (name, key, peer, forwarded, status) in [
        ("no list", &open.key, "203.0.113.1", None, 200),
        ("an empty list", &closed.key, "192.0.2.1", None, 403),
        ("on the list", &listed.key, "192.0.2.1", None, 200),
        ("not on it", &listed.key, "203.0.113.1", None, 403),
        ("IPv6", &listed.key, "[2001:db8::7]", None, 200),
        ("mapped", &listed.key, "[::ffff:192.0.2.1]", None, 200),
        // X-Forwarded-For counts from a trusted proxy alone, and is read backwards to the first address that isn't one.
        (
            "behind a proxy",
            &listed.key,
            "127.0.0.1",
            Some("192.0.2.1"),
            200,
        ),
        (
            "behind two",
            &listed.key,
            "127.0.0.1",
            Some("192.0.2.1, 10.0.0.1"),
            200,
        ),
        (
            "a client's lie",
            &listed.key,
            "127.0.0.1",
            Some("192.0.2.1, 203.0.113.1"),
            403,
        ),
        (
            "a stranger's lie",
            &listed.key,
            "203.0.113.1",
            Some("192.0.2.1"),
            403,
        ),
        (
            "nonsense",
            &listed.key,
            "127.0.0.1",
            Some("192.0.2.1, x"),
            403,
        ),
    ] {
        assert_eq!(
            from(&api, key, peer, forwarded).await.status,
            status,
            "{name}"
        );
    }

    let refused = from(&api, &closed.key, "192.0.2.1", None).await;
    insta::assert_json_snapshot!("an_address_not_on_the_list", refused.with(403));
}

#[tokio::test]
async fn an_inactive_partner_is_401_wherever_it_asks_from() {
    let api = TestApi::new().await;
    let closed = api.partner(allowed(&[])).await;
    from(&api, &closed.key, "192.0.2.1", None).await.with(403);
    done(&api.store, move |tx, now| {
        partners::set_active(tx, closed.id, false, now)
    })
    .await;
    pass(60);
    from(&api, &closed.key, "192.0.2.1", None).await.with(401);
}

#[tokio::test]
async fn a_partner_may_ask_so_often() {
    let api = TestApi::with("[limits]\npartner_requests_per_minute = 3").await;
    let usual = api.reseller("Usual").await;
    let own = NewPartner {
        requests_per_minute: Some(1),
        ..allowed(&["0.0.0.0/0"])
    };
    let own = api.partner(own).await;

    for left in ["2", "1", "0"] {
        let answer = api.get(ORGS, &usual.key).await;
        answer.with(200);
        let expected = format!("\"partner\";r={left};t=60");
        assert_eq!(answer.header("RateLimit"), Some(&*expected));
    }

    let refused = api.get("/partner/v1/orgs/no-id/roles", &usual.key).await;
    insta::assert_json_snapshot!("a_partners_request_too_many", refused.with(429));
    assert_eq!(refused.header("Retry-After"), Some("60"));

    // The address is judged before the rate.
    from(&api, &own.key, "192.0.2.1", None).await.with(200);
    from(&api, &own.key, "192.0.2.1", None).await.with(429);
    from(&api, &own.key, "[2001:db8::7]", None).await.with(403);
    pass(60);
    api.get(ORGS, &usual.key).await.with(200);
}

#[tokio::test]
async fn it_is_written_down_when_a_partners_key_was_used_last() {
    let api = TestApi::new().await;
    let partner = api.reseller("Reseller").await;
    api.get(ORGS, &partner.key).await.with(200);
    api.state.write_uses().await;
    let keys = found(&api.store, move |tx| partners::keys(tx, partner.id)).await;
    assert_eq!(keys[0].last_used_at, Some(crate::test_api::now()));
}
