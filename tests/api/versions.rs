//! Versions of objects: who reads one is told its version, and a change may be made for that version alone.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use crate::pages::org_of;
use crate::test_api::{Answer, TestApi, id_of};

const JSON: (&str, &str) = ("Content-Type", "application/json");

/// An org with one of everything that has a version, and the key of its partner.
struct Scene {
    api: TestApi,
    token: String,
    partner: String,
    org: String,
    agent: String,
    number: String,
    destination: String,
    trunk: String,
    webhook: String,
    contact: String,
}

const TRUNK: &str = "/phone/sip/inbound-trunk";
const DESTINATIONS: &str = "/phone/sip/transfer-destinations";

impl Scene {
    async fn new() -> Self {
        let api = TestApi::new().await;
        let tenant = api.tenant("Acme").await;
        let agent = api.agent(tenant.org, "Reception").await;
        let number = api.number(tenant.org, "+442071838750").await.id;
        let made = async |path: &str, body: Value| {
            let answer = api.post(path, &tenant.token, body).await;
            let body = answer.with(201);
            assert!(
                answer.header("ETag").is_some(),
                "{path}: what was made has a version"
            );
            id_of(&body)
        };

        made(TRUNK, json!({})).await;
        let destination = json!({"name": "Desk", "type": "phone", "value": "+442071838751"});
        let destination = made(DESTINATIONS, destination).await;
        let carrier =
            json!({"name": "Carrier", "host": "192.0.2.1", "caller_number": "+442071838750"});
        let trunk = made("/phone/sip/outbound-trunks", carrier).await;
        let webhook = json!({"url": "https://hooks.example.com/x"});
        let webhook = made("/webhooks", webhook).await;
        let contact = json!({"email": "ann@example.com"});
        let path = "/widget/authenticate-user";
        let contact = api.post(path, &tenant.token, contact).await.with(200);

        let reseller = api.reseller("Reseller").await;
        let org = org_of(&api, &reseller, "Bakery").await;
        Self {
            token: tenant.token,
            partner: reseller.key,
            org: format!("/partner/v1/orgs/{org}"),
            agent: agent.to_string(),
            number: number.to_string(),
            destination,
            trunk,
            webhook,
            contact: format!("/widget/contacts/{}", id_of(&contact["contact"])),
            api,
        }
    }

    fn key(&self, path: &str) -> String {
        let key = match path.starts_with("/partner") {
            true => &self.partner,
            false => &self.token,
        };
        format!("Bearer {key}")
    }

    async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let request = Request::get(path).header("Authorization", self.key(path));
        let request = headers.iter().fold(request, |request, (name, value)| {
            request.header(*name, *value)
        });
        self.api.send(request.body(Body::empty())).await
    }

    async fn tag(&self, path: &str) -> String {
        let shown = self.get(path, &[]).await;
        shown.header("ETag").expect("a version").to_owned()
    }

    async fn change(&self, (method, path, body): (&str, &str, &Value), version: &str) -> Answer {
        let request = Request::builder().method(method).uri(path);
        let request = request
            .header("Authorization", self.key(path))
            .header("If-Match", version);
        let request = match body.is_null() {
            true => request.body(Body::empty()),
            false => request
                .header(JSON.0, JSON.1)
                .body(Body::from(body.to_string())),
        };
        self.api.send(request).await
    }
}

