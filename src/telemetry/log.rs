//! Log lines on standard error, as text or JSON. Every value passes `redact`.

use std::fmt::{self, Write as _};
use std::io;
use std::sync::OnceLock;

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields, MakeWriter};
use tracing_subscriber::registry::LookupSpan;

use super::log_queue::{LogGuard, LogQueue};
use super::redact::{is_credential, scrub};
use crate::config::{Log, LogFormat};

/// The queue of the process, once logging has started.
static QUEUE: OnceLock<LogQueue> = OnceLock::new();

/// Starts logging for the whole process; a second call changes nothing.
///
/// A separate thread writes the lines, since the reader of standard error may be slow and a shard never waits. Dropping the guard gives that thread a
/// second to write the queued lines.
pub fn start(log: &Log) -> LogGuard {
    let (queue, guard) = LogQueue::start(io::stderr());
    // Both fail at a second call only.
    let _ = QUEUE.set(queue.clone());
    let _ = tracing::subscriber::set_global_default(subscriber(log, queue));
    guard
}

/// Returns the number of lines that were dropped because too many waited for standard error.
pub(super) fn dropped_lines() -> usize {
    QUEUE.get().map_or(0, LogQueue::dropped)
}

fn subscriber<W>(log: &Log, writer: W) -> impl Subscriber + Send + Sync
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let filter = EnvFilter::builder().parse_lossy(directives(&log.level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        // Standard error is the only output. If it can't be written, for example on a full disk, reporting that there
        // would fail again and panic.
        .log_internal_errors(false)
        .fmt_fields(Fields(log.format))
        .event_format(Line(log.format))
        .finish()
}

/// Returns the configured directives. They silence the database driver unless they name it: it logs each statement, and slow ones again.
fn directives(level: &str) -> String {
    match level.contains("sqlx") {
        true => level.to_owned(),
        false => format!("{level},sqlx=error"),
    }
}

/// Formatter of one event as one line.
struct Line(LogFormat);

/// Formatter of the fields of a span or an event.
struct Fields(LogFormat);

impl<'writer> FormatFields<'writer> for Fields {
    fn format_fields<R: tracing_subscriber::field::RecordFields>(
        &self,
        mut writer: Writer<'writer>,
        fields: R,
    ) -> fmt::Result {
        let mut visitor = FieldWriter::new(self.0);
        fields.record(&mut visitor);
        writer.write_str(&visitor.out)
    }
}

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = FieldWriter::new(self.0);
        event.record(&mut fields);
        let spans: Vec<String> = context
            .event_scope()
            .into_iter()
            .flat_map(|scope| scope.from_root())
            .filter_map(|span| {
                span.extensions()
                    .get::<FormattedFields<N>>()
                    .map(|fields| fields.fields.clone())
            })
            .filter(|fields| !fields.is_empty())
            .collect();

        match self.0 {
            LogFormat::Text => text_line(&mut writer, event, &fields, &spans),
            LogFormat::Json => json_line(&mut writer, event, &fields, &spans),
        }
    }
}

fn text_line(
    writer: &mut Writer<'_>,
    event: &Event<'_>,
    fields: &FieldWriter,
    spans: &[String],
) -> fmt::Result {
    let (time, level) = (jiff::Timestamp::now(), event.metadata().level());
    write!(writer, "{time:.3} {level:>5} {}", fields.message)?;
    for part in [&fields.out]
        .into_iter()
        .chain(spans)
        .filter(|part| !part.is_empty())
    {
        write!(writer, " {part}")?;
    }
    writeln!(writer)
}

fn json_line(
    writer: &mut Writer<'_>,
    event: &Event<'_>,
    fields: &FieldWriter,
    spans: &[String],
) -> fmt::Result {
    let (time, metadata) = (jiff::Timestamp::now(), event.metadata());
    let level = metadata.level().as_str().to_ascii_lowercase();
    let (target, message) = (quoted(metadata.target()), quoted(&fields.message));
    write!(
        writer,
        r#"{{"time":"{time:.3}","level":"{level}","target":{target},"message":{message}"#
    )?;
    for part in spans
        .iter()
        .chain([&fields.out])
        .filter(|part| !part.is_empty())
    {
        write!(writer, ",{part}")?;
    }
    writeln!(writer, "}}")
}

/// Room for the fields of a usual line, so that it grows rarely: a shard writes a line for each call.
const USUAL: usize = 512;

/// Collects fields; the message is kept apart.
struct FieldWriter {
    out: String,
    format: LogFormat,
    message: String,
    /// Buffer for a value before it is searched for credentials.
    scratch: String,
}

impl FieldWriter {
    fn new(format: LogFormat) -> Self {
        Self {
            out: String::with_capacity(USUAL),
            format,
            message: String::new(),
            scratch: String::new(),
        }
    }

