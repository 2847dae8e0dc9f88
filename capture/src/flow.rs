//! The flow: Trunkline's text format of captured calls, made to be read, cut and edited by people:
//!
//! ```text
//! trunkline-flow 1
//! # Comments are outside of messages.
//!
//! === call 1: INVITE +442071838750
//! = caller 10.0.0.5:5060
//! = us 10.0.0.1:5060
//!
//! --- 0.000000 caller > us udp
//! INVITE sip:+442071838750@10.0.0.1 SIP/2.0
//! …
//!
//! --- 0.000812 us > caller udp
//! ? status 480
//! ? header Warning contains no agent
//! SIP/2.0 480 Temporarily Unavailable
//! …
//! ```
//!
//! A line of a message ends in CR LF on the wire. Characters that a line can't hold are escaped: `\\`, `\xNN`; a `\` at a line's end means
//! that no line end follows on the wire. Lines with `?` state what a replay expects, in place of the message as captured.

use std::fmt::Write as _;
use std::io::{self, BufRead, Read, Write};
use std::net::SocketAddr;

use super::{CaptureFault, Transport};

/// Beginning of the first line.
pub const MAGIC: &str = "trunkline-flow ";
const VERSION: &str = "1";
/// Longest line of a flow in octets, without its end. A flow beyond this or one of the next two bounds is refused.
const MAX_LINE: u64 = 1 << 20;
/// Most messages of a call.
const MAX_ENTRIES: usize = 100_000;
/// Most octets of a call's lines: its head, its messages and what is expected.
const MAX_CALL: usize = 64 << 20;

/// Role of a sender or receiver.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Role {
    /// The side that placed the call, or sent the first request.
    Caller,
    /// The daemon.
    Us,
    /// The agent's runtime, which the daemon called.
    Runtime,
    /// Any other side, such as the destination of a transfer.
    Other,
}

impl Role {
    const ALL: [Self; 4] = [Self::Caller, Self::Us, Self::Runtime, Self::Other];

    /// Returns the name in a flow.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::Us => "us",
            Self::Runtime => "runtime",
            Self::Other => "other",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == text)
    }
}

/// One message of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Microseconds since the call's first message.
    pub at: u64,
    /// Sender.
    pub from: Role,
    /// Receiver.
    pub to: Role,
    /// Transport.
    pub transport: Transport,
    /// Expectations of a replay, in place of the message as captured.
    pub expectations: Vec<String>,
    /// The octets.
    pub octets: Vec<u8>,
}

/// A call, or another exchange, grouped by its Call-IDs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Call {
    /// Title for people.
    pub title: String,
    /// Microseconds since 1970 of the first message, where known.
    pub started: u64,
    /// Addresses with their roles; a role may have several.
    pub peers: Vec<(Role, SocketAddr)>,
    /// Messages in order.
    pub entries: Vec<Entry>,
}

impl Default for Entry {
    fn default() -> Self {
        Self {
            at: 0,
            from: Role::Other,
            to: Role::Other,
            transport: Transport::Udp,
            expectations: Vec::new(),
            octets: Vec::new(),
        }
    }
}

/// Writes the head of a flow.
///
/// # Errors
/// The output can't be written.
pub fn write_head(output: &mut impl Write, source: &str) -> io::Result<()> {
    writeln!(output, "{MAGIC}{VERSION}")?;
    writeln!(output, "# from {}\n", source.escape_debug())
}

/// Writes one call.
///
/// # Errors
/// The output can't be written.
pub fn write_call(output: &mut impl Write, number: usize, call: &Call) -> io::Result<()> {
    writeln!(output, "=== call {number}: {}", call.title.escape_debug())?;

    if let Ok(started) = jiff::Timestamp::from_microsecond(i64::try_from(call.started).unwrap_or(0))
        && call.started > 0
    {
        writeln!(output, "= started {started}")?;
    }

    for (role, address) in &call.peers {
        writeln!(output, "= {} {address}", role.as_str())?;
    }

    writeln!(output)?;

    for entry in &call.entries {
        writeln!(
            output,
            "--- {}.{:06} {} > {} {}",
            entry.at / 1_000_000,
            entry.at % 1_000_000,
            entry.from.as_str(),
            entry.to.as_str(),
            entry.transport.as_str()
        )?;

        for expectation in &entry.expectations {
            writeln!(output, "? {expectation}")?;
        }

        output.write_all(escaped(&entry.octets).as_bytes())?;
        writeln!(output)?;
    }

    Ok(())
}

