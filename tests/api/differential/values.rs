//! Values to judge: for each place of a body those at the bounds of its schema, and others drawn by a seed.

use serde_json::{Map, Value, json};

/// A small generator (xorshift64*), so that a seed names a run.
pub(super) struct Dice(pub(super) u64);

/// Texts that parsers like to disagree on.
const TEXTS: [&str; 46] = [
    "",
    " ",
    "\t",
    "a\nb",
    "a\u{0}",
    "\u{7f}",
    "\u{85}",
    "\u{a0}",
    "\u{feff}",
    "\u{2028}",
    "\u{200b}",
    " a ",
    "en",
    "en-GB",
    "EN",
    "xx",
    "en-",
    "inbound",
    "outbound",
    "phone",
    "sip",
    "+442071838750",
    "+4420718387501234",
    "+0442071838750",
    "442071838750",
    "ann@example.com",
    "ann@example",
    ".ann@example.com",
    "a..n@example.com",
    "ann@example.com\n",
    "https://a.example",
    "ftp://a.example",
    "https://",
    "https://a.example/ b",
    "http://a@b.example",
    "https://a.example/?b#c",
    "01995a3e-8f4e-7d3b-9a51-0c6f2b7e4d10",
    "01995A3E-8F4E-7D3B-9A51-0C6F2B7E4D10",
    "01995a3e8f4e7d3b9a510c6f2b7e4d10",
    "{01995a3e-8f4e-7d3b-9a51-0c6f2b7e4d10}",
    "true",
    "phone:read",
    "call.ended",
    "udp",
    "angry",
    "2026-01-31",
];

impl Dice {
    pub(super) fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let rolled = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(rolled).expect("31 bits") % sides
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.roll(of.len())].clone()
    }

    /// Any value.
    fn value(&mut self) -> Value {
        match self.roll(6) {
            0 => self.pick(&others()),
            1 => self.pick(&[json!(65_535), json!(65_536), json!(1e30), json!(3_600.0)]),
            2 => {
                let letter = self.pick(&["a", "7", "é", "😀", " "]);
                let length = self.pick(&[1, 2, 35, 36, 64, 65, 100, 101, 200, 255, 256, 2_049]);
                json!(letter.repeat(length))
            }
            _ => json!(self.pick(&TEXTS)),
        }
    }

    /// Any text.
    pub(super) fn text(&mut self) -> String {
        self.pick(&TEXTS).to_owned()
    }

    /// The text with one character more, less or other.
    fn changed_text(&mut self, text: &str) -> String {
        let mut chars: Vec<char> = text.chars().collect();
        let at = self.roll(chars.len() + 1);
        let other = self.pick(&[
            'a', 'Z', '0', '+', '-', '_', '.', '@', ':', '/', '?', '#', ' ', '\n', '\u{0}', 'é',
            '\u{feff}', '\'',
        ]);
        match self.roll(3) {
            0 => chars.insert(at, other),
            1 if at < chars.len() => drop(chars.remove(at)),
            _ if at < chars.len() => chars[at] = other,
            _ => chars.push(other),
        }
        chars.into_iter().collect()
    }

    /// Changes one place of an object.
    pub(super) fn change(&mut self, fields: &mut Map<String, Value>) {
        let names: Vec<String> = fields.keys().cloned().collect();
        if names.is_empty() || self.roll(12) == 0 {
            let name = self.pick(&["colour", "Name", "", "name ", "id"]);
            fields.insert(name.to_owned(), self.value());
            return;
        }
        let name = self.pick(&names);
        match fields.get_mut(&name) {
            Some(value) if self.roll(8) > 0 => self.change_value(value),
            Some(_) | None => drop(fields.remove(&name)),
        }
    }

    fn change_value(&mut self, value: &mut Value) {
        let inner = self.roll(3) > 0;

        match value {
            Value::Object(fields) if inner => self.change(fields),
            Value::Array(items) if inner && !items.is_empty() => {
                let at = self.roll(items.len());
                match self.roll(4) {
                    0 => items.push(self.value()),
                    1 => drop(items.remove(at)),
                    _ => self.change_value(&mut items[at]),
                }
            }
            Value::String(text) if inner => *text = self.changed_text(text),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_) => *value = self.value(),
        }
    }
}

