//! `[widget]`: visitors of the chat widget.

use std::time::Duration;

use super::section::Section;

/// Settings for the visitors of every org's widget.
#[derive(Clone, Debug)]
pub struct Widget {
    /// Time that the token of a visitor is valid.
    pub token_lifetime: Duration,
}

impl Widget {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        Self {
            token_lifetime: Duration::from_secs(
                section
                    .number("token_lifetime_s", 60..=31_536_000)
                    .unwrap_or(86_400),
            ),
        }
    }
}
