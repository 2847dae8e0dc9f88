//! The audit log: every operation that changes something leaves an entry with actor, action, object and fields, and without secrets.

use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use trunkline_store::{
    Acting, Actor, ActorKind, AuditEntry, AuditFilter, AuditScope, AuditedAction, audit,
};
use uuid::Uuid;

use crate::call_export::accepting;
use crate::dashboard::session;
use crate::idempotency::ask;
use crate::pages::{form_token, submit, visit};
use crate::test_api::{Answer, NOW, TestApi, found};
use crate::test_org::{Of, Row, TestOrg, rows};

/// Operations that answer and change nothing.
const CHANGE_NOTHING: [&str; 10] = [
    // The number is verified already.
    "/dashboard/{org_id}/numbers/{number_id}/confirm",
    "/dashboard/{org_id}/numbers/{number_id}/verify",
    "/phone/numbers/{number_id}/verify",
    "/phone/numbers/{number_id}/verify/confirm",
    // The org isn't deleted.
    "/operator-console/orgs/{orgId}/restore",
    "/partner/v1/orgs/{orgId}/restore",
    // The session is in memory.
    "/operator-console/logout",
    "/phone/sip/route-test",
    "/phone/sip/route-replay",
    "/phone/sip/explain",
];

async fn newest(api: &TestApi, most: u32) -> Vec<AuditEntry> {
    let filter = AuditFilter::default();
    found(&api.store, move |tx| {
        audit::before(tx, AuditScope::All, &filter, i64::MAX, most)
    })
    .await
}

fn actor(of: Of) -> &'static str {
    match of {
        Of::Org | Of::Own | Of::Stream | Of::Visitor | Of::Site | Of::Anyone => "org_key",
        Of::Partner | Of::PartnerId | Of::Reseller => "partner_key",
        Of::Page | Of::Visit => "dashboard",
        Of::Operator => "command",
    }
}

/// Returns the secrets that only their holders may see.
fn secrets_of(test_org: &TestOrg) -> Vec<String> {
    let askers = [
        &test_org.key,
        &test_org.partner,
        &test_org.visitor,
        &test_org.session,
    ];
    let headers = askers.iter().filter_map(|asker| asker.header.as_ref());
    let credentials = headers.filter_map(|(_, value)| value.split([' ', '=']).next_back());
    let mut secrets: Vec<String> = credentials.map(str::to_owned).collect();
    secrets.push(test_org.session.form_token.clone());
    secrets
}

async fn get_as_partner(api: &TestApi, test_org: &TestOrg, path: &str) -> Answer {
    let (_, value) = test_org.partner.header.as_ref().expect("a credential");
    let key = value.strip_prefix("Bearer ").expect("a key");
    api.get(path, key).await
}

/// Returns the id of the object, where path or answer names it.
fn named(row: &Row, test_org: &TestOrg, answer: &Answer) -> Option<Uuid> {
    if row.path.contains("/agents/{agent_id}/") {
        return test_org.ids["agent_id"].parse().ok();
    }

    let last = row.path.rsplit('/').find(|part| part.starts_with('{'));
    let ends_with_id = row.path.ends_with('}');
    if let Some(parameter) = last.filter(|_| ends_with_id) {
        return test_org.ids[parameter.trim_matches(['{', '}'])]
            .parse()
            .ok();
    }

    if answer.status != 201 {
        return None;
    }

    let answer = answer.json();
    let ids = ["id", "api_key_id", "webhook_id"].map(|name| answer[name].as_str());
    ids.into_iter().flatten().find_map(|id| id.parse().ok())
}

