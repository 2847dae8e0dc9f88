//! Forms of the operator's pages: one that is older than its object changes nothing, and each list is changed entry by entry.

use uuid::Uuid;

use crate::pages::{ask, form_token, org_of, submit, visit};
use crate::test_api::{Answer, Reseller, TestApi, pass};
use crate::test_org::operators_cookie;

/// Session of the operator, and what its forms carry.
struct Operator<'a> {
    api: &'a TestApi,
    cookie: String,
    proof: String,
}

impl<'a> Operator<'a> {
    async fn new(api: &'a TestApi) -> Self {
        let cookie = operators_cookie(api).await;
        let proof = form_token(&visit(api, "/operator-console", &cookie).await);
        Self { api, cookie, proof }
    }

    async fn shows(&self, at: &str) -> String {
        let page = visit(self.api, &format!("/operator-console{at}"), &self.cookie).await;
        assert_eq!(page.status, 200, "{at}: {}", page.text);
        page.text
    }

    async fn submits(&self, at: &str, fields: &str) -> Answer {
        let fields = format!("form_token={}&{fields}", self.proof);
        let at = format!("/operator-console{at}");
        submit(self.api, &at, &self.cookie, &fields).await
    }
}

async fn setup(api: &TestApi) -> (Reseller, Uuid) {
    let reseller = api.reseller("Reseller").await;
    let org = org_of(api, &reseller, "Harbour Tours").await;
    (reseller, org)
}

/// Version that the form of a page carries, as a form sends it.
fn version(page: &str) -> String {
    let (_, rest) = page
        .split_once("name=\"version\" value=\"")
        .expect("a version");
    let version = rest.split('"').next().expect("a value");
    version.replace(':', "%3A")
}

/// Table of both values.
fn conflict(answer: &Answer) -> &str {
    assert_eq!(answer.status, 409, "{}", answer.text);
    let (_, rest) = answer
        .text
        .split_once("id=\"conflict\"")
        .expect("both values");
    rest.split_once("</table>").expect("a table").0
}

#[tokio::test]
async fn a_form_of_an_org_that_is_older_than_it_changes_nothing() {
    let api = TestApi::new().await;
    let (_, org) = setup(&api).await;
    let operator = Operator::new(&api).await;
    let at = format!("/orgs/{org}");
    let old = version(&operator.shows(&at).await);
    pass(1);

    let fields = |name: &str| format!("version={old}&name={name}&language=en");
    let first = operator.submits(&at, &fields("Day")).await;
    assert_eq!(first.status, 303, "{}", first.text);
    let second = operator.submits(&at, &fields("Night")).await;
    let both = conflict(&second);
    assert!(both.contains("Night") && both.contains("Day"), "{both}");
    let kept = operator.shows(&at).await;
    assert!(kept.contains("value=\"Day\"") && !kept.contains("Night"));

    // Another form of the same org carries the same version, and the form that was shown again the present one.
    let days = format!("version={old}&calls_days=30");
    let retained = operator.submits(&format!("{at}/retention"), &days).await;
    let both = conflict(&retained);
    assert!(both.contains("Calls, with"), "{both}");
    let days = format!("version={}&calls_days=30", version(&retained.text));
    let retained = operator.submits(&format!("{at}/retention"), &days).await;
    assert_eq!(retained.status, 303, "{}", retained.text);
    assert!(operator.shows(&at).await.contains("value=\"30\""));

    // An old form that says what is so already is no conflict.
    let same = operator.submits(&at, &fields("Day")).await;
    assert_eq!(same.status, 303, "{}", same.text);

    let now = version(&operator.shows(&at).await);
    let wrong = format!("version={now}&calls_days=many");
    let wrong = operator.submits(&format!("{at}/retention"), &wrong).await;
    assert_eq!(wrong.status, 400, "{}", wrong.text);
    assert!(
        wrong.text.contains("value=\"many\"") && wrong.text.contains("class=\"fault\""),
        "{}",
        wrong.text
    );
}

