//! Ladder of a call: a rung for each message, which opens to the message's text, and the daemon's decisions between them. The markup has no
//! style attribute and no script, so that the page's content security policy can forbid both.

use std::collections::HashSet;

use maud::{Markup, html};
use trunkline_sip::moment::Moment;

use super::difference::{Line, compared};
use super::document::moment;
use crate::explain::ladder::{Ladder, Party, Passed, Rung, RungContent, seconds};

/// Draws a ladder. Times count from the first rung.
pub(super) fn drawn(ladder: &Ladder) -> Markup {
    let parties = ladder.parties();
    let mut seen = HashSet::new();

    html! {
        div class=(if parties.contains(&Party::Destination) { "ladder four" } else { "ladder" }) {
            div.sides aria-hidden="true" {
                span {}
                div { @for party in parties { span { (party.name()) } } }
            }
            ol {
                @for (at, step) in ladder.rungs.iter().enumerate() {
                    @let passed = seconds(ladder.passed(step));
                    li {
                        @match &step.content {
                            RungContent::Message(message) => {
                                @let is_again = !seen.insert((message.peer, message.is_sent, &message.text));
                                (rung(at, message, Moment::from_micros(step.at), &passed, is_again))
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
pub(super) fn sdp(ladder: &Ladder) -> Option<Markup> {
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
    use super::*;

    fn message(at: u64, peer: Party, is_sent: bool, text: &str) -> Rung {
        let message = Passed {
            peer,
            is_sent,
            summary: "INVITE".to_owned(),
            transport: "udp".to_owned(),
            source: "192.0.2.1:5060".to_owned(),
            destination: "192.0.2.2:5060".to_owned(),
            text: text.to_owned(),
        };
        let content = RungContent::Message(Box::new(message));
        Rung { at, content }
    }

    #[test]
    fn a_message_sent_twice_is_marked_and_stays_text() {
        let invite = message(0, Party::Caller, false, "<script>x</script>");
        let decision = Rung {
            at: 1_500_000,
            content: RungContent::Decision("<b>".to_owned()),
        };
        let drawn = drawn(&Ladder {
            rungs: vec![invite.clone(), invite, decision],
        });
        let drawn = drawn.into_string();
        assert_eq!(drawn.matches("retransmission").count(), 1, "{drawn}");
        assert!(drawn.contains("1.500") && !drawn.contains("<script>") && !drawn.contains("<b>"));
    }

    #[test]
    fn the_offers_of_both_legs_are_compared() {
        let with = |peer, is_sent, port| {
            let text = format!("INVITE sip:x SIP/2.0\r\n\r\nv=0\r\nm=audio {port} RTP/AVP 0\r\n");
            message(0, peer, is_sent, &text)
        };
        let ladder = Ladder {
            rungs: vec![with(Party::Caller, false, 1), with(Party::Runtime, true, 2)],
        };
        let difference = sdp(&ladder).expect("both offers").into_string();
        assert!(
            difference.contains("− m=audio 1") && difference.contains("+ m=audio 2"),
            "{difference}"
        );
        assert!(sdp(&Ladder::default()).is_none());
    }
}
