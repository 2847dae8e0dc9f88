//! The digest answers of the daemon, checked by arithmetic of the test's own: what sipp checks is `Authorization` alone.

use std::collections::HashMap;

use md5::{Digest as _, Md5};

use crate::{Credentials, Message};

/// Whether a request proves in this header that its sender has this pair (RFC 2617 §3.2.2, MD5, with or without `qop`).
pub fn proves(request: &Message, header: &str, method: &str, credentials: &Credentials) -> bool {
    let value = request.header(header);
    let parts: HashMap<&str, &str> = value
        .and_then(|value| value.strip_prefix("Digest "))
        .unwrap_or_default()
        .split(',')
        .filter_map(|part| part.trim().split_once('='))
        .map(|(name, value)| (name, value.trim_matches('"')))
        .collect();
    let part = |name: &str| parts.get(name).copied().unwrap_or_default();
    let request_uri = request.start_line().split(' ').nth(1);
    let named = part("username") == credentials.username && request_uri == Some(part("uri"));
    let secret = md5(&[&credentials.username, part("realm"), &credentials.password]);
    let asked = md5(&[method, part("uri")]);
    let expected = match part("qop") {
        "" => md5(&[&secret, part("nonce"), &asked]),
        qop => md5(&[
            &secret,
            part("nonce"),
            part("nc"),
            part("cnonce"),
            qop,
            &asked,
        ]),
    };
    named && part("response") == expected
}

/// MD5 of the parts with colons between them, in hexadecimal digits.
fn md5(parts: &[&str]) -> String {
    let sum = Md5::digest(parts.join(":"));
    sum.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// The example of RFC 2617 §3.5, and a wrong answer to it.
#[test]
fn an_answer_is_believed_only_if_it_is_right() {
    let request = |response: &str| {
        Message::of(&format!(
            "GET /dir/index.html HTTP/1.1\nAuthorization: Digest username=\"Mufasa\", realm=\"testrealm@host.com\", \
             nonce=\"dcd98b7102dd2f0e8b11d0f600bfb0c093\", uri=\"/dir/index.html\", qop=auth, nc=00000001, \
             cnonce=\"0a4f113b\", response=\"{response}\"\n\n"
        ))
    };
    let credentials = Credentials {
        username: "Mufasa".to_owned(),
        password: "Circle Of Life".to_owned(),
    };
    for (response, right) in [
        ("6629fae49393a05397450978507c4ef1", true),
        ("6629fae49393a05397450978507c4ef2", false),
    ] {
        let request = request(response);
        assert_eq!(
            proves(&request, "Authorization", "GET", &credentials),
            right
        );
    }
}
