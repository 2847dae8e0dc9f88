//! Answers of the API for people: lists as tables, objects as lines, times relative to now on a terminal.

use std::io::IsTerminal as _;

use serde_json::Value;

use crate::cli::output::{print, print_table};
use crate::telemetry::redact::escape;

/// Digits of an id that a list on a terminal shows: the last ones, which are random.
const SHORT: usize = 12;

/// Prints a list as a table of these keys.
pub(in crate::cli) fn list(items: &[Value], columns: &[&str]) {
    let usual: Vec<&str> = match (columns, items.first().and_then(Value::as_object)) {
        ([], Some(first)) => first
            .iter()
            .filter(|(_, value)| !value.is_object())
            .map(|(name, _)| name.as_str())
            .collect(),
        (given, _) => given.to_vec(),
    };

    let is_terminal = std::io::stdout().is_terminal();
    let rows: Vec<Vec<String>> = items
        .iter()
        .map(|item| {
            usual
                .iter()
                .map(|column| cell(column, &item[*column], is_terminal))
                .collect()
        })
        .collect();

    let titles: Vec<String> = usual.iter().map(|name| title(name)).collect();
    let titles: Vec<&str> = titles.iter().map(String::as_str).collect();
    print_table(&titles, &rows);
}

/// Prints an object, a line per value.
pub(in crate::cli) fn object(answer: &Value) {
    print(&lines_of(answer));
}

fn lines_of(answer: &Value) -> String {
    let mut lines = Vec::new();
    flatten("", answer, &mut lines);
    // A tenant may have chosen the names in a free object too.
    let lines = lines
        .iter()
        .map(|(name, value)| (escape(name), escape(value)));
    let lines: Vec<_> = lines.collect();
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines = lines
        .iter()
        .map(|(name, value)| format!("{name:width$}  {value}"));
    let lines: Vec<String> = lines.collect();
    lines.join("\n")
}

fn flatten(prefix: &str, value: &Value, lines: &mut Vec<(String, String)>) {
    match value {
        Value::Object(parts) => {
            for (name, part) in parts {
                let separator = if prefix.is_empty() { "" } else { "." };
                flatten(&format!("{prefix}{separator}{name}"), part, lines);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (at, item) in items.iter().enumerate() {
                flatten(&format!("{prefix}[{at}]"), item, lines);
            }
        }
        Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            lines.push((prefix.to_owned(), plain(value)));
        }
    }
}

fn title(name: &str) -> String {
    name.trim_end_matches("_at").replace('_', " ")
}

fn cell(name: &str, value: &Value, is_terminal: bool) -> String {
    let text = plain(value);
    if !is_terminal {
        return text;
    }

    if name == "id" || name.ends_with("_id") {
        let digits = text.len().saturating_sub(SHORT);
        return text.get(digits..).unwrap_or(&text).to_owned();
    }

    match text.parse::<jiff::Timestamp>() {
        Ok(time) => {
            let now = crate::engine::clock::wall_time().as_micros() / 1_000_000;
            let now = i64::try_from(now).unwrap_or(i64::MAX);
            ago(now.saturating_sub(time.as_second()))
        }
        Err(_) => text,
    }
}

/// Describes a time so many seconds ago, or ahead.
fn ago(seconds: i64) -> String {
    let (count, unit) = match seconds.unsigned_abs() {
        0..2 => return "now".to_owned(),
        count @ 2..120 => (count, "s"),
        count @ 120..7_200 => (count / 60, "min"),
        count @ 7_200..172_800 => (count / 3_600, "h"),
        count => (count / 86_400, "days"),
    };
    match seconds {
        0.. => format!("{count} {unit} ago"),
        _ => format!("in {count} {unit}"),
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(" "),
        Value::Object(parts) => runtime(parts).unwrap_or_else(|| value.to_string()),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// Text of an agent's runtime.
fn runtime(parts: &serde_json::Map<String, Value>) -> Option<String> {
    let kind = parts.get("type")?.as_str()?;
    let Some(uri) = parts.get("uri") else {
        return Some(kind.to_owned());
    };
    let fallbacks = parts.get("fallbacks").and_then(Value::as_array);
    let uris = std::iter::once(uri).chain(fallbacks.into_iter().flatten());
    let uris: Vec<&str> = uris.filter_map(Value::as_str).collect();
    Some(uris.join(", else "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_names_nor_values_reach_the_terminal_raw() {
        let shown = lines_of(&serde_json::json!({"metadata": {"\u{1b}]52;c;": "\u{7}"}}));
        assert!(!shown.contains(char::is_control), "{shown:?}");
        assert!(shown.starts_with("metadata."), "{shown:?}");
    }

    #[test]
    fn times_are_relative() {
        for (seconds, text) in [
            (0, "now"),
            (59, "59 s ago"),
            (150, "2 min ago"),
            (10_000, "2 h ago"),
            (400_000, "4 days ago"),
            (-90, "in 90 s"),
        ] {
            assert_eq!(ago(seconds), text, "{seconds}");
        }
    }
}
