//! Figures of a call's media on its page: both directions, and how soon the agent spoke and fell silent.

use maud::{Markup, html};
use serde_json::Value;

/// Shows the figures as the API has them.
pub(super) fn media(media: &Value) -> Markup {
    let (received, sent) = (&media["received"], &media["sent"]);

    html! {
        table {
            caption.soft { "Audio that ended here, by direction. What was sent is known from the other side's RTCP reports." }
            thead { tr { th scope="col" { "Figure" } th scope="col" { "From the caller or callee" } th scope="col" { "To the caller or callee" } } }
            tbody {
                (row("Packets", &received["packets"], &sent["packets"], ""))
                (row("Lost", &received["packets_lost"], &sent["packets_lost"], ""))
                (row("Jitter", &received["jitter_ms"], &sent["jitter_ms"], " ms"))
                (row("Quality (MOS)", &received["mos"], &sent["mos"], ""))
            }
        }
        dl {
            dt { "Round trip" } dd { (figure(&media["round_trip_ms"], " ms")) }
            dt { "First word" } dd { (figure(&media["first_word_ms"], " ms")) " after the answer" }
            @if media["clears"].as_u64().is_some_and(|clears| clears > 0) {
                dt { "Interrupted" } dd { (figure(&media["clears"], "")) " times, silent after " (figure(&media["clear_to_silence_ms"], " ms")) " at most" }
            }
            dt { "Underruns" } dd { (figure(&media["underruns"], "")) }
            @for (field, name) in [("discarded_octets", "Octets discarded"), ("unknown_messages", "Messages not understood")] {
                @if media[field].as_u64().is_some_and(|count| count > 0) { dt { (name) } dd { (figure(&media[field], "")) } }
            }
        }
    }
}

fn row(name: &str, received: &Value, sent: &Value, unit: &str) -> Markup {
    html! {
        tr { th scope="row" { (name) } td { (figure(received, unit)) } td { (figure(sent, unit)) } }
    }
}

/// Shows a number; a dash where it isn't known.
fn figure(value: &Value, unit: &str) -> String {
    if value.is_null() {
        "–".to_owned()
    } else {
        format!("{value}{unit}")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_known_is_a_dash() {
        let figures = json!({
            "received": {"packets": 50, "octets": 8000, "packets_lost": 2, "packets_late": 0, "jitter_ms": 1.3, "mos": 4.2},
            "sent": {"packets": 40, "octets": 6400, "packets_lost": null, "jitter_ms": null, "mos": null},
            "round_trip_ms": null, "first_word_ms": 640.0, "clears": 0, "clear_to_silence_ms": null,
            "underruns": 0, "discarded_octets": 0, "unknown_messages": 3,
        });
        let shown = media(&figures).into_string();
        for part in [
            "<td>50</td><td>40</td>",
            "<td>2</td><td>–</td>",
            "<td>1.3 ms</td>",
            "640.0 ms after",
            "<dd>3</dd>",
        ] {
            assert!(shown.contains(part), "{part} in {shown}");
        }

        assert!(!shown.contains("Interrupted"), "{shown}");
    }
}
