//! A message as the lines of a screen.

use trunkline_sip::header::text::printable;

use crate::explain::ladder::Passed;

/// Lines of a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct MessageLines {
    /// Head and body, with control characters escaped.
    pub(super) lines: Vec<String>,
    /// Number of lines of the head.
    pub(super) head: usize,
}

impl MessageLines {
    pub(super) fn of(message: &Passed) -> Self {
        let lines: Vec<String> = message.text.lines().map(printable).collect();
        let head = lines.iter().position(String::is_empty);
        Self {
            head: head.unwrap_or(lines.len()),
            lines,
        }
    }
}

/// Returns true if the head says that the body is SDP.
pub(super) fn has_sdp(message: &Passed) -> bool {
    let head = message.text.lines().take_while(|line| !line.is_empty());
    let mut head = head.map(str::to_ascii_lowercase);
    head.any(|line| line.contains("application/sdp"))
}

/// Status of a response; `None` for a request.
pub(super) fn status(message: &Passed) -> Option<u16> {
    message.summary.get(..3)?.parse().ok()
}
