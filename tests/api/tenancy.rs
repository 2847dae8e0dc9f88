//! Tenants apart: every operation of the router, asked by every kind of credential.
//!
//! The rows are held against the router's own routes: a route that is added without a row fails, as does a row without its route.

use std::collections::BTreeSet;

use trunkline::api::{self, Audience};
use trunkline::config::{Config, Sources};
use uuid::Uuid;

use crate::openapi::operations;
use crate::test_api::{Answer, TestApi};
use crate::test_org::{Asker, Of, Row, TestOrg, operators_session, rows};

#[tokio::test]
async fn every_route_has_a_row_and_every_row_a_route() {
    let api = TestApi::new().await;
    let routes = operations(&api).await;
    let rows: BTreeSet<_> = rows().iter().map(Row::operation).collect();
    let missing: Vec<_> = routes.difference(&rows).collect();
    let stale: Vec<_> = rows.difference(&routes).collect();
    assert!(
        missing.is_empty() && stale.is_empty(),
        "without a row in tests/api/matrix.txt: {missing:?}; without a route: {stale:?}"
    );
}

/// Response to a caller who isn't the owner.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Expected {
    Status(u16),
    /// Its own object of this kind, or none: the credential isn't refused, nothing breaks, and the body has no id of the owner's.
    ItsOwn,
}

/// A caller that isn't the owner.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Who {
    OtherOrg,
    OtherPartner,
    OtherSession,
    /// Another credential of the owner.
    ItsKey,
    ItsPartner,
    ItsVisitor,
    ItsSession,
    /// The partner of the other org, in that.
    OtherPartnerInItsOrg,
    /// The same, in the owner's org.
    OtherPartnerInThisOrg,
    Operator,
    Nobody,
}

const ALL: [Who; 11] = [
    Who::Nobody,
    Who::OtherOrg,
    Who::OtherPartner,
    Who::OtherSession,
    Who::ItsKey,
    Who::ItsPartner,
    Who::ItsVisitor,
    Who::ItsSession,
    Who::OtherPartnerInItsOrg,
    Who::OtherPartnerInThisOrg,
    Who::Operator,
];

/// The matrix. `None`: the caller is allowed and gets the owner's status.
fn expected(of: Of, who: Who) -> Option<Expected> {
    use Expected::{ItsOwn, Status};

    let keys = [Who::OtherOrg, Who::ItsKey];
    let partners = [Who::OtherPartner, Who::ItsPartner];
    let sessions = [Who::OtherSession, Who::ItsSession];

    // `Trunkline-Org` matters to the operations of an org alone.
    let of_org = [Of::Org, Of::Own, Of::Stream].contains(&of);
    let in_org = [Who::OtherPartnerInItsOrg, Who::OtherPartnerInThisOrg];
    let who = match (in_org.contains(&who), of_org) {
        (false, _) => who,
        (true, false) => Who::OtherPartner,
        (true, true) if who == Who::OtherPartnerInThisOrg => return Some(Status(403)),
        (true, true) => Who::OtherOrg,
    };

    Some(match (of, who) {
        (Of::Anyone, _)
        | (Of::Org | Of::Own | Of::Stream, Who::ItsKey)
        | (Of::Org | Of::Own, Who::ItsSession)
        | (Of::Visitor, Who::ItsVisitor)
        | (Of::Partner | Of::PartnerId | Of::Reseller, Who::ItsPartner)
        | (Of::Page | Of::Visit, Who::ItsSession)
        | (Of::Operator, Who::Operator) => return None,
        // The operator's session opens the operator's pages, and no other credential does.
        (Of::Operator, _) | (_, Who::Operator) => Status(401),
        (Of::Org, Who::OtherOrg | Who::OtherSession) => Status(404),
        (Of::Own, Who::OtherOrg | Who::OtherSession) | (Of::Stream, Who::OtherOrg) => ItsOwn,
        (Of::Partner, Who::OtherPartner) => Status(403),
        (Of::PartnerId, Who::OtherPartner) => Status(404),
        (Of::Reseller, Who::OtherPartner) => ItsOwn,
        (Of::Page, Who::OtherSession) => Status(404),
        (Of::Visit, Who::OtherSession) => ItsOwn,
        (Of::Org | Of::Own | Of::Stream, who) if partners.contains(&who) => Status(401),
        (Of::Partner | Of::PartnerId | Of::Reseller, who) if keys.contains(&who) => Status(401),
        (Of::Page | Of::Visit, who) if !sessions.contains(&who) => Status(401),
        (Of::Org | Of::Own | Of::Stream, Who::ItsVisitor | Who::Nobody)
        | (Of::Stream | Of::Visitor | Of::Site | Of::Partner | Of::PartnerId | Of::Reseller, _) => {
            Status(401)
        }
        (of, who) => panic!("what may {who:?} do with {of:?}?"),
    })
}

