//! Hash of the meaning of a JSON body. It ignores the order of fields, blanks, escapes and the notation of numbers, so
//! a client that serializes the same request again gets the same hash.

use serde_json::{Number, Value};
use sha2::{Digest as _, Sha256};

use super::json;

/// Hashes a body. An empty one counts as `{}`; one that isn't JSON is hashed by its octets.
pub(super) fn of(body: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    let read = match body {
        b"" => Ok(Value::Object(serde_json::Map::new())),
        body => json::read(body),
    };
    match read {
        Ok(value) => add(&mut hash, &value),
        // No JSON value begins with this octet in `add`, so the two kinds of input never collide.
        Err(_) => hash.update([&b"?"[..], body].concat()),
    }
    hash.finalize().into()
}

/// Adds a value: its kind, its length where it has one, and its parts, so that different values give different input.
fn add(hash: &mut Sha256, value: &Value) {
    match value {
        Value::Null => hash.update(b"n"),
        Value::Bool(true) => hash.update(b"t"),
        Value::Bool(false) => hash.update(b"f"),
        Value::Number(number) => hash.update(format!("#{};", plain(number))),
        Value::String(text) => add_text(hash, text),
        Value::Array(items) => {
            hash.update(format!("[{};", items.len()));
            items.iter().for_each(|item| add(hash, item));
        }
        Value::Object(fields) => {
            hash.update(format!("{{{};", fields.len()));
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_unstable_by_key(|(name, _)| *name);
            for (name, value) in fields {
                add_text(hash, name);
                add(hash, value);
            }
        }
    }
}

fn add_text(hash: &mut Sha256, text: &str) {
    hash.update(format!("\"{};", text.len()));
    hash.update(text);
}

/// Canonical text of a number: `1.0` and `1` are the same.
fn plain(number: &Number) -> String {
    /// Up to this number, binary64 holds every integer exactly.
    const WHOLE: f64 = 9_007_199_254_740_992.0;
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() <= WHOLE => {
            // Adding zero turns -0 into 0.
            format!("{:.0}", float + 0.0)
        }
        _ => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_values_are_the_same_whatever_their_form() {
        for (name, one, other, same) in [
            ("order", r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#, true),
            (
                "nested",
                r#"{"x":{"a":1,"b":2}}"#,
                r#"{"x":{"b":2,"a":1}}"#,
                true,
            ),
            ("blanks", r#"{"a":[1,2]}"#, "{ \"a\" : [ 1 , 2 ] }\n", true),
            ("escapes", r#"{"a":"\u00e9\/"}"#, r#"{"a":"é/"}"#, true),
            ("numbers", r#"{"a":1.0}"#, r#"{"a":1}"#, true),
            ("exponents", r#"{"a":1e2}"#, r#"{"a":100}"#, true),
            ("nothing", "", "{}", true),
            ("zero", r#"{"a":-0.0}"#, r#"{"a":0}"#, true),
            ("a list's order", r#"{"a":[1,2]}"#, r#"{"a":[2,1]}"#, false),
            ("a value", r#"{"a":1}"#, r#"{"a":2}"#, false),
            ("a kind", r#"{"a":1}"#, r#"{"a":"1"}"#, false),
            ("null is no absence", r#"{"a":null}"#, "{}", false),
            (
                "borders",
                r#"{"a":"b","c":""}"#,
                r#"{"a":"","c":"b"}"#,
                false,
            ),
            ("no JSON", "{", "[", false),
        ] {
            assert_eq!(of(one.as_bytes()) == of(other.as_bytes()), same, "{name}");
        }
    }
}
