//! Report of a replay for programs: JSON, and JUnit XML as CI systems read it.

use std::fmt::Write as _;

use super::{Played, ladder};

/// Result of a replay.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Run {
    /// The capture.
    pub capture: String,
    /// Calls without a difference.
    pub passed: usize,
    /// Calls with a difference.
    pub failed: usize,
    /// All calls.
    pub calls: Vec<Played>,
}

impl Run {
    /// Creates the report.
    pub fn new(capture: String, calls: Vec<Played>) -> Self {
        let passed = calls.iter().filter(|call| call.passed).count();
        Self {
            capture,
            passed,
            failed: calls.len() - passed,
            calls,
        }
    }

    /// Returns JUnit XML with a test case for each call.
    pub fn junit(&self) -> String {
        let mut xml = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"{}\" tests=\"{}\" failures=\"{}\">\n",
            escaped(&self.capture),
            self.calls.len(),
            self.failed
        );

        for (number, call) in self.calls.iter().enumerate() {
            let name = escaped(&format!("{}: {}", number + 1, call.title));
            let time = call
                .steps
                .iter()
                .filter_map(|step| step.replayed_at_s)
                .fold(0.0, f64::max);

            let _ = write!(
                xml,
                "  <testcase name=\"{name}\" classname=\"{}\" time=\"{time:.3}\"",
                escaped(&self.capture)
            );

            if call.passed {
                xml.push_str("/>\n");
                continue;
            }

            let first = call.differences.first().map(ToString::to_string);
            let why = first.or_else(|| call.error.clone()).unwrap_or_default();

            let _ = writeln!(
                xml,
                ">\n    <failure message=\"{}\">{}</failure>\n  </testcase>",
                escaped(&why),
                escaped(&ladder::text(call))
            );
        }

        xml.push_str("</testsuite>\n");
        xml
    }
}

/// Escapes text. XML 1.0 has no control characters, escaped or not.
fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '<' => shown.push_str("&lt;"),
            '>' => shown.push_str("&gt;"),
            '&' => shown.push_str("&amp;"),
            '"' => shown.push_str("&quot;"),
            '\n' | '\t' => shown.push(char),
            char if char.is_control() || matches!(char, '\u{fffe}' | '\u{ffff}') => {
                shown.push('\u{fffd}')
            }
            char => shown.push(char),
        }
    }

    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_peer_breaks_out_of_the_xml() {
        let played = Played {
            title: "INVITE \"<a>\"\u{1}&".to_owned(),
            passed: false,
            steps: Vec::new(),
            differences: Vec::new(),
            error: Some("]]> </failure>".to_owned()),
            out_of_reach: None,
            messages: Vec::new(),
        };

        let xml = Run::new("x".to_owned(), vec![played]).junit();
        assert!(
            xml.contains("INVITE &quot;&lt;a&gt;&quot;\u{fffd}&amp;"),
            "{xml}"
        );
        assert_eq!(xml.matches("</failure>").count(), 1, "{xml}");
    }
}
