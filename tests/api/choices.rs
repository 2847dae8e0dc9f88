//! More agents, trunks and destinations than a page has: each is named where it is mentioned, and can be chosen.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use trunkline_model::record::Fact;
use uuid::Uuid;

use crate::pages::{form_token, org_of, submit, visit};
use crate::test_api::TestApi;
use crate::test_org::{session_in, started};

/// Agents of the tests: more than two pages of the API.
const MANY: usize = 230;

/// An org with many agents, the first of which answers a call, and a session in it.
struct Crowd {
    api: TestApi,
    org: Uuid,
    token: String,
    cookie: String,
    page: String,
    first: Uuid,
}

impl Crowd {
    async fn new() -> Self {
        let api = TestApi::new().await;
        let reseller = api.reseller("Reseller").await;
        let org = org_of(&api, &reseller, "Acme").await;
        let (_, token) = api.key(org, &trunkline::api::SCOPES).await;
        let session = session_in(&api, &reseller, org).await;
        let cookie = session.header.expect("a cookie").1;
        let first = api.agent(org, "Agent 0").await;
        for at in 1..MANY {
            api.agent(org, &format!("Agent {at}")).await;
        }
        let facts: [Fact; 1] = [started(org, first, Uuid::new_v4(), Uuid::new_v4())];
        api.project(&facts).await;
        Self {
            page: format!("/dashboard/{org}"),
            api,
            org,
            token,
            cookie,
            first,
        }
    }

    async fn shown(&self, below: &str) -> String {
        let path = format!("{}{below}", self.page);
        let page = visit(&self.api, &path, &self.cookie).await;
        assert_eq!(page.status, 200, "{path}: {}", page.text);
        page.text
    }

    async fn names(&self, query: &str) -> Value {
        let path = format!("/phone/names?{query}");
        self.api.get(&path, &self.token).await.with(200)
    }
}

#[tokio::test]
async fn names_are_found_by_ids_and_by_a_part() {
    let crowd = Crowd::new().await;
    let first = crowd.first;
    let found = crowd
        .names(&format!("ids={first},{}", Uuid::new_v4()))
        .await;
    let named = json!([{"id": first, "kind": "agent", "name": "Agent 0"}]);
    assert_eq!(
        (&found["items"], &found["has_more"]),
        (&named, &json!(false))
    );

    for (more, is_found) in [
        ("kind=agent", true),
        ("kind=number", false),
        ("search=agent", true),
        ("search=x", false),
    ] {
        let found = crowd.names(&format!("ids={first}&{more}")).await;
        assert_eq!(found["items"] == named, is_found, "{more}: {found}");
    }

    let found = crowd.names("search=aGENT%200").await;
    assert_eq!(found["items"], named);
    let found = crowd.names("kind=agent&search=aGENT%200").await;
    assert_eq!(found["items"], named);
    let found = crowd.names("kind=agent&search=22").await;
    let names: Vec<_> = found["items"].as_array().expect("a list").iter().collect();
    // 22, 122 and 220 to 229.
    assert_eq!(names.len(), 12, "{found}");
    let all = crowd.names("kind=agent").await;
    let count = all["items"].as_array().expect("a list").len();
    assert_eq!((count, &all["has_more"]), (20, &json!(true)), "{all}");

    let other = crowd.api.tenant("Other").await;
    let path = format!("/phone/names?ids={first}");
    let foreign = crowd.api.get(&path, &other.token).await.with(200);
    assert_eq!(foreign["items"], json!([]));

    let many = vec![first.to_string(); 101].join(",");
    for (query, fault) in [
        ("ids=x", "ids: \"x\" is not an id"),
        (&format!("ids={many}"), "ids: expected at most 100 ids"),
        ("kind=call", "kind: \"call\" is none of"),
    ] {
        let path = format!("/phone/names?{query}");
        let refused = crowd.api.get(&path, &crowd.token).await;
        assert_eq!(refused.status, 400, "{query}: {}", refused.text);
        let message = refused.json()["message"].to_string().replace("\\\"", "\"");
        assert!(message.contains(fault), "{query}: {message}");
    }
}

#[tokio::test]
async fn every_page_names_the_oldest_agent_of_many() {
    let crowd = Crowd::new().await;
    for page in ["/calls", "", "/usage?group_by=agent"] {
        assert!(crowd.shown(page).await.contains("Agent 0"), "{page}");
    }

    let all = crowd.shown("/calls").await;
    let none = "No call matches these filters.";
    assert!(!all.contains(none));
    for (filter, is_found) in [
        ("agent=Agent+0", true),
        ("agent=agent+0", true),
        ("agent=Agent+7", false),
        (&*format!("agent_id={}", crowd.first), true),
    ] {
        let shown = crowd.shown(&format!("/calls?{filter}")).await;
        assert_eq!(!shown.contains(none), is_found, "{filter}: {shown}");
    }
    let unknown = crowd.shown("/calls?agent=Nobody").await;
    assert!(
        unknown.contains("There is no agent &quot;Nobody&quot;."),
        "{unknown}"
    );
    // The link of a call's agent fills the form with its name.
    let linked = crowd
        .shown(&format!("/calls?agent_id={}", crowd.first))
        .await;
    assert!(linked.contains("value=\"Agent 0\""), "{linked}");
}