#[tokio::test]
async fn a_form_of_a_partner_that_is_older_than_it_changes_nothing() {
    let api = TestApi::new().await;
    let (reseller, _) = setup(&api).await;
    let operator = Operator::new(&api).await;
    let at = format!("/partners/{}", reseller.id);
    let old = version(&operator.shows(&at).await);
    pass(1);

    let fields = |networks: &str| {
        format!("version={old}&name=Reseller&active=on&allowed_networks={networks}")
    };
    let first = operator.submits(&at, &fields("192.0.2.0%2F24")).await;
    assert_eq!(first.status, 303, "{}", first.text);
    let second = operator.submits(&at, &fields("198.51.100.7")).await;
    let both = conflict(&second);
    assert!(
        both.contains("192.0.2.0/24") && both.contains("198.51.100.7"),
        "{both}"
    );
    assert!(operator.shows(&at).await.contains("192.0.2.0/24"));

    // A suspension, by another session, is a change as well.
    let now = version(&operator.shows(&at).await);
    pass(1);
    let renamed = format!("version={now}&name=Renamed&active=on&allowed_networks=192.0.2.0%2F24");
    assert_eq!(operator.submits(&at, &renamed).await.status, 303);
    let late = format!("version={now}&name=Late&active=on");
    assert!(conflict(&operator.submits(&at, &late).await).contains("Renamed"));
}

#[tokio::test]
async fn of_two_forms_that_change_one_limit_the_second_changes_nothing() {
    let api = TestApi::new().await;
    let (reseller, org) = setup(&api).await;
    let operator = Operator::new(&api).await;

    for at in [
        format!("/orgs/{org}/limits"),
        format!("/partners/{}/limits", reseller.id),
    ] {
        let form = |agents: &str, webhooks: &str| {
            format!("agents={agents}&was_agents=1000&webhooks={webhooks}&was_webhooks=20")
        };
        assert_eq!(
            operator.submits(&at, &form("5", "20")).await.status,
            303,
            "{at}"
        );
        let lost = operator.submits(&at, &form("6", "20")).await;
        let both = conflict(&lost);
        assert!(both.contains("Agents") && both.contains('6') && both.contains('5'));
        assert!(!both.contains("Webhooks"), "{both}");
        assert!(lost.text.contains("name=\"was_agents\" value=\"5\""));

        // A limit that the form doesn't change is no conflict.
        let other = operator.submits(&at, &form("1000", "30")).await;
        assert_eq!(other.status, 303, "{at}: {}", other.text);
        let page = at.trim_end_matches("/limits");
        let shown = operator.shows(page).await;
        assert!(shown.contains("name=\"was_agents\" value=\"5\""), "{shown}");
        assert!(shown.contains("name=\"was_webhooks\" value=\"30\""));
    }
}

#[tokio::test]
async fn networks_and_peers_are_added_and_removed_one_by_one() {
    let api = TestApi::new().await;
    let (reseller, org) = setup(&api).await;
    let other = org_of(&api, &reseller, "Bakery").await;
    let operator = Operator::new(&api).await;
    let (page, theirs) = (format!("/orgs/{org}"), format!("/orgs/{other}"));

    for (list, field, entry, shown) in [
        ("networks", "network", "192.0.2.7", "192.0.2.7/32"),
        (
            "networks",
            "network",
            "2001%3Adb8%3A%3A%2F32",
            "2001:db8::/32",
        ),
        ("tied-peers", "peer", "10.1.0.0%2F16", "10.1.0.0/16"),
        ("tied-peers", "peer", "pbx.example.net", "pbx.example.net"),
    ] {
        let at = format!("{page}/{list}");
        let added = operator.submits(&at, &format!("{field}={entry}")).await;
        assert_eq!(added.status, 303, "{entry}: {}", added.text);
        let removes = format!("aria-label=\"Remove {shown}\"");
        assert!(operator.shows(&page).await.contains(&removes), "{removes}");

        if list == "networks" {
            let taken = operator
                .submits(&format!("{theirs}/{list}"), &format!("{field}={entry}"))
                .await;
            assert_eq!(taken.status, 409, "{entry}: {}", taken.text);
        }
        let entry = shown.replace(':', "%3A").replace('/', "%2F");
        let foreign = operator
            .submits(
                &format!("{theirs}/{list}/remove"),
                &format!("{field}={entry}"),
            )
            .await;
        assert_eq!(foreign.status, 404, "{entry}: {}", foreign.text);

        for (turn, status) in [(1, 303), (2, 404)] {
            let removed = operator
                .submits(&format!("{at}/remove"), &format!("{field}={entry}"))
                .await;
            assert_eq!(removed.status, status, "{turn}: {}", removed.text);
        }
        assert!(!operator.shows(&page).await.contains(&removes), "{removes}");
        let wrong = operator
            .submits(&at, &format!("{field}=a%2F..%2Fb+c"))
            .await;
        assert_eq!(wrong.status, 400, "{}", wrong.text);
        let wrong = format!("{field}=..%2F..%2Fx");
        let wrong = operator.submits(&format!("{at}/remove"), &wrong).await;
        assert_eq!(wrong.status, 404, "{}", wrong.text);
    }
}

