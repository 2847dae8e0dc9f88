//! Statements for several rows: SQLite gets as many places as there are values, PostgreSQL an array for each column, so that one statement
//! serves any number of rows.

/// An `INSERT`, around its values.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Insert {
    /// `table (columns)`.
    pub(crate) into: &'static str,
    /// Text after the values.
    pub(crate) ending: &'static str,
}

/// Numbers of rows in one statement: a few sizes only, so that each statement stays prepared.
const SIZES: [usize; 4] = [64, 16, 4, 1];

/// Splits rows into portions of these sizes, for SQLite.
pub(crate) fn portions<T>(mut rows: &[T]) -> impl Iterator<Item = &[T]> {
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
    pub(crate) fn for_sqlite(self, rows: usize, values: usize) -> String {
        let row = format!("({})", vec!["?"; values].join(", "));
        let rows = vec![&*row; rows].join(", ");
        let Self { into, ending } = self;
        ["INSERT OR FAIL INTO ", into, " VALUES ", &rows, ending].concat()
    }

    /// Returns PostgreSQL's statement for rows of these types.
    pub(crate) fn for_postgres(self, types: &[&str]) -> String {
        let Self { into, ending } = self;
        let arrays = arrays(types);
        // WITH ORDINALITY and not the order of unnest alone: events are numbered in the order of their rows.
        let columns = letters(types.len());
        format!(
            "INSERT INTO {into} SELECT {columns} FROM unnest({arrays}) WITH ORDINALITY AS given ({columns}, place) ORDER BY place{ending}"
        )
    }
}

/// A statement that is run for each of several rows.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Each {
    /// SQLite's, for one row.
    pub(crate) sqlite: &'static str,
    /// PostgreSQL's, for all rows at once: the table `given` has their values in the columns `a`, `b` and so on.
    pub(crate) postgres: &'static str,
}

impl Each {
    /// Returns PostgreSQL's statement for rows of these types.
    pub(crate) fn for_postgres(self, types: &[&str]) -> String {
        let (arrays, columns) = (arrays(types), letters(types.len()));
        let statement = self.postgres;
        format!("WITH given ({columns}) AS (SELECT * FROM unnest({arrays})) {statement}")
    }
}

/// Returns a parameter for each column, of these types.
fn arrays(types: &[&str]) -> String {
    let arrays = (1..).zip(types);
    let arrays = arrays.map(|(number, kind)| format!("CAST(${number} AS {kind}[])"));
    arrays.collect::<Vec<_>>().join(", ")
}

/// Returns names of columns: `a` to `z`, then `aa` and so on.
fn letters(count: usize) -> String {
    let names = (0..count).map(|number| {
        let letter = char::from(b'a' + (number % 26) as u8);
        letter.to_string().repeat(number / 26 + 1)
    });
    names.collect::<Vec<_>>().join(", ")
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
    fn columns_have_different_names() {
        let names = letters(60);
        let different: std::collections::BTreeSet<_> = names.split(", ").collect();
        assert_eq!(different.len(), 60, "{names}");
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
            insert.for_postgres(&["BIGINT", "TEXT"]),
            "INSERT INTO shoes (size, name) SELECT a, b FROM unnest(CAST($1 AS BIGINT[]), CAST($2 AS TEXT[])) WITH ORDINALITY AS given \
             (a, b, place) ORDER BY place ON CONFLICT DO NOTHING"
        );
    }
}