fn escaped(octets: &[u8]) -> String {
    let mut text = String::with_capacity(octets.len() + 16);
    let is_cut = memchr::memmem::find(octets, b"\r\n\r\n").is_none();
    let mut rest = octets;
    while !rest.is_empty() {
        let end = memchr::memmem::find(rest, b"\r\n");
        let line = &rest[..end.unwrap_or(rest.len())];
        escape_line(&mut text, line);

        // Otherwise the empty line behind the message would be read as the end of a header that has none.
        let is_last_of_cut = is_cut && end.is_some_and(|end| end + 2 == rest.len());
        text.push_str(match end {
            Some(_) if is_last_of_cut => "\\x0d\\x0a\\\n",
            Some(_) => "\n",
            None => "\\\n",
        });

        rest = end.map_or(&[], |end| &rest[end + 2..]);
    }

    text
}

fn escape_line(text: &mut String, line: &[u8]) {
    // Lines that could be read as lines of the format.
    let is_ambiguous = [&b"=== "[..], b"--- ", b"? "]
        .iter()
        .any(|mark| line.starts_with(mark));
    let first = usize::from(is_ambiguous);

    // Writing to a String never fails, here and below.
    if is_ambiguous {
        let _ = write!(text, "\\x{:02x}", line[0]);
    }

    for chunk in line[first..].utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '\\' => text.push_str("\\\\"),
                // Tabs are common in header lines, and readable.
                '\t' => text.push('\t'),
                // Separators and marks of direction would make a line look like another one, or like two.
                char if char.is_control()
                    || matches!(char, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}') =>
                {
                    let mut buffer = [0; 4];
                    for octet in char.encode_utf8(&mut buffer).bytes() {
                        let _ = write!(text, "\\x{octet:02x}");
                    }
                }
                char => text.push(char),
            }
        }

        for octet in chunk.invalid() {
            let _ = write!(text, "\\x{octet:02x}");
        }
    }
}

/// Returns the octets of a line on the wire.
fn unescape_line(line: &str) -> Option<Vec<u8>> {
    let mut octets = Vec::with_capacity(line.len() + 2);
    let mut rest = line;
    while let Some(at) = rest.find('\\') {
        octets.extend_from_slice(&rest.as_bytes()[..at]);
        rest = &rest[at + 1..];

        if rest.is_empty() {
            return Some(octets);
        }

        if let Some(behind) = rest.strip_prefix('\\') {
            octets.push(b'\\');
            rest = behind;
        } else {
            let digits = rest.strip_prefix('x')?.get(..2)?;
            octets.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &rest[3..];
        }
    }

    octets.extend_from_slice(rest.as_bytes());
    octets.extend_from_slice(b"\r\n");

    Some(octets)
}

/// Reader of the calls of a flow, one at a time.
#[derive(Debug)]
pub struct Calls<R> {
    input: R,
    line: usize,
    /// Head of the next call.
    title: Option<String>,
    has_begun: bool,
    /// Octets of the call so far.
    octets: usize,
    /// Empty lines at the end of the message so far.
    empty: usize,
    /// True if the line before them ends in `\`, so that no line end follows it on the wire.
    is_unended: bool,
}

impl<R: BufRead> Calls<R> {
    /// Creates a reader of a flow.
    pub const fn new(input: R) -> Self {
        Self {
            input,
            line: 0,
            title: None,
            has_begun: false,
            octets: 0,
            empty: 0,
            is_unended: false,
        }
    }

    fn fault(&self, what: impl Into<String>) -> CaptureFault {
        CaptureFault::Flow {
            line: self.line,
            what: what.into(),
        }
    }

    fn next_line(&mut self) -> Result<Option<String>, CaptureFault> {
        let mut line = Vec::new();
        let read = Read::take(&mut self.input, MAX_LINE + 1).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(None);
        }
        self.line += 1;

        if line.last() == Some(&b'\n') {
            line.pop();
        }
        if line.len() as u64 > MAX_LINE {
            return Err(self.fault(format!("a line of over {} MiB", MAX_LINE >> 20)));
        }
        // Some editors save each line with CR LF.
        if line.last() == Some(&b'\r') {
            line.pop();
        }

