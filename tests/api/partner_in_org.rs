//! A partner that works in its orgs by the header `Trunkline-Org`.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::pages::org_of;
use crate::test_api::{Answer, Reseller, TestApi, id_of};

/// A request with these headers, and a JSON body unless that is null.
fn request(
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> axum::http::Result<Request<Body>> {
    let request = Request::builder().method(method).uri(path);
    let request = headers.iter().fold(request, |request, (name, value)| {
        request.header(*name, *value)
    });
    match body.is_null() {
        true => request.body(Body::empty()),
        false => request
            .header("Content-Type", "application/json")
            .body(Body::from(body.to_string())),
    }
}

struct Scene {
    api: TestApi,
    reseller: Reseller,
    bearer: String,
    orgs: [Uuid; 2],
}

impl Scene {
    async fn new() -> Self {
        let api = TestApi::new().await;
        let reseller = api.reseller("Reseller").await;
        let first = org_of(&api, &reseller, "First").await;
        let second = org_of(&api, &reseller, "Second").await;
        Self {
            bearer: format!("Bearer {}", reseller.key),
            orgs: [first, second],
            reseller,
            api,
        }
    }

    async fn ask(&self, method: &str, path: &str, org: &str, key: &str, body: &Value) -> Answer {
        let mut headers = vec![("Authorization", &*self.bearer), ("Trunkline-Org", org)];
        if !key.is_empty() {
            headers.push(("Idempotency-Key", key));
        }
        self.api.send(request(method, path, &headers, body)).await
    }
}

#[tokio::test]
async fn one_idempotency_key_in_two_orgs_is_two() {
    let scene = Scene::new().await;
    let agent = json!({"name": "Sales", "type": "inbound", "language": "en", "first_message": "", "use_org_knowledgebase": true});
    let hook = json!({"url": "https://hooks.example.com/x"});

    for (path, body) in [("/phone", &agent), ("/webhooks", &hook)] {
        let mut made = Vec::new();
        for org in scene.orgs.map(|org| org.to_string()) {
            for _ in 0..2 {
                let answer = scene.ask("POST", path, &org, "one", body).await;
                made.push(id_of(&answer.with(201)));
            }
            let listed = scene.ask("GET", path, &org, "", &Value::Null).await;
            assert_eq!(listed.with(200)["total"], 1, "{path}");
        }
        assert_eq!(made[0], made[1], "{path}: it is repeated");
        assert_ne!(made[1], made[2], "{path}: another org has its own");
        assert_eq!(made[2], made[3], "{path}");
    }
}

#[tokio::test]
async fn the_org_that_a_request_names_is_the_one_that_it_is_for() {
    let scene = Scene::new().await;
    let [first, second] = scene.orgs.map(|org| org.to_string());
    let (_, key) = scene.api.key(scene.orgs[0], &["phone:read"]).await;
    let key = format!("Bearer {key}");

    for (name, headers, status, code) in [
        (
            "its own",
            vec![("Authorization", &*key), ("Trunkline-Org", &*first)],
            200,
            Value::Null,
        ),
        (
            "another",
            vec![("Authorization", &*key), ("Trunkline-Org", &*second)],
            403,
            json!("foreign_org"),
        ),
        (
            "no id",
            vec![("Authorization", &*key), ("Trunkline-Org", "x")],
            403,
            json!("foreign_org"),
        ),
        (
            "no org",
            vec![("Authorization", &*scene.bearer)],
            401,
            json!("partner_key"),
        ),
        (
            "no id, by the partner",
            vec![("Authorization", &*scene.bearer), ("Trunkline-Org", "x")],
            403,
            json!("foreign_org"),
        ),
        (
            "two",
            vec![
                ("Authorization", &*scene.bearer),
                ("Trunkline-Org", &*first),
                ("Trunkline-Org", &*second),
            ],
            400,
            json!("bad_request"),
        ),
    ] {
        for path in ["/phone", "/webhooks"] {
            if path == "/webhooks" && status == 200 {
                continue;
            }
            let answer = scene
                .api
                .send(request("GET", path, &headers, &Value::Null))
                .await;
            assert_eq!(answer.status, status, "{name} {path}: {}", answer.text);
            assert_eq!(answer.json()["code"], code, "{name} {path}");
        }
    }
}

/// On the control socket a partner's key is a partner's key below the partner's paths.
#[tokio::test]
async fn a_partners_key_on_the_control_socket_stays_a_partners() {
    let scene = Scene::new().await;
    let foreign = scene.api.tenant("Foreign").await.org;
    let headers = [("Authorization", &*scene.bearer)];
    let ask = async |path: &str| {
        let request = request("GET", path, &headers, &Value::Null);
        scene.api.send_as_operator(request).await
    };
    assert_eq!(ask("/partner/v1/orgs").await.with(200)["total"], 2);
    let own = ask(&format!("/partner/v1/orgs/{}", scene.orgs[0])).await;
    assert_eq!(own.with(200)["partner_id"], scene.reseller.id.to_string());
    ask(&format!("/partner/v1/orgs/{foreign}")).await.with(403);
    // Below the operator's paths the transport says who asks.
    ask(&format!("/operator/orgs/{foreign}")).await.with(200);
    assert_eq!(ask("/operator/orgs").await.with(200)["total"], 3);
}

#[tokio::test]
async fn the_operator_names_no_external_id() {
    let api = TestApi::new().await;
    let body = json!({"name": "Acme", "external_id": "4711", "language": "de"});
    let create = |body: &Value| api.send_as_operator(request("POST", "/operator/orgs", &[], body));

    let refused = create(&body).await;
    assert_eq!(refused.status, 400, "{}", refused.text);

    let body = json!({"name": "Acme", "language": "de"});
    let made = create(&body).await;
    let path = format!("/operator/orgs/{}", id_of(&made.with(201)));
    let shown = api
        .send_as_operator(request("GET", &path, &[], &Value::Null))
        .await;
    assert_eq!(shown.with(200)["language"], "de");
}