/// Checks that the answer has no id of the owner's, except those that the request itself named. The orgs have one id in common: that of a person who
/// is a member of both.
fn holds_nothing_of(
    row: &Row,
    who: &str,
    (test_org, other): (&TestOrg, &TestOrg),
    answer: &Answer,
) {
    let is_unique = |id: &str| id.starts_with('+') || id.parse::<Uuid>().is_ok();
    let ids = test_org.ids.iter().filter(|(name, id)| {
        let is_named = row.body.contains(&format!("<{name}>"));
        is_unique(id) && !is_named && other.ids[*name] != **id
    });
    let leaked: Vec<_> = ids.filter(|(_, id)| answer.text.contains(*id)).collect();

    let operation = row.operation();
    assert!(
        leaked.is_empty(),
        "{operation}, {who}: {leaked:?} of the owner: {}",
        answer.text
    );
}

fn judge(row: &Row, who: &str, answer: &Answer, expected: Expected) {
    let is_good = match expected {
        Expected::Status(status) => answer.status == status,
        Expected::ItsOwn => ![401, 403].contains(&answer.status) && answer.status < 500,
    };
    let operation = row.operation();
    assert!(
        is_good,
        "{operation}, {who}: {expected:?}, not {}: {}",
        answer.status, answer.text
    );
}

/// Checks that the answer is the same whether the id is another tenant's, unknown or malformed.
async fn is_told_alike(
    api: &TestApi,
    row: &Row,
    test_org: &TestOrg,
    asker: &Asker,
    foreign: &Answer,
) {
    let absent = |parameter: &str| match parameter {
        "phone_number" => "+442071899999".to_owned(),
        _ => Uuid::new_v4().to_string(),
    };
    let absent = row.ask_for(api, test_org, asker, absent).await;
    let malformed = |_: &str| "no-id".to_owned();
    let malformed = row.ask_for(api, test_org, asker, malformed).await;

    for answer in [absent, malformed] {
        let (told, expected) = (
            (answer.status, &answer.text),
            (foreign.status, &foreign.text),
        );
        assert_eq!(told, expected, "{}", row.operation());
    }
}

#[tokio::test]
async fn nobody_reaches_what_is_anothers() {
    let api = TestApi::new().await;
    let other = TestOrg::new(&api, 0).await;

    // Reads change nothing, so all of them share one org.
    let read = TestOrg::new(&api, 1).await;
    let mut turns = 2..;
    for row in &rows() {
        let new = match row.method {
            "get" => None,
            _ => Some(TestOrg::new(&api, turns.next().expect("a number")).await),
        };

        let test_org = new.as_ref().unwrap_or(&read);
        let operator = operators_session(&api).await;
        for who in ALL {
            let asker = match who {
                Who::OtherOrg => &other.key,
                Who::OtherPartner => &other.partner,
                Who::OtherSession => &other.session,
                Who::ItsKey => &test_org.key,
                Who::ItsPartner => &test_org.partner,
                Who::ItsVisitor => &test_org.visitor,
                Who::ItsSession => &test_org.session,
                Who::OtherPartnerInItsOrg => &other.partner.in_org(&other.ids["org_id"]),
                Who::OtherPartnerInThisOrg => &other.partner.in_org(&test_org.ids["org_id"]),
                Who::Operator => &operator,
                Who::Nobody => &Asker::default(),
            };

            let Some(expected) = expected(row.of, who) else {
                continue;
            };
            // These operations would log the caller out.
            if expected == Expected::ItsOwn && row.of == Of::Visit {
                continue;
            }

            let answer = row.ask(&api, test_org, asker).await;
            judge(row, &format!("{who:?}"), &answer, expected);
            if expected == Expected::ItsOwn {
                holds_nothing_of(row, &format!("{who:?}"), (test_org, &other), &answer);
            }
            if row.path.contains('{')
                && [403, 404].contains(&answer.status)
                && row.of != Of::PartnerId
            {
                is_told_alike(&api, row, test_org, asker, &answer).await;
            }
        }

        if row.of != Of::Anyone {
            for nonsense in [
                Asker::bearer("x"),
                Asker::bearer("tls_00000000000000000000000000000000"),
                Asker::cookie(
                    &format!("__Host-trunkline_session={}", "A".repeat(43)),
                    String::new(),
                ),
            ] {
                let answer = row.ask(&api, test_org, &nonsense).await;
                judge(row, "no credential of ours", &answer, Expected::Status(401));
            }
        }

        // The requests of others have left the object unchanged.
        let owner = test_org.owner(&api, row.of).await;
        let answer = row.ask(&api, test_org, &owner).await;
        judge(row, "its owner", &answer, Expected::Status(row.status));

        // Others who may do the same, each on an org of its own where something changes.
        for (who, asker) in likewise(row.of) {
            let new = match row.method {
                "get" => None,
                _ => Some(TestOrg::new(&api, turns.next().expect("a number")).await),
            };
            let test_org = new.as_ref().unwrap_or(&read);
            let answer = row.ask(&api, test_org, &asker(test_org)).await;
            let status = match (row.path, who) {
                // The operator verifies any number.
                (path, "the operator") if path.ends_with("verify") && row.status == 403 => 200,
                _ => row.status,
            };
            judge(row, who, &answer, Expected::Status(status));
        }
    }
}