        String::from_utf8(line)
            .map(Some)
            .map_err(|_| self.fault("isn't UTF-8"))
    }

    /// Reads the next call; `None` at the end.
    ///
    /// # Errors
    /// The flow can't be read, or has a mistake.
    pub fn next_call(&mut self) -> Result<Option<Call>, CaptureFault> {
        if !self.has_begun {
            self.has_begun = true;
            let head = self.next_line()?.unwrap_or_default();
            match head.strip_prefix(MAGIC).map(str::trim) {
                Some(VERSION) => {}
                Some(other) => {
                    return Err(self.fault(format!("version {other:?} of the format isn't known")));
                }
                None => return Err(self.fault("a flow begins with `trunkline-flow 1`")),
            }
        }

        let mut call: Option<Call> = self.title.take().map(|title| Call {
            title,
            ..Call::default()
        });
        while let Some(line) = self.next_line()? {
            if let Some(head) = line.strip_prefix("=== ") {
                let title = head.split_once(": ").map_or(head, |(_, title)| title);
                self.end_message(call.as_mut());
                let open = call.replace(Call {
                    title: title.to_owned(),
                    ..Call::default()
                });
                self.octets = 0;
                if open.is_some() {
                    self.title = call.map(|call| call.title);
                    return Ok(open);
                }

                continue;
            }

            let Some(call) = call.as_mut() else {
                if line.trim().is_empty() || line.starts_with('#') {
                    continue;
                }
                return Err(self.fault("precedes the first call (`=== call 1: …`)"));
            };

            self.line_of(call, &line)?;
        }

        self.end_message(call.as_mut());
        Ok(call)
    }

    /// Drops the empty line that separates a message from the next one, unless an editor has removed it.
    fn end_message(&mut self, call: Option<&mut Call>) {
        let (empty, is_unended) = (self.empty, self.is_unended);
        (self.empty, self.is_unended) = (0, false);
        let Some(entry) = call.and_then(|call| call.entries.last_mut()) else {
            return;
        };
        let inner = &entry.octets[..entry.octets.len() - 2 * empty];
        let is_ended = is_unended || memchr::memmem::find(inner, b"\r\n\r\n").is_some();
        if empty > usize::from(!is_ended) {
            entry.octets.truncate(entry.octets.len() - 2);
        }
    }

    fn line_of(&mut self, call: &mut Call, line: &str) -> Result<(), CaptureFault> {
        // A line that is empty takes two octets in a message.
        self.octets += line.len() + 2;
        if self.octets > MAX_CALL {
            return Err(self.fault(format!("a call of over {} MiB", MAX_CALL >> 20)));
        }

        if let Some(head) = line.strip_prefix("--- ") {
            if call.entries.len() == MAX_ENTRIES {
                return Err(self.fault(format!("a call of over {MAX_ENTRIES} messages")));
            }
            self.end_message(Some(call));
            let entry = entry_head(head).ok_or_else(|| {
                self.fault("a message is opened as `--- 0.000812 caller > us udp`")
            })?;
            call.entries.push(entry);
            return Ok(());
        }

        let Some(entry) = call.entries.last_mut() else {
            return self.line_of_head(call, line);
        };

        // A `?` line further down belongs to the message: only before its first line does it state an expectation.
        if entry.octets.is_empty()
            && let Some(expectation) = line.strip_prefix("? ")
        {
            entry.expectations.push(expectation.trim().to_owned());
            return Ok(());
        }

        let octets = unescape_line(line)
            .ok_or_else(|| self.fault(r"`\` is written `\\`, an octet `\x1f`"))?;

        if line.is_empty() {
            self.empty += 1;
        } else {
            self.empty = 0;
            let slashes = line
                .bytes()
                .rev()
                .take_while(|octet| *octet == b'\\')
                .count();
            // An even number is escaped backslashes.
            self.is_unended = slashes % 2 == 1;
        }

        entry.octets.extend_from_slice(&octets);
        Ok(())
    }

    fn line_of_head(&self, call: &mut Call, line: &str) -> Result<(), CaptureFault> {
        let Some(fact) = line.strip_prefix("= ") else {
            if line.trim().is_empty() || line.starts_with('#') {
                return Ok(());
            }
            return Err(self.fault("isn't understood in the head of a call"));
        };

        let (name, value) = fact.split_once(' ').unwrap_or((fact, ""));
        if name == "started" {
            let started: jiff::Timestamp = value
                .trim()
                .parse()
                .map_err(|_| self.fault("`started` is no time"))?;
            call.started = u64::try_from(started.as_microsecond()).unwrap_or(0);
            return Ok(());
        }

        let role = Role::parse(name).ok_or_else(|| {
            self.fault(format!("{name:?} is neither caller, us, runtime nor other"))
        })?;
        let address = value
            .trim()
            .parse()
            .map_err(|_| self.fault(format!("{value:?} is no address with a port")))?;
        call.peers.push((role, address));

        Ok(())
    }
}

