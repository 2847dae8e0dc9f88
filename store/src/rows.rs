//! Inserts of several rows in one statement.

use std::fmt::Write as _;

/// An `INSERT`, around its values.
#[derive(Copy, Clone, Debug)]
pub(super) struct Insert {
    /// `table (columns)`.
    pub(super) into: &'static str,
    /// Text after the values.
    pub(super) ending: &'static str,
}

/// Numbers of rows in one statement: a few sizes only, so that each statement stays prepared.
const SIZES: [usize; 4] = [64, 16, 4, 1];

/// Splits rows into portions of these sizes.
pub(super) fn portions<T>(mut rows: &[T]) -> impl Iterator<Item = &[T]> {
    std::iter::from_fn(move || {
        let size = SIZES.into_iter().find(|size| *size <= rows.len())?;
        let (portion, rest) = rows.split_at(size);
        rows = rest;
        Some(portion)
    })
}

impl Insert {
    /// Returns SQLite's statement for this many rows and values, numbered in order. `OR FAIL` spares SQLite the copies of pages by which it
    /// would undo a failing statement alone: the whole transaction is rolled back then.
    pub(super) fn for_sqlite(self, rows: usize, values: usize) -> String {
        let row = format!("({})", vec!["?"; values].join(", "));
        let rows = vec![&*row; rows].join(", ");
        let Self { into, ending } = self;
        ["INSERT OR FAIL INTO ", into, " VALUES ", &rows, ending].concat()
    }

    /// Returns PostgreSQL's statement.
    pub(super) fn for_postgres(self, rows: usize, values: usize) -> String {
        let Self { into, ending } = self;
        let mut sql = ["INSERT INTO ", into, " VALUES "].concat();

        for row in 0..rows {
            sql.push_str(if row == 0 { "(" } else { ", (" });
            for value in 0..values {
                let comma = if value == 0 { "" } else { ", " };
                let number = row * values + value + 1;
                // Writing to a String never fails.
                let _ = write!(sql, "{comma}${number}");
            }
            sql.push(')');
        }

        sql.push_str(ending);
        sql
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portions_are_of_a_few_sizes_and_hold_every_row() {
        let rows: Vec<usize> = (0..150).collect();
        let portions: Vec<_> = portions(&rows).collect();
        let sizes: Vec<_> = portions.iter().map(|portion| portion.len()).collect();
        assert_eq!(sizes, [64, 64, 16, 4, 1, 1]);
        assert_eq!(portions.concat(), rows);
        assert_eq!(super::portions::<u8>(&[]).count(), 0);
    }

    #[test]
    fn a_statement_has_a_place_for_each_value() {
        let insert = Insert {
            into: "shoes (size, name)",
            ending: " ON CONFLICT DO NOTHING",
        };
        assert_eq!(
            insert.for_sqlite(2, 2),
            "INSERT OR FAIL INTO shoes (size, name) VALUES (?, ?), (?, ?) ON CONFLICT DO NOTHING"
        );
        assert_eq!(
            insert.for_postgres(2, 2),
            "INSERT INTO shoes (size, name) VALUES ($1, $2), ($3, $4) ON CONFLICT DO NOTHING"
        );
    }
}
