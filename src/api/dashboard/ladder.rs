//! Ladder of a call: a rung for each message, which opens to the message's text, and the daemon's decisions between them. The markup has no
//! style attribute and no script, so that the page's content security policy can forbid both.

use std::collections::HashSet;

use maud::{Markup, html};
use serde_json::Value;

use super::backend::{items, text};
use super::difference::{Line, compared};

/// Draws the items of a trace in the API's form. Times count from the first item.
pub(super) fn ladder(trace: &Value) -> Markup {
    let items = items(trace);
    let has_destination = items.iter().any(|item| text(item, "leg") == "destination");
    let sides: &[&str] = match has_destination {
        true => &["caller", "trunkline", "runtime", "destination"],
        false => &["caller", "trunkline", "runtime"],
    };

    let began = items.first().map_or(0, |item| millis(text(item, "at")));
    let mut seen = HashSet::new();

    html! {
        div class=(if has_destination { "ladder four" } else { "ladder" }) {
            div.sides aria-hidden="true" {
                span {}
                div { @for side in sides { span { (side) } } }
            }
            ol {
                @for (at, item) in items.iter().enumerate() {
                    @let passed = millis(text(item, "at")).saturating_sub(began);
                    li {
                        @match text(item, "type") {
                            "message" => {
                                @let is_again = !seen.insert((text(item, "leg"), text(item, "direction"), text(item, "text")));
                                (rung(at, item, passed, is_again))
                            },
                            _ => div.note { span.at { (seconds(passed)) } p { (text(item, "text")) } },
                        }
                    }
                }
            }
        }
    }
}

/// Draws a message. `passed` is the time since the first item in milliseconds; `is_again` marks a retransmission.
fn rung(number: usize, item: &Value, passed: u64, is_again: bool) -> Markup {
    let (leg, summary) = (text(item, "leg"), text(item, "summary"));
    let is_sent = text(item, "direction") == "sent";
    // Columns from left to right: caller, trunkline, runtime, destination.
    let to_right = (leg == "caller") != is_sent;
    let way = match (leg, to_right) {
        ("caller", true) => "rung first right",
        ("caller", false) => "rung first left",
        ("destination", true) => "rung last right",
        ("destination", false) => "rung last left",
        (_, true) => "rung second right",
        (_, false) => "rung second left",
    };

    let class = format!(
        "{way} {}{}",
        kind(summary),
        if is_again { " again" } else { "" }
    );
    let spoken = format!("{} {leg}", if is_sent { "to the" } else { "from the" });

    html! {
        details id={ "m" (number) } {
            summary class=(class) {
                span.at { (seconds(passed)) }
                span.arrow {
                    span.label { (summary) @if is_again { " " em { "retransmission" } } }
                    span.unseen { " " (spoken) }
                    span.line {}
                }
            }
            div.message {
                p.soft {
                    (text(item, "source")) " → " (text(item, "destination")) " by " (text(item, "transport")) ", "
                    (super::document::time(text(item, "at")))
                }
                pre tabindex="0" { (text(item, "text")) }
            }
        }
    }
}

/// Returns the CSS class of a message by its summary, which is the method of a request or the status of a response.
fn kind(summary: &str) -> &'static str {
    match summary.as_bytes() {
        [b'1', b'0'..=b'9', ..] => "provisional",
        [b'2', b'0'..=b'9', ..] => "success",
        [b'3', b'0'..=b'9', ..] => "redirected",
        [b'4'..=b'6', b'0'..=b'9', ..] => "failure",
        _ => "request",
    }
}

/// Returns a time in the API's format as milliseconds; 0 if it can't be read.
fn millis(at: &str) -> u64 {
    crate::api::timestamp(at).map_or(0, |at| at.as_micros() / 1000)
}

/// Writes milliseconds as seconds with three decimals.
fn seconds(millis: u64) -> String {
    format!("{}.{:03}", millis / 1000, millis % 1000)
}

/// Draws the difference between the SDP of the caller's INVITE and that of the runtime's; `None` unless the trace has both.
pub(super) fn sdp(trace: &Value) -> Option<Markup> {
    let of = |leg: &str, direction: &str| {
        items(trace).iter().find_map(|item| {
            let is_wanted = text(item, "leg") == leg
                && text(item, "direction") == direction
                && text(item, "summary") == "INVITE";
            let (_, body) = text(item, "text").split_once("\r\n\r\n")?;
            (is_wanted && body.starts_with("v=")).then_some(body)
        })
    };

    let lines = compared(of("caller", "received")?, of("runtime", "sent")?);
    let is_same = lines.iter().all(|line| matches!(line, Line::Both(_)));

    Some(html! {
        @if is_same {
            p.soft { "The runtime was offered the caller's SDP, unchanged." }
        } @else {
            p.soft { "− offered by the caller, + offered to the runtime." }
            pre.difference tabindex="0" {
                @for line in &lines {
                    @match line {
                        Line::Both(text) => span { "  " (text) "\n" },
                        Line::Before(text) => span.before { "− " (text) "\n" },
                        Line::After(text) => span.after { "+ " (text) "\n" },
                    }
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(leg: &str, direction: &str, summary: &str, text: &str) -> Value {
        json!({"type": "message", "at": "2026-11-26T11:42:00.000Z", "leg": leg, "direction": direction, "transport": "udp",
            "source": "192.0.2.1:5060", "destination": "192.0.2.2:5060", "summary": summary, "text": text})
    }

    #[test]
    fn a_message_sent_twice_is_marked_and_stays_text() {
        let invite = message("caller", "received", "INVITE", "<script>x</script>");
        let decision = json!({"type": "decision", "at": "2026-11-26T11:42:01.500Z", "text": "<b>"});
        let trace = json!({"items": [invite, invite, decision]});
        let drawn = ladder(&trace).into_string();
        assert_eq!(drawn.matches("retransmission").count(), 1, "{drawn}");
        assert!(drawn.contains("1.500") && !drawn.contains("<script>") && !drawn.contains("<b>"));
    }

    #[test]
    fn the_offers_of_both_legs_are_compared() {
        let with = |leg, direction, port| {
            let text = format!("INVITE sip:x SIP/2.0\r\n\r\nv=0\r\nm=audio {port} RTP/AVP 0\r\n");
            message(leg, direction, "INVITE", &text)
        };
        let trace = json!({"items": [with("caller", "received", 1), with("runtime", "sent", 2)]});
        let drawn = sdp(&trace).expect("both offers").into_string();
        assert!(
            drawn.contains("− m=audio 1") && drawn.contains("+ m=audio 2"),
            "{drawn}"
        );
        assert!(sdp(&json!({"items": []})).is_none());
    }
}
