//! Ladder diagram of a call as SVG: three lifelines, four if the call was transferred from here, an arrow per message,
//! a note per decision.

use std::fmt::{self, Write as _};

use super::ladder::{Ladder, Party, Passed, RungContent, seconds};

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
pub fn svg(ladder: &Ladder) -> String {
    let mut body = String::new();
    let mut y = TOP;
    for rung in &ladder.rungs {
        // Writing to a string can't fail.
        let _ = write!(
            body,
            "<text x=\"84\" y=\"{}\" text-anchor=\"end\" class=\"time\">{}</text>",
            y + 4,
            seconds(ladder.passed(rung))
        );

        match &rung.content {
            RungContent::Message(message) => {
                arrow(&mut body, y, message);
                y += STEP;
            }
            RungContent::Decision(text) => y = note(&mut body, y, text),
        }
    }

    let height = y + STEP / 2;
    let parties = ladder.parties().iter();
    let lines: Vec<(u32, &str)> = parties.map(|party| (line(*party), party.name())).collect();
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

/// Position of a party's lifeline.
const fn line(party: Party) -> u32 {
    match party {
        Party::Caller => CALLER,
        Party::Trunkline => OURS,
        Party::Runtime => RUNTIME,
        Party::Destination => DESTINATION,
    }
}

fn arrow(body: &mut String, y: u32, message: &Passed) {
    let (from, to) = message.ends();
    let (from, to) = (line(from), line(to));
    let _ = write!(
        body,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\
         <line x1=\"{from}\" y1=\"{y}\" x2=\"{to}\" y2=\"{y}\" stroke=\"currentColor\" marker-end=\"url(#head)\"/>",
        // Centred between the lifelines, so that none runs through it.
        match message.peer {
            Party::Destination => RUNTIME.midpoint(DESTINATION),
            Party::Caller | Party::Trunkline | Party::Runtime => from.midpoint(to),
        },
        y - 6,
        Escaped(&shortened(&message.summary, 38)),
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
    use crate::explain::ladder::Rung;

    fn rung(leg: Option<(Party, bool)>, text: &str) -> Rung {
        let text = text.to_owned();
        let content = match leg {
            None => RungContent::Decision(text),
            Some((peer, is_sent)) => RungContent::Message(Box::new(Passed {
                peer,
                is_sent,
                summary: text,
                transport: String::new(),
                source: String::new(),
                destination: String::new(),
                text: String::new(),
            })),
        };
        Rung {
            at: 1_500_000,
            content,
        }
    }

    fn drawn(rungs: &[Rung]) -> String {
        svg(&Ladder {
            rungs: rungs.to_vec(),
        })
    }

    #[test]
    fn messages_are_arrows_and_decisions_are_notes() {
        let long = "a word ".repeat(200);
        let picture = drawn(&[
            rung(Some((Party::Caller, false)), "INVITE"),
            rung(Some((Party::Runtime, true)), &"x".repeat(100)),
            rung(None, &long),
            rung(Some((Party::Caller, true)), "200 OK (INVITE)"),
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
        assert!(drawn(&[]).contains("runtime") && !picture.contains("destination"));

        let picture = drawn(&[rung(Some((Party::Destination, false)), "200 OK (INVITE)")]);
        assert!(
            picture.contains("x1=\"1030\" y1=\"64\" x2=\"470\"")
                && picture.contains(">destination<"),
            "{picture}"
        );
    }

    #[test]
    fn what_a_peer_says_stays_text() {
        let picture = drawn(&[rung(
            Some((Party::Caller, false)),
            "<script>\"&\u{0}\u{1b}</script>",
        )]);
        assert!(!picture.contains("<script"), "{picture}");
        assert!(picture.contains("&lt;script&gt;&quot;&amp;\u{fffd}\u{fffd}&lt;/script&gt;"));
    }
}
