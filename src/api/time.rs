//! Times in the API: RFC 3339 in UTC with milliseconds.

use std::borrow::Cow;

use jiff::Timestamp;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use trunkline_sip::moment::Moment;

pub(crate) use trunkline_store::written;

/// Parses an RFC 3339 time (§5.6): a date, a time and an offset. A time before 1970 is clamped.
pub(crate) fn timestamp(text: &str) -> Option<Moment> {
    const DATE: usize = "2026-01-31".len();
    // The parser takes more than RFC 3339: a blank instead of `T`, no seconds, a zone's name in brackets.
    let has_seconds = text.as_bytes().get(DATE + 6) == Some(&b':');
    let is_strict = text.as_bytes().get(DATE) == Some(&b'T') && has_seconds && !text.contains('[');
    let timestamp: Timestamp = text.parse().ok().filter(|_| is_strict)?;
    Some(clamped(timestamp))
}

/// Parses the start of a window: a timestamp, or a date, which means its first moment.
pub(crate) fn start(text: &str) -> Result<Moment, String> {
    read(text, Time::midnight())
}

/// Parses the inclusive end of a window: a timestamp, or a date, which means its last moment. It includes the whole
/// millisecond, because the API shows times in milliseconds.
pub(crate) fn end(text: &str) -> Result<Moment, String> {
    let end = read(text, Time::constant(23, 59, 59, 999_000_000))?.as_micros();
    Ok(Moment::from_micros(end - end % 1000 + 999))
}

/// Parses ISO 8601 with an offset, or without one as UTC. A time before 1970 or after the last one that can be written
/// is clamped.
fn read(text: &str, of_day: Time) -> Result<Moment, String> {
    let utc = |time: DateTime| {
        time.to_zoned(TimeZone::UTC)
            .map_or(Timestamp::MAX, |zoned| zoned.timestamp())
    };
    let timestamp = if text.contains(['T', 't', ' ']) {
        let text = with_plus(text);
        let civil = || text.parse::<DateTime>().ok().map(utc);
        text.parse::<Timestamp>().ok().or_else(civil)
    } else {
        let date = text.parse::<Date>().ok();
        date.map(|date| utc(date.to_datetime(of_day)))
    };

    timestamp
        .map(clamped)
        .ok_or_else(|| format!("{text:?} is not an ISO 8601 date or time"))
}

/// Returns the moment of a time; that of one before 1970 is 0.
fn clamped(timestamp: Timestamp) -> Moment {
    Moment::from_micros(u64::try_from(timestamp.as_microsecond()).unwrap_or(0))
}

/// Restores the `+` of an offset that a client forgot to escape, and that arrived as a blank.
fn with_plus(text: &str) -> Cow<'_, str> {
    match text.rsplit_once(' ') {
        Some((time, offset)) if time.contains(['T', 't']) => format!("{time}+{offset}").into(),
        Some(_) | None => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_has_a_date_a_time_and_an_offset() {
        for (name, text, secs) in [
            ("UTC", "2026-01-31T12:00:00Z", Some(1_769_860_800)),
            (
                "an offset",
                "2026-01-31T13:00:00+01:00",
                Some(1_769_860_800),
            ),
            (
                "a fraction",
                "2026-01-31T12:00:00.000Z",
                Some(1_769_860_800),
            ),
            ("no offset", "2026-01-31T12:00:00", None),
            ("a date", "2026-01-31", None),
            ("a blank", "2026-01-31 12:00:00Z", None),
            ("no seconds", "2026-01-31T12:00Z", None),
            ("a zone's name", "2026-01-31T12:00:00Z[UTC]", None),
            ("before 1970", "1969-12-31T23:59:59Z", Some(0)),
            ("an early year", "0026-01-31T12:00:00Z", Some(0)),
        ] {
            assert_eq!(timestamp(text), secs.map(Moment::from_secs), "{name}");
        }
    }

    #[test]
    fn what_is_shown_of_a_time_finds_it() {
        let time = Moment::from_micros(1_769_860_800_123_456);
        let shown = written(time);
        assert_eq!(shown, "2026-01-31T12:00:00.123Z");
        assert!(start(&shown).unwrap() <= time && time <= end(&shown).unwrap());
        assert!(end(&shown).unwrap() < start("2026-01-31T12:00:00.124Z").unwrap());
    }

    #[test]
    fn dates_and_times_are_read() {
        for (text, at_start, at_end) in [
            (
                "2026-01-31",
                Some("2026-01-31T00:00:00.000Z"),
                Some("2026-01-31T23:59:59.999Z"),
            ),
            (
                "2026-01-31T12:30:00Z",
                Some("2026-01-31T12:30:00.000Z"),
                Some("2026-01-31T12:30:00.000Z"),
            ),
            (
                "2026-01-31T12:30:00.5+02:00",
                Some("2026-01-31T10:30:00.500Z"),
                Some("2026-01-31T10:30:00.500Z"),
            ),
            (
                "2026-01-31T12:30:00",
                Some("2026-01-31T12:30:00.000Z"),
                Some("2026-01-31T12:30:00.000Z"),
            ),
            // An unescaped `+` arrives as a blank.
            (
                "2026-01-31T12:30:00.5 02:00",
                Some("2026-01-31T10:30:00.500Z"),
                Some("2026-01-31T10:30:00.500Z"),
            ),
            (
                "2026-01-31 12:30:00",
                Some("2026-01-31T12:30:00.000Z"),
                Some("2026-01-31T12:30:00.000Z"),
            ),
            (
                "1969-12-31",
                Some("1970-01-01T00:00:00.000Z"),
                Some("1970-01-01T00:00:00.000Z"),
            ),
            (
                "9999-12-31",
                Some("9999-12-30T22:00:00.999Z"),
                Some("9999-12-30T22:00:00.999Z"),
            ),
            ("2026-01-31T12:30:00 x", None, None),
            ("2026-02-30", None, None),
            ("yesterday", None, None),
            ("", None, None),
        ] {
            assert_eq!(
                start(text).ok().map(written).as_deref(),
                at_start,
                "start {text}"
            );
            assert_eq!(end(text).ok().map(written).as_deref(), at_end, "end {text}");
        }
    }
}
