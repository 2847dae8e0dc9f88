//! An org of a partner with one of everything, and the rows of `matrix.txt` that use it.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use trunkline_model::record::{Direction, Fact, Started};
use trunkline_store::partners;
use uuid::Uuid;

use crate::pages::{form_token, link, log_in, submit, visit};
use crate::test_api::{Answer, NOW, Reseller, TestApi, arc, found, id_of};

/// Owner of an object, as named in the table.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Of {
    Anyone,
    Org,
    Own,
    Stream,
    Visitor,
    Site,
    Partner,
    PartnerId,
    Reseller,
    Page,
    Visit,
    Operator,
}

/// A row of the table.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) of: Of,
    /// Scopes that a key of the org needs.
    pub(crate) scopes: Vec<&'static str>,
    /// Status of the owner's response.
    pub(crate) status: u16,
    pub(crate) body: &'static str,
    /// Index of the row, from 10000.
    turn: usize,
}

/// The table's rows.
pub(crate) fn rows() -> Vec<Row> {
    let lines = include_str!("matrix.txt").lines();
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .zip(10_000..)
        .map(|(line, turn)| row(line, turn))
        .collect()
}

fn row(line: &'static str, turn: usize) -> Row {
    let mut rest = line;
    let mut word = || {
        let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = after.trim_start();
        word
    };
    let (method, path, of, status) = (word(), word(), word(), word());
    let (of, scopes) = of.split_once('@').unwrap_or((of, ""));

    Row {
        method,
        path,
        of: match of {
            "anyone" => Of::Anyone,
            "org" => Of::Org,
            "own" => Of::Own,
            "stream" => Of::Stream,
            "visitor" => Of::Visitor,
            "site" => Of::Site,
            "partner" => Of::Partner,
            "partner-id" => Of::PartnerId,
            "reseller" => Of::Reseller,
            "page" => Of::Page,
            "visit" => Of::Visit,
            "operator" => Of::Operator,
            _ => panic!("whose is it? {line}"),
        },
        scopes: scopes
            .split('+')
            .filter(|scope| !scope.is_empty())
            .collect(),
        status: status.parse().expect(line),
        body: rest,
        turn,
    }
}

/// A credential.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asker {
    pub(crate) header: Option<(&'static str, String)>,
    /// Org in which it works, by the header `Trunkline-Org`.
    pub(crate) org: Option<String>,
    /// True for the operator of this machine.
    pub(crate) is_operator: bool,
    /// Token in the forms of a session.
    pub(crate) form_token: String,
}

impl Asker {
    pub(crate) fn bearer(token: &str) -> Self {
        Self {
            header: Some(("Authorization", format!("Bearer {token}"))),
            ..Self::default()
        }
    }

    /// The operator of this machine.
    pub(crate) fn operator() -> Self {
        Self {
            is_operator: true,
            ..Self::default()
        }
    }

    /// The same in an org.
    pub(crate) fn in_org(&self, org: &str) -> Self {
        Self {
            org: Some(org.to_owned()),
            ..self.clone()
        }
    }

    pub(crate) fn cookie(cookie: &str, form_token: String) -> Self {
        Self {
            header: Some(("Cookie", cookie.to_owned())),
            form_token,
            ..Self::default()
        }
    }
}

