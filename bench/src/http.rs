//! GET, POST and PATCH, which is all that a load generator needs of HTTP. HTTP/1.0, so that the answer ends with the connection.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Status and body of a GET. `bearer` is the key to send.
pub fn get(server: SocketAddr, path: &str, bearer: Option<&str>) -> io::Result<(u16, String)> {
    let key = bearer.map_or(String::new(), |key| {
        format!("Authorization: Bearer {key}\r\n")
    });
    exchange(
        server,
        &format!("GET {path} HTTP/1.0\r\nHost: {server}\r\n{key}\r\n"),
    )
}

/// Status and body of a POST of JSON with a key.
pub fn post(server: SocketAddr, path: &str, bearer: &str, body: &str) -> io::Result<(u16, String)> {
    send("POST", server, path, bearer, body)
}

/// Status and body of a PATCH with a key.
pub fn patch(
    server: SocketAddr,
    path: &str,
    bearer: &str,
    body: &str,
) -> io::Result<(u16, String)> {
    send("PATCH", server, path, bearer, body)
}

fn send(
    method: &str,
    server: SocketAddr,
    path: &str,
    bearer: &str,
    body: &str,
) -> io::Result<(u16, String)> {
    let length = body.len();
    exchange(
        server,
        &format!(
            "{method} {path} HTTP/1.0\r\nHost: {server}\r\nAuthorization: Bearer {bearer}\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        ),
    )
}

fn exchange(server: SocketAddr, request: &str) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&server, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    read(&answer).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no HTTP answer"))
}

fn read(answer: &str) -> Option<(u16, String)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_a_status_and_a_body() {
        assert_eq!(
            read("HTTP/1.0 503 No\r\na: b\r\n\r\nx\r\n\r\ny"),
            Some((503, "x\r\n\r\ny".to_owned()))
        );
        assert_eq!(read("HTTP/1.0 200 OK\r\n"), None);
    }
}
