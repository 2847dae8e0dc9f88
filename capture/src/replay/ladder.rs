//! Ladder diagram of a replayed call: the captured and the live messages side by side, with the first difference marked.

use std::fmt::Write as _;

use trunkline_sip::header::text::printable;

use super::{Outcome, Played, Step};

/// Returns the diagram for a terminal. Control characters in the messages are escaped.
pub fn text(played: &Played) -> String {
    let mut text = format!(
        "{} {}\n",
        if played.passed { "ok  " } else { "FAIL" },
        printable(&played.title)
    );
    if let Some(error) = &played.error {
        let _ = writeln!(text, "     {error}");
    }

    let width = played
        .steps
        .iter()
        .filter_map(|step| step.captured.as_ref())
        .map(|shown| shown.chars().count())
        .max()
        .unwrap_or(0)
        .clamp(8, 48);

    if !played.steps.is_empty() {
        let _ = writeln!(
            text,
            "        {:>9}  {:<24}{:<width$}  {:>9}  replayed",
            "", "", "captured", ""
        );
    }

    let mut is_marked = false;

    for step in &played.steps {
        let is_wrong = matches!(
            step.outcome,
            Outcome::Differs | Outcome::Missing | Outcome::Unexpected
        );
        let mark = match (is_wrong, is_marked) {
            (true, false) => ">>>",
            (true, true) => "  >",
            (false, _) => "",
        };

        is_marked |= is_wrong;
        let _ = writeln!(text, "{}", rung(step, mark, width).trim_end());
    }

    if let Some(why) = &played.out_of_reach {
        let _ = writeln!(text, "     {}", printable(why));
    }

    for difference in &played.differences {
        let _ = writeln!(text, "     {}", printable(&difference.to_string()));
    }

    text
}

fn rung(step: &Step, mark: &str, width: usize) -> String {
    let time = |at: Option<f64>| at.map_or_else(String::new, |at| format!("{at:.3}"));
    let number = step
        .message
        .map_or_else(String::new, |number| number.to_string());

    let way = match (step.from, step.to) {
        ("caller", _) => "caller ---> us",
        (_, "caller") => "caller <--- us",
        ("runtime", _) => "us <--- runtime",
        (_, "runtime") => "us ---> runtime",
        ("other", _) => "us <--- other",
        (_, _) => "us ---> other",
    };

    let indent = if way.starts_with("us") { 7 } else { 0 };
    let way = format!("{:indent$}{way}", "");

    let replayed = match (&step.replayed, step.outcome) {
        (Some(shown), _) => printable(shown),
        (None, Outcome::Missing) => "nothing".to_owned(),
        (None, Outcome::Absent) => "-".to_owned(),
        (None, Outcome::NotReached) => "not reached".to_owned(),
        (None, Outcome::OutOfReach) => "out of reach".to_owned(),
        (None, _) => String::new(),
    };

    let captured = step
        .captured
        .as_ref()
        .map_or_else(String::new, |shown| printable(shown));

    format!(
        "{mark:>3} {number:>3} {:>9}  {way:<24}{captured:<width$}  {:>9}  {replayed}",
        time(step.captured_at_s),
        time(step.replayed_at_s),
    )
}
