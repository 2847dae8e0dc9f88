//! Integrations of a new org: the platform is a real HTTP service on loopback, called before the org is stored, and fails in every way.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use trunkline_store::integrations;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::test_api::{Answer, Reseller, TestApi};

const ORGS: &str = "/partner/v1/orgs";

/// Behaviour of the platform.
#[derive(Copy, Clone, Debug)]
enum Platform {
    /// Good keys are `app` and `user`, `user2`; they see the companies `tours` and `boats`.
    Sound,
    /// Sends these octets and closes.
    Says(&'static str),
    /// Reads the request and answers nothing.
    Silent,
    /// Begins an answer and stops.
    Stalls,
    /// Sends a body without end.
    Endless,
}

struct Booking {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Booking {
    async fn start(platform: Platform) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let log = Arc::clone(&log);
                tokio::spawn(async move {
                    // The client may go away at any time.
                    let _ = answer(stream, platform, &log).await;
                });
            }
        });
        Self { address, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("nobody panics").clone()
    }

    fn config(&self) -> String {
        configured(self.address)
    }
}

fn configured(address: SocketAddr) -> String {
    format!(
        "[integrations.booking]\nkey = \"tours\"\nbase_url = \"http://{address}/api/v1\"\napp_key_header = \"X-App\"\nuser_key_header = \"X-User\"\n"
    )
}

async fn answer(
    mut stream: TcpStream,
    platform: Platform,
    log: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut octets = [0; 1024];
        let read = stream.read(&mut octets).await?;
        if read == 0 {
            return Ok(());
        }
        request.extend_from_slice(&octets[..read]);
    }

    let request = String::from_utf8(request).expect("text");
    log.lock().expect("nobody panics").push(request.clone());
    match platform {
        Platform::Sound => stream.write_all(sound(&request).as_bytes()).await,
        Platform::Says(text) => stream.write_all(text.as_bytes()).await,
        Platform::Silent => std::future::pending().await,
        Platform::Stalls => {
            stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{\"comp")
                .await?;
            std::future::pending().await
        }
        Platform::Endless => {
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
            loop {
                stream.write_all(&[b' '; 4096]).await?;
            }
        }
    }
}

