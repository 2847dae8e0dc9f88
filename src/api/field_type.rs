//! Types of the fields in a body, and the words that refuse a wrong value.
//!
//! A message repeats the value only if the value can't be a secret.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use ipnet::IpNet;
use serde_json::{Map, Value, json};
use trunkline_routing::E164;
use uuid::Uuid;

/// Type of a field.
pub(crate) trait FieldType {
    /// Rust type of a value.
    type Read;

    /// JSON Schema of the values.
    fn schema(&self) -> Value {
        json!({})
    }

    /// Reads a value, or notes what is wrong with it under its path.
    fn read(&self, value: Value, path: &str, faults: &mut Vec<String>) -> Option<Self::Read>;
}

/// Text, its length counted in characters.
#[derive(Clone, Debug)]
pub(super) struct Text {
    length: RangeInclusive<usize>,
    lines: bool,
}

/// `true` or `false`.
#[derive(Copy, Clone, Debug)]
pub(super) struct Bool;

/// Integer.
#[derive(Clone, Debug)]
pub(super) struct Count(RangeInclusive<u32>);

/// One of a few words.
#[derive(Copy, Clone, Debug)]
pub(super) struct Choice<T: 'static>(pub(super) &'static [(&'static str, T)]);

/// Text that is parsed into a value: the parser, and a description of the text with its article.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Parsed<T> {
    what: &'static str,
    parse: fn(&str) -> Option<T>,
    pattern: Option<&'static str>,
    format: Option<&'static str>,
    example: Option<&'static str>,
    longest: Option<usize>,
}

/// List of entries of one type.
#[derive(Clone, Debug)]
pub(super) struct ListOf<S> {
    entry: S,
    length: RangeInclusive<usize>,
}

/// Object whose fields the client chooses.
#[derive(Copy, Clone, Debug)]
pub(super) struct FreeObject {
    /// Maximum size as JSON, in octets.
    most: usize,
}

/// Name that a person gives to an object.
pub(super) const NAME: Text = Text::line(1..=200);
/// Phone number.
pub(super) const NUMBER: Parsed<E164> =
    Parsed::new("an E.164 number", |text| E164::parse(text).ok())
        .like(E164::PATTERN)
        .example("+442071838750");
/// Network, or one address.
pub(super) const NETWORK: Parsed<IpNet> = Parsed::new("an IP address or a CIDR block", |text| {
    let address = || text.parse::<IpAddr>().ok().map(IpNet::from);
    let network = text.parse::<IpNet>().ok().or_else(address);
    // Without host bits, so that two spellings of one network are equal.
    network.map(|network| network.trunc())
})
.example("192.0.2.0/24");
/// Id of an object.
pub(super) const ID: Parsed<Uuid> = Parsed::new("an id", id).format("uuid");

/// Parses an id as the API writes ids (RFC 9562 §4), also in capitals; other forms of a UUID are refused.
pub(crate) fn id(text: &str) -> Option<Uuid> {
    const WRITTEN: usize = uuid::fmt::Hyphenated::LENGTH;
    (text.len() == WRITTEN).then(|| text.parse().ok())?
}

/// Parses an id as the API takes one, for use outside the API.
///
/// # Errors
/// A description of what an id looks like.
pub(crate) fn id_of(text: &str) -> Result<Uuid, String> {
    const EXAMPLE: &str = "as 0198f3a2-7c41-7d12-9b1e-3f5f0c6d2a10";
    id(text).ok_or_else(|| format!("ids are UUIDs with their hyphens, {EXAMPLE}"))
}

/// Parses a name as the API takes one, for use outside the API.
///
/// # Errors
/// A description of what is wrong.
pub(crate) fn name(text: &str) -> Result<String, String> {
    match NAME.fault(text) {
        None => Ok(text.to_owned()),
        Some(fault) => Err(fault),
    }
}

impl Text {
    /// Text in one line, without control characters.
    pub(super) const fn line(length: RangeInclusive<usize>) -> Self {
        Self {
            length,
            lines: false,
        }
    }

    /// Text that may have several lines.
    pub(super) const fn lines(length: RangeInclusive<usize>) -> Self {
        Self {
            length,
            lines: true,
        }
    }

    fn fault(&self, text: &str) -> Option<String> {
        let (least, most) = (*self.length.start(), *self.length.end());
        let length = text.chars().count();
        let allowed =
            |char: char| !char.is_control() || (self.lines && matches!(char, '\n' | '\r' | '\t'));

        // In JSON Schema's regular expressions the byte order mark is a blank (ECMA-262 §12.2).
        let is_blank = |char: char| char.is_whitespace() || char == '\u{feff}';
        // Judged first: of a text of blanks alone, "must not be empty" says more than a length.
        if least > 0 && text.chars().all(is_blank) {
            Some("must not be empty".to_owned())
        } else if !self.length.contains(&length) {
            Some(format!(
                "expected {least} to {most} characters, not {length}"
            ))
        } else if !text.chars().all(allowed) {
            Some("must not hold control characters".to_owned())
        } else {
            None
        }
    }
}

impl Count {
    pub(super) const fn new(range: RangeInclusive<u32>) -> Self {
        Self(range)
    }
}

impl<T> Parsed<T> {
    pub(super) const fn new(what: &'static str, parse: fn(&str) -> Option<T>) -> Self {
        Self {
            what,
            parse,
            pattern: None,
            format: None,
            example: None,
            longest: None,
        }
    }

    /// Adds a pattern to the schema that every such text matches.
    pub(super) const fn like(mut self, pattern: &'static str) -> Self {
        self.pattern = Some(pattern);
        self
    }

    /// Adds JSON Schema's name for the format to the schema.
    pub(super) const fn format(mut self, format: &'static str) -> Self {
        self.format = Some(format);
        self
    }

    /// Adds an example to the schema.
    pub(super) const fn example(mut self, example: &'static str) -> Self {
        self.example = Some(example);
        self
    }

    /// Adds the maximum length to the schema.
    pub(super) const fn at_most(mut self, longest: usize) -> Self {
        self.longest = Some(longest);
        self
    }
}

impl<S> ListOf<S> {
    pub(super) const fn new(entry: S, length: RangeInclusive<usize>) -> Self {
        Self { entry, length }
    }
}

impl FreeObject {
    pub(super) const fn new(most: usize) -> Self {
        Self { most }
    }
}

impl FieldType for Text {
    type Read = String;

    fn schema(&self) -> Value {
        let (least, most) = (*self.length.start(), *self.length.end());
        let char = if self.lines {
            r"[^\u0000-\u0008\u000B\u000C\u000E-\u001F\u007F-\u009F]"
        } else {
            r"[^\u0000-\u001F\u007F-\u009F]"
        };
        let pattern = if least > 0 {
            // At least one character that isn't a blank.
            format!(r"^{char}*[^\u0000-\u001F\u007F-\u009F\s]{char}*$")
        } else {
            format!("^{char}*$")
        };
        json!({"type": "string", "minLength": least, "maxLength": most, "pattern": pattern})
    }

    fn read(&self, value: Value, path: &str, faults: &mut Vec<String>) -> Option<String> {
        let text = text(value, path, faults)?;
        match self.fault(&text) {
            None => Some(text),
            Some(fault) => refuse(path, fault, faults),
        }
    }
}

impl FieldType for Bool {
    type Read = bool;

    fn schema(&self) -> Value {
        json!({"type": "boolean"})
    }

    fn read(&self, value: Value, path: &str, faults: &mut Vec<String>) -> Option<bool> {
        value
            .as_bool()
            .or_else(|| another(path, "true or false", kind(&value), faults))
    }
}

impl FieldType for Count {
    type Read = u32;

    fn schema(&self) -> Value {
        json!({"type": "integer", "minimum": self.0.start(), "maximum": self.0.end()})
    }

    fn read(&self, value: Value, path: &str, faults: &mut Vec<String>) -> Option<u32> {
        let Self(range) = self;
        // 5.0 is an integer too (JSON Schema, validation §6.1.1).
        let whole =
            |number: &f64| number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(number);
        let from_real = || value.as_f64().filter(whole).map(|number| number as u64);

        let count = value
            .as_u64()
            .or_else(from_real)
            .and_then(|count| u32::try_from(count).ok())
            .filter(|count| range.contains(count));

        count.or_else(|| {
            let (least, most) = (range.start(), range.end());
            let fault = format!("expected a whole number from {least} to {most}");
            refuse(path, fault, faults)
        })
    }
}

impl<T: Copy> Choice<T> {
    /// Returns the meaning of the word, or the list of known words.
    pub(super) fn meaning(&self, text: &str) -> Result<T, String> {
        let Self(words) = self;
        let found = words.iter().find(|(word, _)| *word == text);
        found.map(|(_, meaning)| *meaning).ok_or_else(|| {
            let known: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            format!("{} is none of {}", shown(text), known.join(", "))
        })
    }
}

impl<T: Copy> FieldType for Choice<T> {
    type Read = T;

    fn schema(&self) -> Value {
        let words: Vec<_> = self.0.iter().map(|(word, _)| *word).collect();
        json!({"type": "string", "enum": words})
    }

    fn read(&self, value: Value, path: &str, faults: &mut Vec<String>) -> Option<T> {
        let text = text(value, path, faults)?;
        match self.meaning(&text) {
            Ok(meaning) => Some(meaning),
            Err(fault) => refuse(path, fault, faults),
        }
    }
}

impl<T> FieldType for Parsed<T> {
    type Read = T;

    fn schema(&self) -> Value {
        let what = self
            .what
            .strip_prefix("an ")
            .or(self.what.strip_prefix("a "));
        let mut schema = json!({"type": "string", "description": what.unwrap_or(self.what)});
        for (name, value) in [
            ("pattern", self.pattern.map(Value::from)),
            ("format", self.format.map(Value::from)),
            ("examples", self.example.map(|example| json!([example]))),
            ("maxLength", self.longest.map(Value::from)),
        ] {
            if let Some(value) = value {
                schema[name] = value;
            }
        }

        schema
    }

    fn read(&self, value: Value, path: &str, faults: &mut Vec<String>) -> Option<T> {
        let text = text(value, path, faults)?;
        (self.parse)(&text).or_else(|| {
            refuse(
                path,
                format_args!("{} is not {}", shown(&text), self.what),
                faults,
            )
        })
    }
}

impl<S: FieldType> FieldType for ListOf<S> {
    type Read = Vec<S::Read>;

    fn schema(&self) -> Value {
        let (least, most) = (self.length.start(), self.length.end());
        json!({"type": "array", "items": self.entry.schema(), "minItems": least, "maxItems": most})
    }

    fn read(&self, value: Value, path: &str, faults: &mut Vec<String>) -> Option<Vec<S::Read>> {
        let found = kind(&value);
        let Value::Array(entries) = value else {
            return another(path, "a list", found, faults);
        };

        // Before the entries are read: each could note a fault.
        if !self.length.contains(&entries.len()) {
            let (least, most) = (self.length.start(), self.length.end());
            let fault = format!("expected {least} to {most} entries, not {}", entries.len());
            return refuse(path, fault, faults);
        }

        let read: Vec<_> = entries
            .into_iter()
            .enumerate()
            .map(|(at, entry)| self.entry.read(entry, &format!("{path}[{at}]"), faults))
            .collect();
        // All entries have been read by now, so that each wrong one is named. Collecting into an `Option` while
        // reading would stop at the first.
        read.into_iter().collect()
    }
}

impl FieldType for FreeObject {
    type Read = Map<String, Value>;

    fn schema(&self) -> Value {
        let most = self.most / 1024;
        json!({"type": "object", "description": format!("At most {most} KiB as JSON.")})
    }

    fn read(&self, value: Value, path: &str, faults: &mut Vec<String>) -> Option<Self::Read> {
        // Measured as compact JSON: blanks in the request don't count.
        let (found, length) = (kind(&value), value.to_string().len());
        let Value::Object(map) = value else {
            return another(path, "an object", found, faults);
        };
        if length > self.most {
            let most = self.most / 1024;
            let fault = format_args!("expected at most {most} KiB, not {length} octets");
            return refuse(path, fault, faults);
        }
        Some(map)
    }
}

fn text(value: Value, path: &str, faults: &mut Vec<String>) -> Option<String> {
    let found = kind(&value);
    match value {
        Value::String(text) => Some(text),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            another(path, "a text", found, faults)
        }
    }
}

