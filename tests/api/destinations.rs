//! `/phone/sip/transfer-destinations`, `/phone/sip/transfer-destinations/{destination_id}` and the same beneath an agent.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::test_api::{Tenant, TestApi, all_absent, all_lack, id_of, masked, pass, walk};

const DESTINATIONS: &str = "/phone/sip/transfer-destinations";

fn sales() -> Value {
    json!({"name": "Sales", "type": "phone", "value": "+442071838750"})
}

fn desk() -> Value {
    json!({"name": "Desk", "type": "sip", "value": "sip:desk@pbx.example.com"})
}

fn of_agent(agent: Uuid) -> String {
    format!("/phone/sip/agents/{agent}/transfer-destinations")
}

async fn make(api: &TestApi, tenant: &Tenant, body: Value) -> String {
    id_of(&api.post(DESTINATIONS, &tenant.token, body).await.with(201))
}

#[tokio::test]
async fn a_destination_is_made_shown_changed_and_deleted() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let made = api
        .post(DESTINATIONS, &tenant.token, sales())
        .await
        .with(201);
    insta::assert_json_snapshot!("a_destination", masked(made.clone()));

    let path = format!("{DESTINATIONS}/{}", id_of(&made));
    assert_eq!(api.get(&path, &tenant.token).await.with(200), made);

    pass(60);
    for (change, name, kind, value) in [
        (json!({"name": "SALES"}), "SALES", "phone", "+442071838750"),
        (
            json!({"value": "+442071838751"}),
            "SALES",
            "phone",
            "+442071838751",
        ),
        (json!({"type": "phone"}), "SALES", "phone", "+442071838751"),
        (
            json!({"type": "sip", "value": "sips:a@b"}),
            "SALES",
            "sip",
            "sips:a@b",
        ),
        (json!({"value": "sip:c@d"}), "SALES", "sip", "sip:c@d"),
    ] {
        let changed = api
            .patch(&path, &tenant.token, change.clone())
            .await
            .with(200);
        let fields = ["name", "type", "value"].map(|field| changed[field].as_str().unwrap_or("?"));
        assert_eq!(fields, [name, kind, value], "{change}");
        let at = changed["updated_at"].as_str().unwrap_or("?");
        assert!(at.starts_with("2026-01-31T12:01:00.00"), "{at}");
        assert_eq!(api.get(&path, &tenant.token).await.with(200), changed);
    }

    let gone = api.delete(&path, &tenant.token).await.with(200);
    assert_eq!(gone, json!({"success": true}));

    all_absent(
        &[api.get(&path, &tenant.token).await],
        "transfer destination",
    );
}

#[tokio::test]
async fn a_name_is_one_orgs_once_whatever_its_case() {
    let api = TestApi::new().await;
    let (acme, other) = (api.tenant("Acme").await, api.tenant("Other").await);
    let made = make(&api, &acme, sales()).await;
    let second = make(&api, &acme, desk()).await;
    make(&api, &other, sales()).await;
    let loud = json!({"name": "sALES", "type": "sip", "value": "sip:x@y"});
    let taken = api
        .post(DESTINATIONS, &acme.token, loud.clone())
        .await
        .with(409);
    insta::assert_json_snapshot!(taken);
    let agent = api.agent(acme.org, "Anna").await;
    let create = json!({"create": loud});
    let again = api.post(&of_agent(agent), &acme.token, create).await;

    assert_eq!(again.with(409), taken);

    let none = api.get(&of_agent(agent), &acme.token).await.with(200);
    assert_eq!(none["total"], 0);

    let name = json!({"name": "SALES"});
    let path = |id: &str| format!("{DESTINATIONS}/{id}");
    api.patch(&path(&second), &acme.token, name.clone())
        .await
        .with(409);
    api.patch(&path(&made), &acme.token, name).await.with(200);
}

