//! `/partner/v1/orgs/{orgId}/…`: API keys, login links, roles.

use serde_json::{Value, json};
use trunkline_store::{OPERATOR_EMAIL, org_keys};

use crate::pages::{form_token, log_in, submit, visit};
use crate::test_api::{Answer, Reseller, TestApi, found, masked, now, pass, walk, written};
use crate::test_org::operators_cookie;

/// A partner with an org.
async fn owner(api: &TestApi, name: &str) -> (Reseller, String) {
    let partner = api.reseller(name).await;
    let org = api
        .post("/partner/v1/orgs", &partner.key, json!({"name": name}))
        .await
        .with(201);
    let id = org["id"].as_str().expect("an id").to_owned();
    (partner, id)
}

fn path(org: &str, tail: &str) -> String {
    format!("/partner/v1/orgs/{org}/{tail}")
}

#[tokio::test]
async fn a_key_is_made_works_and_is_revoked() {
    let api = TestApi::new().await;
    let (partner, org) = owner(&api, "Acme").await;
    let made = api
        .post(
            &path(&org, "api-keys"),
            &partner.key,
            json!({"name": "Backend"}),
        )
        .await
        .with(201);

    let fields: Vec<_> = made.as_object().expect("an object").keys().collect();
    assert_eq!(fields, ["api_key", "api_key_id"]);
    let (key, id) = (
        made["api_key"].as_str().expect("a key"),
        made["api_key_id"].as_str().expect("an id"),
    );
    api.get("/phone/calls", key).await.with(200);
    api.get("/handoff-analytics/events", key).await.with(200);
    let of = org.parse().expect("an id");
    let listed = found(&api.store, move |tx| org_keys::list(tx, of)).await;
    assert_eq!(
        (listed.len(), &*listed[0].name, listed[0].scopes.len()),
        (1, "Backend", trunkline::api::SCOPES.len())
    );

    let key_path = path(&org, &format!("api-keys/{id}"));
    assert_eq!(
        api.delete(&key_path, &partner.key).await.with(200),
        json!({"success": true})
    );
    // The key was cached, and no server follows the change feed here: the deletion itself has evicted it.
    api.get("/phone/calls", key).await.with(401);
    insta::assert_json_snapshot!(
        "a_key_that_is_gone",
        api.delete(&key_path, &partner.key).await.with(404)
    );
}

#[tokio::test]
async fn a_key_has_a_name_by_default_and_nobodys_else() {
    let api = TestApi::new().await;
    let (partner, org) = owner(&api, "Acme").await;
    let (_, other_org) = owner(&api, "Other").await;
    api.post(&path(&org, "api-keys"), &partner.key, json!({}))
        .await
        .with(201);
    let org_id = org.parse().expect("an id");
    let listed = found(&api.store, move |tx| org_keys::list(tx, org_id)).await;
    assert_eq!(listed[0].name, "Default");

    // The partner also revokes a key that it did not make; a key of another org is 404.
    let (own, _) = api.key(org_id, &["calls:read"]).await;
    let (foreign, _) = api
        .key(other_org.parse().expect("an id"), &["calls:read"])
        .await;
    api.delete(&path(&org, &format!("api-keys/{}", own.id)), &partner.key)
        .await
        .with(200);
    api.delete(
        &path(&org, &format!("api-keys/{}", foreign.id)),
        &partner.key,
    )
    .await
    .with(404);
    let refused = api
        .delete(&path(&org, "api-keys/7?colour=red"), &partner.key)
        .await;
    insta::assert_json_snapshot!("a_key_id_that_is_none", refused.with(400));
    let wrong = api
        .post(
            &path(&org, "api-keys"),
            &partner.key,
            json!({"name": 7, "scopes": []}),
        )
        .await;
    insta::assert_json_snapshot!("faults_of_a_key", wrong.with(400));
}

