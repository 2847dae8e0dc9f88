//! Login links that another site leads to.

use crate::dashboard::session;
use crate::pages::{ask, link, org_of, visit};
use crate::test_api::TestApi;

/// The attacker has a link into an org of its own, and leads a person with a session of another org to it.
#[tokio::test]
async fn a_link_opened_from_another_site_asks_before_it_replaces_a_session() {
    let api = TestApi::new().await;
    let (_, cookie, page) = session(&api).await;
    let attacker = api.reseller("Attacker").await;
    let trap = org_of(&api, &attacker, "Trap").await;
    let cross_site = [("Sec-Fetch-Site", "cross-site")];

    let lure = link(&api, &attacker, trap, "victim@example.org").await;
    for headers in [&cross_site[..], &[("Sec-Fetch-Site", "same-site")], &[]] {
        let asked = ask(&api, "GET", &lure, &cookie, headers, String::new()).await;
        assert_eq!((asked.status, asked.header("Set-Cookie")), (200, None));
        assert!(asked.text.contains("ada@example.org"), "{}", asked.text);
    }
    assert_eq!(visit(&api, &page, &cookie).await.status, 200);

    // Honest: who has no session, who opens a link here, and who comes back to the same org from the partner's site.
    let opened = ask(&api, "GET", &lure, "", &cross_site, String::new()).await;
    assert_eq!(opened.status, 303);
    let own = [("Sec-Fetch-Site", "none")];
    let typed = link(&api, &attacker, trap, "victim@example.org").await;
    let opened = ask(&api, "GET", &typed, &cookie, &own, String::new()).await;
    assert_eq!(opened.status, 303);
    let trapped = opened.header("Set-Cookie").expect("a cookie");
    let trapped = trapped.split(';').next().expect("a pair").to_owned();
    let again = link(&api, &attacker, trap, "victim@example.org").await;
    let opened = ask(&api, "GET", &again, &trapped, &cross_site, String::new()).await;
    assert_eq!(opened.status, 303);
}
