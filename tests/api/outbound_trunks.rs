//! `/phone/sip/outbound-trunks`, `/phone/sip/outbound-trunks/{trunk_id}`.

use serde_json::{Value, json};

use trunkline_store::{agents, outbound_trunks};

use crate::test_api::{TestApi, all_absent, all_lack, done, id_of, masked, now, pass, walk};

const TRUNKS: &str = "/phone/sip/outbound-trunks";

fn carrier() -> Value {
    json!({
        "name": "Carrier", "host": "sip.carrier.example", "port": 5080, "username": "acme", "password": "s3cret-enough",
        "caller_number": "+442071838750", "transport": "tcp",
    })
}

fn with(fields: Value) -> Value {
    let mut body = carrier();
    for (name, value) in fields.as_object().expect("an object") {
        body[name] = value.clone();
    }
    body
}

#[tokio::test]
async fn a_trunk_is_made_shown_renamed_and_deleted() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let answer = api.post(TRUNKS, &tenant.token, carrier()).await;
    assert!(!answer.text.contains("s3cret"), "{}", answer.text);
    let made = answer.with(201);
    insta::assert_json_snapshot!("a_trunk_to_a_carrier", masked(made.clone()));
    let path = format!("{TRUNKS}/{}", id_of(&made));
    assert_eq!(api.get(&path, &tenant.token).await.with(200), made);

    pass(60);
    let name = json!({"name": "Other carrier"});
    let renamed = api.patch(&path, &tenant.token, name).await.with(200);
    let mut expected = made;
    expected["name"] = json!("Other carrier");
    expected["updated_at"] = json!("2026-01-31T12:01:00.000Z");
    assert_eq!(renamed, expected);

    let mut same = api.patch(&path, &tenant.token, json!({})).await.with(200);
    same["updated_at"] = renamed["updated_at"].clone();
    assert_eq!(same, renamed);
    let only = api.patch(
        &path,
        &tenant.token,
        json!({"name": "", "host": "x", "password": "y"}),
    );
    assert_eq!(
        only.await.with(400)["message"],
        "name: must not be empty; host: is no field of this request; password: is no field of this request"
    );

    let gone = api.delete(&path, &tenant.token).await.with(200);
    assert_eq!(gone, json!({"success": true}));
    let absent = [
        api.get(&path, &tenant.token).await,
        api.delete(&path, &tenant.token).await,
    ];
    all_absent(&absent, "outbound trunk");
}

#[tokio::test]
async fn a_trunk_has_defaults_and_extras() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let plain = json!({"name": "IP", "host": "192.0.2.1", "caller_number": "+442071838750"});
    let secure = json!({"name": "TLS", "host": "2001:db8::1", "caller_number": "+442071838750", "transport": "tls"});
    let all = with(json!({
        "transport": "udp", "from_host": "acme.example", "p_asserted_identity": true, "register": true,
        "max_concurrent_calls": 10, "calls_per_second": 2, "auth_realm": "carrier.example.com", "digest_require_qop": true,
        "user_phone": true,
    }));
    let registered = json!({"name": "PBX", "to_registered": true, "host": null, "caller_number": "+442071838750"});
    let mut made = Vec::new();

    for body in [plain, secure, all, registered] {
        made.push(api.post(TRUNKS, &tenant.token, body).await.with(201));
    }
    insta::assert_json_snapshot!(masked(json!(made)));
}