#[tokio::test]
async fn a_partner_lists_keys_and_bounds_those_that_it_makes() {
    let api = TestApi::new().await;
    let (partner, org) = owner(&api, "Acme").await;
    let (other_partner, _) = owner(&api, "Other").await;
    let keys = path(&org, "api-keys");
    let end = written(60);
    let bounded = json!({"name": "Bounded", "scopes": ["calls:read"], "expires_at": end});
    let mut tokens = Vec::new();
    for body in [json!({"name": "Whole"}), bounded] {
        pass(1);
        let made = api.post(&keys, &partner.key, body).await.with(201);
        tokens.push(made["api_key"].as_str().expect("a key").to_owned());
    }

    let listed = api.get(&keys, &partner.key).await;
    assert!(tokens.iter().all(|token| !listed.text.contains(token)));
    let items = listed.with(200)["items"].take();
    assert_eq!(items.as_array().map(Vec::len), Some(2));
    assert_eq!(
        (
            &items[0]["name"],
            &items[0]["scopes"],
            &items[0]["expires_at"]
        ),
        (&json!("Bounded"), &json!(["calls:read"]), &json!(end))
    );
    assert_eq!(
        (&items[1]["name"], &items[1]["expires_at"]),
        (&json!("Whole"), &Value::Null)
    );

    let names = walk(&api, &keys, &partner.key, 1, "name").await;
    assert_eq!(names, ["Bounded", "Whole"]);
    let named = api.get(&format!("{keys}?name=Whole"), &partner.key).await;
    assert_eq!(named.with(200)["total"], 1);
    api.get(&keys, &other_partner.key).await.with(403);

    api.get("/phone/calls", &tokens[1]).await.with(200);
    api.get("/phone", &tokens[1]).await.with(403);
    pass(60);
    api.get("/phone/calls", &tokens[1]).await.with(401);
    api.get("/phone/calls", &tokens[0]).await.with(200);
    let past = json!({"expires_at": written(0)});
    api.post(&keys, &partner.key, past).await.with(400);
}

#[tokio::test]
async fn whose_the_org_is_comes_before_everything_else() {
    let api = TestApi::new().await;
    let (partner, _) = owner(&api, "Acme").await;
    let (_, foreign) = owner(&api, "Other").await;
    let operators = api.tenant("Operator's").await.org.to_string();
    let mut bodies = std::collections::HashSet::new();

    for org in [
        &*foreign,
        &operators,
        "00000000-0000-0000-0000-000000000000",
        "no-id",
        "%ff",
    ] {
        let answers: [Answer; 4] = [
            api.post(&path(org, "api-keys?x=1"), &partner.key, json!([]))
                .await,
            api.delete(&path(org, "api-keys/no-id?x=1"), &partner.key)
                .await,
            api.post(&path(org, "login-links"), &partner.key, json!("no object"))
                .await,
            api.get(&path(org, "roles?limit=0"), &partner.key).await,
        ];
        bodies.extend(answers.map(|answer| {
            answer.with(403);
            answer.text
        }));
    }
    let body = r#"{"statusCode":403,"message":"The org does not belong to this partner","code":"foreign_org"}"#;
    assert_eq!(bodies, [body.to_owned()].into());
}

async fn roles(api: &TestApi, partner: &Reseller, org: &str) -> Vec<Value> {
    let page = api.get(&path(org, "roles"), &partner.key).await.with(200);
    page["items"].as_array().expect("items").clone()
}

fn role(roles: &[Value], name: &str) -> String {
    let role = roles
        .iter()
        .find(|role| role["name"] == name)
        .expect("a role");
    role["id"].as_str().expect("an id").to_owned()
}