/// Every request that changes an object with a version is refused for another version, changes nothing then, and is carried out for the present one.
#[tokio::test]
async fn every_change_may_be_made_for_one_version_alone() {
    let scene = Scene::new().await;
    let agent = format!("/phone/{}", scene.agent);
    let of_agent = |rest: &str| format!("/phone/sip/agents/{}/{rest}", scene.agent);
    let config = of_agent("config");
    let of_trunk = |rest: &str| format!("{TRUNK}/{rest}");
    let destination = format!("{DESTINATIONS}/{}", scene.destination);
    let carrier = format!("/phone/sip/outbound-trunks/{}", scene.trunk);
    let webhook = format!("/webhooks/{}", scene.webhook);
    let limits = format!("{}/limits", scene.org);
    let named = json!({"name": "New"});
    let none = json!({});
    let gone = Value::Null;

    for (of, method, path, body) in [
        (&agent, "PATCH", agent.clone(), &named),
        (
            &config,
            "PUT",
            of_agent("inbound-numbers"),
            &json!({"phone_number_ids": []}),
        ),
        (
            &config,
            "POST",
            of_agent("inbound-numbers"),
            &json!({"phone_number_id": scene.number}),
        ),
        (
            &config,
            "DELETE",
            of_agent(&format!("inbound-numbers/{}", scene.number)),
            &gone,
        ),
        (
            &agent,
            "PUT",
            of_agent("outbound-trunk"),
            &json!({"trunk_id": scene.trunk}),
        ),
        (
            &agent,
            "PUT",
            of_agent("outbound-trunk"),
            &json!({"trunk_id": null}),
        ),
        (
            &agent,
            "POST",
            of_agent("transfer-destinations"),
            &json!({"destination_id": scene.destination}),
        ),
        (
            &agent,
            "DELETE",
            of_agent(&format!("transfer-destinations/{}", scene.destination)),
            &gone,
        ),
        (&agent, "DELETE", agent.clone(), &gone),
        (&TRUNK.to_owned(), "PATCH", TRUNK.to_owned(), &named),
        (
            &TRUNK.to_owned(),
            "POST",
            of_trunk("phone-numbers"),
            &json!({"phone_numbers": ["+442071838750"]}),
        ),
        (
            &TRUNK.to_owned(),
            "DELETE",
            of_trunk("phone-numbers/%2B442071838750"),
            &gone,
        ),
        (&TRUNK.to_owned(), "POST", of_trunk("sync"), &none),
        (
            &TRUNK.to_owned(),
            "POST",
            of_trunk("rotate-credentials"),
            &none,
        ),
        (
            &TRUNK.to_owned(),
            "DELETE",
            of_trunk("old-credentials"),
            &gone,
        ),
        (&TRUNK.to_owned(), "DELETE", TRUNK.to_owned(), &gone),
        (&destination, "PATCH", destination.clone(), &named),
        (&destination, "DELETE", destination.clone(), &gone),
        (&carrier, "PATCH", carrier.clone(), &named),
        (&carrier, "DELETE", carrier.clone(), &gone),
        (
            &webhook,
            "PATCH",
            webhook.clone(),
            &json!({"enabled": false}),
        ),
        (&webhook, "POST", format!("{webhook}/rotate-secret"), &none),
        (&webhook, "DELETE", webhook.clone(), &gone),
        (&scene.contact, "PATCH", scene.contact.clone(), &named),
        (&scene.contact, "DELETE", scene.contact.clone(), &gone),
        (&scene.org, "PATCH", scene.org.clone(), &named),
        (&limits, "PATCH", limits.clone(), &json!({"agents": 3})),
        (
            &scene.org,
            "POST",
            format!("{}/rotate-widget-token", scene.org),
            &none,
        ),
        (&scene.org, "POST", format!("{}/suspend", scene.org), &none),
        (&scene.org, "POST", format!("{}/resume", scene.org), &none),
        (&scene.org, "DELETE", scene.org.clone(), &gone),
    ] {
        let case = format!("{method} {path}");
        let before = scene.get(of, &[]).await;
        let stale = "\"2001-01-01T00:00:00.000Z+00000000\"";
        let refused = scene.change((method, &path, body), stale).await;
        assert_eq!(refused.with(412)["code"], "outdated", "{case}");
        assert_eq!(
            scene.get(of, &[]).await.text,
            before.text,
            "{case}: nothing changed"
        );

        let malformed = scene.change((method, &path, body), "x").await;
        assert_eq!(malformed.status, 400, "{case}: {}", malformed.text);

        let version = before.header("ETag").expect("a version");
        let done = scene.change((method, &path, body), version).await;
        assert_eq!(done.status, 200, "{case}: {}", done.text);
    }
}