#[tokio::test]
async fn every_fault_is_named() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    for (name, body, message) in [
        (
            "nothing",
            json!({}),
            "name: is required; host: is required; caller_number: is required",
        ),
        (
            "all wrong",
            json!({
                "name": 1, "host": "a:5060", "port": 65_536, "transport": "sctp", "username": "", "password": "p\n",
                "caller_number": "0207", "from_host": "-", "p_asserted_identity": "+44", "register": 1,
                "max_concurrent_calls": 0, "calls_per_second": 1.5, "to_registered": "no", "region": "eu",
            }),
            "name: expected a text, not a number; to_registered: expected true or false, not a text; \
             transport: \"sctp\" is none of udp, tcp, tls; host: \"a:5060\" is not a host name or an IP address; \
             port: expected a whole number from 1 to 65535; username: must not be empty; \
             password: must not hold control characters; caller_number: \"0207\" is not an E.164 number; \
             from_host: \"-\" is not a host name or an IP address; p_asserted_identity: expected true or false, not a text; \
             register: expected true or false, not a number; \
             max_concurrent_calls: expected a whole number from 1 to 1000000; \
             calls_per_second: expected a whole number from 1 to 10000; region: is no field of this request",
        ),
        (
            "half a pair",
            with(json!({"password": null})),
            "password: is required with username",
        ),
        (
            "the other half",
            with(json!({"username": null})),
            "username: is required with password",
        ),
        (
            "a host beside the registered PBX",
            with(json!({"to_registered": true})),
            "host: is the registered PBX's under to_registered; port: is the registered PBX's under to_registered",
        ),
        (
            "registering with nobody",
            json!({"name": "x", "to_registered": true, "register": true, "caller_number": "+442071838750"}),
            "register: needs a host, a username and a password",
        ),
        (
            "numbers in the Contact of the registered PBX",
            json!({"name": "x", "to_registered": true, "user_phone": true, "caller_number": "+442071838750"}),
            "user_phone: needs a host",
        ),
        (
            "registering as nobody",
            with(json!({"username": null, "password": null, "register": true})),
            "register: needs a host, a username and a password",
        ),
        (
            "a realm for nobody",
            with(json!({"username": null, "password": null, "auth_realm": "a"})),
            "auth_realm: needs a host, a username and a password",
        ),
        (
            "a realm without a name",
            with(json!({"auth_realm": "", "digest_require_qop": "yes"})),
            "auth_realm: must not be empty; digest_require_qop: expected true or false, not a text",
        ),
    ] {
        let refused = api.post(TRUNKS, &tenant.token, body).await.with(400);
        assert_eq!(refused["message"], message, "{name}");
    }

    let listed = api.get(TRUNKS, &tenant.token).await.with(200);
    assert_eq!(listed, json!({"items": [], "next": null, "total": 0}));
}

#[tokio::test]
async fn trunks_are_listed_newest_first() {
    let api = TestApi::new().await;
    let (tenant, other) = (api.tenant("Acme").await, api.tenant("Other").await);
    for name in ["one", "two", "three"] {
        pass(1);
        let body = with(json!({"name": name}));
        api.post(TRUNKS, &tenant.token, body).await.with(201);
    }
    let names = walk(&api, TRUNKS, &tenant.token, 2, "name").await;
    assert_eq!(names, ["three", "two", "one"]);
    let text = api.get(TRUNKS, &tenant.token).await.text;
    assert!(!text.contains("s3cret"), "{text}");
    assert_eq!(api.get(TRUNKS, &other.token).await.with(200)["total"], 0);
}

#[tokio::test]
async fn a_trunk_in_use_is_not_deleted() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let trunk = id_of(&api.post(TRUNKS, &tenant.token, carrier()).await.with(201));
    let mut agents = Vec::new();

    for name in ["Anna", "Bea"] {
        pass(1);
        let agent = api.agent(tenant.org, name).await;
        let id = trunk.parse().expect("an id");
        done(&api.store, move |tx, now| {
            outbound_trunks::assign(tx, tenant.org, agent, Some(id), now)
        })
        .await;
        agents.push(agent);
    }

    let path = format!("{TRUNKS}/{trunk}");
    let refused = api.delete(&path, &tenant.token).await.with(409);
    assert_eq!(
        refused["message"],
        format!(
            "The trunk is used by the agent \"Anna\" ({}), the agent \"Bea\" ({})",
            agents[0], agents[1]
        )
    );

    for agent in agents {
        let (org, at) = (tenant.org, now());
        done(&api.store, move |tx, _| agents::delete(tx, org, agent, at)).await;
    }

    api.delete(&path, &tenant.token).await.with(200);
}

#[tokio::test]
async fn a_trunk_of_another_tenant_is_as_one_that_is_not_there() {
    let api = TestApi::new().await;
    let (acme, other) = (api.tenant("Acme").await, api.tenant("Other").await);
    let made = api.post(TRUNKS, &acme.token, carrier()).await.with(201);
    let nobody = uuid::Uuid::nil().to_string();

    for id in [&*id_of(&made), &nobody, "no-id"] {
        let path = format!("{TRUNKS}/{id}");
        let answers = [
            api.get(&format!("{path}?x=1"), &other.token).await,
            api.patch(&path, &other.token, json!([])).await,
            api.delete(&path, &other.token).await,
        ];
        all_absent(&answers, "outbound trunk");
    }
    let path = format!("{TRUNKS}/{}", id_of(&made));
    assert_eq!(api.get(&path, &acme.token).await.with(200), made);
}

#[tokio::test]
async fn reading_and_writing_need_their_scopes() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let (_, reader) = api.key(tenant.org, &["phone:read"]).await;
    let (_, writer) = api.key(tenant.org, &["phone:write"]).await;
    let one = format!("{TRUNKS}/no-id");
    let writing = [
        api.post(TRUNKS, &reader, json!([])).await,
        api.patch(&one, &reader, json!([])).await,
        api.delete(&one, &reader).await,
    ];
    all_lack(&writing, "phone:write");
    let reading = [api.get(TRUNKS, &writer).await, api.get(&one, &writer).await];
    all_lack(&reading, "phone:read");
}