fn judge(row: &Row, test_org: &TestOrg, answer: &Answer, entry: &AuditEntry) {
    let operation = row.operation();
    assert_eq!(entry.actor, actor(row.of), "{operation}: {entry:?}");

    let action = |row: &Row| format!("{} {}", row.method.to_uppercase(), row.path);
    match row.of {
        // Most pages change things by a request to the API, which writes the entry.
        Of::Page => assert!(
            rows().iter().any(|row| entry.action == action(row)),
            "{operation}: {entry:?}"
        ),
        Of::Anyone
        | Of::Org
        | Of::Own
        | Of::Stream
        | Of::Visitor
        | Of::Site
        | Of::Partner
        | Of::PartnerId
        | Of::Reseller
        | Of::Visit => assert_eq!(entry.action, action(row)),
        // Requests of the operator, which commands make as well.
        Of::Operator => {
            let (_, path) = entry.action.split_once(' ').expect("a path");
            assert!(path.starts_with("/operator/"), "{operation}: {entry:?}");
            assert!(entry.actor_name.ends_with("on the console"), "{entry:?}");
            assert!(!entry.resource.is_empty() && entry.request_id.is_some());
            return;
        }
    }
    assert!(!entry.resource.is_empty(), "{operation}: {entry:?}");
    assert!(entry.request_id.is_some(), "{operation}: {entry:?}");

    if let Some(id) = named(row, test_org, answer) {
        assert_eq!(entry.resource_id, Some(id), "{operation}: {entry:?}");
    }

    let org: Uuid = test_org.ids["orgId"].parse().expect("an id");
    if row.path != "/partner/v1/orgs" {
        assert_eq!(entry.org_id, Some(org), "{operation}: {entry:?}");
    }
    assert!(entry.partner_id.is_some(), "{operation}: {entry:?}");

    let body: Value = serde_json::from_str(row.body).unwrap_or_default();
    if let Some(fields) = body.as_object() {
        let mut names: Vec<&str> = fields.keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(entry.fields, names, "{operation}");
    }
}

#[tokio::test]
async fn every_change_leaves_an_entry_and_no_secret() {
    let api = TestApi::new().await;
    let (mut secrets, mut last) = (vec!["s3cret-enough".to_owned()], 0);
    for (row, turn) in rows().iter().zip(0..) {
        if row.method == "get" {
            continue;
        }
        let test_org = TestOrg::new(&api, turn).await;
        last = newest(&api, 1)
            .await
            .first()
            .map_or(last, |entry| entry.seq);
        let owner = test_org.owner(&api, row.of).await;
        let answer = row.ask(&api, &test_org, &owner).await;
        assert_eq!(answer.status, row.status, "{}", row.operation());
        secrets.extend(secrets_of(&test_org));
        if let Ok(answer) = serde_json::from_str::<Value>(&answer.text) {
            for name in [
                "api_key",
                "token",
                "secret",
                "auth_password",
                "password",
                "url",
            ] {
                secrets.extend(answer[name].as_str().map(str::to_owned));
            }
        }

        let is_done = answer.status < 400 && !CHANGE_NOTHING.contains(&row.path);
        let entries = newest(&api, 2).await;
        let new: Vec<_> = entries.iter().filter(|entry| entry.seq > last).collect();
        assert_eq!(
            new.len(),
            usize::from(is_done),
            "{}: {new:?}",
            row.operation()
        );
        if let Some(entry) = new.first() {
            judge(row, &test_org, &answer, entry);
        }
    }

    let all = format!("{:?}", newest(&api, 100_000).await);
    assert!(secrets.len() > 50, "secrets were seen");
    for secret in secrets {
        assert!(!all.contains(&secret), "{secret} is in an entry");
    }
}

