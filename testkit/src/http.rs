//! One request over HTTP/1.1: enough to read and change things through the API.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// Longer than any answer of the daemon takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);

/// An answer.
#[derive(Debug)]
pub struct HttpAnswer {
    pub status: u16,
    head: String,
    body: String,
}

impl HttpAnswer {
    /// Returns the value of the first header of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = lines.find(|(of, _)| of.eq_ignore_ascii_case(name))?;
        Some(value.trim())
    }

    /// The body, which must be JSON.
    pub fn json(&self) -> Value {
        let body = &self.body;
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"))
    }
}

/// Status and body of a GET; `None` if no server answers.
pub fn get(address: SocketAddr, path: &str, key: Option<&str>) -> Option<(u16, String)> {
    let answer = ask("GET", address, path, (key, ""), None)?;
    Some((answer.status, answer.body))
}

/// Status and JSON body of a request that changes something.
pub fn change(
    method: &str,
    address: SocketAddr,
    path: &str,
    key: &str,
    body: &Value,
) -> (u16, Value) {
    let answer = answer(method, address, path, key, body);
    (answer.status, answer.json())
}

/// Answer to a request that changes something.
pub fn answer(
    method: &str,
    address: SocketAddr,
    path: &str,
    key: &str,
    body: &Value,
) -> HttpAnswer {
    let answer = ask(method, address, path, (Some(key), ""), Some(body));
    answer.expect("an answer")
}

/// Status and JSON body of a POST with an `Idempotency-Key`.
pub fn post_once(
    address: SocketAddr,
    path: &str,
    key: &str,
    idempotency_key: &str,
    body: &Value,
) -> (u16, Value) {
    let line = format!("Idempotency-Key: {idempotency_key}\r\n");
    let answer = ask("POST", address, path, (Some(key), &line), Some(body));
    let answer = answer.expect("an answer");
    (answer.status, answer.json())
}

/// Status and JSON body of a form that is posted under a user name and a password.
pub fn form(
    address: SocketAddr,
    path: &str,
    user: &str,
    password: &str,
    body: &str,
) -> (u16, Value) {
    let login = STANDARD.encode(format!("{user}:{password}"));
    let lines = format!("Authorization: Basic {login}\r\n");
    let content = ("application/x-www-form-urlencoded", body.to_owned());
    let answer = send("POST", address, path, &lines, content).expect("an answer");
    (answer.status, answer.json())
}

/// Sends a request with this key and further header lines.
fn ask(
    method: &str,
    address: SocketAddr,
    path: &str,
    (key, lines): (Option<&str>, &str),
    body: Option<&Value>,
) -> Option<HttpAnswer> {
    let authorization = key
        .map(|key| format!("Authorization: Bearer {key}\r\n"))
        .unwrap_or_default();
    let content = body.map(Value::to_string).unwrap_or_default();
    let lines = format!("{authorization}{lines}");
    send(method, address, path, &lines, ("application/json", content))
}

fn send(
    method: &str,
    address: SocketAddr,
    path: &str,
    lines: &str,
    (kind, body): (&str, String),
) -> Option<HttpAnswer> {
    let mut stream = TcpStream::connect_timeout(&address, LIMIT).ok()?;
    stream.set_read_timeout(Some(LIMIT)).ok()?;

    let content = if body.is_empty() {
        String::new()
    } else {
        format!("Content-Type: {kind}\r\nContent-Length: {}\r\n", body.len())
    };
    // `Connection: close` has the daemon end the answer, which is read to its end.
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\n{lines}{content}Connection: close\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).ok()?;

    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    parse(&String::from_utf8(answer).ok()?)
}

fn parse(answer: &str) -> Option<HttpAnswer> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let chunked = head
        .to_ascii_lowercase()
        .contains("transfer-encoding: chunked");
    let body = if chunked {
        unchunk(body)?
    } else {
        body.to_owned()
    };
    Some(HttpAnswer {
        status,
        head: head.to_owned(),
        body,
    })
}

fn unchunk(mut body: &str) -> Option<String> {
    let mut whole = String::new();
    loop {
        let (size, rest) = body.split_once("\r\n")?;
        let size = usize::from_str_radix(size, 16).ok()?;
        if size == 0 {
            return Some(whole);
        }
        whole.push_str(rest.get(..size)?);
        body = rest.get(size + 2..)?;
    }
}

/// The JSON body of a GET, whose status must be 200.
pub fn json(address: SocketAddr, path: &str, key: &str) -> Value {
    let (status, body) =
        get(address, path, Some(key)).unwrap_or_else(|| panic!("{path}: no answer"));
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"))
}

/// The objects of a list in lines of JSON, whose status must be 200.
pub fn json_lines(address: SocketAddr, path: &str, key: &str) -> Vec<Value> {
    let wanted = (Some(key), "Accept: application/x-ndjson\r\n");
    let answer = ask("GET", address, path, wanted, None);
    let answer = answer.unwrap_or_else(|| panic!("{path}: no answer"));
    let body = answer.body;
    assert_eq!(answer.status, 200, "{path}: {body}");
    let object = |line: &str| -> Value {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{path}: {error}: {line}"))
    };
    body.lines().map(object).collect()
}
