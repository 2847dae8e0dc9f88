//! `[log]`: log lines on standard error.

use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;

use super::section::Section;

/// Format of log lines.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum LogFormat {
    /// Text for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Logging.
#[derive(Clone, Debug)]
pub struct Log {
    /// Format of a line.
    pub format: LogFormat,
    /// Level (`info`), or directives of tracing (`info,trunkline_calls=debug`).
    pub level: String,
}

impl Log {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let format = section
            .word(
                "format",
                &[("text", LogFormat::Text), ("json", LogFormat::Json)],
            )
            .unwrap_or(LogFormat::Text);

        let mut level = section.text("level").unwrap_or_else(|| "info".to_owned());
        if !is_filter(&level) {
            section.refuse_key(
                "level",
                format!("{level:?} is not a level: use error, warn, info, debug or trace"),
            );
            level = "info".to_owned();
        }
        Self { format, level }
    }
}

/// Returns true if tracing can filter by `level`. A single word that is no level would name a target, which is a typing
/// error.
fn is_filter(level: &str) -> bool {
    let word_is_level =
        |part: &str| part.contains('=') || part.trim().parse::<LevelFilter>().is_ok();
    level.split(',').all(word_is_level) && EnvFilter::builder().parse(level).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_directives_are_told_from_typing_errors() {
        for (level, good) in [
            ("info", true),
            ("WARN", true),
            ("info,trunkline_calls=debug", true),
            ("inof", false),
            ("info,x=loud", false),
        ] {
            assert_eq!(is_filter(level), good, "{level}");
        }
    }
}
