//! `/phone/sip/agents/{agent_id}/inbound-numbers`, `…/outbound-trunk`, `…/config`.

use serde_json::{Value, json};
use trunkline_store::numbers;
use uuid::Uuid;

use crate::test_api::{Tenant, TestApi, all_absent, all_lack, done, id_of, masked, pass};

fn path(agent: impl std::fmt::Display, tail: &str) -> String {
    format!("/phone/sip/agents/{agent}/{tail}")
}

/// An outbound trunk of the tenant.
async fn trunk(api: &TestApi, tenant: &Tenant) -> String {
    let body =
        json!({"name": "Carrier", "host": "sip.carrier.example", "caller_number": "+442071838750"});
    let made = api
        .post("/phone/sip/outbound-trunks", &tenant.token, body)
        .await;
    id_of(&made.with(201))
}

fn listed(config: &Value) -> Vec<&str> {
    let numbers = config["inbound_numbers"].as_array().expect("a list");
    numbers
        .iter()
        .map(|number| number["phone_number"].as_str().expect("a number"))
        .collect()
}

#[tokio::test]
async fn an_agent_is_given_numbers_a_trunk_and_destinations() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let agent = api.agent(tenant.org, "Anna").await;
    let empty = api
        .get(&path(agent, "config"), &tenant.token)
        .await
        .with(200);
    insta::assert_json_snapshot!("nothing_assigned", masked(empty.clone()));

    let one = api.number(tenant.org, "+442071838751").await.id;
    pass(1);
    let two = api.number(tenant.org, "+442071838752").await.id;
    let numbers = path(agent, "inbound-numbers");
    let both = json!({"phone_number_ids": [two, one, two]});
    let config = api
        .json("PUT", &numbers, &tenant.token, both)
        .await
        .with(200);
    assert_eq!(listed(&config), ["+442071838751", "+442071838752"]);

    let trunk = trunk(&api, &tenant).await;
    let body = json!({"trunk_id": trunk});
    let through = path(agent, "outbound-trunk");
    api.json("PUT", &through, &tenant.token, body)
        .await
        .with(200);
    let create =
        json!({"create": {"name": "Desk", "type": "sip", "value": "sip:desk@pbx.example.com"}});
    let destinations = path(agent, "transfer-destinations");
    api.post(&destinations, &tenant.token, create)
        .await
        .with(201);
    let full = api
        .get(&path(agent, "config"), &tenant.token)
        .await
        .with(200);
    insta::assert_json_snapshot!("everything_assigned", masked(full));
    let shown = api
        .get(&format!("/phone/{agent}"), &tenant.token)
        .await
        .with(200);
    assert_eq!(shown["outbound_trunk_id"], json!(trunk));

    let fewer = json!({"phone_number_ids": [two]});
    let config = api
        .json("PUT", &numbers, &tenant.token, fewer)
        .await
        .with(200);
    assert_eq!(listed(&config), ["+442071838752"]);

    let none = json!({"phone_number_ids": []});
    let config = api
        .json("PUT", &numbers, &tenant.token, none)
        .await
        .with(200);
    assert_eq!(config["inbound_numbers"], json!([]));
    let none = json!({"trunk_id": null});
    let config = api
        .json("PUT", &through, &tenant.token, none)
        .await
        .with(200);
    assert_eq!(config["outbound_trunk"], json!(null));
}

#[tokio::test]
async fn a_number_that_another_agent_holds_stays_there() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let (anna, bea) = (
        api.agent(tenant.org, "Anna").await,
        api.agent(tenant.org, "Bea").await,
    );
    let one = api.number(tenant.org, "+442071838751").await.id;
    let two = api.number(tenant.org, "+442071838752").await.id;
    let ids = json!({"phone_number_ids": [one]});
    let of = |agent: Uuid| path(agent, "inbound-numbers");
    api.json("PUT", &of(anna), &tenant.token, ids)
        .await
        .with(200);
    let both = json!({"phone_number_ids": [two, one]});
    let refused = api
        .json("PUT", &of(bea), &tenant.token, both)
        .await
        .with(409);
    assert_eq!(
        refused,
        json!({
            "statusCode": 409, "error": "Conflict", "code": "number_assigned",
            "message": format!("+442071838751 is assigned to the agent \"Anna\" ({anna})"),
        })
    );

    let config = api.get(&path(bea, "config"), &tenant.token).await.with(200);
    assert_eq!(config["inbound_numbers"], json!([]));
}

