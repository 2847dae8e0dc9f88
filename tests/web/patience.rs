//! Many connections over plain HTTP: they are bounded by source and in all, and honest clients are served meanwhile.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::json;
use trunkline_testkit::{DaemonSetup, http};

/// Enough for an answer on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

fn connect(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&at, LIMIT).expect("it connects");
    stream.set_read_timeout(Some(LIMIT)).expect("a time-out");
    stream
}

/// Returns the octets until the daemon closes the connection, which it must.
fn rest(mut stream: TcpStream) -> String {
    let mut text = Vec::new();
    match stream.read_to_end(&mut text) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("the connection stays up: {error}"),
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn heads_are_bounded() {
    let daemon = DaemonSetup::new().serve();
    for (name, head) in [
        ("long", format!("X-Long: {}\r\n", "x".repeat(64 * 1024))),
        ("many", "X-Many: 1\r\n".repeat(200)),
    ] {
        let mut stream = connect(daemon.setup.http);
        let request = format!("GET /healthz HTTP/1.1\r\nHost: x\r\n{head}\r\n");
        // The daemon may close before it has read all.
        let _ = stream.write_all(request.as_bytes());
        let rest = rest(stream);
        assert!(
            rest.is_empty() || rest.starts_with("HTTP/1.1 431"),
            "{name}: {rest}"
        );
    }
}

/// The rest of a body that an answer didn't wait for can't be told from the next request, so that answer is the connection's last one.
#[test]
fn an_answer_before_the_whole_body_closes_the_connection() {
    let daemon = DaemonSetup::new().serve();
    let key = &daemon.setup.key;
    for (name, status, head, sent) in [
        (
            "no credential",
            401,
            "Content-Length: 500\r\n".to_owned(),
            10,
        ),
        (
            "too long",
            413,
            format!("Authorization: Bearer {key}\r\nContent-Length: 2000000\r\n"),
            1_200_000,
        ),
    ] {
        let mut stream = connect(daemon.setup.http);
        let head = format!(
            "POST /phone HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{head}\r\n"
        );
        stream.write_all(head.as_bytes()).expect("the head is sent");
        // The daemon may answer and close before it has read all.
        let _ = stream.write_all(&vec![b' '; sent]);
        let answer = rest(stream).to_ascii_lowercase();
        assert!(
            answer.starts_with(&format!("http/1.1 {status} "))
                && answer.contains("\r\nconnection: close\r\n"),
            "{name}: {answer}"
        );
    }

    // A body that was read whole leaves the connection open, also after a refusal.
    let mut stream = connect(daemon.setup.http);
    let refused = "POST /phone HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n";
    let refused = format!("{refused}Authorization: Bearer {key}\r\n\r\n{{}}");
    stream.write_all(refused.as_bytes()).expect("it is sent");
    let mut octets = [0; 4096];
    let count = stream.read(&mut octets).expect("an answer");
    let answer = String::from_utf8_lossy(&octets[..count]).to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 400 "), "{answer}");
    assert!(!answer.contains("connection: close"), "{answer}");
    assert!(is_ok(ask(&mut stream, "/healthz", None)));
}

/// Sends a request on a connection that stays open; returns status and body, or `None` if the connection is closed.
fn ask(stream: &mut TcpStream, path: &str, key: Option<&str>) -> Option<String> {
    let credential = key.map_or(String::new(), |key| {
        format!("Authorization: Bearer {key}\r\n")
    });
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n{credential}\r\n");
    stream.write_all(request.as_bytes()).ok()?;

    let mut text = Vec::new();
    let mut octets = [0; 4096];
    loop {
        let count = stream.read(&mut octets).ok().filter(|count| *count > 0)?;
        text.extend_from_slice(&octets[..count]);
        let read = String::from_utf8_lossy(&text).into_owned();
        if let Some((head, body)) = read.split_once("\r\n\r\n") {
            let head = head.to_ascii_lowercase();
            let length = head.split_once("content-length: ").map(|(_, rest)| {
                let digits = rest.split("\r\n").next().expect("a line");
                digits.parse::<usize>().expect("a length")
            });
            if length.is_none_or(|length| body.len() >= length) {
                return Some(read);
            }
        }
    }
}

fn is_ok(answer: Option<String>) -> bool {
    answer.is_some_and(|answer| answer.starts_with("HTTP/1.1 200 OK"))
}

/// Connects from another loopback address, which isn't a trusted proxy.
fn connect_from(source: [u8; 4], at: SocketAddr) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
    let socket = socket.expect("a socket");
    let source = SocketAddr::from((source, 0));
    socket.bind(&source.into()).expect("a loopback address");
    socket
        .connect_timeout(&at.into(), LIMIT)
        .expect("it connects");
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(LIMIT)).expect("a time-out");
    stream
}

