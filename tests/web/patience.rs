//! Clients that take their time, over plain HTTP: each is cut off, and the others are served meanwhile.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::harness::{Daemon, House, http};

/// Enough for whatever is cut off after a second or two, on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

fn daemon() -> Daemon {
    House::new()
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

/// What comes until the daemon closes the connection, which it must.
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
    let at = daemon.house.http;
    for (name, sent, answer) in [
        ("nothing", String::new(), ""),
        ("half a head", "GET /healthz HTTP/1.1\r\nHo".to_owned(), ""),
        (
            "half a body",
            format!(
                "POST /phone HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{{",
                daemon.key()
            ),
            "HTTP/1.1 400 Bad Request",
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

/// One piece a time, each in time by itself, doesn't keep a request alive.
#[test]
fn a_body_that_comes_drop_by_drop_is_cut_off() {
    let daemon = daemon();
    let mut stream = connect(daemon.house.http);
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

/// Who reads nothing of what was asked for gives its place back.
#[test]
fn a_client_that_reads_nothing_is_cut_off() {
    let daemon = daemon();
    let mut stream = connect(daemon.house.http);
    stream
        .set_write_timeout(Some(Duration::from_secs(1)))
        .expect("a time-out");
    let request = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".repeat(100);
    // Until neither side's buffers have room, and beyond.
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
        let mut stream = connect(daemon.house.http);
        let request = format!("GET /healthz HTTP/1.1\r\nHost: x\r\n{head}\r\n");
        // It may close before it has read all.
        let _ = stream.write_all(request.as_bytes());
        let rest = rest(stream);
        assert!(
            rest.is_empty() || rest.starts_with("HTTP/1.1 431"),
            "{name}: {rest}"
        );
    }
}

/// Connections beyond the bound wait, and are served once there is room.
#[test]
fn connections_are_bounded() {
    let daemon = House::new()
        .set("TRUNKLINE__HTTP__MAX_CONNECTIONS", "2")
        .set("TRUNKLINE__HTTP__HEAD_TIMEOUT_S", "5")
        .serve();
    let at = daemon.house.http;
    let held = [connect(at), connect(at)];
    let mut third = connect(at);
    let request = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    third.write_all(request).expect("the kernel takes it");
    third
        .set_read_timeout(Some(Duration::from_secs(1)))
        .expect("a time-out");
    let mut octet = [0];
    let error = third.read(&mut octet).expect_err("served beyond the bound");
    assert!(
        matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        "{error}"
    );
    third.set_read_timeout(Some(LIMIT)).expect("a time-out");
    drop(held);
    assert!(rest(third).starts_with("HTTP/1.1 200 OK"));
    assert!(http::get(at, "/healthz", None).is_some());
}
