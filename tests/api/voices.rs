//! `/phone/voices`.

use serde_json::json;

use crate::test_api::TestApi;

const VOICES: &str = r#"
[phone]
voices = [
    { id = "nova", name = "Nova", language = "en", gender = "female" },
    { id = "basso", name = "Basso" },
    "plain",
]
"#;

#[tokio::test]
async fn the_operators_voices_are_listed_in_his_order() {
    let api = TestApi::with(VOICES).await;
    let tenant = api.tenant("Acme").await;
    insta::assert_json_snapshot!(api.get("/phone/voices", &tenant.token).await.with(200));

    let first = api
        .get("/phone/voices?limit=2", &tenant.token)
        .await
        .with(200);
    let next = first["next"].as_str().expect("a second page");
    let second = api
        .get(
            &format!("/phone/voices?limit=2&cursor={next}"),
            &tenant.token,
        )
        .await
        .with(200);

    assert_eq!(
        (&first["items"][1]["id"], &second["items"][0]["id"]),
        (&json!("basso"), &json!("plain"))
    );
    assert_eq!(
        (&second["next"], &second["total"]),
        (&json!(null), &json!(3))
    );

    for (language, expected) in [("en", json!(["nova"])), ("de", json!([]))] {
        let path = format!("/phone/voices?language={language}");
        let page = api.get(&path, &tenant.token).await.with(200);
        let ids = page["items"].as_array().expect("items").iter();
        let ids: Vec<_> = ids.map(|voice| voice["id"].clone()).collect();
        assert_eq!(page["total"], ids.len(), "{language}");
        assert_eq!(json!(ids), expected);
    }
}

#[tokio::test]
async fn without_configured_voices_the_list_is_empty() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let body = api.get("/phone/voices", &tenant.token).await.with(200);
    assert_eq!(body, json!({"items": [], "next": null, "total": 0}));
}

#[tokio::test]
async fn a_wrong_question_is_refused() {
    let api = TestApi::with(VOICES).await;
    let tenant = api.tenant("Acme").await;
    let body = api
        .get(
            "/phone/voices?limit=0&cursor=tenor&colour=red",
            &tenant.token,
        )
        .await
        .with(400);
    assert_eq!(
        body["message"],
        "limit: expected a number from 1 to 100; cursor: is no cursor of this list; colour: is no parameter of this endpoint"
    );
    let (_, token) = api.key(tenant.org, &["phone:write"]).await;

    let body = api.get("/phone/voices", &token).await.with(403);
    assert_eq!(body["message"], "This API key lacks the scope phone:read");
}