/// The attacker fills every place with silent connections; health checks, the API and a client whose connection was open before are served all the
/// same.
#[test]
fn idle_connections_of_one_client_take_nothing_from_the_others() {
    let daemon = DaemonSetup::new()
        .set("TRUNKLINE__HTTP__MAX_CONNECTIONS", "16")
        .serve();
    let (at, key) = (daemon.setup.http, daemon.key());
    let mut honest = connect(at);
    assert!(is_ok(ask(&mut honest, "/phone/calls", Some(key))));

    // The token of a visitor is a credential as well.
    let person = json!({"email": "ada@example.org"});
    let (_, made) = http::change("POST", at, "/widget/authenticate-user", key, &person);
    let token = made["token"].as_str().expect("a token");
    let mut visitor = connect(at);
    assert!(is_ok(ask(&mut visitor, "/widget/me", Some(token))));

    // Through a trusted proxy, so that no bound per source applies.
    let idle: Vec<_> = (0..64).map(|_| connect(at)).collect();
    for path in ["/healthz", "/readyz"] {
        assert!(is_ok(ask(&mut connect(at), path, None)), "{path}");
    }

    assert!(is_ok(ask(&mut connect(at), "/phone/calls", Some(key))));
    assert!(
        is_ok(ask(&mut honest, "/phone/calls", Some(key))),
        "an authenticated connection gave way to idle ones"
    );
    assert!(
        is_ok(ask(&mut visitor, "/widget/me", Some(token))),
        "a visitor's connection gave way to idle ones"
    );

    drop(idle);
}

#[test]
fn a_source_holds_so_many_connections() {
    let daemon = DaemonSetup::new().serve();
    let at = daemon.setup.http;
    let idle: Vec<_> = (0..140).map(|_| connect_from([127, 0, 0, 2], at)).collect();
    assert!(is_ok(ask(
        &mut connect_from([127, 0, 0, 3], at),
        "/healthz",
        None
    )));

    let mut open = 0;
    for mut stream in idle {
        open += usize::from(is_ok(ask(&mut stream, "/healthz", None)));
    }
    assert_eq!(open, 128);

    // Connections through a trusted proxy count for the proxy.
    let mut proxied: Vec<_> = (0..140).map(|_| connect(at)).collect();
    let served = proxied
        .iter_mut()
        .all(|stream| is_ok(ask(stream, "/healthz", None)));
    assert!(served);
}

/// If streams hold every place, health checks are still answered, and other requests get the reason for their refusal.
#[test]
fn health_checks_have_a_reserve() {
    let daemon = DaemonSetup::new()
        .set("TRUNKLINE__HTTP__MAX_CONNECTIONS", "2")
        .serve();
    let (at, key) = (daemon.setup.http, daemon.key());
    let mut streams = [connect(at), connect(at)];
    for stream in &mut streams {
        assert!(is_ok(ask(stream, "/phone/events", Some(key))));
    }

    for path in ["/healthz", "/readyz"] {
        assert!(is_ok(ask(&mut connect(at), path, None)), "{path}");
    }

    let refused = ask(&mut connect(at), "/phone/calls", Some(key)).expect("an answer");
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    assert!(
        refused.to_ascii_lowercase().contains("retry-after: 1\r\n"),
        "{refused}"
    );

    drop(streams);
}
