//! `/phone/sip/transfer-destinations`, `/phone/sip/transfer-destinations/{destination_id}` and the same beneath an agent.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::house::{House, Tenant, all_absent, all_lack, id_of, masked, pass, walk};

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

async fn make(house: &House, tenant: &Tenant, body: Value) -> String {
    id_of(
        &house
            .post(DESTINATIONS, &tenant.token, body)
            .await
            .with(201),
    )
}

#[tokio::test]
async fn a_destination_is_made_shown_changed_and_deleted() {
    let house = House::new().await;
    let tenant = house.tenant("Acme").await;
    let made = house
        .post(DESTINATIONS, &tenant.token, sales())
        .await
        .with(201);
    insta::assert_json_snapshot!("a_destination", masked(made.clone()));

    let path = format!("{DESTINATIONS}/{}", id_of(&made));
    assert_eq!(house.get(&path, &tenant.token).await.with(200), made);

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
        let changed = house
            .patch(&path, &tenant.token, change.clone())
            .await
            .with(200);
        let fields = ["name", "type", "value"].map(|field| changed[field].as_str().unwrap_or("?"));
        assert_eq!(fields, [name, kind, value], "{change}");
        assert_eq!(changed["updated_at"], "2026-01-31T12:01:00.000Z");
        assert_eq!(house.get(&path, &tenant.token).await.with(200), changed);
    }

    let gone = house.delete(&path, &tenant.token).await.with(200);
    assert_eq!(gone, json!({"success": true}));

    all_absent(
        &[house.get(&path, &tenant.token).await],
        "transfer destination",
    );
}

#[tokio::test]
async fn a_name_is_one_orgs_once_whatever_its_case() {
    let house = House::new().await;
    let (acme, other) = (house.tenant("Acme").await, house.tenant("Other").await);
    let made = make(&house, &acme, sales()).await;
    let second = make(&house, &acme, desk()).await;
    make(&house, &other, sales()).await;
    let loud = json!({"name": "sALES", "type": "sip", "value": "sip:x@y"});
    let taken = house
        .post(DESTINATIONS, &acme.token, loud.clone())
        .await
        .with(409);
    insta::assert_json_snapshot!(taken);
    let agent = house.agent(acme.org, "Anna").await;
    let create = json!({"create": loud});
    let again = house.post(&of_agent(agent), &acme.token, create).await;
    assert_eq!(again.with(409), taken);
    let none = house.get(&of_agent(agent), &acme.token).await.with(200);
    assert_eq!(none["total"], 0);
    let name = json!({"name": "SALES"});
    let path = |id: &str| format!("{DESTINATIONS}/{id}");
    house
        .patch(&path(&second), &acme.token, name.clone())
        .await
        .with(409);
    house.patch(&path(&made), &acme.token, name).await.with(200);
}

#[tokio::test]
async fn every_fault_is_named() {
    let house = House::new().await;
    let tenant = house.tenant("Acme").await;
    let path = format!("{DESTINATIONS}/{}", make(&house, &tenant, sales()).await);
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
        let refused = house.post(DESTINATIONS, &tenant.token, body).await;
        assert_eq!(refused.with(400)["message"], message);
    }
    for (body, message) in [
        (json!({"type": "sip"}), "value: is required"),
        (
            json!({"value": "sip:a@b", "name": null}),
            "name: expected a text, not null; value: \"sip:a@b\" is not an E.164 number",
        ),
    ] {
        let refused = house.patch(&path, &tenant.token, body).await;
        assert_eq!(refused.with(400)["message"], message);
    }
}

#[tokio::test]
async fn destinations_are_assigned_in_both_ways_and_taken_again() {
    let house = House::new().await;
    let tenant = house.tenant("Acme").await;
    let agent = house.agent(tenant.org, "Anna").await;
    let there = house
        .post(DESTINATIONS, &tenant.token, sales())
        .await
        .with(201);
    let id = id_of(&there);
    let path = of_agent(agent);
    for round in ["once", "twice"] {
        let body = json!({"destination_id": id});
        let assigned = house.post(&path, &tenant.token, body).await;
        assert_eq!(assigned.with(200), there, "{round}");
    }
    pass(60);
    let body = json!({"create": desk(), "destination_id": null});
    let made = house.post(&path, &tenant.token, body).await.with(201);
    insta::assert_json_snapshot!("a_destination_made_for_an_agent", masked(made.clone()));
    let one = format!("{DESTINATIONS}/{}", id_of(&made));
    assert_eq!(house.get(&one, &tenant.token).await.with(200), made);
    let names = walk(&house, &path, &tenant.token, 1, "name").await;
    assert_eq!(names, ["Desk", "Sales"]);
    assert_eq!(
        walk(&house, DESTINATIONS, &tenant.token, 1, "name").await,
        names
    );

    let of_it = format!("{path}/{id}");
    let gone = house.delete(&of_it, &tenant.token).await.with(200);
    assert_eq!(gone, json!({"success": true}));
    let again = house.delete(&of_it, &tenant.token).await;
    all_absent(&[again], "transfer destination");
    let kept = house
        .get(&format!("{DESTINATIONS}/{id}"), &tenant.token)
        .await;
    assert_eq!(kept.with(200), there);
    // Deleting one takes it from its agents.
    house.delete(&one, &tenant.token).await.with(200);
    let none = json!({"items": [], "next": null, "total": 0});
    assert_eq!(house.get(&path, &tenant.token).await.with(200), none);
}