/// A change of an agent's numbers or destinations, or of an org's limits, gives it another version; a request that changes none leaves it.
#[tokio::test]
async fn parts_of_an_object_give_it_another_version() {
    let scene = Scene::new().await;
    let agent = format!("/phone/{}", scene.agent);
    let of_agent = |rest: &str| format!("/phone/sip/agents/{}/{rest}", scene.agent);
    let limits = format!("{}/limits", scene.org);

    for (of, method, path, body, changes) in [
        (
            &agent,
            "POST",
            of_agent("inbound-numbers"),
            json!({"phone_number_id": scene.number}),
            true,
        ),
        (
            &agent,
            "POST",
            of_agent("inbound-numbers"),
            json!({"phone_number_id": scene.number}),
            false,
        ),
        (
            &agent,
            "PUT",
            of_agent("inbound-numbers"),
            json!({"phone_number_ids": [scene.number]}),
            false,
        ),
        (
            &agent,
            "PUT",
            of_agent("inbound-numbers"),
            json!({"phone_number_ids": []}),
            true,
        ),
        (
            &agent,
            "POST",
            of_agent("transfer-destinations"),
            json!({"destination_id": scene.destination}),
            true,
        ),
        (
            &agent,
            "POST",
            of_agent("transfer-destinations"),
            json!({"destination_id": scene.destination}),
            false,
        ),
        (&scene.org, "PATCH", limits, json!({"agents": 3}), true),
    ] {
        let before = scene.tag(of).await;
        scene.change((method, &path, &body), "*").await.with(200);
        let after = scene.tag(of).await;
        assert_eq!(
            after != before,
            changes,
            "{method} {path} {body}: {before} {after}"
        );
    }
}

#[tokio::test]
async fn who_has_an_answer_already_gets_no_second_one() {
    let scene = Scene::new().await;
    let config = format!("/phone/sip/agents/{}/config", scene.agent);
    let agent = format!("/phone/{}", scene.agent);
    for path in [&agent, &config, TRUNK, &scene.org] {
        let tag = scene.tag(path).await;
        for known in [&*tag, &format!("\"a\", W/{tag}"), "*"] {
            let answer = scene.get(path, &[("If-None-Match", known)]).await;
            assert_eq!((answer.status, &*answer.text), (304, ""), "{path} {known}");
            assert_eq!(answer.header("ETag"), Some(&*tag), "{path}");
            assert_eq!(answer.header("Content-Type"), None, "{path}");
        }
        let answer = scene.get(path, &[("If-None-Match", "\"a\"")]).await;
        assert_eq!(answer.status, 200, "{path}");
    }

    // Not the agent has changed, but what its configuration shows of the trunk.
    let trunk = json!({"trunk_id": scene.trunk});
    let assign = format!("/phone/sip/agents/{}/outbound-trunk", scene.agent);
    scene.change(("PUT", &assign, &trunk), "*").await.with(200);
    let (tag, of_agent) = (scene.tag(&config).await, scene.tag(&agent).await);
    let carrier = format!("/phone/sip/outbound-trunks/{}", scene.trunk);
    let named = json!({"name": "Another"});
    scene
        .change(("PATCH", &carrier, &named), "*")
        .await
        .with(200);
    let answer = scene.get(&config, &[("If-None-Match", &tag)]).await;
    assert_eq!(answer.with(200)["outbound_trunk"]["name"], "Another");
    assert_eq!(scene.tag(&agent).await, of_agent);
}

/// A strong tag names octets, so the packed answer has another than the plain one. A client goes on with either, whatever it takes next.
#[tokio::test]
async fn an_answer_in_gzip_has_a_tag_of_its_own() {
    let scene = Scene::new().await;
    let message = "Hello. ".repeat(200);
    let agent = format!("/phone/{}", scene.agent);
    let greeting = json!({"first_message": message});
    let changed = scene.change(("PATCH", &agent, &greeting), "*").await;
    changed.with(200);

    let packed = scene.get(&agent, &[("Accept-Encoding", "gzip")]).await;
    let (plain, packed) = (
        scene.tag(&agent).await,
        packed.header("ETag").expect("a version").to_owned(),
    );
    assert_eq!(packed, format!("{}-gzip\"", plain.trim_end_matches('"')));

    for coding in ["identity", "gzip"] {
        for known in [&plain, &packed] {
            let headers = [("Accept-Encoding", coding), ("If-None-Match", known)];
            let answer = scene.get(&agent, &headers).await;
            assert_eq!(
                (answer.status, &*answer.text),
                (304, ""),
                "{coding} {known}"
            );
            assert_eq!(answer.header("ETag"), Some(&**known), "{coding}");
        }
    }

    let named = json!({"name": "Bea"});
    let done = scene.change(("PATCH", &agent, &named), &packed).await;
    done.with(200);
    let outdated = scene.change(("PATCH", &agent, &named), &packed).await;
    outdated.with(412);
}