#[tokio::test]
async fn suggestions_follow_what_is_typed() {
    let crowd = Crowd::new().await;
    let found = crowd.shown("/choices/agent?search=agent+17").await;
    assert_eq!(found.matches("<option").count(), 11, "{found}");
    let absent = visit(
        &crowd.api,
        &format!("{}/choices/call", crowd.page),
        &crowd.cookie,
    )
    .await;
    assert_eq!(absent.status, 404);

    // Where two have one name, the end of its id follows each.
    let twin = crowd.api.agent(crowd.org, "Agent 0").await.to_string();
    let found = crowd.shown("/choices/agent?search=agent+0").await;
    let end = &twin[24..];
    assert!(found.contains(&format!("Agent 0 ({end})")), "{found}");
    let both = crowd.shown("/calls?agent=Agent+0").await;
    assert!(both.contains("Several have this name"), "{both}");
    let one = crowd.shown(&format!("/calls?agent=Agent+0+({end})")).await;
    assert!(one.contains("No call matches these filters."), "{one}");
}

#[tokio::test]
async fn any_of_many_trunks_and_destinations_can_be_chosen() {
    let crowd = Crowd::new().await;
    for at in 0..49 {
        let trunk = json!({"name": format!("Carrier {at}"), "host": "192.0.2.1", "caller_number": "+442071838750"});
        let made = crowd
            .api
            .post("/phone/sip/outbound-trunks", &crowd.token, trunk);
        made.await.with(201);
    }
    for at in 0..MANY {
        let destination =
            json!({"name": format!("Desk {at}"), "type": "phone", "value": "+442071838751"});
        let path = "/phone/sip/transfer-destinations";
        crowd
            .api
            .post(path, &crowd.token, destination)
            .await
            .with(201);
    }

    let at = format!("{}/agents/{}", crowd.page, crowd.first);
    let page = visit(&crowd.api, &at, &crowd.cookie).await;
    let proof = form_token(&page);
    let send = async |below: &str, field: &str| {
        let fields = format!("form_token={proof}&{field}");
        submit(&crowd.api, &format!("{at}/{below}"), &crowd.cookie, &fields).await
    };
    for (below, field, shown) in [
        ("outbound-trunk", "trunk_id=Carrier+0", "Remove Carrier 0"),
        ("destinations", "destination_id=Desk+0", "Remove Desk 0"),
        ("destinations", "destination_id=desk+229", "Remove Desk 229"),
    ] {
        let done = send(below, field).await;
        assert_eq!(done.status, 303, "{field}: {}", done.text);
        let page = visit(&crowd.api, &at, &crowd.cookie).await;
        assert!(page.text.contains(shown), "{field}");
    }
    let unknown = send("destinations", "destination_id=Attic").await;
    assert_eq!(unknown.status, 400, "{}", unknown.text);
    assert!(
        unknown.text.contains("There is no destination"),
        "{}",
        unknown.text
    );
    // Without a trunk it can't call out.
    assert_eq!(send("outbound-trunk", "trunk_id=").await.status, 303);
    let page = visit(&crowd.api, &at, &crowd.cookie).await;
    assert!(page.text.contains("it can't call out"), "{}", page.text);
}

#[tokio::test]
async fn every_member_is_on_a_page() {
    let crowd = Crowd::new().await;
    let api = &crowd.api;
    for at in 0..120 {
        let email = format!("person{at}@example.org");
        let org = crowd.org;
        let login = trunkline_store::NewLogin {
            email,
            name: Some(format!("Person_{at}")),
            roles: Vec::new(),
        };
        let link = trunkline_store::LoginLink {
            token_hash: [u8::try_from(at).expect("few"); 32],
            expires_at: crate::test_api::NOW,
            confirm: false,
        };
        crate::test_api::done(&api.store, move |tx, now| {
            trunkline_store::logins::create_link(tx, org, &login, &link, now)
        })
        .await;
    }

    // 50, 50, and the rest of 120 and the administrator, in the order in which they became members.
    let mut names = BTreeSet::new();
    for below in ["/members", "/members?skip=50", "/members?skip=100"] {
        let shown = crowd.shown(below).await;
        let parts = shown.split("<strong>Person_").skip(1);
        names.extend(parts.filter_map(|part| Some(part.split_once('<')?.0.to_owned())));
    }
    assert_eq!(names.len(), 120, "{names:?}");
    for (find, is_found) in [
        ("PERSON_117", true),
        ("person117@", true),
        ("person%", false),
        ("nobody", false),
    ] {
        let shown = crowd
            .shown(&format!("/members?find={}", find.replace('%', "%25")))
            .await;
        assert_eq!(shown.contains("<strong>Person_"), is_found, "{find}");
    }
}
