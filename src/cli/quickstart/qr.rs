//! QR code of a SIP URI beside text, for a phone that scans it from the terminal.

use qrcode::QrCode;
use qrcode::render::unicode::Dense1x2;

/// Columns between the text and the code.
const GAP: usize = 2;
/// Black on white, whatever the terminal's own colours: inverted codes aren't read by every phone.
const COLORS: [&str; 2] = ["\u{1b}[30;107m", "\u{1b}[0m"];

/// Puts the code of `uri` to the right of the lines, if the terminal has room for it.
pub(super) fn beside(lines: &[&str], uri: &str, width: usize) -> Option<String> {
    let code = QrCode::new(uri).ok()?;
    let drawn = code.render::<Dense1x2>().build();
    let rows: Vec<&str> = drawn.lines().collect();
    let left = lines.iter().map(|line| line.chars().count()).max()?;
    let right = rows.iter().map(|row| row.chars().count()).max()?;
    if left + GAP + right > width {
        return None;
    }

    let shown = (0..lines.len().max(rows.len())).map(|place| {
        let line = lines.get(place).copied().unwrap_or_default();
        let [begin, end] = COLORS;
        match rows.get(place) {
            Some(row) => format!("{line:<left$}{:GAP$}{begin}{row}{end}", ""),
            None => line.to_owned(),
        }
    });
    Some(shown.collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_needs_room_beside_the_text() {
        let uri = "sip:+12025550123@192.0.2.1:5060";
        let lines = ["a line of text", "b"];
        let shown = beside(&lines, uri, 120).expect("there is room");
        let rows: Vec<&str> = shown.lines().collect();
        assert!((15..=19).contains(&rows.len()), "{shown}");
        for (row, line) in rows.iter().zip(lines) {
            assert!(row.starts_with(line) && row.ends_with(COLORS[1]), "{row}");
        }
        let columns = rows[0].chars().count() - COLORS.concat().chars().count();
        assert!(
            rows.iter()
                .all(|row| row.chars().count() == rows[0].chars().count())
        );
        assert_eq!(beside(&lines, uri, columns).as_deref(), Some(&*shown));
        assert_eq!(beside(&lines, uri, columns - 1), None);
    }
}
