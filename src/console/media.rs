//! Figures of a call's media on its page: both directions, and how soon the agent spoke and fell silent.

use std::fmt::Debug;

use maud::{Markup, html};
use trunkline_model::media::MediaFigures;

use super::document::table;

/// Shows the figures as the API has them.
pub(super) fn media(media: &MediaFigures) -> Markup {
    let columns = [
        "Figure",
        "From the caller or callee",
        "To the caller or callee",
    ];
    let (received, sent) = (&media.received, &media.sent);
    let rows = [
        ("Packets", count(received.packets), count(sent.packets)),
        (
            "Lost",
            count(received.packets_lost),
            figure(sent.packets_lost, ""),
        ),
        (
            "Discarded",
            count(received.packets_discarded),
            figure::<u64>(None, ""),
        ),
        (
            "Jitter",
            figure(Some(received.jitter_ms), " ms"),
            figure(sent.jitter_ms, " ms"),
        ),
        (
            "Quality (MOS)",
            figure(received.mos, ""),
            figure(sent.mos, ""),
        ),
    ];
    let rows = rows.map(|(name, received, sent)| {
        vec![html! { (name) }, html! { (received) }, html! { (sent) }]
    });

    html! {
        p.soft { "Audio that ended here, by direction. What was sent is known from the other side's RTCP reports." }
        (table("Media by direction", &columns, &rows, ""))
        dl {
            dt { "Round trip" } dd { (figure(media.round_trip_ms, " ms")) }
            dt { "First word" } dd {
                (figure(media.first_word_ms, " ms"))
                @if media.first_word_ms.is_some() { " after the answer" }
            }
            @if media.clears > 0 {
                dt { "Interrupted" } dd { (media.clears) " times, silent after " (figure(media.clear_to_silence_ms, " ms")) " at most" }
            }
            dt { "Underruns" } dd { (media.underruns) }
            @if media.discarded_octets > 0 { dt { "Octets discarded" } dd { (media.discarded_octets) } }
            @if media.unknown_messages > 0 { dt { "Messages not understood" } dd { (media.unknown_messages) } }
        }
    }
}

fn count(number: u64) -> String {
    number.to_string()
}

/// Shows a number, a whole one of a fraction's type with its zero; a dash where it isn't known.
fn figure<N: Debug>(number: Option<N>, unit: &str) -> String {
    match number {
        Some(number) => format!("{number:?}{unit}"),
        None => "–".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_known_is_a_dash() {
        let figures = serde_json::from_value(json!({
            "received": {"packets": 50, "octets": 8000, "packets_lost": 2, "packets_late": 0, "packets_discarded": 7, "jitter_ms": 1.3, "mos": 4.2},
            "sent": {"packets": 40, "octets": 6400, "packets_lost": null, "jitter_ms": null, "mos": null},
            "round_trip_ms": null, "first_word_ms": 640.0, "clears": 0, "clear_to_silence_ms": null,
            "underruns": 0, "discarded_octets": 0, "unknown_messages": 3,
        }));
        let shown = media(&figures.expect("figures")).into_string();
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
