//! HTML document around every page, and the parts that many pages use. Maud escapes all text.

use maud::{DOCTYPE, Markup, html};
use trunkline_model::record::Status;
use trunkline_sip::moment::Moment;

use super::assets;
use crate::api::time::written;
use crate::explain::finding::{Finding, Level};

/// Document with this body.
pub(super) fn document(title: &str, base: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · Trunkline" }
                link rel="stylesheet" href=(assets::style(base));
                script defer src=(assets::script(base)) {}
            }
            body { (body) }
        }
    }
}

/// Page with one message.
pub(super) fn notice(title: &str, base: &str, text: &str) -> Markup {
    let body = html! {
        main.notice {
            (mark())
            h1 { (title) }
            p { (text) }
        }
    };
    document(title, base, &body)
}

/// The product's mark: two legs that meet.
pub(super) fn mark() -> Markup {
    html! {
        svg.mark viewBox="0 0 24 24" aria-hidden="true" {
            rect width="24" height="24" rx="6" {}
            path d="M5 8h6l4 8h4M5 16h4l1-2M14 10l1-2h4" {}
        }
    }
}

/// Time of a moment: in UTC, until the script shows it in the reader's zone.
pub(super) fn moment(at: Moment) -> Markup {
    time(&written(at))
}

/// Time as the API writes it.
pub(super) fn time(written: &str) -> Markup {
    let shown = written.get(..19).unwrap_or(written).replace('T', " ");
    html! { time datetime=(written) { (shown) " UTC" } }
}

/// Time as the API writes it, or a word in its place.
pub(super) fn time_or(written: Option<&str>, absent: &str) -> Markup {
    match written {
        Some(written) => time(written),
        None => html! { span.soft { (absent) } },
    }
}

/// Colour of a badge.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Tone {
    Good,
    Bad,
    Warn,
    Busy,
    Quiet,
}

impl Tone {
    const fn class(self) -> &'static str {
        match self {
            Self::Good => "badge good",
            Self::Bad => "badge bad",
            Self::Warn => "badge warn",
            Self::Busy => "badge busy",
            Self::Quiet => "badge",
        }
    }
}

pub(super) fn badge(tone: Tone, text: &str) -> Markup {
    html! { span class=(tone.class()) { (text) } }
}

/// Badge of a call's status.
pub(super) fn status(of: Status) -> Markup {
    let tone = match of {
        Status::InProgress | Status::Completed | Status::Transferred => Tone::Good,
        Status::Queued | Status::Ringing => Tone::Busy,
        Status::Failed | Status::Refused | Status::Lost => Tone::Bad,
        Status::NoAnswer | Status::Busy => Tone::Warn,
        Status::Canceled => Tone::Quiet,
    };
    badge(tone, &spaced(of.as_str()))
}

/// List of findings, each with a badge of its level.
pub(super) fn findings(findings: &[Finding]) -> Markup {
    html! {
        ul.findings {
            @for finding in findings {
                li {
                    @match finding.level {
                        Level::Error => (badge(Tone::Bad, "error")),
                        Level::Warning => (badge(Tone::Warn, "warning")),
                        Level::Hint => (badge(Tone::Busy, "hint")),
                        Level::Ok => (badge(Tone::Good, "ok")),
                    }
                    span { (finding.text) @if let Some(fix) = &finding.fix { " " strong { (fix) } } }
                }
            }
        }
    }
}

/// A word of the API, with blanks in place of underscores.
pub(super) fn spaced(word: &str) -> String {
    word.replace('_', " ")
}

/// Seconds as `m:ss`, or as `h:mm:ss` from an hour on.
pub(super) fn duration(seconds: u64) -> String {
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

/// Text beside a button that copies it. The button needs the script, which shows it.
pub(super) fn copied(id: &str, text: &str) -> Markup {
    html! {
        span.copied {
            code id=(id) { (text) }
            button.copy type="button" data-copy=(id) hidden { "Copy" }
        }
    }
}

/// Several lines to paste, beside a button that copies them.
pub(super) fn lines(id: &str, text: &str) -> Markup {
    html! {
        div.lines {
            button.copy type="button" data-copy=(id) hidden { "Copy" }
            pre id=(id) tabindex="0" { (text) }
        }
    }
}

/// Table, or a text if it has no rows. Each cell repeats its column's title, for narrow screens.
pub(super) fn table(label: &str, columns: &[&str], rows: &[Vec<Markup>], empty: &str) -> Markup {
    html! {
        @if rows.is_empty() {
            p.empty { (empty) }
        } @else {
            div.scroll {
                table aria-label=(label) {
                    (headings(columns))
                    tbody { @for row in rows { (row_of(columns, row)) } }
                }
            }
        }
    }
}

/// Headings of columns. A column of buttons has an empty title; its heading is for screen readers only.
pub(super) fn headings(columns: &[&str]) -> Markup {
    html! {
        thead {
            tr {
                @for column in columns {
                    th scope="col" { @if column.is_empty() { span.unseen { "Actions" } } @else { (column) } }
                }
            }
        }
    }
}

/// Row of a table; each cell repeats its column's title.
pub(super) fn row_of(columns: &[&str], cells: &[Markup]) -> Markup {
    html! {
        tr { @for (column, cell) in columns.iter().zip(cells) { td data-label=(column) { div { (cell) } } } }
    }
}

/// Card with a title.
pub(super) fn card(id: &str, title: &str, content: &Markup) -> Markup {
    html! {
        section.card id=(id) aria-labelledby={ (id) "-title" } {
            h2 id={ (id) "-title" } { (title) }
            (content)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_written_as_on_a_phone() {
        for (seconds, shown) in [(0, "0:00"), (61, "1:01"), (3_661, "1:01:01")] {
            assert_eq!(duration(seconds), shown);
        }
    }
}
