//! Rows that are written together, by one statement.

use std::borrow::Cow;

use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use uuid::Uuid;

use super::error::Error;
use super::nearby::Readable;
use super::pool::{Writing, on};

/// A value of a column.
#[derive(Clone, Debug)]
pub(super) enum Value<'v> {
    Id(Option<Uuid>),
    Number(Option<i64>),
    Text(Option<Cow<'v, str>>),
}

/// An `INSERT`, around its values.
#[derive(Copy, Clone, Debug)]
pub(super) struct Insert {
    /// `table (columns)`.
    pub(super) into: &'static str,
    /// What follows the values.
    pub(super) ending: &'static str,
}

/// Rows of one statement: a few sizes only, each of which stays prepared.
const SIZES: [usize; 4] = [64, 16, 4, 1];

/// The rows in portions of these sizes.
pub(super) fn portions<T>(mut rows: &[T]) -> impl Iterator<Item = &[T]> {
    std::iter::from_fn(move || {
        let size = SIZES.into_iter().find(|size| *size <= rows.len())?;
        let (portion, rest) = rows.split_at(size);
        rows = rest;
        Some(portion)
    })
}

/// Writes a portion of rows; gives how many were written.
pub(super) async fn insert<const N: usize>(
    writing: &mut Writing,
    insert: Insert,
    rows: &[[Value<'_>; N]],
) -> Result<u64, Error> {
    Ok(on!(writing, held => {
        held.execute_in_order(&insert.of(rows.len(), N), rows.iter().flat_map(parameters))?
    }, connection: Driver => {
        let mut statement = sqlx::QueryBuilder::<Driver>::new("");
        insert.push(&mut statement, rows);
        Box::pin(statement.build().execute(connection)).await?.rows_affected()
    }))
}

/// The same, of an `INSERT` that gives rows back.
pub(super) async fn insert_returning<T, const N: usize>(
    writing: &mut Writing,
    insert: Insert,
    rows: &[[Value<'_>; N]],
) -> Result<Vec<T>, Error>
where
    T: Readable
        + for<'r> sqlx::FromRow<'r, sqlx::sqlite::SqliteRow>
        + for<'r> sqlx::FromRow<'r, sqlx::postgres::PgRow>
        + Send
        + Unpin,
{
    Ok(on!(writing, held => {
        held.fetch_in_order(&insert.of(rows.len(), N), rows.iter().flat_map(parameters))?
    }, connection: Driver => {
        let mut statement = sqlx::QueryBuilder::<Driver>::new("");
        insert.push(&mut statement, rows);
        Box::pin(statement.build_query_as().fetch_all(connection)).await?
    }))
}

fn parameters<'r, const N: usize>(row: &'r [Value<'_>; N]) -> [&'r dyn ToSql; N] {
    row.each_ref().map(|value| value as &dyn ToSql)
}

impl Insert {
    /// SQLite's statement for so many rows of so many values, which are numbered as they stand. What fails takes its whole transaction
    /// with it: no pages need be kept to undo a statement alone.
    fn of(self, rows: usize, values: usize) -> String {
        let row = format!("({})", vec!["?"; values].join(", "));
        let rows = vec![&*row; rows].join(", ");
        let Self { into, ending } = self;
        ["INSERT OR FAIL INTO ", into, " VALUES ", &rows, ending].concat()
    }

    fn push<Driver: sqlx::Database, const N: usize>(
        self,
        statement: &mut sqlx::QueryBuilder<Driver>,
        rows: &[[Value<'_>; N]],
    ) where
        Option<Uuid>: sqlx::Type<Driver> + for<'q> sqlx::Encode<'q, Driver>,
        Option<i64>: sqlx::Type<Driver> + for<'q> sqlx::Encode<'q, Driver>,
        for<'v> Option<&'v str>: sqlx::Type<Driver> + sqlx::Encode<'v, Driver>,
    {
        statement.push("INSERT INTO ").push(self.into).push(" ");
        statement.push_values(rows, |mut values, row| {
            for value in row {
                match value {
                    Value::Id(id) => values.push_bind(*id),
                    Value::Number(number) => values.push_bind(*number),
                    Value::Text(text) => values.push_bind(text.as_deref()),
                };
            }
        });
        statement.push(self.ending);
    }
}

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let value = match self {
            Self::Id(Some(id)) => ValueRef::Blob(id.as_bytes()),
            Self::Number(Some(number)) => ValueRef::Integer(*number),
            Self::Text(Some(text)) => ValueRef::Text(text.as_bytes()),
            Self::Id(None) | Self::Number(None) | Self::Text(None) => ValueRef::Null,
        };
        Ok(ToSqlOutput::Borrowed(value))
    }
}

/// Values by their types, there or not.
macro_rules! value {
    ($($variant:ident: $type:ty),* $(,)?) => {
        $(
            impl<'v> From<$type> for Value<'v> {
                fn from(value: $type) -> Self {
                    Self::$variant(Some(value.into()))
                }
            }

            impl<'v> From<Option<$type>> for Value<'v> {
                fn from(value: Option<$type>) -> Self {
                    Self::$variant(value.map(Into::into))
                }
            }
        )*
    };
}
value!(Id: Uuid, Number: i64, Text: &'v str, Text: String);

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
            insert.of(2, 2),
            "INSERT OR FAIL INTO shoes (size, name) VALUES (?, ?), (?, ?) ON CONFLICT DO NOTHING"
        );
    }
}