fn entry_head(head: &str) -> Option<Entry> {
    let words: Vec<&str> = head.split_whitespace().collect();
    let [at, from, ">", to, transport] = words.as_slice() else {
        return None;
    };

    let (seconds, fraction) = at.split_once('.').unwrap_or((at, "0"));
    if fraction.is_empty()
        || fraction.len() > 6
        || !fraction.bytes().all(|octet| octet.is_ascii_digit())
    {
        return None;
    }

    let micros: u64 = format!("{fraction:0<6}").parse().ok()?;
    Some(Entry {
        at: seconds
            .parse::<u64>()
            .ok()?
            .checked_mul(1_000_000)?
            .checked_add(micros)?,
        from: Role::parse(from)?,
        to: Role::parse(to)?,
        transport: Transport::parse(transport)?,
        expectations: Vec::new(),
        octets: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<Vec<Call>, CaptureFault> {
        let mut calls = Calls::new(text.as_bytes());
        std::iter::from_fn(|| calls.next_call().transpose()).collect()
    }

    fn written(calls: &[Call]) -> String {
        let mut text = Vec::new();
        write_head(&mut text, "a test").unwrap();
        for (at, call) in calls.iter().enumerate() {
            write_call(&mut text, at + 1, call).unwrap();
        }
        String::from_utf8(text).unwrap()
    }

    fn call(messages: Vec<Vec<u8>>) -> Call {
        Call {
            title: "INVITE a".to_owned(),
            started: 1_700_000_000_000_001,
            peers: vec![(Role::Caller, "10.0.0.1:5060".parse().unwrap())],
            entries: messages
                .into_iter()
                .map(|octets| Entry {
                    at: 61_000_001,
                    from: Role::Caller,
                    to: Role::Us,
                    octets,
                    ..Entry::default()
                })
                .collect(),
        }
    }

    #[test]
    fn odd_messages_survive() {
        for octets in [
            &b"INVITE sip:a SIP/2.0\r\n\r\n"[..],
            b"A\r\n\r\nbody",
            b"A\r\n\r\nbody\r\n",
            b"A\r\n\r\nbody\r\n\r\n\r\n",
            b"cut\r\n",
            b"cut",
            b"A\r\nB",
            b"=== x\r\n--- y\r\n? z\r\n\\\t\xff\0\n\r\n\r\n",
        ] {
            let calls = [
                call(vec![octets.to_vec(), octets.to_vec()]),
                call(vec![octets.to_vec()]),
            ];
            let text = written(&calls);
            assert_eq!(read(&text).unwrap(), calls, "{text}");
        }
    }

    #[test]
    fn an_editor_may_take_the_last_line_end() {
        let calls = [call(vec![b"A: b\r\n\r\n".to_vec()])];
        let text = written(&calls);
        assert_eq!(
            read(text.trim_end()).unwrap()[0].entries[0].octets,
            b"A: b\r\n"
        );
        assert_eq!(read(&format!("{}\n\n", text.trim_end())).unwrap(), calls);
    }

    #[test]
    fn a_line_is_read_whole_or_refused() {
        let line = |octets: u64| {
            let text = "x".repeat(octets as usize);
            format!("trunkline-flow 1\n# {text}\n=== call 1: a\n--- 0.1 caller > us udp\n{text}\n")
        };

        let calls = read(&line(MAX_LINE - 2)).unwrap();
        assert_eq!(calls[0].entries[0].octets.len() as u64, MAX_LINE);
        match read(&line(MAX_LINE + 1)) {
            Err(CaptureFault::Flow { line, .. }) => assert_eq!(line, 2),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, line) in [
            ("rubbish\n", 1),
            ("trunkline-flow 2\n", 1),
            ("trunkline-flow 1\nhello\n", 2),
            ("trunkline-flow 1\n=== call 1: a\n= nobody 1.2.3.4:5\n", 3),
            (
                "trunkline-flow 1\n=== call 1: a\n--- now caller > us udp\n",
                3,
            ),
            (
                "trunkline-flow 1\n=== call 1: a\n--- 0.1 caller > us udp\n\\q\n",
                4,
            ),
        ] {
            match read(text) {
                Err(CaptureFault::Flow { line: found, .. }) => assert_eq!(found, line, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    /// Each text goes on behind the bound, so that the line of the fault shows that no more was read.
    #[test]
    fn a_call_is_bounded_while_it_is_read() {
        let head = "trunkline-flow 1\n=== call 1: a\n";
        let message = "--- 0.1 caller > us udp\n";
        let line = "x".repeat((1 << 20) - 2) + "\n";
        for (name, text, at) in [
            (
                "messages",
                message.repeat(MAX_ENTRIES + 10),
                MAX_ENTRIES + 1,
            ),
            ("octets", message.to_owned() + &line.repeat(70), 65),
        ] {
            match read(&format!("{head}{text}")) {
                Err(CaptureFault::Flow { line, .. }) => assert_eq!(line, 2 + at, "{name}"),
                other => panic!("{name}: {:?}", other.map(|calls| calls.len())),
            }
        }
    }

    proptest! {
        #[test]
        fn every_message_survives(octets in proptest::collection::vec(
            prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'\\'), Just(b'='), Just(b' '), any::<u8>()], 1..60))
        {
            let calls = [call(vec![octets.clone(), b"x".to_vec(), octets])];
            prop_assert_eq!(read(&written(&calls)).unwrap(), calls);
        }

        #[test]
        fn reading_never_panics(text in "(trunkline-flow 1\n)?([-=?] ?[a-z0-9 .>\\\\:]{0,20}\n|\n){0,20}") {
            let _ = read(&text);
        }
    }
}