#[tokio::test]
async fn every_fault_is_named() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let path = format!("{DESTINATIONS}/{}", make(&api, &tenant, sales()).await);
    for (body, message) in [
        (
            json!({}),
            "name: is required; type: is required; value: is required",
        ),
        (
            json!({"name": "", "type": "fax", "value": 7, "number": "x"}),
            "name: must not be empty; type: \"fax\" is none of phone, sip; value: expected a text, not a number; \
             number: is no field of this request",
        ),
        (
            json!({"name": "x", "type": "phone", "value": "sip:a@b"}),
            "value: \"sip:a@b\" is not an E.164 number",
        ),
        (
            json!({"name": "x", "type": "sip", "value": "+442071838750"}),
            "value: \"+442071838750\" is not a SIP URI such as sip:sales@pbx.example.com",
        ),
    ] {
        let refused = api.post(DESTINATIONS, &tenant.token, body).await;
        assert_eq!(refused.with(400)["message"], message);
    }

    for (body, message) in [
        (json!({"type": "sip"}), "value: is required"),
        (
            json!({"value": "sip:a@b", "name": null}),
            "name: expected a text, not null; value: \"sip:a@b\" is not an E.164 number",
        ),
    ] {
        let refused = api.patch(&path, &tenant.token, body).await;
        assert_eq!(refused.with(400)["message"], message);
    }
}

#[tokio::test]
async fn destinations_are_assigned_in_both_ways_and_taken_again() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let agent = api.agent(tenant.org, "Anna").await;
    let there = api
        .post(DESTINATIONS, &tenant.token, sales())
        .await
        .with(201);
    let id = id_of(&there);
    let path = of_agent(agent);

    for round in ["once", "twice"] {
        let body = json!({"destination_id": id});
        let assigned = api.post(&path, &tenant.token, body).await;
        assert_eq!(assigned.with(200), there, "{round}");
    }

    pass(60);
    let body = json!({"create": desk(), "destination_id": null});
    let made = api.post(&path, &tenant.token, body).await.with(201);
    insta::assert_json_snapshot!("a_destination_made_for_an_agent", masked(made.clone()));
    let one = format!("{DESTINATIONS}/{}", id_of(&made));
    assert_eq!(api.get(&one, &tenant.token).await.with(200), made);
    let names = walk(&api, &path, &tenant.token, 1, "name").await;
    assert_eq!(names, ["Desk", "Sales"]);
    assert_eq!(
        walk(&api, DESTINATIONS, &tenant.token, 1, "name").await,
        names
    );

    let of_it = format!("{path}/{id}");
    let gone = api.delete(&of_it, &tenant.token).await.with(200);
    assert_eq!(gone, json!({"success": true}));

    let again = api.delete(&of_it, &tenant.token).await;
    all_absent(&[again], "transfer destination");
    let kept = api
        .get(&format!("{DESTINATIONS}/{id}"), &tenant.token)
        .await;
    assert_eq!(kept.with(200), there);
    // Deleting a destination removes it from its agents.
    api.delete(&one, &tenant.token).await.with(200);
    let none = json!({"items": [], "next": null, "total": 0});
    assert_eq!(api.get(&path, &tenant.token).await.with(200), none);
}