#[tokio::test]
async fn an_org_is_born_with_two_roles() {
    let api = TestApi::new().await;
    let (partner, org) = owner(&api, "Acme").await;
    let mut page = api.get(&path(&org, "roles"), &partner.key).await.with(200);
    let items = page["items"].as_array_mut().expect("items");
    items.sort_by_key(|role| role["name"].to_string());
    insta::assert_json_snapshot!("the_roles_of_an_org", masked(page));

    let first = api
        .get(&path(&org, "roles?limit=1"), &partner.key)
        .await
        .with(200);
    let next = first["next"].as_str().expect("a cursor");
    let second = api
        .get(
            &path(&org, &format!("roles?limit=1&cursor={next}")),
            &partner.key,
        )
        .await
        .with(200);
    assert_ne!(first["items"], second["items"]);

    assert_eq!(second["next"], Value::Null);
}

async fn link(api: &TestApi, partner: &Reseller, org: &str, body: Value) -> Answer {
    api.post(&path(org, "login-links"), &partner.key, body)
        .await
}

/// Returns the names of the person's roles in the org.
async fn roles_of(api: &TestApi, org: &str, email: &str) -> Vec<String> {
    api.members(org.parse().expect("an id"))
        .await
        .into_iter()
        .filter(|(member, _, _)| member == email)
        .map(|(_, _, role)| role)
        .collect()
}

#[tokio::test]
async fn a_login_link_is_good_for_a_quarter_of_an_hour() {
    let api = TestApi::new().await;
    let (partner, org) = owner(&api, "Acme").await;
    let made = link(&api, &partner, &org, json!({"email": "ann@example.com"}))
        .await
        .with(201);
    let url = made["url"].as_str().expect("a url");
    let token = url
        .strip_prefix("https://dashboard.example/partner-login?token=")
        .expect(url);

    assert_eq!(token.len(), 43, "256 bits: {token}");
    assert_eq!(
        made,
        json!({"url": url, "expires_at": "2026-01-31T12:15:00.000Z"})
    );

    let again = link(&api, &partner, &org, json!({"email": "ann@example.com"}))
        .await
        .with(201);
    assert_ne!(again["url"], made["url"]);
}

#[tokio::test]
async fn the_first_user_becomes_admin_and_later_ones_members() {
    let api = TestApi::new().await;
    let (partner, org) = owner(&api, "Acme").await;
    for email in ["Ann@Example.com", "bob@example.com", "ann@example.com"] {
        link(&api, &partner, &org, json!({"email": email}))
            .await
            .with(201);
    }

    let members = api.members(org.parse().expect("an id")).await;
    let expected = [
        ("ann@example.com", "Ann", "admin"),
        ("bob@example.com", "bob", "member"),
    ];
    let expected =
        expected.map(|(email, name, role)| (email.to_owned(), name.to_owned(), role.to_owned()));
    assert_eq!(members, expected);
}

/// The operator enters an org by an account that is a member, and may do so before the org's first person comes.
#[tokio::test]
async fn the_operators_visit_takes_nobodys_administration() {
    let api = TestApi::new().await;
    let (partner, org) = owner(&api, "Acme").await;
    let operator = operators_cookie(&api).await;
    let proof = form_token(&visit(&api, "/operator-console", &operator).await);
    let enter = format!("/operator-console/orgs/{org}/console");
    let entered = submit(&api, &enter, &operator, &format!("form_token={proof}")).await;
    assert_eq!(entered.status, 303, "{}", entered.text);
    assert_eq!(roles_of(&api, &org, OPERATOR_EMAIL).await, ["admin"]);

    let made = link(&api, &partner, &org, json!({"email": "ann@example.com"})).await;
    let url = made.with(201)["url"].as_str().expect("a url").to_owned();
    assert_eq!(roles_of(&api, &org, "ann@example.com").await, ["admin"]);

    let path = url.strip_prefix("https://dashboard.example").expect("ours");
    let cookie = log_in(&api, path).await;
    let members = format!("/dashboard/{org}/members");
    let page = visit(&api, &members, &cookie).await;
    let proof = form_token(&page);
    let (_, list) = page.text.split_once("id=\"members\"").expect("the list");
    // The id of a member is in the path of the form that changes its role.
    let id = |email: &str| {
        let (_, after) = list.split_once(email).expect("a member");
        let (before, _) = after.split_once("/role").expect("a form");
        before.rsplit_once('/').expect("a path").1.to_owned()
    };

    let member = role(&roles(&api, &partner, &org).await, "member");
    let demoting = format!("form_token={proof}&role={member}");
    let ann = format!("{members}/{}/role", id("ann@example.com"));
    let refused = submit(&api, &ann, &cookie, &demoting).await;
    assert_eq!(refused.status, 409, "{}", refused.text);

    let visitor = format!("{members}/{}/role", id(OPERATOR_EMAIL));
    let demoted = submit(&api, &visitor, &cookie, &demoting).await;
    assert_eq!(demoted.status, 303, "{}", demoted.text);
}