impl Row {
    pub(crate) fn operation(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    /// Sends the row's request for the org's own objects.
    pub(crate) async fn ask(&self, api: &TestApi, test_org: &TestOrg, asker: &Asker) -> Answer {
        self.ask_for(api, test_org, asker, |parameter| {
            // From an agent only a number can be taken that it has.
            let parameter = match self.path.ends_with("/inbound-numbers/{number_id}") {
                true if parameter == "number_id" => "assigned_number",
                _ => parameter,
            };
            test_org.ids[parameter].clone()
        })
        .await
    }

    /// Sends the row's request with another org's ids in the path.
    pub(crate) async fn ask_for(
        &self,
        api: &TestApi,
        test_org: &TestOrg,
        asker: &Asker,
        id: impl Fn(&str) -> String,
    ) -> Answer {
        let path = self.path.split('/').map(|part| {
            let parameter = part
                .strip_prefix('{')
                .and_then(|part| part.strip_suffix('}'));
            parameter.map_or_else(|| part.to_owned(), |name| id(name).replace('+', "%2B"))
        });

        let mut path = path.collect::<Vec<_>>().join("/");
        if let Some(rest) = path
            .strip_prefix("/partner/v1")
            .filter(|_| asker.is_operator)
        {
            path = format!("/operator{rest}");
        }
        let body = self.body(test_org, asker);
        // What a GET is asked with is its query.
        let is_query = self.method == "get" && !body.is_empty();
        if is_query {
            path = format!("{path}?{body}");
        }
        let mut request = Request::builder()
            .method(&*self.method.to_uppercase())
            .uri(path);
        if let Some((name, value)) = &asker.header {
            request = request.header(*name, value);
        }
        if let Some(org) = &asker.org {
            request = request.header("Trunkline-Org", org);
        }

        let content_type = if [Of::Page, Of::Visit, Of::Operator].contains(&self.of) {
            "application/x-www-form-urlencoded"
        } else {
            "application/json"
        };

        if is_query || body.is_empty() {
            return self.sent(api, asker, request.body(Body::empty())).await;
        }
        let request = request.header("Content-Type", content_type);
        self.sent(api, asker, request.body(Body::from(body))).await
    }

    async fn sent(
        &self,
        api: &TestApi,
        asker: &Asker,
        request: axum::http::Result<Request<Body>>,
    ) -> Answer {
        match asker.is_operator {
            true => api.send_as_operator(request).await,
            false => api.send(request).await,
        }
    }

    fn body(&self, test_org: &TestOrg, asker: &Asker) -> String {
        let own = [
            ("form_token", asker.form_token.clone()),
            ("turn", self.turn.to_string()),
        ];
        let ids = test_org.ids.iter().map(|(name, id)| (*name, id.clone()));
        ids.chain(own)
            .fold(self.body.to_owned(), |body, (name, id)| {
                body.replace(&format!("<{name}>"), &id)
            })
    }
}

/// An org with one of everything, and the credentials to read it.
#[derive(Debug)]
pub(crate) struct TestOrg {
    pub(crate) key: Asker,
    pub(crate) partner: Asker,
    pub(crate) visitor: Asker,
    /// The org's embed token, which is no secret.
    pub(crate) site: Asker,
    pub(crate) session: Asker,
    pub(crate) ids: BTreeMap<&'static str, String>,
}

impl TestOrg {
    /// Makes the org under its own partner; `turn` keeps its numbers apart from those of other orgs.
    pub(crate) async fn new(api: &TestApi, turn: usize) -> Self {
        let partner = api.reseller("Partner").await;
        let external = format!("own-{turn}");
        let org = json!({"name": "Acme", "external_id": external});
        let org = made(api, "/partner/v1/orgs", &partner.key, org).await;
        let site = Asker::bearer(org["widget_token"].as_str().expect("a token"));
        let org = id_of(&org);
        let org_id: Uuid = org.parse().expect("an id");

        let (_, token) = api.key(org_id, &trunkline::api::SCOPES).await;
        let (spare, _) = api.key(org_id, &["phone:read"]).await;
        let agent = api.agent(org_id, "Agent").await;
        let number = format!("+4420718{turn:05}");
        let verified = api.number(org_id, &number).await;

        made(api, "/phone/sip/inbound-trunk", &token, json!({})).await;
        let trunk = json!({"name": "Carrier", "host": "192.0.2.1", "username": "acme", "password": "s3cret-enough",
            "caller_number": "+442071838750"});
        let trunk = made(api, "/phone/sip/outbound-trunks", &token, trunk).await;

        let destination =
            json!({"create": {"name": "Sales", "type": "phone", "value": "+442071838751"}});
        let path = format!("/phone/sip/agents/{agent}/transfer-destinations");
        let destination = made(api, &path, &token, destination).await;

        let assigned = api.number(org_id, &format!("+4420719{turn:05}")).await.id;
        let path = format!("/phone/sip/agents/{agent}/inbound-numbers");
        let body = json!({"phone_number_id": assigned});
        api.post(&path, &token, body).await.with(200);

        let prompt = json!({"name": "Welcome", "audio": crate::prompts::WAV});
        let prompt = made(api, "/phone/prompts", &token, prompt).await;

        let hook = json!({"url": "https://hooks.example.com/x"});
        let hook = id_of(&made(api, "/webhooks", &token, hook).await);

        // An event, which makes a delivery.
        let handoff = json!({"session_id": "s-1"});
        made(api, "/handoff-analytics/events", &token, handoff).await;
        let deliveries = api
            .get(&format!("/webhooks/{hook}/deliveries"), &token)
            .await;
        let delivery = id_of(&deliveries.with(200)["items"][0]);

        let visitor = json!({"email": "visitor@example.com"});
        let visitor = made(api, "/widget/authenticate-user", &token, visitor).await;
        let erased = json!({"email": "erased@example.com"});
        let erased = made(api, "/widget/authenticate-user", &token, erased).await;
        let path = format!("/widget/contacts/{}", id_of(&erased["contact"]));
        let erasure = id_of(&api.delete(&path, &token).await.with(200));

        let path = "/handoff-analytics/events/by-session/s-1";
        let handoff = id_of(&api.get(path, &token).await.with(200)["items"][0]);

        let (call, session) = (Uuid::new_v4(), Uuid::new_v4());
        api.project(&[started(org_id, agent, call, session)]).await;
        let session_of_page = session_in(api, &partner, org_id).await;
        let member = member_in(api, &partner, org_id, &session_of_page).await;
        let listed = api
            .get(&format!("/partner/v1/orgs/{org}/sessions"), &partner.key)
            .await;
        let dashboard_session = id_of(&listed.with(200)["items"][0]);

        let of = partner.id;
        let keys = found(&api.store, move |tx| partners::keys(tx, of)).await;
        let partner_key = keys.first().expect("the partner's key");
        let roles = format!("/partner/v1/orgs/{org}/roles?name=member");
        let roles = api.get(&roles, &partner.key).await.with(200);

        let ids = BTreeMap::from([
            ("role_id", id_of(&roles["items"][0])),
            ("sessionId", dashboard_session),
            ("member_id", member),
            ("partnerId", partner.id.to_string()),
            ("keyId", partner_key.id.to_string()),
            ("asset", "console.css".to_owned()),
            ("kind", "agent".to_owned()),
            ("agent_id", agent.to_string()),
            ("number_id", verified.id.to_string()),
            ("assigned_number", assigned.to_string()),
            ("phoneNumberId", verified.id.to_string()),
            ("phone_number", number),
            ("call_id", call.to_string()),
            ("account_sid", "AC0".to_owned()),
            ("call_sid", "CA0.json".to_owned()),
            ("session_id", session.to_string()),
            ("trunk_id", id_of(&trunk)),
            ("destination_id", id_of(&destination)),
            ("prompt_id", id_of(&prompt)),
            ("api_key_id", spare.id.to_string()),
            ("apiKeyId", spare.id.to_string()),
            ("webhook_id", hook),
            ("delivery_id", delivery),
            ("orgId", org.clone()),
            ("org_id", org),
            ("externalId", external),
            ("contact_id", id_of(&visitor["contact"])),
            ("erasure_id", erasure),
            ("handoff_id", handoff),
        ]);

        Self {
            key: Asker::bearer(&token),
            visitor: Asker::bearer(visitor["token"].as_str().expect("a token")),
            site,
            session: session_of_page,
            partner: Asker::bearer(&partner.key),
            ids,
        }
    }

