//! Times as the API writes and reads them: RFC 3339 in UTC with milliseconds.

use jiff::Timestamp;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use trunkline_sip::moment::Moment;

/// `2026-01-31T12:00:00.000Z`.
pub(super) fn written(moment: Moment) -> String {
    let micros = i64::try_from(moment.as_micros()).unwrap_or(i64::MAX);
    let timestamp = Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MAX);
    format!("{timestamp:.3}")
}

/// The start of a window: a timestamp, or a date, which begins at its midnight.
pub(crate) fn start(text: &str) -> Result<Moment, String> {
    read(text, Time::midnight())
}

/// The inclusive end of a window: a timestamp, or a date, which ends at its midnight. The whole millisecond is in it, since what
/// we show of a time goes no further.
pub(crate) fn end(text: &str) -> Result<Moment, String> {
    let end = read(text, Time::constant(23, 59, 59, 999_000_000))?.as_micros();
    Ok(Moment::from_micros(end - end % 1000 + 999))
}

/// ISO 8601 with an offset, or without one in UTC.
fn read(text: &str, of_day: Time) -> Result<Moment, String> {
    let utc = |time: DateTime| {
        time.to_zoned(TimeZone::UTC)
            .ok()
            .map(|zoned| zoned.timestamp())
    };
    let timestamp = if text.contains(['T', 't', ' ']) {
        text.parse::<Timestamp>()
            .ok()
            .or_else(|| text.parse::<DateTime>().ok().and_then(utc))
    } else {
        text.parse::<Date>()
            .ok()
            .and_then(|date| utc(date.to_datetime(of_day)))
    };
    timestamp
        .and_then(|timestamp| u64::try_from(timestamp.as_microsecond()).ok())
        .map(Moment::from_micros)
        .ok_or_else(|| format!("{text:?} is no ISO 8601 date or time"))
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ("1969-12-31", None, None),
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