fn sound(request: &str) -> String {
    let header = |name: &str| {
        let line = request.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().trim().to_owned()
    };
    let good = header("x-app:") == "app" && ["user", "user2"].contains(&&*header("x-user:"));
    let (status, body) = match (
        good,
        request.starts_with("GET /api/v1/companies/ HTTP/1.1\r\n"),
    ) {
        (true, true) => (
            "200 OK",
            r#"{"companies":[{"shortname":"tours","name":"Tours"},{"shortname":"boats"}]}"#,
        ),
        (false, true) => ("403 Forbidden", "{}"),
        (_, false) => ("404 Not Found", "{}"),
    };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

async fn connect(api: &TestApi, partner: &Reseller, integrations: Value) -> Answer {
    api.post(
        ORGS,
        &partner.key,
        json!({"name": "A", "external_id": "7", "integrations": integrations}),
    )
    .await
}

async fn none_was_made(api: &TestApi, partner: &Reseller) {
    assert_eq!(api.get(ORGS, &partner.key).await.with(200)["total"], 0);
}

#[tokio::test]
async fn good_credentials_are_tried_and_sealed() {
    let platform = Booking::start(Platform::Sound).await;
    let api = TestApi::with(&platform.config()).await;
    let partner = api.reseller("Reseller").await;
    let both = json!({"tours": [
        {"app_key": "app", "user_key": "user", "default_company_shortname": "boats"},
        {"app_key": "app", "user_key": "user2", "name": "Second"},
    ]});
    connect(&api, &partner, both).await.with(201);
    let asked = platform.asked();
    assert_eq!(asked.len(), 2);

    let expected = "GET /api/v1/companies/ HTTP/1.1\r\n";
    assert!(
        asked.iter().all(|request| request.starts_with(expected)),
        "{asked:?}"
    );

    let rows = api.rows("SELECT name || ' ' || kind || ' ' || COALESCE(default_company_shortname, '-') FROM integrations ORDER BY name").await;
    assert_eq!(rows, ["Default booking boats", "Second booking -"]);

    let sealed = api.octets("SELECT credentials FROM integrations").await;
    let shows = |sealed: &Vec<u8>| sealed.windows(4).any(|part| part == b"user");
    assert_eq!(sealed.len(), 2);
    assert!(!sealed.iter().any(shows), "{sealed:?}");

    // A single connection may be given without a list.
    let one =
        json!({"name": "B", "integrations": {"tours": {"app_key": "app", "user_key": "user"}}});
    api.post(ORGS, &partner.key, one).await.with(201);
}

#[tokio::test]
async fn refused_credentials_are_400_and_the_connection_is_named() {
    let platform = Booking::start(Platform::Sound).await;
    let api = TestApi::with(&platform.config()).await;
    let partner = api.reseller("Reseller").await;
    let wrong = json!({"tours": [
        {"app_key": "app", "user_key": "user", "name": "Good"},
        {"app_key": "app", "user_key": "nobody's", "name": "Bad"},
        {"app_key": "app", "user_key": "user", "name": "Elsewhere", "default_company_shortname": "planes"},
    ]});
    insta::assert_json_snapshot!(
        "credentials_that_are_refused",
        connect(&api, &partner, wrong).await.with(400)
    );

    none_was_made(&api, &partner).await;
    let unauthorized = Booking::start(Platform::Says(
        "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n",
    ))
    .await;
    let api = TestApi::with(&unauthorized.config()).await;
    let partner = api.reseller("Reseller").await;
    let one = json!({"tours": {"app_key": "app", "user_key": "user"}});
    connect(&api, &partner, one).await.with(400);
    none_was_made(&api, &partner).await;
}

#[tokio::test]
async fn a_platform_that_can_not_be_asked_is_502() {
    // At once, because two of them take the whole time that an answer may take.
    let cases = [
        (Platform::Silent, "it did not answer in time"),
        (Platform::Stalls, "it did not answer in time"),
        (Platform::Endless, "its answer is too long"),
        (
            Platform::Says("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"),
            "it answered with a status other than 200",
        ),
        (
            Platform::Says("HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"),
            "it answered with a status other than 200",
        ),
        (
            Platform::Says("HTTP/1.1 204 No Content\r\n\r\n"),
            "it answered with a status other than 200",
        ),
        (
            Platform::Says("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\noops"),
            "its answer isn't the expected JSON",
        ),
        (
            Platform::Says("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"),
            "its answer isn't the expected JSON",
        ),
        (
            Platform::Says("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"),
            "its answer ended early",
        ),
        (
            Platform::Says("SSH-2.0-OpenSSH\r\n\r\n"),
            "it can't be reached",
        ),
    ];
    let refuses = async |(platform, cause): (Platform, &str)| {
        let booking = Booking::start(platform).await;
        let api = TestApi::with(&booking.config()).await;
        let partner = api.reseller("Reseller").await;
        let refused = connect(
            &api,
            &partner,
            json!({"tours": {"app_key": "app", "user_key": "user"}}),
        )
        .await;

        let message = format!(
            "The booking platform could not be asked about the connection \"Default\": {cause}. No org was made; try again later"
        );
        assert_eq!(
            refused.with(502),
            json!({"statusCode": 502, "message": message, "code": "bad_gateway"}),
            "{platform:?}"
        );
        none_was_made(&api, &partner).await;
    };
    futures_util::future::join_all(cases.map(refuses)).await;
}

#[tokio::test]
async fn a_platform_that_is_not_there_is_502() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    drop(listener);
    let api = TestApi::with(&configured(address)).await;
    let partner = api.reseller("Reseller").await;
    let refused = connect(
        &api,
        &partner,
        json!({"tours": {"app_key": "app", "user_key": "user"}}),
    )
    .await;
    let message = refused.with(502)["message"].to_string();
    assert!(message.contains("it can't be reached"), "{message}");
    none_was_made(&api, &partner).await;
}

#[tokio::test]
async fn what_is_no_integration_is_refused_before_anything_is_tried() {
    let platform = Booking::start(Platform::Sound).await;
    let api = TestApi::with(&platform.config()).await;
    let partner = api.reseller("Reseller").await;
    let wrong = json!({
        "tours": [
            {"app_key": "", "name": 7, "colour": 1},
            {"app_key": "ä", "user_key": 7, "default_company_shortname": []},
            7,
        ],
        "planes": {},
    });

    insta::assert_json_snapshot!(
        "faults_of_integrations",
        connect(&api, &partner, wrong).await.with(400)
    );

    let twins = json!({"tours": [
        {"app_key": "app", "user_key": "user"},
        {"app_key": "app", "user_key": "user", "name": "Default"},
    ]});
    insta::assert_json_snapshot!(
        "two_connections_of_one_name",
        connect(&api, &partner, twins).await.with(400)
    );

    // An external id that exists is refused before the platform is called.
    api.post(ORGS, &partner.key, json!({"name": "A", "external_id": "7"}))
        .await
        .with(201);
    let again = json!({"tours": {"app_key": "app", "user_key": "user"}});
    connect(&api, &partner, again).await.with(409);

    assert_eq!(platform.asked(), [""; 0]);
}