    /// Returns a path with the org's own ids.
    pub(crate) fn filled(&self, path: &str) -> String {
        let parts = path.split('/').map(|part| {
            let parameter = part
                .strip_prefix('{')
                .and_then(|part| part.strip_suffix('}'));
            parameter.map_or(part, |name| &self.ids[name])
        });
        parts.collect::<Vec<_>>().join("/")
    }

    /// Reads a path with the org's key.
    pub(crate) async fn get(&self, api: &TestApi, path: &str) -> Answer {
        let mut request = Request::get(path);
        if let Some((name, value)) = &self.key.header {
            request = request.header(*name, value);
        }
        api.send(request.body(Body::empty())).await
    }

    /// Returns the credential of the object's owner.
    pub(crate) async fn owner(&self, api: &TestApi, of: Of) -> Asker {
        match of {
            Of::Anyone => Asker::default(),
            Of::Org | Of::Own | Of::Stream => self.key.clone(),
            Of::Visitor => self.visitor.clone(),
            Of::Site => self.site.clone(),
            Of::Partner | Of::PartnerId | Of::Reseller => self.partner.clone(),
            Of::Page | Of::Visit => self.session.clone(),
            Of::Operator => operators_session(api).await,
        }
    }
}

/// Opens an administrator's session in the org.
pub(crate) async fn session_in(api: &TestApi, partner: &Reseller, org: Uuid) -> Asker {
    let link = link(api, partner, org, "ada@example.org").await;
    let cookie = log_in(api, &link).await;
    let page = visit(api, &format!("/dashboard/{org}"), &cookie).await;
    Asker::cookie(&cookie, form_token(&page))
}

/// Opens a session of the operator's pages.
pub(crate) async fn operators_session(api: &TestApi) -> Asker {
    let cookie = operators_cookie(api).await;
    let page = visit(api, "/operator-console", &cookie).await;
    Asker::cookie(&cookie, form_token(&page))
}

/// Opens a link of the operator's by its button, and returns the cookie.
pub(crate) async fn operators_cookie(api: &TestApi) -> String {
    let link = api.state.operators_link(0);
    let (at, token) = link.split_once('?').expect("a token");
    let at = at.strip_prefix("https://dashboard.example").expect("ours");
    let opened = submit(api, at, "", token).await;
    assert_eq!(opened.status, 303, "{}", opened.text);
    let cookie = opened.header("Set-Cookie").expect("a cookie");
    cookie.split(';').next().expect("a pair").to_owned()
}

/// Adds a member to the org; returns its id from the members' page.
async fn member_in(api: &TestApi, partner: &Reseller, org: Uuid, session: &Asker) -> String {
    link(api, partner, org, "cy@example.org").await;
    let cookie = &session.header.as_ref().expect("a cookie").1;
    let page = visit(api, &format!("/dashboard/{org}/members"), cookie).await;
    let (before, _) = page.text.split_once("/remove").expect("a button");
    let (_, id) = before.rsplit_once('/').expect("a path");
    id.to_owned()
}

async fn made(api: &TestApi, path: &str, token: &str, body: Value) -> Value {
    let answer = api.post(path, token, body).await;
    let is_made = [200, 201].contains(&answer.status);
    assert!(is_made, "{path}: {}", answer.text);
    answer.json()
}

pub(crate) fn started(org: Uuid, agent: Uuid, call: Uuid, session: Uuid) -> Fact {
    Fact::Started(arc(Started {
        call,
        org,
        session,
        agent: Some(agent),
        trunk: None,
        direction: Direction::Inbound,
        from: "+441632960001".into(),
        to: "+442071838750".into(),
        from_e164: None,
        to_e164: None,
        caller_call_id: "1@pbx".into(),
        at: NOW - Duration::from_secs(60),
        decision: None,
        invite_facts: None,
        headers: Vec::new(),
        metadata: None,
        clock_offset: 0,
    }))
}