/// One value of each type, and numbers that are hard to read.
fn others() -> Vec<Value> {
    vec![
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(1),
        json!(1.0),
        json!(1.5),
        json!([]),
        json!([null]),
        json!({}),
        json!({"a": 1}),
        json!("1"),
    ]
}

/// Collects the schemas that a value at this place may have to match: every branch that knows the place.
fn schemas_at<'s>(schema: &'s Value, path: &[String], found: &mut Vec<&'s Value>) {
    for of in ["anyOf", "oneOf", "allOf"] {
        for branch in schema[of].as_array().into_iter().flatten() {
            schemas_at(branch, path, found);
        }
    }

    match path.split_first() {
        None => found.push(schema),
        Some((name, rest)) => {
            let items = &schema["items"];
            let next = match items.is_null() {
                true => &schema["properties"][name.as_str()],
                false => items,
            };
            if !next.is_null() {
                schemas_at(next, rest, found);
            }
        }
    }
}

/// Collects the places of a value, itself first, as JSON Pointer tokens (RFC 6901) without escapes. Of a list, only the first entry counts.
pub(super) fn places(value: &Value, at: &[String], all: &mut Vec<Vec<String>>) {
    all.push(at.to_vec());
    let mut below = |name: &str, value: &Value| {
        let at = [at, &[name.to_owned()]].concat();
        places(value, &at, all);
    };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| below(name, value)),
        Value::Array(items) => items.iter().take(1).for_each(|value| below("0", value)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns values on both sides of each bound of a place, and values of every other type.
pub(super) fn at_bounds(schema: &Value, path: &[String], good: &Value) -> Vec<Value> {
    let mut schemas = Vec::new();
    schemas_at(schema, path, &mut schemas);
    let mut values = others();
    values.extend(
        [
            "",
            " ",
            "a\u{0}b",
            "é\u{2028}😀",
            "\u{feff}",
            "a\nb",
            "\u{85}",
        ]
        .map(Value::from),
    );
    let bounds = |least: &str, most: &str| {
        let bounds = schemas
            .iter()
            .flat_map(|schema| [&schema[least], &schema[most]]);
        let around = bounds.filter_map(Value::as_u64);
        let mut around: Vec<u64> = around
            .flat_map(|bound| [bound.saturating_sub(1), bound, bound + 1])
            .collect();
        around.sort_unstable();
        around.dedup();
        around
    };

    let length = |count: u64| usize::try_from(count).expect("bounds are small");
    for count in bounds("minLength", "maxLength") {
        values.extend(["a", "😀"].map(|letter| letter.repeat(length(count)).into()));
    }

    for count in bounds("minimum", "maximum") {
        values.extend([json!(count), json!(count as f64), json!(count.to_string())]);
    }

    if let Some(first) = good.as_array().and_then(|items| items.first()) {
        // A longer list would exceed the limit on bodies.
        for count in bounds("minItems", "maxItems") {
            values.push(vec![first.clone(); length(count)].into());
        }
    }

    for schema in &schemas {
        for word in schema["enum"].as_array().into_iter().flatten().take(3) {
            let text = word.as_str().unwrap_or_default();
            values.extend([
                word.clone(),
                text.to_uppercase().into(),
                format!("{text} ").into(),
            ]);
        }
    }

    if let Value::Object(fields) = good {
        let mut more = fields.clone();
        more.insert("colour".to_owned(), json!("red"));
        values.push(more.into());
    }

    values
}

/// Returns the body with another value at a place, or without the field if there is none.
pub(super) fn with(body: &Value, path: &[String], value: Option<Value>) -> Value {
    let Some((name, rest)) = path.split_first() else {
        return value.unwrap_or_else(|| body.clone());
    };
    let mut body = body.clone();
    match &mut body {
        Value::Object(fields) if rest.is_empty() && value.is_none() => drop(fields.remove(name)),
        Value::Array(items) if rest.is_empty() && value.is_none() => drop(items.remove(0)),
        Value::Object(fields) => {
            let inner = with(&fields[name], rest, value);
            fields.insert(name.clone(), inner);
        }
        Value::Array(items) => items[0] = with(&items[0], rest, value),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    body
}