/// Makes the credential of somebody, for an org.
type MakesAsker = fn(&TestOrg) -> Asker;

/// Those who may do what the owner of such an object may.
fn likewise(of: Of) -> Vec<(&'static str, MakesAsker)> {
    let session: MakesAsker = |test_org| test_org.session.clone();
    let partner: MakesAsker = |test_org| test_org.partner.in_org(&test_org.ids["org_id"]);
    let operator: MakesAsker = |test_org| Asker::operator().in_org(&test_org.ids["org_id"]);
    let mut all = Vec::new();
    if [Of::Org, Of::Own].contains(&of) {
        all.push(("a session of its owner", session));
    }
    if [Of::Org, Of::Own, Of::Stream].contains(&of) {
        all.push(("the owner's partner", partner));
    }
    if [Of::Org, Of::Own, Of::Stream, Of::Partner].contains(&of) {
        all.push(("the operator", operator));
    }
    all
}

#[tokio::test]
async fn the_table_says_whose_an_operation_is_as_its_declaration_does() {
    let config = Config::load(&Sources::default()).expect("the defaults are sound");
    let rows = rows();
    for (method, path, audience) in api::declared(&config) {
        let row = rows
            .iter()
            .find(|row| row.method == method && row.path == path)
            .unwrap_or_else(|| panic!("{method} {path} has no row"));
        let scopes = audience.scopes(&method);
        assert_eq!(row.scopes, scopes, "{method} {path}: scopes");
        let is_alike = match audience {
            Audience::Public => row.of == Of::Anyone,
            // What a path names by an id is a thing of one org.
            Audience::Org { .. } if path.contains('{') => row.of == Of::Org,
            Audience::Org { .. } => [Of::Own, Of::Stream].contains(&row.of),
            Audience::Partner => [Of::Partner, Of::PartnerId, Of::Reseller].contains(&row.of),
            Audience::Visitor => row.of == Of::Visitor,
            Audience::Site => row.of == Of::Site,
            Audience::Operator => false,
        };
        assert!(is_alike, "{method} {path}: {audience:?} and {:?}", row.of);
    }
}

/// Without one of its scopes, a key gets 403, whichever other scopes it has.
#[tokio::test]
async fn every_scope_of_an_operation_is_needed() {
    let api = TestApi::new().await;
    let test_org = TestOrg::new(&api, 0).await;
    let org: Uuid = test_org.ids["org_id"].parse().expect("an id");
    let mut keys = std::collections::BTreeMap::new();
    for lacking in api::SCOPES {
        let scopes: Vec<&str> = api::SCOPES
            .into_iter()
            .filter(|scope| *scope != lacking)
            .collect();
        let (_, token) = api.key(org, &scopes).await;
        keys.insert(lacking, Asker::bearer(&token));
    }

    for row in &rows() {
        for scope in &row.scopes {
            let answer = row.ask(&api, &test_org, &keys[scope]).await;
            let operation = row.operation();
            assert_eq!(
                answer.with(403)["code"],
                "missing_scope",
                "{operation} without {scope}"
            );
        }
    }
}