#[tokio::test]
async fn an_org_and_its_partner_read_their_entries() {
    let api = TestApi::new().await;
    let (test_org, other) = (TestOrg::new(&api, 1).await, TestOrg::new(&api, 2).await);
    let org = &test_org.ids["orgId"];
    let agent = &test_org.ids["agent_id"];
    let (_, token) = api
        .key(org.parse().expect("an id"), &["phone:write", "keys:write"])
        .await;
    let path = format!("/phone/{agent}");
    api.patch(&path, &token, json!({"name": "Renamed"}))
        .await
        .with(200);

    let page = api
        .get("/phone/audit?resource=agent", &token)
        .await
        .with(200);
    let entry = &page["items"][0];
    assert_eq!(
        page["total"],
        page["items"].as_array().expect("items").len()
    );
    assert_eq!(entry["action"], "PATCH /phone/{agent_id}");
    assert_eq!(entry["resource_id"], agent.as_str());
    assert_eq!(entry["fields"], json!(["name"]));
    assert_eq!(
        (&entry["actor"], &entry["org_id"]),
        (&json!("org_key"), &json!(org))
    );

    let walked = api.get("/phone/audit?limit=1", &token).await.with(200);
    let next = walked["next"].as_str().expect("more");
    let second = api
        .get(&format!("/phone/audit?limit=1&cursor={next}"), &token)
        .await
        .with(200);
    assert_ne!(second["items"][0], walked["items"][0]);

    let lines = accepting(&api, "/phone/audit", &token, "application/x-ndjson").await;
    let lines: Vec<Value> = lines
        .text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(
        lines.last().expect("lines")["action"],
        entry["action"],
        "oldest first"
    );

    let cursor = lines.last().expect("lines")["cursor"]
        .as_str()
        .expect("a cursor");
    api.patch(&path, &token, json!({"name": "Again"}))
        .await
        .with(200);
    let onward = format!("/phone/audit?cursor={cursor}");
    let csv = accepting(&api, &onward, &token, "text/csv").await;
    assert_eq!(
        csv.text.lines().count(),
        2,
        "a header and the new one: {}",
        csv.text
    );
    assert!(
        csv.text.contains(",PATCH /phone/{agent_id},agent,"),
        "{}",
        csv.text
    );

    let theirs = other.get(&api, "/phone/audit").await.with(200);
    assert!(
        !theirs.to_string().contains(agent.as_str()),
        "another org's"
    );

    let path = format!("/partner/v1/audit?org_id={org}&resource=agent");
    let of_partner = get_as_partner(&api, &test_org, &path).await.with(200);
    assert_eq!(of_partner["items"][0]["fields"], json!(["name"]));

    let of_other = get_as_partner(&api, &other, &path).await.with(200);
    assert_eq!(of_other["items"], json!([]));
    let (_, token) = api.key(org.parse().expect("an id"), &["phone:read"]).await;
    api.get("/phone/audit", &token).await.with(403);

    for query in [
        "actor=nobody",
        "resource=shoe",
        "start_date=x",
        "cursor=x",
        "limit=0",
    ] {
        let path = format!("/phone/audit?{query}");
        test_org.get(&api, &path).await.with(400);
    }
}

/// Fields that the page's form doesn't have leave nothing in the log, however many there are: they would hide the others.
#[tokio::test]
async fn a_form_with_fields_of_its_own_leaves_those_of_the_page() {
    let api = TestApi::new().await;
    let (org, cookie, page) = session(&api).await;
    let members = format!("{page}/members");
    let proof = form_token(&visit(&api, &members, &cookie).await);
    let more: String = (0..70).map(|n| format!("&a{n}=x")).collect();
    let long = "x".repeat(100_000);
    let fields = format!(
        "form_token={proof}{more}&%3DHYPERLINK(%22x%22)%0D%0A2026%2Cforged=1&{long}=1&email=ben%40example.org&name=Ben&role="
    );
    let path = format!("{members}/login-links");
    let made = submit(&api, &path, &cookie, &fields).await;
    assert_eq!(made.status, 200, "{}", made.text);
    assert_eq!(newest(&api, 1).await[0].fields, ["email", "name", "role"]);

    let (_, token) = api.key(org, &["keys:write"]).await;
    let of_links = "/phone/audit?resource=login_link&actor=dashboard";
    let csv = accepting(&api, of_links, &token, "text/csv").await;
    let lines: Vec<_> = csv.text.lines().collect();
    assert_eq!(lines.len(), 2, "{}", csv.text);
    assert!(lines[1].contains(",email name role,"), "{}", csv.text);
}

#[tokio::test]
async fn a_request_made_again_and_one_that_is_refused_leave_none() {
    let api = TestApi::new().await;
    let test_org = TestOrg::new(&api, 1).await;
    let org: Uuid = test_org.ids["orgId"].parse().expect("an id");
    let (_, token) = api.key(org, &trunkline::api::SCOPES).await;
    let before = newest(&api, 1).await[0].seq;
    let body = json!({"name": "Desk", "type": "sip", "value": "sip:desk@pbx.example.com"});
    let path = "/phone/sip/transfer-destinations";
    let made = ask(&api, path, &token, "k-1", &body).await.with(201);
    let again = ask(&api, path, &token, "k-1", &body).await.with(201);
    assert_eq!(made, again);

    ask(&api, path, &token, "k-2", &body).await.with(409);
    api.post(path, &token, json!({"name": 7})).await.with(400);

    let entries = newest(&api, 9).await;
    let new: Vec<_> = entries.iter().filter(|entry| entry.seq > before).collect();
    assert_eq!(new.len(), 1, "{new:?}");
    assert_eq!(
        new[0].resource_id.map(|id| json!(id)),
        Some(made["id"].clone())
    );
}

