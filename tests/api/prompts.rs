//! `/phone/prompts`, `/phone/prompts/{prompt_id}` and its audio: what is uploaded, what is refused, and who plays it.

use axum::body::Body;
use axum::http::Request;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use trunkline_net::media::wav;

use crate::test_api::{TestApi, all_absent, all_lack, id_of};

const PROMPTS: &str = "/phone/prompts";

/// A WAV file of 1 ms.
pub(crate) const WAV: &str =
    "UklGRjoAAABXQVZFZm10IBIAAAAHAAEAQB8AAEAfAAABAAgAAABmYWN0BAAAAAgAAABkYXRhCAAAAP//////////";

/// A WAV file of µ-law of this length.
fn file(milliseconds: usize) -> String {
    STANDARD.encode(wav::write(&vec![0x55; milliseconds * 8]))
}

fn prompt(name: &str) -> Value {
    json!({"name": name, "audio": file(500)})
}

#[tokio::test]
async fn a_prompt_is_uploaded_shown_heard_and_deleted() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let token = &tenant.token;
    let made = api.post(PROMPTS, token, prompt("Hello")).await.with(201);
    assert_eq!(
        (&made["name"], &made["duration_ms"]),
        (&json!("Hello"), &json!(500))
    );

    let path = format!("{PROMPTS}/{}", id_of(&made));
    assert_eq!(api.get(&path, token).await.with(200), made);
    assert_eq!(
        api.get(PROMPTS, token).await.with(200)["items"],
        json!([made])
    );

    let taken = api.post(PROMPTS, token, prompt("HELLO")).await.with(409);
    assert_eq!(taken["code"], "name_taken");

    let audio = format!("{path}/audio");
    for (accepted, expected) in [
        ("*/*", "audio/wav"),
        ("application/octet-stream", "application/octet-stream"),
        ("text/html, audio/wav;q=0.5", "audio/wav"),
    ] {
        let request = Request::get(&audio)
            .header("Authorization", format!("Bearer {token}"))
            .header("Accept", accepted);
        let heard = api.send(request.body(Body::empty())).await;
        assert_eq!(heard.status, 200);
        assert_eq!(heard.headers["content-type"], expected, "{accepted}");
        assert!(heard.text.starts_with("RIFF"), "{}", heard.text);
    }

    let gone = api.delete(&path, token).await.with(200);
    assert_eq!(gone, json!({"success": true}));
    all_absent(
        &[
            api.get(&path, token).await,
            api.get(&audio, token).await,
            api.delete(&path, token).await,
        ],
        "prompt",
    );
}

#[tokio::test]
async fn what_is_no_wav_file_of_a_minute_is_refused() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let token = &tenant.token;
    let bomb = {
        let mut file = wav::write(&[0x55; 800]);
        // A sample rate of 1 Hz, at which a second of telephone audio is made of each sample.
        file[24..28].copy_from_slice(&1_u32.to_le_bytes());
        STANDARD.encode(file)
    };

    for (name, audio, fault) in [
        (
            "no base64",
            "%%%%".to_owned(),
            "audio: \"%%%%\" is not a WAV file in base64",
        ),
        (
            "no WAV",
            STANDARD.encode("ID3 and more"),
            "audio: is no WAV file",
        ),
        (
            "a minute and more",
            file(60_001),
            "audio: is longer than 60 s",
        ),
        ("nothing", file(0), "audio: has no audio"),
        (
            "a bomb",
            bomb,
            "audio: needs a sample rate of 8,000 to 48,000 Hz",
        ),
    ] {
        let body = json!({"name": "Hello", "audio": audio});
        let refused = api.post(PROMPTS, token, body).await.with(400);
        assert_eq!(refused["message"], fault, "{name}");
        assert_eq!(refused["errors"][0]["path"], "audio", "{name}");
    }
    let longest = json!({"name": "Hello", "audio": file(60_000)});
    api.post(PROMPTS, token, longest).await.with(201);

    let huge = json!({"name": "Huge", "audio": "A".repeat(2 << 20)});
    api.post(PROMPTS, token, huge).await.with(413);
}

