//! Slow clients over plain HTTP: each is cut off, and the others are served meanwhile.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::json;
use trunkline_testkit::{Daemon, DaemonSetup, http};

/// Enough for a cut-off after a second or two, on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

fn daemon() -> Daemon {
    DaemonSetup::new()
        .set("TRUNKLINE__HTTP__HEAD_TIMEOUT_S", "1")
        .set("TRUNKLINE__HTTP__BODY_TIMEOUT_S", "2")
        .set("TRUNKLINE__HTTP__IDLE_TIMEOUT_S", "3")
        .set("TRUNKLINE__HTTP__MAX_CONNECTIONS", "4")
        .serve()
}

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
fn slow_clients_are_cut_off() {
    let daemon = daemon();
    let at = daemon.setup.http;

    for (name, sent, answer) in [
        ("nothing", String::new(), ""),
        ("half a head", "GET /healthz HTTP/1.1\r\nHo".to_owned(), ""),
        (
            "half a body",
            format!(
                "POST /phone HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{{",
                daemon.key()
            ),
            "HTTP/1.1 408 Request Timeout",
        ),
        (
            "nothing after an answer",
            "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(),
            "HTTP/1.1 200 OK",
        ),
    ] {
        let mut stream = connect(at);
        stream.write_all(sent.as_bytes()).expect("it takes this");
        let rest = rest(stream);
        assert!(rest.starts_with(answer), "{name}: {rest}");
        assert_eq!(rest.is_empty(), answer.is_empty(), "{name}: {rest}");
    }
}

/// A request that comes when a connection has been idle for longer than a head may take, as from a client's pool.
#[test]
fn a_connection_may_rest_between_two_requests() {
    let daemon = DaemonSetup::new()
        .set("TRUNKLINE__HTTP__HEAD_TIMEOUT_S", "1")
        .set("TRUNKLINE__HTTP__IDLE_TIMEOUT_S", "60")
        .serve();
    let mut stream = connect(daemon.setup.http);
    for _ in 0..3 {
        assert!(ask(&mut stream, "/healthz", None).is_some(), "it is closed");
        std::thread::sleep(Duration::from_secs(2));
    }
    // The next head has its full time.
    stream.write_all(b"GET /he").expect("it takes this");
    assert_eq!(rest(stream), "");
}

/// Pieces that are each in time don't keep a request alive.
#[test]
fn a_body_that_comes_drop_by_drop_is_cut_off() {
    let daemon = daemon();
    let mut stream = connect(daemon.setup.http);
    let head = format!(
        "POST /phone HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{{",
        daemon.key()
    );
    stream.write_all(head.as_bytes()).expect("it takes this");
    let cut = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(200));
        stream.write_all(b" ").is_err()
    });
    assert!(cut, "the body is waited for");
}

/// A client that reads no answers loses its connection.
#[test]
fn a_client_that_reads_nothing_is_cut_off() {
    let daemon = daemon();
    let mut stream = connect(daemon.setup.http);
    stream
        .set_write_timeout(Some(Duration::from_secs(1)))
        .expect("a time-out");
    let request = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".repeat(100);
    // Until the buffers of both sides are full, and beyond.
    let cut = (0..5_000).any(|_| match stream.write_all(request.as_bytes()) {
        Ok(()) => false,
        Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
    });
    assert!(cut, "what isn't read is kept for ever");
}

#[test]
fn heads_are_bounded() {
    let daemon = daemon();
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
    let daemon = DaemonSetup::new()
        .set("TRUNKLINE__HTTP__MAX_CONNECTIONS_PER_SOURCE", "4")
        .serve();
    let at = daemon.setup.http;
    let idle: Vec<_> = (0..12).map(|_| connect_from([127, 0, 0, 2], at)).collect();
    assert!(is_ok(ask(
        &mut connect_from([127, 0, 0, 3], at),
        "/healthz",
        None
    )));

    let mut open = 0;
    for mut stream in idle {
        open += usize::from(is_ok(ask(&mut stream, "/healthz", None)));
    }
    assert_eq!(open, 4);

    // Connections through a trusted proxy count for the proxy.
    let mut proxied: Vec<_> = (0..12).map(|_| connect(at)).collect();
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