pub(super) fn another<T>(
    path: &str,
    wanted: &str,
    found: &str,
    faults: &mut Vec<String>,
) -> Option<T> {
    refuse(path, format_args!("expected {wanted}, not {found}"), faults)
}

fn refuse<T>(path: &str, fault: impl std::fmt::Display, faults: &mut Vec<String>) -> Option<T> {
    faults.push(format!("{path}: {fault}"));
    None
}

pub(super) const fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Text in quotes, shortened if it is long.
pub(super) fn shown(text: &str) -> String {
    const ENOUGH: usize = 64;
    match text.char_indices().nth(ENOUGH) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read<S: FieldType>(field_type: &S, value: Value) -> Result<S::Read, String> {
        let mut faults = Vec::new();
        match field_type.read(value, "x", &mut faults) {
            Some(read) if faults.is_empty() => Ok(read),
            _ => Err(faults.join("; ")),
        }
    }

    fn fault<S: FieldType>(field_type: &S, value: Value) -> String {
        read(field_type, value).err().unwrap_or_default()
    }

    #[test]
    fn texts_are_measured_in_characters() {
        let name = Text::line(1..=3);
        for (text, expected) in [
            ("é中😀", ""),
            ("", "x: must not be empty"),
            (" \t", "x: must not be empty"),
            ("abcd", "x: expected 1 to 3 characters, not 4"),
            ("a\nb", "x: must not hold control characters"),
            ("a\0", "x: must not hold control characters"),
        ] {
            assert_eq!(fault(&name, json!(text)), expected, "{text:?}");
        }

        assert_eq!(fault(&Text::lines(0..=9), json!("")), "");
        assert_eq!(fault(&Text::lines(0..=9), json!("a\r\n\tb")), "");
        assert_eq!(
            fault(&Text::lines(0..=9), json!("a\0")),
            "x: must not hold control characters"
        );
    }

    #[test]
    fn another_type_is_refused_by_its_name() {
        for (value, found) in [
            (json!(null), "null"),
            (json!(1), "a number"),
            (json!([]), "a list"),
            (json!({}), "an object"),
        ] {
            assert_eq!(
                fault(&Text::line(1..=3), value.clone()),
                format!("x: expected a text, not {found}")
            );
            assert_eq!(
                fault(&Bool, value),
                format!("x: expected true or false, not {found}")
            );
        }

        assert_eq!(
            fault(&ListOf::new(Bool, 0..=1), json!("a")),
            "x: expected a list, not a text"
        );
    }

    #[test]
    fn counts_are_whole_and_in_range() {
        let count = Count::new(1..=9);
        for (value, whole) in [
            (json!(1), true),
            (json!(9), true),
            (json!(9.0), true),
            (json!(-0.5), false),
            (json!(0), false),
            (json!(10), false),
            (json!(-1), false),
            (json!(1.5), false),
            (json!(1e30), false),
            (json!("1"), false),
        ] {
            assert_eq!(read(&count, value.clone()).is_ok(), whole, "{value}");
        }
    }

    #[test]
    fn lists_name_the_place_of_each_fault() {
        let even = Parsed::new("an even number", |text| {
            text.parse::<u32>().ok().filter(|number| number % 2 == 0)
        });
        let list = ListOf::new(even, 1..=3);
        assert_eq!(read(&list, json!(["2", "4"])), Ok(vec![2, 4]));
        assert_eq!(
            fault(&list, json!(["1", "2", 3])),
            "x[0]: \"1\" is not an even number; x[2]: expected a text, not a number"
        );
        assert_eq!(fault(&list, json!([])), "x: expected 1 to 3 entries, not 0");
    }

    #[test]
    fn a_clients_own_objects_are_bounded() {
        let free = FreeObject::new(1024);
        assert!(read(&free, json!({"a": {"b": [1, null]}})).is_ok());
        assert_eq!(
            fault(&free, json!({"a": "x".repeat(1017)})),
            "x: expected at most 1 KiB, not 1025 octets"
        );
        assert_eq!(fault(&free, json!([])), "x: expected an object, not a list");
    }

    #[test]
    fn an_id_has_one_form() {
        let written = "01995a3e-8f4e-7d3b-9a51-0c6f2b7e4d10";
        for (text, is) in [
            (written.to_owned(), true),
            (written.to_uppercase(), true),
            (written.replace('-', ""), false),
            (format!("{{{written}}}"), false),
            (format!("urn:uuid:{written}"), false),
            (format!("{written} "), false),
            (written.replace('a', "g"), false),
            (String::new(), false),
        ] {
            assert_eq!(id(&text).is_some(), is, "{text}");
        }
    }

    #[test]
    fn a_word_is_one_of_those_known() {
        let choice = Choice(&[("in", 1), ("out", 2)]);
        assert_eq!(read(&choice, json!("out")), Ok(2));
        assert_eq!(fault(&choice, json!("IN")), "x: \"IN\" is none of in, out");
    }

    #[test]
    fn what_is_shown_of_a_value_is_short() {
        assert_eq!(shown("a\"b"), r#""a\"b""#);
        assert_eq!(shown(&"é".repeat(70)), format!("\"{}\"…", "é".repeat(64)));
    }
}
