//! The console's form of an agent's runtime.

use serde_json::json;
use trunkline_model::builtin::Flow;

use crate::dashboard::session;
use crate::pages::{form_token, submit, visit};
use crate::test_api::{TestApi, pass};

/// A runtime that the form can't choose survives the change of another field, until a type is chosen that the form knows.
#[tokio::test]
async fn a_runtime_that_the_form_does_not_know_stays() {
    let api = TestApi::new().await;
    let (org, cookie, page) = session(&api).await;
    let (_, token) = api.key(org, &trunkline::api::SCOPES).await;

    let builtin = json!({"type": "builtin", "flow": Flow::demo()});
    let list = json!({"type": "websocket", "uri": "wss://bot.example.com/ws", "fallbacks": ["sip:b.example.com", "builtin:"],
        "flow": Flow::demo(), "wake": "answer"});
    let sip = json!({"type": "sip", "uri": "sip:b.example.com", "fallbacks": ["wss://bot.example.com/ws", "builtin:"], "flow": Flow::demo(),
        "protocol": "telnyx"});

    for (runtime, kind, uri, fallbacks) in [
        (&builtin, "builtin", "", ""),
        (
            &sip,
            "sip",
            "sip%3Ab.example.com",
            "wss%3A%2F%2Fbot.example.com%2Fws%0D%0Abuiltin%3A",
        ),
        (
            &list,
            "websocket",
            "wss%3A%2F%2Fbot.example.com%2Fws",
            "sip%3Ab.example.com%0D%0Abuiltin%3A",
        ),
    ] {
        let agent = api.agent(org, "Reception").await;
        let path = format!("/phone/{agent}");
        let given = json!({"runtime": runtime});
        let before = api.patch(&path, &token, given).await.with(200);

        let form = format!("{page}/agents/{agent}");
        let save = async |name: &str, fields: &str| {
            pass(1);
            let shown = visit(&api, &form, &cookie).await;
            let (_, rest) = shown
                .text
                .split_once("name=\"version\" value=\"")
                .expect("a version");
            let version = rest.split('"').next().expect("a value").replace(':', "%3A");
            let proof = form_token(&shown);
            let whole = format!(
                "form_token={proof}&version={version}&name={name}&enabled=on&type=inbound&language=en&{fields}"
            );
            let saved = submit(&api, &form, &cookie, &whole).await;
            assert_eq!(saved.status, 303, "{kind}: {}", saved.text);
            (shown.text, api.get(&path, &token).await.with(200))
        };

        let same = format!("runtime.type={kind}&runtime.uri={uri}&runtime.fallbacks={fallbacks}");
        let (shown, after) = save("Day+shift", &same).await;
        assert!(
            shown.contains(&format!("<option value=\"{kind}\" selected>")),
            "{shown}"
        );
        assert_eq!(after["name"], "Day shift");
        assert_eq!(after["runtime"], before["runtime"], "{kind}");

        if kind == "websocket" {
            let typed = "runtime.type=websocket&runtime.uri=wss%3A%2F%2Fb.example.com%2F&runtime.fallbacks=builtin%3A";
            let (_, after) = save("Day+shift", typed).await;
            assert_eq!(after["runtime"]["uri"], "wss://b.example.com/");
            assert_eq!(after["runtime"]["wake"], "answer");
        }

        if kind == "sip" {
            let typed = format!(
                "runtime.type=sip&runtime.uri=sip%3Ac.example.com&runtime.fallbacks={fallbacks}"
            );
            let (_, after) = save("Day+shift", &typed).await;
            assert_eq!(after["runtime"]["uri"], "sip:c.example.com");
            assert_eq!(after["runtime"]["flow"], before["runtime"]["flow"]);
        }

        let other = "runtime.type=sip&runtime.uri=sip%3Aa.example.com";
        let (_, after) = save("Day+shift", other).await;
        assert_eq!(after["runtime"]["uri"], "sip:a.example.com", "{kind}");
        let (_, after) = save("Day+shift", "runtime.type=").await;
        assert_eq!(after["runtime"], json!(null), "{kind}");
    }
}
