//! Figures of a call's media on its page: both directions, and how soon the agent spoke and fell silent.

use maud::{Markup, html};
use serde_json::Value;

use super::document::table;

/// Shows the figures as the API has them.
pub(super) fn media(media: &Value) -> Markup {
    let columns = [
        "Figure",
        "From the caller or callee",
        "To the caller or callee",
    ];
    let rows = [
        ("Packets", "packets", ""),
        ("Lost", "packets_lost", ""),
        ("Discarded", "packets_discarded", ""),
        ("Jitter", "jitter_ms", " ms"),
        ("Quality (MOS)", "mos", ""),
    ];
    let rows = rows.map(|(name, field, unit)| {
        let of = |side: &str| html! { (figure(&media[side][field], unit)) };
        vec![html! { (name) }, of("received"), of("sent")]
    });

    html! {
        p.soft { "Audio that ended here, by direction. What was sent is known from the other side's RTCP reports." }
        (table("Media by direction", &columns, &rows, ""))
        dl {
            dt { "Round trip" } dd { (figure(&media["round_trip_ms"], " ms")) }
            dt { "First word" } dd {
                (figure(&media["first_word_ms"], " ms"))
                @if !media["first_word_ms"].is_null() { " after the answer" }
            }
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
            "received": {"packets": 50, "octets": 8000, "packets_lost": 2, "packets_late": 0, "packets_discarded": 7, "jitter_ms": 1.3, "mos": 4.2},
            "sent": {"packets": 40, "octets": 6400, "packets_lost": null, "jitter_ms": null, "mos": null},
            "round_trip_ms": null, "first_word_ms": 640.0, "clears": 0, "clear_to_silence_ms": null,
            "underruns": 0, "discarded_octets": 0, "unknown_messages": 3,
        });
        let shown = media(&figures).into_string();
        for part in [
            "<div>50</div>",
            "<div>40</div>",
            "<div>2</div>",
            "<div>7</div>",
            "<div>–</div>",
            "<div>1.3 ms</div>",
            "data-label=\"To the caller or callee\"",
            "640.0 ms after",
            "<dd>3</dd>",
        ] {
            assert!(shown.contains(part), "{part} in {shown}");
        }

        assert!(!shown.contains("Interrupted"), "{shown}");
    }
}