/// A partner, or an org's administrator, would act in the operator's name with its address.
#[tokio::test]
async fn nobody_else_acts_as_the_operator() {
    let api = TestApi::new().await;
    let (partner, org) = owner(&api, "Acme").await;
    let path = format!("/partner/v1/orgs/{org}/login-links");
    for email in [OPERATOR_EMAIL, "Operator@LocalHost.LocalDomain"] {
        let body = json!({"email": email, "name": "The operator"});
        let refused = api.post(&path, &partner.key, body).await.with(400);
        let message = refused["message"].to_string();
        assert!(message.contains("the operator's own account"), "{message}");
    }

    let made = link(&api, &partner, &org, json!({"email": "ann@example.com"})).await;
    let url = made.with(201)["url"].as_str().expect("a url").to_owned();
    let ann = log_in(
        &api,
        url.strip_prefix("https://dashboard.example").expect("ours"),
    )
    .await;
    let members = format!("/dashboard/{org}/members");
    let proof = form_token(&visit(&api, &members, &ann).await);
    let invite = |email: &str| format!("form_token={proof}&email={email}");
    let links = format!("{members}/login-links");
    let refused = submit(&api, &links, &ann, &invite(OPERATOR_EMAIL)).await;
    assert_eq!(refused.status, 400, "{}", refused.text);
    let invited = submit(&api, &links, &ann, &invite("bob@example.com")).await;
    assert_eq!(invited.status, 200, "{}", invited.text);

    // The operator is known by the kind of the session.
    let operator = operators_cookie(&api).await;
    let proof = form_token(&visit(&api, "/operator-console", &operator).await);
    let enter = format!("/operator-console/orgs/{org}/console");
    let entered = submit(&api, &enter, &operator, &format!("form_token={proof}")).await;
    let to = entered.header("Location").expect("a link").to_owned();
    let cookie = log_in(&api, &to).await;
    let keys = format!("/dashboard/{org}/keys");
    let proof = form_token(&visit(&api, &keys, &cookie).await);
    let named = format!("form_token={proof}&name=Audit&scopes=keys%3Awrite");
    assert_eq!(submit(&api, &keys, &cookie, &named).await.status, 200);

    let asked = format!("/partner/v1/audit?org_id={org}&resource=api_key");
    let log = api.get(&asked, &partner.key).await.with(200);
    let actor = [&log["items"][0]["actor"], &log["items"][0]["actor_name"]];
    assert_eq!(actor, ["operator", "operator"], "{log}");
    let asked = format!("/partner/v1/audit?org_id={org}&actor=dashboard");
    let log = api.get(&asked, &partner.key).await.with(200);
    assert!(!log.to_string().contains("perator"), "{log}");
}