#[tokio::test]
async fn what_is_to_be_assigned_is_named_in_one_way() {
    let api = TestApi::new().await;
    let (acme, other) = (api.tenant("Acme").await, api.tenant("Other").await);
    let agent = api.agent(acme.org, "Anna").await;
    let foreign = make(&api, &other, sales()).await;
    let nobody = Uuid::nil();

    for (body, message) in [
        (
            json!({}),
            "destination_id: give either destination_id or create".to_owned(),
        ),
        (
            json!({"destination_id": foreign, "create": desk()}),
            "destination_id: give either destination_id or create".to_owned(),
        ),
        (
            json!({"create": {"name": "x", "type": "sip", "value": "x", "id": 1}}),
            "create.value: \"x\" is not a SIP URI such as sip:sales@pbx.example.com; \
             create.id: is no field of this request"
                .to_owned(),
        ),
        (
            json!({"create": []}),
            "create: expected an object, not a list".to_owned(),
        ),
        (
            json!({"destination_id": "x"}),
            "destination_id: \"x\" is not an id".to_owned(),
        ),
        (
            json!({"destination_id": foreign}),
            format!("destination_id: {foreign} is not a transfer destination of this org"),
        ),
        (
            json!({"destination_id": nobody}),
            format!("destination_id: {nobody} is not a transfer destination of this org"),
        ),
    ] {
        let refused = api.post(&of_agent(agent), &acme.token, body).await;
        assert_eq!(refused.with(400)["message"], message);
    }
}

#[tokio::test]
async fn what_is_another_tenants_is_as_if_it_were_not_there() {
    let api = TestApi::new().await;
    let (acme, other) = (api.tenant("Acme").await, api.tenant("Other").await);
    let (ours, theirs) = (
        api.agent(acme.org, "Anna").await,
        api.agent(other.org, "Bea").await,
    );
    let id = make(&api, &acme, sales()).await;
    let nobody = Uuid::nil().to_string();
    let token = &other.token;

    for id in [&*id, &nobody, "no-id"] {
        let path = format!("{DESTINATIONS}/{id}");
        let answers = [
            api.get(&format!("{path}?x=1"), token).await,
            api.patch(&path, token, json!([])).await,
            api.delete(&path, token).await,
            api.delete(&format!("{}/{id}?x=1", of_agent(theirs)), token)
                .await,
        ];
        all_absent(&answers, "transfer destination");
    }

    let path = of_agent(ours);
    let answers = [
        api.get(&format!("{path}?x=1"), token).await,
        api.post(&path, token, json!([])).await,
        api.delete(&format!("{path}/{id}"), token).await,
    ];

    all_absent(&answers, "agent");
    assert_eq!(api.get(DESTINATIONS, token).await.with(200)["total"], 0);
    assert_eq!(
        api.get(DESTINATIONS, &acme.token).await.with(200)["total"],
        1
    );
}

#[tokio::test]
async fn reading_and_writing_need_their_scopes() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let (_, reader) = api.key(tenant.org, &["phone:read"]).await;
    let (_, writer) = api.key(tenant.org, &["phone:write"]).await;
    let one = format!("{DESTINATIONS}/no-id");
    let agents = of_agent(Uuid::nil());
    let writing = [
        api.post(DESTINATIONS, &reader, json!([])).await,
        api.patch(&one, &reader, json!([])).await,
        api.delete(&one, &reader).await,
        api.post(&agents, &reader, json!([])).await,
        api.delete(&format!("{agents}/no-id"), &reader).await,
    ];
    all_lack(&writing, "phone:write");

    let reading = [
        api.get(DESTINATIONS, &writer).await,
        api.get(&one, &writer).await,
        api.get(&agents, &writer).await,
    ];
    all_lack(&reading, "phone:read");
}

#[tokio::test]
async fn an_agents_destinations_are_narrowed() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let path = of_agent(api.agent(tenant.org, "Reception").await);
    for body in [sales(), desk()] {
        let body = json!({"create": body});
        api.post(&path, &tenant.token, body).await.with(201);
    }

    for (query, expected) in [
        ("", 2),
        ("?type=sip", 1),
        ("?name=Desk", 1),
        ("?type=phone&name=Desk", 0),
    ] {
        let page = api.get(&format!("{path}{query}"), &tenant.token).await;
        let page = page.with(200);
        assert_eq!(page["total"], expected, "{query}");
        let items = page["items"].as_array().expect("items");
        assert_eq!(page["total"], items.len(), "{query}");
    }

    let wrong = format!("{path}?type=fax");
    api.get(&wrong, &tenant.token).await.with(400);
}
