//! Charts as inline SVG, without a script and without style attributes.

use maud::{Markup, html};

/// Size of the drawing in SVG units; the page stretches it.
const WIDTH: u64 = 960;
const HEIGHT: u64 = 140;

/// Counts of one bar, from the bottom up.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Bar {
    pub(super) answered: u64,
    pub(super) missed: u64,
    pub(super) refused: u64,
    /// Text shown beside the pointer.
    pub(super) title: String,
}

impl Bar {
    const fn total(&self) -> u64 {
        self.answered + self.missed + self.refused
    }
}

/// Bars of counts beside each other, with the highest count and the texts below both ends.
pub(super) fn bars(label: &str, bars: &[Bar], [first, last]: [Markup; 2]) -> Markup {
    let highest = bars.iter().map(Bar::total).max().unwrap_or_default().max(1);
    let step = WIDTH / (bars.len() as u64).max(1);
    let scaled = |count: u64| count * HEIGHT / highest;

    html! {
        figure.chart {
            div.top { span { (highest) } }
            svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img" aria-label=(label) {
                @for (at, bar) in bars.iter().enumerate() {
                    @let x = at as u64 * step;
                    @let tops = [
                        ("answered", bar.answered, 0),
                        ("missed", bar.missed, bar.answered),
                        ("refused", bar.refused, bar.answered + bar.missed),
                    ];

                    g {
                        title { (bar.title) }
                        rect.hit x=(x) y="0" width=(step) height=(HEIGHT) {}
                        @for (class, count, below) in tops {
                            @if count > 0 {
                                rect class=(class) x=(x + 1) y=(HEIGHT - scaled(below + count)) width=(step.saturating_sub(2).max(1)) height=(scaled(count).max(1)) {}
                            }
                        }
                    }
                }
            }

            figcaption {
                span { (first) }
                span.legend { span.key.answered { "answered" } span.key.missed { "not answered" } span.key.refused { "refused" } }
                span { (last) }
            }
        }
    }
}

/// Share of a whole as a horizontal bar.
pub(super) fn share(count: u64, whole: u64) -> Markup {
    let width = count * 100 / whole.max(1);
    html! {
        svg.share viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true" {
            rect.refused x="0" y="0" width=(width.max(1)) height="8" rx="1" {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_drawn_in_proportion() {
        let ends = |texts: [&str; 2]| texts.map(|text| html! { (text) });
        let bar = |answered, refused| Bar {
            answered,
            refused,
            ..Bar::default()
        };
        let drawn = bars(
            "Calls",
            &[bar(4, 0), bar(1, 1), bar(0, 0)],
            ends(["then", "now"]),
        );
        let drawn = drawn.into_string();
        assert!(drawn.contains("height=\"140\"></rect>"), "{drawn}");
        assert_eq!(drawn.matches("class=\"answered\"").count(), 2, "{drawn}");
        assert!(
            drawn.contains("y=\"70\"") && !drawn.contains("style="),
            "{drawn}"
        );
        assert!(
            bars("None", &[], ends(["", ""]))
                .into_string()
                .contains("<svg")
        );
    }
}