#[tokio::test]
async fn what_is_to_be_assigned_is_named_in_one_way() {
    let house = House::new().await;
    let (acme, other) = (house.tenant("Acme").await, house.tenant("Other").await);
    let agent = house.agent(acme.org, "Anna").await;
    let foreign = make(&house, &other, sales()).await;
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
        let refused = house.post(&of_agent(agent), &acme.token, body).await;
        assert_eq!(refused.with(400)["message"], message);
    }
}

#[tokio::test]
async fn what_is_another_tenants_is_as_if_it_were_not_there() {
    let house = House::new().await;
    let (acme, other) = (house.tenant("Acme").await, house.tenant("Other").await);
    let (ours, theirs) = (
        house.agent(acme.org, "Anna").await,
        house.agent(other.org, "Bea").await,
    );
    let id = make(&house, &acme, sales()).await;
    let nobody = Uuid::nil().to_string();
    let token = &other.token;
    for id in [&*id, &nobody, "no-id"] {
        let path = format!("{DESTINATIONS}/{id}");
        let answers = [
            house.get(&format!("{path}?x=1"), token).await,
            house.patch(&path, token, json!([])).await,
            house.delete(&path, token).await,
            house
                .delete(&format!("{}/{id}?x=1", of_agent(theirs)), token)
                .await,
        ];
        all_absent(&answers, "transfer destination");
    }
    let path = of_agent(ours);
    let answers = [
        house.get(&format!("{path}?x=1"), token).await,
        house.post(&path, token, json!([])).await,
        house.delete(&format!("{path}/{id}"), token).await,
    ];
    all_absent(&answers, "agent");
    assert_eq!(house.get(DESTINATIONS, token).await.with(200)["total"], 0);
    assert_eq!(
        house.get(DESTINATIONS, &acme.token).await.with(200)["total"],
        1
    );
}

#[tokio::test]
async fn reading_and_writing_need_their_scopes() {
    let house = House::new().await;
    let tenant = house.tenant("Acme").await;
    let (_, reader) = house.key(tenant.org, &["phone:read"]).await;
    let (_, writer) = house.key(tenant.org, &["phone:write"]).await;
    let one = format!("{DESTINATIONS}/no-id");
    let agents = of_agent(Uuid::nil());
    let writing = [
        house.post(DESTINATIONS, &reader, json!([])).await,
        house.patch(&one, &reader, json!([])).await,
        house.delete(&one, &reader).await,
        house.post(&agents, &reader, json!([])).await,
        house.delete(&format!("{agents}/no-id"), &reader).await,
    ];
    all_lack(&writing, "phone:write");

    let reading = [
        house.get(DESTINATIONS, &writer).await,
        house.get(&one, &writer).await,
        house.get(&agents, &writer).await,
    ];
    all_lack(&reading, "phone:read");
}

#[tokio::test]
async fn an_agents_destinations_are_narrowed() {
    let house = House::new().await;
    let tenant = house.tenant("Acme").await;
    let path = of_agent(house.agent(tenant.org, "Reception").await);
    for body in [sales(), desk()] {
        let body = json!({"create": body});
        house.post(&path, &tenant.token, body).await.with(201);
    }

    for (query, expected) in [
        ("", 2),
        ("?type=sip", 1),
        ("?name=Desk", 1),
        ("?type=phone&name=Desk", 0),
    ] {
        let page = house.get(&format!("{path}{query}"), &tenant.token).await;
        let page = page.with(200);
        assert_eq!(page["total"], expected, "{query}");
        let items = page["items"].as_array().expect("items");
        assert_eq!(page["total"], items.len(), "{query}");
    }

    let wrong = format!("{path}?type=fax");
    house.get(&wrong, &tenant.token).await.with(400);
}
