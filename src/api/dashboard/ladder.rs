//! Ladder of a call: a rung for each message, which opens to the message's text, and the daemon's decisions between them. The markup has no
//! style attribute and no script, so that the page's content security policy can forbid both.

use std::collections::HashSet;

use maud::{Markup, html};
use serde_json::Value;
use trunkline_sip::moment::Moment;

use super::difference::{Line, compared};
use super::document::moment;
use crate::explain::ladder::{Ladder, Party, Passed, Rung, RungContent, seconds};

/// Draws a trace in the API's form. Times count from the first rung.
pub(super) fn ladder(trace: &Value) -> Markup {
    let ladder = Ladder::read(trace);
    let parties = ladder.parties();
    let mut seen = HashSet::new();

    html! {
        div class=(if parties.contains(&Party::Destination) { "ladder four" } else { "ladder" }) {
            div.sides aria-hidden="true" {
                span {}
                div { @for party in parties { span { (party.name()) } } }
            }
            ol {
                @for (at, drawn) in ladder.rungs.iter().enumerate() {
                    @let passed = seconds(ladder.passed(drawn));
                    li {
                        @match &drawn.content {
                            RungContent::Message(message) => {
                                @let is_again = !seen.insert((message.peer, message.is_sent, &message.text));
                                (rung(at, message, Moment::from_micros(drawn.at), &passed, is_again))
                            },
                            RungContent::Decision(text) => div.note { span.at { (passed) } p { (text) } },
                        }
                    }
                }
            }
        }
    }
}

/// Draws a message, with its time and that since the first rung; `is_again` marks a retransmission.
fn rung(number: usize, message: &Passed, at: Moment, passed: &str, is_again: bool) -> Markup {
    let (from, to) = message.ends();
    let way = match (message.peer, from < to) {
        (Party::Caller, true) => "rung first right",
        (Party::Caller, false) => "rung first left",
        (Party::Destination, true) => "rung last right",
        (Party::Destination, false) => "rung last left",
        (Party::Trunkline | Party::Runtime, true) => "rung second right",
        (Party::Trunkline | Party::Runtime, false) => "rung second left",
    };

    let summary = &message.summary;
    let class = format!(
        "{way} {}{}",
        kind(summary),
        if is_again { " again" } else { "" }
    );
    let direction = if message.is_sent {
        "to the"
    } else {
        "from the"
    };
    let spoken = format!("{direction} {}", message.peer.name());

    html! {
        details id={ "m" (number) } {
            summary class=(class) {
                span.at { (passed) }
                span.arrow {
                    span.label { (summary) @if is_again { " " em { "retransmission" } } }
                    span.unseen { " " (spoken) }
                    span.line {}
                }
            }
            div.message {
                p.soft {
                    (message.source) " → " (message.destination) " by " (message.transport) ", "
                    (moment(at))
                }
                pre tabindex="0" { (message.text) }
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

/// Draws the difference between the SDP of the caller's INVITE and that of the runtime's; `None` unless the trace has both.
pub(super) fn sdp(trace: &Value) -> Option<Markup> {
    let ladder = Ladder::read(trace);
    let of = |peer: Party, is_sent: bool| {
        let mut messages = ladder.rungs.iter().filter_map(Rung::message);
        messages.find_map(|message| {
            let is_wanted =
                message.peer == peer && message.is_sent == is_sent && message.summary == "INVITE";
            let (_, body) = message.text.split_once("\r\n\r\n")?;
            (is_wanted && body.starts_with("v=")).then_some(body)
        })
    };

    let lines = compared(of(Party::Caller, false)?, of(Party::Runtime, true)?);
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
