//! How values stand in columns: times as microseconds, lists and objects as JSON texts, numbers as E.164.

use jiff::Timestamp;
use jiff::fmt::temporal::DateTimePrinter;
use rusqlite::types::{FromSqlError, ValueRef};
use serde::Serialize;
use serde::de::value::StrDeserializer;
use serde::de::{DeserializeOwned, IntoDeserializer};
use trunkline_routing::E164;
use trunkline_sip::moment::Moment;

/// What sqlx wants of a column that can't be read.
pub(crate) type Unreadable = Box<dyn std::error::Error + Send + Sync>;

/// Reads a row by the names of its columns into a struct with fields of the same names, for both drivers; `field: function`
/// passes the column through a function that may refuse it.
macro_rules! from_row {
    ($row:ident { $($field:ident $(: $read:expr)?),* $(,)? }) => {
        $crate::column::from_row!(@ sqlx::sqlite::SqliteRow, $row { $($field $(: $read)?),* });
        $crate::column::from_row!(@ sqlx::postgres::PgRow, $row { $($field $(: $read)?),* });

        impl $crate::nearby::Readable for $row {
            const COLUMNS: &'static [&'static str] = &[$(stringify!($field)),*];

            fn read(row: &rusqlite::Row<'_>, places: &[usize]) -> rusqlite::Result<Self> {
                let mut places = places.iter().copied();
                Ok(Self { $($field: $crate::column::from_row!(& row, places $(, $read)?)),* })
            }
        }
    };
    (@ $driver:ty, $row:ident { $($field:ident $(: $read:expr)?),* }) => {
        impl sqlx::FromRow<'_, $driver> for $row {
            fn from_row(row: &$driver) -> sqlx::Result<Self> {
                Ok(Self { $($field: $crate::column::from_row!(% row, $field $(, $read)?)),* })
            }
        }
    };
    (& $from:ident, $places:ident) => {
        $from.get($places.next().expect("one for each column"))?
    };
    (& $from:ident, $places:ident, $read:expr) => {
        $crate::column::read_at($from, $places.next().expect("one for each column"), $read)?
    };
    (% $from:ident, $field:ident) => { sqlx::Row::try_get($from, stringify!($field))? };
    (% $from:ident, $field:ident, $read:expr) => {
        $crate::column::read(stringify!($field), $read, sqlx::Row::try_get($from, stringify!($field))?)?
    };
}
pub(crate) use from_row;

/// Applies `reader` and names the column in its refusal.
pub(crate) fn read<C, V>(
    column: &str,
    reader: impl Fn(C) -> Result<V, Unreadable>,
    value: C,
) -> sqlx::Result<V> {
    reader(value).map_err(|source| sqlx::Error::ColumnDecode {
        index: column.into(),
        source,
    })
}

/// Applies `reader` to the column at `place`, which its refusal names.
pub(crate) fn read_at<'r, C: Stored<'r>, V>(
    row: &'r rusqlite::Row<'_>,
    place: usize,
    reader: impl Fn(C) -> Result<V, Unreadable>,
) -> rusqlite::Result<V> {
    let value = row.get_ref(place)?;
    let refused =
        |source| rusqlite::Error::FromSqlConversionFailure(place, value.data_type(), source);
    let column = C::stored(value).map_err(|fault| refused(fault.into()))?;
    reader(column).map_err(refused)
}

/// What a reader takes: a number, or a text where it lies.
pub(crate) trait Stored<'r>: Sized {
    fn stored(value: ValueRef<'r>) -> Result<Self, FromSqlError>;
}

impl Stored<'_> for i64 {
    fn stored(value: ValueRef<'_>) -> Result<Self, FromSqlError> {
        value.as_i64()
    }
}

impl<'r> Stored<'r> for &'r str {
    fn stored(value: ValueRef<'r>) -> Result<Self, FromSqlError> {
        value.as_str()
    }
}

impl<'r, C: Stored<'r>> Stored<'r> for Option<C> {
    fn stored(value: ValueRef<'r>) -> Result<Self, FromSqlError> {
        if value == ValueRef::Null {
            Ok(None)
        } else {
            C::stored(value).map(Some)
        }
    }
}

/// Lets a reader pass over NULL.
pub(crate) fn maybe<C, V>(
    reader: impl Fn(C) -> Result<V, Unreadable>,
) -> impl Fn(Option<C>) -> Result<Option<V>, Unreadable> {
    move |value| value.map(&reader).transpose()
}

pub(crate) fn moment(micros: i64) -> Result<Moment, Unreadable> {
    Ok(Moment::from_micros(u64::try_from(micros)?))
}

pub(crate) fn micros(moment: Moment) -> i64 {
    i64::try_from(moment.as_micros()).unwrap_or(i64::MAX)
}

/// How times are written, in JSON and wherever the API shows one.
static TIMES: DateTimePrinter = DateTimePrinter::new().precision(Some(3));

/// A time as JSON has it: RFC 3339 in UTC with milliseconds, as in `2026-01-31T12:00:00.000Z`.
pub fn written(moment: Moment) -> String {
    let timestamp = Timestamp::from_microsecond(micros(moment)).unwrap_or(Timestamp::MAX);
    TIMES.timestamp_to_string(&timestamp)
}

pub(crate) fn number(text: &str) -> Result<E164, Unreadable> {
    Ok(E164::parse(text)?)
}

pub(crate) fn count(count: i64) -> Result<u32, Unreadable> {
    Ok(u32::try_from(count)?)
}

pub(crate) fn parsed<V: std::str::FromStr<Err: std::error::Error + Send + Sync + 'static>>(
    text: &str,
) -> Result<V, Unreadable> {
    Ok(text.parse()?)
}

pub(crate) fn json<V: DeserializeOwned>(text: &str) -> Result<V, Unreadable> {
    Ok(serde_json::from_str(text)?)
}

pub(crate) fn to_json<V: Serialize + ?Sized>(value: &V) -> String {
    /// What nearly every text has room in; none is kept for long.
    const USUAL: usize = 768;
    let mut text = Vec::with_capacity(USUAL);
    serde_json::to_writer(&mut text, value).expect("plain data with string keys has a JSON form");
    String::from_utf8(text).expect("JSON is UTF-8")
}

/// A value of an enum that is written as its serde name.
pub(crate) fn named<V: DeserializeOwned>(text: &str) -> Result<V, Unreadable> {
    let deserializer: StrDeserializer<'_, serde::de::value::Error> = text.into_deserializer();
    Ok(V::deserialize(deserializer)?)
}

pub(crate) fn small(number: i64) -> Result<u16, Unreadable> {
    Ok(u16::try_from(number)?)
}