    fn text(&mut self, field: &Field, value: &str) {
        let shown = if is_credential(field.name()) {
            "[hidden]".into()
        } else {
            scrub(value)
        };

        if field.name() == "message" {
            self.message = shown.into_owned();
            return;
        }

        let is_quoted = match self.format {
            LogFormat::Json => true,
            LogFormat::Text => shown.is_empty() || shown.contains([' ', '"', '=']),
        };
        let out = self.named(field);
        match is_quoted {
            true => out.push_str(&quoted(&shown)),
            false => out.push_str(&shown),
        }
    }

    fn plain(&mut self, field: &Field, value: impl fmt::Display) {
        // Writing to a string doesn't fail.
        let _ = write!(self.named(field), "{value}");
    }

    /// Appends a separator and the name of a field; its value belongs behind that.
    fn named(&mut self, field: &Field) -> &mut String {
        let name = field.name();
        let is_first = self.out.is_empty();
        match self.format {
            LogFormat::Text => {
                self.out.push_str(if is_first { "" } else { " " });
                self.out.push_str(name);
                self.out.push('=');
            }
            LogFormat::Json => {
                self.out.push_str(if is_first { "" } else { "," });
                self.out.push_str(&quoted(name));
                self.out.push(':');
            }
        }
        &mut self.out
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

impl Visit for FieldWriter {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut written = std::mem::take(&mut self.scratch);
        let _ = write!(written, "{value:?}");
        self.text(field, &written);
        written.clear();
        self.scratch = written;
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.plain(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.plain(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        let shown = match self.format {
            LogFormat::Text => format!("{value:?}"),
            // JSON has no number for infinity and NaN: they become null.
            LogFormat::Json => serde_json::Value::from(value).to_string(),
        };
        self.plain(field, shown);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.plain(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        let mut text = value.to_string();
        let mut cause = value.source();
        while let Some(error) = cause {
            let _ = write!(text, ": {error}");
            cause = error.source();
        }
        self.text(field, &text);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(octets);
            Ok(octets.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: LogFormat, log: impl FnOnce()) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = subscriber(
            &Log {
                format,
                level: "info".to_owned(),
            },
            move || writer.clone(),
        );
        tracing::subscriber::with_default(subscriber, log);
        String::from_utf8(lines.0.lock().unwrap().clone()).unwrap()
    }

    fn a_call() {
        let span = tracing::info_span!("call", call.id = "7", sip.call_id = "a\r\nb");
        let _entered = span.enter();
        tracing::info!(
            password = "hunter2",
            rtp_ms = 12,
            peer = "x y",
            "answered \u{1b}[31m Bearer abc"
        );
        tracing::debug!("too fine");
    }

    #[test]
    fn a_text_line_shows_message_fields_and_span() {
        let line = logged(LogFormat::Text, a_call);
        let (_, rest) = line.split_once("  INFO ").expect("a level");
        assert_eq!(
            rest,
            "answered \\u{1b}[31m Bearer [hidden] password=[hidden] rtp_ms=12 peer=\"x y\" call.id=7 sip.call_id=a\\r\\nb\n"
        );
    }

    #[test]
    fn the_database_driver_is_quiet_unless_asked() {
        for (level, says) in [
            ("info", false),
            ("trace", false),
            ("info,trunkline=debug", false),
            ("info,sqlx=debug", true),
            ("off,sqlx::query=trace", true),
        ] {
            let filter = EnvFilter::builder().parse_lossy(directives(level));
            let lines = Lines::default();
            let writer = lines.clone();
            let subscriber = tracing_subscriber::fmt()
                .with_env_filter(filter)
                .with_writer(move || writer.clone())
                .finish();
            tracing::subscriber::with_default(subscriber, || {
                tracing::debug!(target: "sqlx::query", "SELECT 1");
            });
            let said = !lines.0.lock().unwrap().is_empty();
            assert_eq!(said, says, "{level}");
        }
    }

    #[test]
    fn a_fraction_is_a_number_in_json() {
        let log = || tracing::info!(share = 0.5, rest = f64::NAN, "measured");
        let line = logged(LogFormat::Json, log);
        let object: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(object["share"], 0.5);
        assert_eq!(object["rest"], serde_json::Value::Null);
        assert!(logged(LogFormat::Text, log).ends_with("measured share=0.5 rest=NaN\n"));
    }

    #[test]
    fn a_json_line_is_one_object() {
        let line = logged(LogFormat::Json, a_call);
        assert_eq!(line.lines().count(), 1);
        let mut object: serde_json::Value = serde_json::from_str(&line).unwrap();
        let time = object.as_object_mut().unwrap().remove("time").unwrap();
        assert!(time.as_str().unwrap().ends_with('Z'));
        assert_eq!(
            object,
            serde_json::json!({
                "level": "info", "target": "trunkline::telemetry::log::tests", "message": "answered \\u{1b}[31m Bearer [hidden]",
                "call.id": "7", "sip.call_id": "a\\r\\nb", "password": "[hidden]", "rtp_ms": 12, "peer": "x y",
            })
        );
    }
}