#[tokio::test]
async fn a_name_is_used_when_the_account_is_made_and_roles_when_the_membership_is() {
    let api = TestApi::new().await;
    let (partner, org) = owner(&api, "Acme").await;
    let (other, other_org) = owner(&api, "Other").await;
    let ours = roles(&api, &partner, &org).await;
    let theirs = role(&roles(&api, &other, &other_org).await, "admin");
    let (admin, member) = (role(&ours, "admin"), role(&ours, "member"));

    let unknown = json!({"email": "ann@example.com", "role_ids": [member, theirs]});
    let refused = link(&api, &partner, &org, unknown.clone()).await.with(400);
    let message = format!("role_ids[1]: {theirs} is not a role of this org");
    assert_eq!(refused["message"], message);
    assert_eq!(refused["errors"][0]["path"], "role_ids[1]");
    assert_eq!(api.members(org.parse().expect("an id")).await, []);

    let both = json!({"email": "ann@example.com", "name": "Ann Other", "role_ids": [member, admin, member]});
    link(&api, &partner, &org, both).await.with(201);
    let mut found = roles_of(&api, &org, "ann@example.com").await;
    found.sort();
    assert_eq!(found, ["admin", "member"]);

    // A member keeps roles and name; fields that would not be used are not validated.
    let renamed = json!({"email": "ann@example.com", "name": "Else", "role_ids": [theirs]});
    link(&api, &partner, &org, renamed).await.with(201);
    let members = api.members(org.parse().expect("an id")).await;
    assert!(
        members.iter().all(|(_, name, _)| name == "Ann Other"),
        "{members:?}"
    );

    // Another partner has an account of its own with the address, and sees nothing of the first one's.
    link(
        &api,
        &other,
        &other_org,
        json!({"email": "ann@example.com", "name": "Else", "role_ids": []}),
    )
    .await
    .with(201);
    assert_eq!(
        roles_of(&api, &other_org, "ann@example.com").await,
        ["admin"]
    );
    let members = api.members(other_org.parse().expect("an id")).await;
    let names: Vec<_> = members.iter().map(|(_, name, _)| name.as_str()).collect();
    assert_eq!(names, ["Else"]);
    let members = api.members(org.parse().expect("an id")).await;
    assert!(
        members.iter().all(|(_, name, _)| name == "Ann Other"),
        "{members:?}"
    );
    pass(1);
}

#[tokio::test]
async fn every_fault_of_a_login_link_is_named() {
    let api = TestApi::new().await;
    let (partner, org) = owner(&api, "Acme").await;
    let wrong = json!({"email": "ann", "name": "", "role_ids": ["x", 7], "colour": 1});
    insta::assert_json_snapshot!(
        "faults_of_a_login_link",
        link(&api, &partner, &org, wrong).await.with(400)
    );
    let nothing = link(&api, &partner, &org, json!({})).await;
    assert_eq!(nothing.with(400)["message"], "email: is required");
}

#[tokio::test]
async fn links_have_a_limit_of_their_own() {
    let api = TestApi::with("[limits]\nlogin_links_per_minute = 2").await;
    let (partner, org) = owner(&api, "Acme").await;
    let body = json!({"email": "ann@example.com"});
    let made = link(&api, &partner, &org, body.clone()).await;
    made.with(201);
    assert_eq!(
        made.header("RateLimit"),
        Some(r#""partner";r=98;t=60, "login-links";r=1;t=60"#)
    );
    assert_eq!(
        made.header("RateLimit-Policy"),
        Some(&*api.policy(r#""partner";q=100;w=60, "login-links";q=2;w=60"#))
    );

    // The scope is judged before the owner of the org.
    link(&api, &partner, "no-id", body.clone()).await.with(403);
    let refused = link(&api, &partner, "no-id", body.clone()).await;
    insta::assert_json_snapshot!("a_login_link_too_many", refused.with(429));
    api.get("/partner/v1/orgs", &partner.key).await.with(200);
    pass(60);
    link(&api, &partner, &org, body).await.with(201);
    assert!(now() > crate::test_api::NOW);
}

#[tokio::test]
async fn many_links_at_once_for_one_person_make_one_account() {
    let api = TestApi::new().await;
    let (partner, org) = owner(&api, "Acme").await;
    let body = json!({"email": "ann@example.com"});
    let answers = api
        .at_once(50, |_| link(&api, &partner, &org, body.clone()))
        .await;
    assert!(answers.iter().all(|answer| answer.status == 201));
    assert_eq!(roles_of(&api, &org, "ann@example.com").await, ["admin"]);
}