#[tokio::test]
async fn a_deployment_without_the_platform_refuses_it() {
    let api = TestApi::new().await;
    let partner = api.reseller("Reseller").await;
    let refused = connect(
        &api,
        &partner,
        json!({"booking": {"app_key": "a", "user_key": "b"}}),
    )
    .await;
    assert_eq!(
        refused.with(400)["message"],
        "integrations.booking: is not an integration of this deployment"
    );

    for nothing in [json!({}), Value::Null] {
        let body = json!({"name": "A", "integrations": nothing});
        api.post(ORGS, &partner.key, body).await.with(201);
    }
}

#[tokio::test]
async fn an_org_that_is_taken_while_the_platform_is_asked_is_409() {
    let platform = Booking::start(Platform::Sound).await;
    let api = TestApi::with(&platform.config()).await;
    let partner = api.reseller("Reseller").await;
    let integrations = json!({"tours": {"app_key": "app", "user_key": "user"}});
    let answers = api
        .at_once(10, |_| connect(&api, &partner, integrations.clone()))
        .await;
    let count = |status: u16| {
        answers
            .iter()
            .filter(|answer| answer.status == status)
            .count()
    };
    assert_eq!((count(201), count(409)), (1, 9));
    assert_eq!(api.rows("SELECT name FROM integrations").await, ["Default"]);
}

#[tokio::test]
async fn connections_are_shown_to_those_who_may_and_replaced() {
    let platform = Booking::start(Platform::Sound).await;
    let api = TestApi::with(&platform.config()).await;
    let partner = api.reseller("Reseller").await;
    let both = json!({"tours": [
        {"app_key": "app", "user_key": "user", "default_company_shortname": "boats"},
        {"app_key": "app", "user_key": "user2", "name": "Second"},
    ]});
    let made = connect(&api, &partner, both).await.with(201);
    let org = made["id"].as_str().expect("an id").to_owned();
    let path = format!("{ORGS}/{org}");

    let before = api.get(&path, &partner.key).await.with(200);
    let names = |org: &Value| {
        let tours = org["integrations"]["tours"].as_array().cloned();
        let tours = tours.unwrap_or_default();
        let name = |tour: &Value| tour["name"].as_str().map(str::to_owned);
        tours.iter().filter_map(name).collect::<Vec<_>>()
    };
    assert_eq!(names(&before), ["Default", "Second"]);
    assert!(!before.to_string().contains("user2"), "{before}");

    // A key that the platform refuses changes nothing.
    let wrong =
        json!({"name": "B", "integrations": {"tours": {"app_key": "app", "user_key": "nobody's"}}});
    api.patch(&path, &partner.key, wrong).await.with(400);
    assert_eq!(api.get(&path, &partner.key).await.with(200), before);

    let other = json!({"integrations": {"tours": [
        {"app_key": "app", "user_key": "user2"},
        {"app_key": "app", "user_key": "user", "name": "Third"},
    ]}});
    let after = api.patch(&path, &partner.key, other).await.with(200);
    assert_eq!(names(&after), ["Default", "Third"]);
    let id = |org: &Value| org["integrations"]["tours"][0]["id"].clone();
    assert_eq!(id(&after), id(&before));

    let org_id: uuid::Uuid = org.parse().expect("an id");
    let kept = api
        .store
        .read_inline(move |tx| integrations::bookings(tx, org_id))
        .await;
    let keyring = api.store.keyring();
    let credentials = kept.expect("they are read")[0].credentials(keyring);
    let credentials = credentials.expect("they open");
    assert_eq!(credentials, ("app".to_owned(), "user2".to_owned()));

    let none = json!({"integrations": null});
    let none = api.patch(&path, &partner.key, none).await.with(200);
    assert_eq!(none["integrations"], json!({}));
}