/// The status of an export has been sent when a later part fails, so that the log alone says why it breaks off.
#[tokio::test]
async fn an_export_that_breaks_off_is_logged() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    for _ in 0..501 {
        let acting = Acting::new(AuditedAction {
            at: NOW,
            address: None,
            action: "POST /phone/outbound-call".to_owned(),
            resource: "call",
            resource_id: None,
            request_id: None,
        });
        let recorded = acting.clone().scope(async {
            let actor = Actor {
                kind: ActorKind::OrgKey,
                id: None,
                name: "Test".to_owned(),
            };
            Acting::by(actor, Some(tenant.org), None);
            audit::record(&api.store, acting).await
        });
        recorded.await.expect("an entry");
    }

    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);

    let request = Request::get("/phone/audit")
        .header("Authorization", format!("Bearer {}", tenant.token))
        .header("Accept", "text/csv");
    let answer = api.begin(request.body(Body::empty())).await;
    assert_eq!(answer.status(), 200);
    api.break_by("DROP TABLE audit_log").await;
    assert!(answer.into_body().collect().await.is_err(), "it breaks off");
    let said = log.text();
    assert!(said.contains("the stream breaks off"), "{said}");
}

/// Lines that this test's thread logs.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("nobody panics")).into_owned()
    }
}

impl std::io::Write for Log {
    fn write(&mut self, octets: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("nobody panics").write(octets)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Visitors that are known, and changes that say what is so already, would fill the log for a year.
#[tokio::test]
async fn what_changes_nothing_leaves_no_entry() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    api.number(tenant.org, "+442079460123").await;
    let post = async |path: &str, body: Value| {
        let made = api.post(path, &tenant.token, body).await;
        assert!(made.status < 300, "{path}: {}", made.text);
        made.json()
    };
    let agent = json!({"name": "A", "type": "inbound", "language": "en", "first_message": "", "use_org_knowledgebase": true});
    let agent = post("/phone", agent).await["id"].clone();
    let destination = json!({"name": "Sales", "type": "phone", "value": "+442071838750"});
    let destinations = "/phone/sip/transfer-destinations";
    let destination = post(destinations, destination).await["id"].clone();
    let hook = json!({"url": "https://hooks.example.com/x"});
    let hook = post("/webhooks", hook).await["id"].clone();
    post("/phone/sip/inbound-trunk", json!({})).await;
    let visitor = json!({"external_id": "crm/1", "name": "Ann"});
    let authenticate = "/widget/authenticate-user-by-external-id";
    post(authenticate, visitor.clone()).await;

    let last = newest(&api, 1).await[0].seq;
    let text = |id: &Value| id.as_str().expect("an id").to_owned();
    for _ in 0..3 {
        post(authenticate, visitor.clone()).await;
        for path in [
            format!("/phone/{}", text(&agent)),
            format!("{destinations}/{}", text(&destination)),
            format!("/webhooks/{}", text(&hook)),
            "/phone/sip/inbound-trunk".to_owned(),
        ] {
            api.patch(&path, &tenant.token, json!({})).await.with(200);
        }
        let path = format!("/phone/{}", text(&agent));
        let same = json!({"name": "A", "enabled": true});
        api.patch(&path, &tenant.token, same).await.with(200);
    }
    assert_eq!(newest(&api, 1).await[0].seq, last);

    // What changes something still has its entry.
    post(authenticate, json!({"external_id": "crm/1", "name": "Bea"})).await;
    let path = format!("/phone/{}", text(&agent));
    let other = json!({"name": "B"});
    api.patch(&path, &tenant.token, other).await.with(200);
    let actions: Vec<String> = newest(&api, 2)
        .await
        .into_iter()
        .map(|entry| entry.action)
        .collect();
    assert_eq!(
        actions,
        [
            "PATCH /phone/{agent_id}",
            "POST /widget/authenticate-user-by-external-id"
        ]
    );
}
