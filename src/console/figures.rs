//! Answer rate, set-up time and refusals of an org's calls over an hour, a day or a month.

use std::collections::BTreeMap;
use std::time::Duration;

use maud::{Markup, html};
use trunkline_calls::Reason;
use trunkline_model::record::Status;
use trunkline_sip::moment::Moment;
use trunkline_store::call_figures::{self, FigureRow, FigureWindow};
use uuid::Uuid;

use super::chart::{Bar, bars, share};
use super::document::moment;
use crate::api::time::written;
use crate::api::{Api, ApiError};

/// Reasons that are listed.
const MOST_REASONS: usize = 8;

/// Period that figures cover.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Window {
    Hour,
    Day,
    Month,
}

impl Window {
    pub(super) const ALL: [Self; 3] = [Self::Hour, Self::Day, Self::Month];

    pub(super) fn of(word: &str) -> Self {
        let named = Self::ALL.into_iter().find(|window| window.word() == word);
        named.unwrap_or(Self::Day)
    }

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Month => "month",
        }
    }

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Hour => "Last hour",
            Self::Day => "Last 24 hours",
            Self::Month => "Last 30 days",
        }
    }

    /// Length of a bar in seconds, and number of bars.
    const fn parts(self) -> (u64, u64) {
        match self {
            Self::Hour => (60, 60),
            Self::Day => (1_800, 48),
            Self::Month => (86_400, 30),
        }
    }
}

/// Figures of a window.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Figures {
    window: Window,
    from: Moment,
    rows: Vec<FigureRow>,
}

/// Counts the calls of the window that ends with the current bar.
pub(super) async fn counted(api: &Api, org: Uuid, window: Window) -> Result<Figures, ApiError> {
    let (length, parts) = window.parts();
    // The period is aligned to whole bars, so that a bar doesn't change while nothing happens.
    let end = (api.now().as_secs() / length + 1) * length;
    let from = Moment::from_secs(end.saturating_sub(length * parts));
    let asked = FigureWindow {
        from,
        to: Moment::from_micros(end * 1_000_000 - 1),
        part: Duration::from_secs(length),
    };

    let rows = api
        .read_of(org, move |tx| call_figures::of_org(tx, org, asked))
        .await?;
    Ok(Figures { window, from, rows })
}

impl Figures {
    fn sum(&self, count: impl Fn(&FigureRow) -> i64) -> u64 {
        self.rows.iter().map(count).sum::<i64>().unsigned_abs()
    }

    fn bars(&self) -> Vec<Bar> {
        let (length, parts) = self.window.parts();
        let mut bars: Vec<Bar> = (0..parts)
            .map(|part| Bar {
                title: written(self.from + Duration::from_secs(part * length))[..16]
                    .replace('T', " "),
                ..Bar::default()
            })
            .collect();

        for row in &self.rows {
            let Some(bar) = usize::try_from(row.part)
                .ok()
                .and_then(|part| bars.get_mut(part))
            else {
                continue;
            };

            let (calls, answered) = (row.calls.unsigned_abs(), row.answered.unsigned_abs());
            bar.answered += answered;
            match row.status {
                Status::Refused => bar.refused += calls - answered,
                Status::Queued
                | Status::Ringing
                | Status::InProgress
                | Status::Completed
                | Status::Busy
                | Status::NoAnswer
                | Status::Failed
                | Status::Canceled
                | Status::Transferred
                | Status::Lost => bar.missed += calls - answered,
            }
        }

        for bar in &mut bars {
            let (answered, missed, refused) = (bar.answered, bar.missed, bar.refused);
            bar.title.push_str(&format!(
                " UTC: {answered} answered, {missed} not answered, {refused} refused"
            ));
        }

        bars
    }

    /// Reasons of calls that weren't answered, the most frequent first.
    fn reasons(&self) -> Vec<(&str, u64)> {
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for row in self.rows.iter().filter(|row| row.calls > row.answered) {
            if let Some(reason) = row.reason.as_deref() {
                *counts.entry(reason).or_default() += (row.calls - row.answered).unsigned_abs();
            }
        }
        let mut reasons: Vec<_> = counts.into_iter().collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        reasons.truncate(MOST_REASONS);
        reasons
    }

    /// Part of a page that shows the figures; `links` leads to other windows.
    pub(super) fn shown(&self, links: &Markup) -> Markup {
        let (calls, answered) = (self.sum(|row| row.calls), self.sum(|row| row.answered));
        let micros = self.sum(|row| row.set_up_micros);
        let reasons = self.reasons();
        let whole = reasons.iter().map(|(_, count)| count).sum();

        html! {
            section.card id="figures" aria-labelledby="figures-title" {
                div.title { h2 id="figures-title" { (self.window.title()) } (links) }
                dl.tiles {
                    div { dt { "Calls" } dd { (calls) } }
                    div { dt { "Answered" } dd { @if calls == 0 { "–" } @else { (answered * 100 / calls) " %" } } }
                    div { dt { "Set-up time" } dd { @if answered == 0 { "–" } @else { (shown_time(micros / answered)) } } }
                }
                (bars("Calls over time", &self.bars(), [moment(self.from), html! { "now" }]))
                h3 { "Reasons of calls that were not answered" }
                @if reasons.is_empty() {
                    p.empty { "None." }
                } @else {
                    ul.reasons {
                        @for (reason, count) in reasons {
                            li {
                                span { (Reason::from_code(reason).map_or(reason, |known| known.sentence())) }
                                (share(count, whole))
                                strong { (count) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Microseconds as seconds with one digit after the point; less than a second as milliseconds.
fn shown_time(micros: u64) -> String {
    if micros < 1_000_000 {
        return format!("{} ms", micros / 1_000);
    }
    let tenths = (micros + 50_000) / 100_000;
    format!("{}.{} s", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_counted_apart() {
        let row = |part, status, reason: Option<&str>, calls, answered| FigureRow {
            part,
            status,
            reason: reason.map(str::to_owned),
            calls,
            answered,
            set_up_micros: answered * 1_250_000,
        };

        let figures = Figures {
            window: Window::Hour,
            from: Moment::from_secs(0),
            rows: vec![
                row(0, Status::Completed, None, 3, 3),
                row(0, Status::Refused, Some("no_agent"), 2, 0),
                row(59, Status::NoAnswer, Some("setup_timeout"), 1, 0),
            ],
        };

        let bars = figures.bars();
        assert_eq!((bars.len(), bars[0].answered, bars[0].refused), (60, 3, 2));
        assert_eq!(bars[59].missed, 1);
        assert_eq!(figures.reasons(), [("no_agent", 2), ("setup_timeout", 1)]);

        let shown = figures.shown(&Markup::default()).into_string();
        assert!(shown.contains("50 %") && shown.contains("1.3 s"), "{shown}");
    }
}