#[tokio::test]
async fn an_org_has_a_hundred_prompts_at_most() {
    let api = TestApi::new().await;
    let (acme, other) = (api.tenant("Acme").await, api.tenant("Other").await);
    for number in 0..100 {
        let body = json!({"name": format!("{number}"), "audio": WAV});
        api.post(PROMPTS, &acme.token, body).await.with(201);
    }
    let refused = api.post(PROMPTS, &acme.token, prompt("more")).await;
    assert_eq!(refused.with(409)["code"], "too_many_prompts");
    let others = api.post(PROMPTS, &other.token, prompt("more")).await;
    others.with(201);
}

fn runtime(id: &str) -> Value {
    json!({"runtime": {"type": "builtin", "flow": {"start": "a", "steps": {
        "a": {"do": "play", "prompt": {"id": id}, "next": "b"},
        "b": {"do": "hang_up"},
    }}}})
}

#[tokio::test]
async fn an_agent_plays_prompts_of_its_own_org_alone() {
    let api = TestApi::new().await;
    let (acme, other) = (api.tenant("Acme").await, api.tenant("Other").await);
    let own = id_of(&api.post(PROMPTS, &acme.token, prompt("A")).await.with(201));
    let foreign = id_of(&api.post(PROMPTS, &other.token, prompt("B")).await.with(201));
    let agent = format!("/phone/{}", api.agent(acme.org, "Agent").await);
    let refused = api.patch(&agent, &acme.token, runtime(&foreign)).await;
    assert_eq!(
        refused.with(400)["errors"],
        json!([{"path": "runtime.flow.steps.a.prompt", "message": "there is no such prompt"}])
    );

    let path = format!("{PROMPTS}/{own}");
    let changed = api
        .patch(&agent, &acme.token, runtime(&own))
        .await
        .with(200);
    assert_eq!(
        changed["runtime"]["flow"]["steps"]["a"]["prompt"]["id"],
        own
    );

    let refused = api.delete(&path, &acme.token).await;
    assert_eq!(refused.with(409)["code"], "prompt_in_use");
    let nothing = json!({"runtime": null});
    api.patch(&agent, &acme.token, nothing).await.with(200);
    api.delete(&path, &acme.token).await.with(200);

    let foreign = format!("{PROMPTS}/{foreign}");
    all_absent(
        &[
            api.get(&foreign, &acme.token).await,
            api.get(&format!("{foreign}/audio"), &acme.token).await,
            api.delete(&foreign, &acme.token).await,
        ],
        "prompt",
    );
}

#[tokio::test]
async fn a_prompt_is_not_deleted_while_an_agent_takes_it_up() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let token = &tenant.token;
    let agent = format!("/phone/{}", api.agent(tenant.org, "Agent").await);

    for round in 0..20 {
        let made = api.post(PROMPTS, token, prompt("A")).await.with(201);
        let path = format!("{PROMPTS}/{}", id_of(&made));
        let (taken, deleted) = tokio::join!(
            api.patch(&agent, token, runtime(&id_of(&made))),
            api.delete(&path, token)
        );
        match (taken.status, deleted.status) {
            (200, 409) => {
                let nothing = json!({"runtime": null});
                api.patch(&agent, token, nothing).await.with(200);
                api.delete(&path, token).await.with(200);
            }
            (400 | 409, 200) => {}
            both => panic!("round {round}: {both:?}"),
        }
    }
}

#[tokio::test]
async fn a_name_that_is_uploaded_twice_at_once_makes_one_prompt() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let token = &tenant.token;
    let (one, other) = tokio::join!(
        api.post(PROMPTS, token, prompt("Hello")),
        api.post(PROMPTS, token, prompt("hello"))
    );
    let mut statuses = [one.status, other.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 409]);
    let listed = api.get(PROMPTS, token).await.with(200);
    assert_eq!(listed["total"], 1, "{listed}");
}

#[tokio::test]
async fn prompts_need_their_scopes() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let made = api
        .post(PROMPTS, &tenant.token, prompt("A"))
        .await
        .with(201);
    let (_, reader) = api.key(tenant.org, &["phone:read"]).await;
    let path = format!("{PROMPTS}/{}", id_of(&made));
    assert_eq!(api.get(&format!("{path}/audio"), &reader).await.status, 200);

    all_lack(
        &[
            api.post(PROMPTS, &reader, prompt("B")).await,
            api.delete(&path, &reader).await,
        ],
        "phone:write",
    );
}