#[tokio::test]
async fn what_is_no_verified_number_of_the_org_is_refused() {
    let api = TestApi::new().await;
    let (acme, other) = (api.tenant("Acme").await, api.tenant("Other").await);
    let agent = api.agent(acme.org, "Anna").await;
    let ours = api.number(acme.org, "+442071838751").await.id;
    let foreign = api.number(other.org, "+442071838752").await.id;
    let raw = api.number(acme.org, "+442071838753").await.id;
    done(&api.store, move |tx, now| {
        numbers::unverify(tx, acme.org, raw, now)
    })
    .await;
    let nobody = Uuid::nil();

    for (body, message) in [
        (json!({}), "phone_number_ids: is required".to_owned()),
        (
            json!({"phone_number_ids": null}),
            "phone_number_ids: expected a list, not null".to_owned(),
        ),
        (
            json!({"phone_number_ids": [ours, "x", 1], "agent_id": "y"}),
            "phone_number_ids[1]: \"x\" is not an id; phone_number_ids[2]: expected a text, not a number; \
             agent_id: is no field of this request"
                .to_owned(),
        ),
        (
            json!({"phone_number_ids": [ours, raw, foreign, nobody]}),
            format!(
                "phone_number_ids[1]: +442071838753 is not a verified number of this org; \
                 phone_number_ids[2]: {foreign} is not a phone number of this org; \
                 phone_number_ids[3]: {nobody} is not a phone number of this org"
            ),
        ),
    ] {
        let of = path(agent, "inbound-numbers");
        let refused = api.json("PUT", &of, &acme.token, body).await;
        assert_eq!(refused.with(400)["message"], message);
    }
    let config = api.get(&path(agent, "config"), &acme.token).await.with(200);
    assert_eq!(config["inbound_numbers"], json!([]));
}

#[tokio::test]
async fn what_is_no_trunk_of_the_org_is_refused() {
    let api = TestApi::new().await;
    let (acme, other) = (api.tenant("Acme").await, api.tenant("Other").await);
    let agent = api.agent(acme.org, "Anna").await;
    let foreign = trunk(&api, &other).await;
    let nobody = Uuid::nil();

    for (body, message) in [
        (json!({}), "trunk_id: is required".to_owned()),
        (
            json!({"trunk_id": "x"}),
            "trunk_id: \"x\" is not an id".to_owned(),
        ),
        (
            json!({"trunk_id": foreign}),
            format!("trunk_id: {foreign} is not an outbound trunk of this org"),
        ),
        (
            json!({"trunk_id": nobody}),
            format!("trunk_id: {nobody} is not an outbound trunk of this org"),
        ),
    ] {
        let of = path(agent, "outbound-trunk");
        let refused = api.json("PUT", &of, &acme.token, body).await;
        assert_eq!(refused.with(400)["message"], message);
    }
}

#[tokio::test]
async fn an_agent_of_another_tenant_is_as_one_that_is_not_there() {
    let api = TestApi::new().await;
    let (acme, other) = (api.tenant("Acme").await, api.tenant("Other").await);
    let ours = api.agent(acme.org, "Anna").await.to_string();

    for agent in [&*ours, "00000000-0000-0000-0000-000000000000", "no-id"] {
        let answers = [
            api.get(&path(agent, "config?x=1"), &other.token).await,
            api.json(
                "PUT",
                &path(agent, "inbound-numbers"),
                &other.token,
                json!([]),
            )
            .await,
            api.json(
                "PUT",
                &path(agent, "outbound-trunk"),
                &other.token,
                json!([]),
            )
            .await,
        ];
        all_absent(&answers, "agent");
    }
}

#[tokio::test]
async fn reading_and_writing_need_their_scopes() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let (_, reader) = api.key(tenant.org, &["phone:read"]).await;
    let (_, writer) = api.key(tenant.org, &["phone:write"]).await;
    let writing = [
        api.json("PUT", &path("x", "inbound-numbers"), &reader, json!([]))
            .await,
        api.json("PUT", &path("x", "outbound-trunk"), &reader, json!([]))
            .await,
    ];

    all_lack(&writing, "phone:write");
    all_lack(
        &[api.get(&path("x", "config"), &writer).await],
        "phone:read",
    );
}

#[tokio::test]
async fn an_agent_answers_thousands_of_numbers() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let agent = api.agent(tenant.org, "Switchboard").await;
    let mut ids = Vec::new();
    for at in 0..1_200 {
        let number = api.number(tenant.org, &format!("+4420718{at:05}")).await;
        ids.push(number.id);
    }

    let path = format!("/phone/sip/agents/{agent}/inbound-numbers");
    let put = async |ids: &[uuid::Uuid]| {
        let body = json!({"phone_number_ids": ids});
        let config = api.json("PUT", &path, &tenant.token, body).await.with(200);
        config["inbound_numbers"].as_array().expect("numbers").len()
    };

    assert_eq!(put(&ids).await, 1_200);
    assert_eq!(put(&ids[1..]).await, 1_199);
    assert_eq!(put(&ids[..2]).await, 2);
}
