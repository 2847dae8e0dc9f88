//! Copies of a call's messages at a HEP collector, and its spans at an OpenTelemetry collector.

use std::io::{Read, Write};
use std::net::UdpSocket;
use std::time::Duration;

use serde_json::Value;

use crate::replay::flows::Stage;
use crate::replay::traces::{Traced, text};
use trunkline_testkit::DaemonSetup;
use trunkline_testkit::process::Deadline;

/// Returns the chunks of a HEP3 envelope.
fn chunks(mut envelope: &[u8]) -> Vec<(u16, Vec<u8>)> {
    assert_eq!(&envelope[..4], b"HEP3");
    let word = |octets: &[u8]| u16::from_be_bytes([octets[0], octets[1]]);
    assert_eq!(usize::from(word(&envelope[4..])), envelope.len());

    envelope = &envelope[6..];
    let mut chunks = Vec::new();
    while !envelope.is_empty() {
        let length = usize::from(word(&envelope[4..]));
        chunks.push((word(&envelope[2..]), envelope[6..length].to_vec()));
        envelope = &envelope[length..];
    }
    chunks
}

#[test]
fn a_collector_gets_both_legs_under_one_id() {
    let collector = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let wait = Some(Duration::from_secs(30));
    collector.set_read_timeout(wait).expect("a timeout");
    let address = collector.local_addr().expect("an address").to_string();
    let setup = DaemonSetup::new()
        .set("TRUNKLINE__TRACES__HEP", &address)
        .set("TRUNKLINE__SIP__NODE", "7");

    let traced = Traced::on(Stage::within(setup), "answered.flow");
    let shown: Value = serde_json::from_slice(&traced.get("application/json")).expect("JSON");
    let items = shown["items"].as_array().expect("items");
    let texts = |leg: &str| -> Vec<String> {
        let of_leg = items.iter().filter(|item| item["leg"] == leg);
        of_leg.map(|item| text(&item["text"]).to_owned()).collect()
    };
    let call_id = |message: &str| -> String {
        let line = message
            .lines()
            .find_map(|line| line.strip_prefix("Call-ID: "));
        line.expect("a Call-ID").to_owned()
    };
    let caller = call_id(&texts("caller")[0]);
    let runtime = call_id(&texts("runtime")[0]);
    assert_ne!(caller, runtime);
    let correlation = text(&shown["call_id"]).to_owned();

    let mut envelope = vec![0; 65_536];
    let (mut of_caller, mut of_runtime) = (0, 0);
    let mut overwritten = std::collections::BTreeSet::new();
    while of_caller + of_runtime < 16 {
        let length = collector.recv(&mut envelope).expect("a copy in time");
        let chunks = chunks(&envelope[..length]);
        let chunk = |kind: u16| {
            let found = chunks.iter().find(|(known, _)| *known == kind);
            found.map(|(_, value)| value.clone()).expect("a chunk")
        };
        assert_eq!(chunk(12), 8_u32.to_be_bytes(), "sip.node + 1");
        assert_eq!(chunk(11), [1], "SIP");

        let message = String::from_utf8(chunk(15)).expect("text");
        for secret in ["response=\"", "SESSION-TOKEN: "] {
            if let Some((_, value)) = message.split_once(secret) {
                assert!(value.starts_with("xxx"), "{message}");
                overwritten.insert(secret);
            }
        }

        let leg = call_id(&message);
        if leg == caller || leg == runtime {
            assert_eq!(chunk(17), correlation.as_bytes(), "{message}");
        }
        of_caller += usize::from(leg == caller);
        of_runtime += usize::from(leg == runtime);
    }

    assert_eq!((of_caller, of_runtime), (10, 6));
    assert_eq!(overwritten.len(), 2, "only {overwritten:?} was sent");
}

/// Takes one request, answers 200, and returns its body.
fn posted(collector: &std::net::TcpListener) -> Value {
    collector.set_nonblocking(true).expect("an option");
    let accepted = Deadline::after(Duration::from_secs(30)).poll(|| collector.accept().ok());
    let (mut stream, _) = accepted.expect("spans in time");
    stream.set_nonblocking(false).expect("an option");
    let wait = Some(Duration::from_secs(10));
    stream.set_read_timeout(wait).expect("a timeout");

    let mut request = Vec::new();
    let mut piece = [0; 4_096];
    loop {
        let length = stream.read(&mut piece).expect("a request");
        assert!(
            length > 0,
            "cut short: {}",
            String::from_utf8_lossy(&request)
        );
        request.extend_from_slice(&piece[..length]);
        let text = String::from_utf8_lossy(&request);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };

        let head = head.to_ascii_lowercase();
        assert!(head.starts_with("post /v1/traces http/1.1"), "{head}");
        let promised = head.split("content-length: ").nth(1).expect("a length");
        let promised: usize = promised
            .lines()
            .next()
            .and_then(|text| text.parse().ok())
            .expect("a number");

        if body.len() >= promised {
            let body = serde_json::from_str(body).expect("JSON");
            stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
                .expect("it reads");
            return body;
        }
    }
}

#[test]
fn a_call_is_a_trace_for_opentelemetry() {
    let collector = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", collector.local_addr().expect("an address"));
    let setup = DaemonSetup::new().set("TRUNKLINE__TRACES__OTLP", &address);
    let traced = Traced::on(Stage::within(setup), "answered.flow");
    let shown: Value = serde_json::from_slice(&traced.get("application/json")).expect("JSON");
    let call = text(&shown["call_id"]).to_owned();

    // The stage's own call may come before it.
    let spans = Deadline::after(Duration::from_secs(30)).poll(|| {
        let body = posted(&collector);
        let spans = body["resourceSpans"][0]["scopeSpans"][0]["spans"]
            .as_array()
            .cloned();
        spans.filter(|_| body.to_string().contains(&call))
    });
    let spans = spans.expect("the call's spans");
    let of_call = |name: &str| {
        let id = &spans
            .iter()
            .find(|span| span.to_string().contains(&call))
            .expect("it")["traceId"];
        let found = spans
            .iter()
            .find(|span| span["name"] == name && span["traceId"] == *id);
        found
            .cloned()
            .unwrap_or_else(|| panic!("no {name} in {spans:?}"))
    };

    let (whole, set_up, talk) = (of_call("call"), of_call("set-up"), of_call("talk"));
    assert_eq!(text(&whole["traceId"]).len(), 32, "{whole}");
    assert_eq!(
        (&whole["kind"], &whole["status"]["code"]),
        (&Value::from(2), &Value::from(1))
    );

    let names: Vec<&str> = whole["events"]
        .as_array()
        .expect("events")
        .iter()
        .map(|event| text(&event["name"]))
        .collect();
    assert_eq!(names, ["ringing", "answered"], "{whole}");

    for part in [&set_up, &talk] {
        assert_eq!(part["parentSpanId"], whole["spanId"], "{part}");
    }

    assert_eq!(set_up["startTimeUnixNano"], whole["startTimeUnixNano"]);
    assert_eq!(set_up["endTimeUnixNano"], talk["startTimeUnixNano"]);
    assert_eq!(talk["endTimeUnixNano"], whole["endTimeUnixNano"]);
}
