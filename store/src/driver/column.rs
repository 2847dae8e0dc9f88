//! Encoding of values in columns: times as microseconds, lists and objects as JSON texts, numbers as E.164.

use jiff::Timestamp;
use jiff::fmt::temporal::DateTimePrinter;
use serde::Serialize;
use serde::de::value::StrDeserializer;
use serde::de::{DeserializeOwned, IntoDeserializer};
use trunkline_routing::E164;
use trunkline_sip::moment::Moment;

pub(crate) use super::value::{Unreadable, micros};

/// Maps the columns of a row to the fields of a struct, which have the same names; `field: function` passes the column through a function
/// that may refuse it.
macro_rules! from_row {
    ($row:ident { $($field:ident $(: $read:expr)?),* $(,)? }) => {
        impl $crate::driver::value::Record for $row {
            const COLUMNS: &'static [&'static str] = &[$(stringify!($field)),*];

            fn read(cells: &mut $crate::driver::value::Cells<'_>) -> Result<Self, $crate::driver::value::Unreadable> {
                Ok(Self { $($field: $crate::driver::column::from_row!(@ cells $(, $read)?)),* })
            }
        }
    };
    (@ $cells:ident) => { $cells.take()? };
    (@ $cells:ident, $read:expr) => { $cells.read($read)? };
}
pub(crate) use from_row;

/// Turns a reader of a value into one that accepts NULL.
pub(crate) fn maybe<C, V>(
    reader: impl Fn(C) -> Result<V, Unreadable>,
) -> impl Fn(Option<C>) -> Result<Option<V>, Unreadable> {
    move |value| value.map(&reader).transpose()
}

pub(crate) fn moment(micros: i64) -> Result<Moment, Unreadable> {
    Ok(Moment::from_micros(u64::try_from(micros)?))
}

/// Format of times in JSON and in the API.
static TIMES: DateTimePrinter = DateTimePrinter::new().precision(Some(3));

/// Returns a time as RFC 3339 in UTC with milliseconds, as in `2026-01-31T12:00:00.000Z`.
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
    /// Capacity that fits nearly every text.
    const USUAL: usize = 768;
    let mut text = Vec::with_capacity(USUAL);
    serde_json::to_writer(&mut text, value).expect("plain data with string keys has a JSON form");
    String::from_utf8(text).expect("JSON is UTF-8")
}

/// Reads a value of an enum from its serde name.
pub(crate) fn named<V: DeserializeOwned>(text: &str) -> Result<V, Unreadable> {
    let deserializer: StrDeserializer<'_, serde::de::value::Error> = text.into_deserializer();
    Ok(V::deserialize(deserializer)?)
}

pub(crate) fn small(number: i64) -> Result<u16, Unreadable> {
    Ok(u16::try_from(number)?)
}
