//! Ladder diagram of a call as SVG: three lifelines, four if the call was transferred from here, an arrow per message,
//! a note per decision.

use std::fmt::{self, Write as _};

use super::show::Rung;

/// Positions of the lifelines, and the distance between two rungs.
const CALLER: u32 = 190;
const OURS: u32 = 470;
const RUNTIME: u32 = 750;
const DESTINATION: u32 = 1030;
/// Space to the right of the last lifeline.
const MARGIN: u32 = 110;
const STEP: u32 = 30;
const TOP: u32 = 64;
/// Characters of a decision per line, and lines shown.
const LETTERS: usize = 88;
const LINES: usize = 6;

/// Text escaped for XML; characters that XML can't hold are replaced.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            match letter {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                _ if letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}') => {
                    f.write_char('\u{fffd}')?;
                }
                _ => f.write_char(letter)?,
            }
        }
        Ok(())
    }
}

/// Draws the diagram. Its colours follow `currentColor`, and it has no script.
pub fn svg(rungs: &[Rung]) -> String {
    let mut body = String::new();
    let mut y = TOP;
    let began = rungs.first().map_or(0, |rung| rung.at);
    for rung in rungs {
        let micros = rung.at.saturating_sub(began);
        // Writing to a string can't fail.
        let _ = write!(
            body,
            "<text x=\"84\" y=\"{}\" text-anchor=\"end\" class=\"time\">{}.{:03}</text>",
            y + 4,
            micros / 1_000_000,
            micros / 1_000 % 1_000
        );

        match rung.leg {
            Some((leg, is_sent)) => {
                arrow(&mut body, y, leg, is_sent, &rung.text);
                y += STEP;
            }
            None => y = note(&mut body, y, &rung.text),
        }
    }

    let height = y + STEP / 2;
    let mut lines = vec![
        (CALLER, "caller"),
        (OURS, "trunkline"),
        (RUNTIME, "runtime"),
    ];

    let is_handed_on = |rung: &Rung| rung.leg.is_some_and(|(leg, _)| leg == "destination");
    if rungs.iter().any(is_handed_on) {
        lines.push((DESTINATION, "destination"));
    }

    let width = lines.last().map_or(0, |(x, _)| *x) + MARGIN;
    let mut picture = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\" \
         aria-label=\"Ladder of the call\" font-family=\"ui-monospace, monospace\" font-size=\"12\" fill=\"currentColor\" stroke=\"none\">\
         <defs><marker id=\"head\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" orient=\"auto-start-reverse\">\
         <path d=\"M0 0 L8 4 L0 8 Z\"/></marker></defs>"
    );

    for (x, name) in lines {
        let _ = write!(
            picture,
            "<text x=\"{x}\" y=\"24\" text-anchor=\"middle\" font-weight=\"bold\">{name}</text>\
             <line x1=\"{x}\" y1=\"34\" x2=\"{x}\" y2=\"{height}\" stroke=\"currentColor\" stroke-opacity=\".35\"/>"
        );
    }

    picture.push_str(&body);
    picture.push_str("</svg>\n");
    picture
}

fn arrow(body: &mut String, y: u32, leg: &str, is_sent: bool, text: &str) {
    let (left, right) = match leg {
        "caller" => (CALLER, OURS),
        "destination" => (OURS, DESTINATION),
        _ => (OURS, RUNTIME),
    };

    let (from, to) = match (leg, is_sent) {
        ("caller", true) => (right, left),
        ("caller", false) => (left, right),
        (_, true) => (left, right),
        (_, false) => (right, left),
    };

    let _ = write!(
        body,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\
         <line x1=\"{from}\" y1=\"{y}\" x2=\"{to}\" y2=\"{y}\" stroke=\"currentColor\" marker-end=\"url(#head)\"/>",
        // Centred between the lifelines, so that none runs through it.
        match leg {
            "destination" => RUNTIME.midpoint(DESTINATION),
            _ => left.midpoint(right),
        },
        y - 6,
        Escaped(&shortened(text, 38)),
    );
}

/// Draws a note; returns the position of the next rung.
fn note(body: &mut String, mut y: u32, text: &str) -> u32 {
    let mut lines = wrapped(text);
    if lines.len() > LINES {
        lines.truncate(LINES);
        lines.push("…".to_owned());
    }

    for line in lines {
        let _ = write!(
            body,
            "<text x=\"{CALLER}\" y=\"{}\" font-style=\"italic\">{}</text>",
            y + 4,
            Escaped(&line)
        );
        y += STEP / 2;
    }
    y + STEP / 2
}

fn shortened(text: &str, letters: usize) -> String {
    if text.chars().count() <= letters {
        return text.to_owned();
    }
    let kept: String = text.chars().take(letters - 1).collect();
    format!("{kept}…")
}

fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let word = shortened(word, LETTERS);
        let Some(line) = lines.last_mut() else {
            break;
        };

        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > LETTERS {
            lines.push(word);
            continue;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&word);
    }

    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rung(leg: Option<(&'static str, bool)>, text: &str) -> Rung {
        Rung {
            at: 1_500_000,
            leg,
            text: text.to_owned(),
        }
    }

    #[test]
    fn messages_are_arrows_and_decisions_are_notes() {
        let long = "a word ".repeat(200);
        let picture = svg(&[
            rung(Some(("caller", false)), "INVITE"),
            rung(Some(("runtime", true)), &"x".repeat(100)),
            rung(None, &long),
            rung(Some(("caller", true)), "200 OK (INVITE)"),
        ]);

        assert_eq!(picture.matches("marker-end").count(), 3);
        assert!(
            picture.contains("x1=\"190\" y1=\"64\" x2=\"470\""),
            "{picture}"
        );
        assert!(
            picture.contains("x1=\"470\" y1=\"94\" x2=\"750\""),
            "{picture}"
        );
        assert_eq!(picture.matches("italic").count(), LINES + 1);
        assert!(picture.contains(&format!(">{}…</text>", "x".repeat(37))));
        assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
        assert!(svg(&[]).contains("runtime") && !picture.contains("destination"));

        let picture = svg(&[rung(Some(("destination", false)), "200 OK (INVITE)")]);
        assert!(
            picture.contains("x1=\"1030\" y1=\"64\" x2=\"470\"")
                && picture.contains(">destination<"),
            "{picture}"
        );
    }

    #[test]
    fn what_a_peer_says_stays_text() {
        let picture = svg(&[rung(
            Some(("caller", false)),
            "<script>\"&\u{0}\u{1b}</script>",
        )]);
        assert!(!picture.contains("<script"), "{picture}");
        assert!(picture.contains("&lt;script&gt;&quot;&amp;\u{fffd}\u{fffd}&lt;/script&gt;"));
    }
}