#[tokio::test]
async fn orgs_are_searched_by_a_part_of_their_name() {
    let api = TestApi::new().await;
    let (reseller, org) = setup(&api).await;
    org_of(&api, &reseller, "Bakery").await;
    let operator = Operator::new(&api).await;

    for (search, harbour, bakery) in [
        ("", true, true),
        ("harbour", true, false),
        ("AKER", false, true),
        ("+tours+", true, false),
        (&*org.to_string(), true, false),
        ("%25", false, false),
    ] {
        let page = operator.shows(&format!("?search={search}")).await;
        assert_eq!(page.contains("Harbour Tours"), harbour, "{search}");
        assert_eq!(page.contains("Bakery"), bakery, "{search}");
    }
    let hostile = operator.shows("?search=%22%3E%3Cscript%3E").await;
    assert!(!hostile.contains("\"><script>"), "{hostile}");
}

#[tokio::test]
async fn many_orgs_are_listed_by_page() {
    let api = TestApi::new().await;
    let (reseller, _) = setup(&api).await;
    for number in 0..60 {
        org_of(&api, &reseller, &format!("Branch {number:02}.")).await;
    }
    let operator = Operator::new(&api).await;

    let orgs = |page: &str| page.matches("class=\"row\"").count();
    for (search, total, left) in [("", "61 in all", 11), ("branch", "60 found", 10)] {
        let first = operator.shows(&format!("?search={search}")).await;
        assert!(first.contains(total) && orgs(&first) == 50, "{first}");
        let (_, next) = first.split_once("cursor=").expect("a link to older ones");
        let cursor = next.split(['"', '&']).next().expect("a cursor");

        let query = format!("?search={search}&cursor={cursor}");
        let second = operator.shows(&query).await;
        assert!(second.contains(total) && orgs(&second) == left, "{second}");
        assert!(!second.contains("cursor="));
        for number in 0..60 {
            let name = format!("Branch {number:02}.");
            assert!(first.contains(&name) != second.contains(&name), "{name}");
        }
    }
}

/// A form without its token, or from another site, changes nothing.
#[tokio::test]
async fn forms_of_other_sites_change_nothing() {
    let api = TestApi::new().await;
    let (reseller, org) = setup(&api).await;
    let operator = Operator::new(&api).await;
    let form = ("Content-Type", "application/x-www-form-urlencoded");
    let own = ("Origin", "https://dashboard.example");
    let evil = ("Origin", "https://evil.example");

    for at in [
        format!("/orgs/{org}"),
        format!("/orgs/{org}/retention"),
        format!("/orgs/{org}/networks"),
        format!("/orgs/{org}/networks/remove"),
        format!("/orgs/{org}/tied-peers"),
        format!("/orgs/{org}/tied-peers/remove"),
        format!("/partners/{}", reseller.id),
    ] {
        let path = format!("/operator-console{at}");
        let proven = format!("form_token={}&network=192.0.2.7", operator.proof);
        for (headers, body) in [
            ([form, own], "network=192.0.2.7".to_owned()),
            ([form, own], "form_token=x&network=192.0.2.7".to_owned()),
            ([form, evil], proven),
        ] {
            let refused = ask(&api, "POST", &path, &operator.cookie, &headers, body).await;
            assert_eq!(refused.status, 403, "{at}: {}", refused.text);
        }
        let nobody = submit(&api, &path, "", "network=192.0.2.7").await;
        assert_eq!(nobody.status, 401, "{at}: {}", nobody.text);
    }
    assert!(
        !operator
            .shows(&format!("/orgs/{org}"))
            .await
            .contains("Remove 192.0.2.7")
    );
}
