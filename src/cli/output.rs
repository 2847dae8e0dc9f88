//! Output of commands: a table or lines for people, JSON on one line for programs.

use std::io::{self, Write};

use serde::Serialize;

use crate::telemetry::redact;

/// Option `--json` of every command with output.
#[derive(Copy, Clone, Debug, clap::Args)]
pub(super) struct Output {
    /// Answer with JSON on one line.
    #[arg(long)]
    json: bool,
}

/// Object that a command prints.
pub(super) trait Tabular: Serialize {
    /// Titles of the table's columns.
    const COLUMNS: &'static [&'static str];

    /// Cells of the object's row.
    fn cells(&self) -> Vec<String>;
}

impl Output {
    /// Returns true if the output is JSON.
    pub(super) const fn is_json(self) -> bool {
        self.json
    }

    /// Prints one object, a line per column.
    pub(super) fn one<T: Tabular>(self, thing: &T) {
        if self.json {
            return print(&json(thing));
        }

        let width = T::COLUMNS
            .iter()
            .map(|column| column.len())
            .max()
            .unwrap_or(0);
        let lines: Vec<_> = T::COLUMNS
            .iter()
            .zip(thing.cells())
            .map(|(column, cell)| format!("{column:width$}  {}", plain(&cell)))
            .collect();

        print(&lines.join("\n"));
    }

    /// Prints a list of objects as a table.
    pub(super) fn list<T: Tabular>(self, things: &[T]) {
        if self.json {
            return print(&json(&things));
        }
        print(&table(
            T::COLUMNS,
            &things.iter().map(T::cells).collect::<Vec<_>>(),
        ));
    }

    /// Reports a change that has no other output.
    pub(super) fn done(self, sentence: &str) {
        if self.json {
            return print("{\"success\":true}");
        }
        print(sentence);
    }
}

/// Prints rows under their titles.
pub(super) fn print_table(columns: &[&str], rows: &[Vec<String>]) {
    print(&table(columns, rows));
}

/// Writes to standard output; a closed pipe is no failure of the command.
pub(super) fn print(text: &str) {
    // A command whose output has an end comes to it in any case. Only one without ([`try_print`]) needs to learn of this.
    let _ = try_print(text);
}

/// Writes to standard output.
///
/// # Errors
/// [`io::ErrorKind::BrokenPipe`] once nobody reads it any more, or the disk is full.
pub(super) fn try_print(text: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{text}")
}

pub(super) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("views are plain values")
}

/// Placeholder of an absent value in a table.
pub(super) fn or_dash(text: Option<impl ToString>) -> String {
    text.map_or_else(|| "-".to_owned(), |text| text.to_string())
}

/// Escapes control characters: names come from users and must not control the terminal.
fn plain(text: &str) -> String {
    redact::escape(text).into_owned()
}

fn table(columns: &[&str], rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(|cell| plain(cell)).collect())
        .collect();
    let widths: Vec<usize> = columns
        .iter()
        .enumerate()
        .map(|(index, column)| {
            rows.iter()
                .map(|row| row[index].chars().count())
                .chain([column.len()])
                .max()
                .unwrap_or(0)
        })
        .collect();

    let line = |cells: Vec<&str>| {
        let padded: Vec<_> = cells
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        padded.join("  ").trim_end().to_owned()
    };

    let head = line(columns.to_vec()).to_uppercase();
    let body = rows
        .iter()
        .map(|row| line(row.iter().map(String::as_str).collect()));

    std::iter::once(head)
        .chain(body)
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_aligned_and_shows_no_controls() {
        let rows = [
            vec!["1".to_owned(), "a\u{1b}[2J".to_owned()],
            vec!["12345".to_owned(), "b".to_owned()],
        ];
        assert_eq!(
            table(&["id", "name"], &rows),
            "ID     NAME\n1      a\\u{1b}[2J\n12345  b"
        );
    }
}
