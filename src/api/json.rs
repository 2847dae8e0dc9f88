//! Strict JSON for bodies: an object with a duplicate key is refused, because two readers could take different values
//! of it.

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Parses a value.
///
/// # Errors
/// A sentence about what is wrong: a syntax error, or the path of a duplicate key.
pub(super) fn read(octets: &[u8]) -> Result<Value, String> {
    let mut twice = None;
    let mut reader = serde_json::Deserializer::from_slice(octets);
    let place = JsonPosition {
        path: Path::Document,
        twice: &mut twice,
    };
    let read = place.deserialize(&mut reader);
    let read = read.and_then(|value| reader.end().map(|()| value));
    match (read, twice) {
        (_, Some(path)) => Err(format!("{path} is given twice")),
        (Ok(value), None) => Ok(value),
        (Err(error), None) => Err(format!("the body is not well-formed JSON: {error}")),
    }
}

/// Path of a value. It becomes text only for a fault: one copy for each value would take time in proportion to the square of a body's length.
#[derive(Copy, Clone)]
enum Path<'p> {
    Document,
    Item(&'p Path<'p>, usize),
    Entry(&'p Path<'p>, &'p str),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Document => Ok(()),
            Self::Item(list, at) => write!(f, "{list}[{at}]"),
            Self::Entry(Self::Document, key) => f.write_str(key),
            Self::Entry(object, key) => write!(f, "{object}.{key}"),
        }
    }
}

/// Position in the document, and the first duplicate path.
struct JsonPosition<'t, 'p> {
    path: Path<'p>,
    twice: &'t mut Option<String>,
}

impl<'de> DeserializeSeed<'de> for JsonPosition<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        // serde_json refuses more than 128 levels, so a deeply nested body can't overflow the stack.
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for JsonPosition<'_, '_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any valid JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut read = Vec::new();
        loop {
            let place = JsonPosition {
                path: Path::Item(&self.path, read.len()),
                twice: &mut *self.twice,
            };
            match items.next_element_seed(place)? {
                Some(item) => read.push(item),
                None => return Ok(read.into()),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut read = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let path = Path::Entry(&self.path, &key);
            if read.contains_key(&key) {
                *self.twice = Some(path.to_string());
                // Stops the parser. `read` prefers the path to this text.
                return Err(A::Error::custom("a key is given twice"));
            }
            let place = JsonPosition {
                path,
                twice: &mut *self.twice,
            };
            let value = entries.next_value_seed(place)?;
            read.insert(key, value);
        }

        Ok(read.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_given_twice_is_named_by_its_path() {
        for (text, path) in [
            (r#"{"a": 1, "a": 1}"#, "a"),
            (r#"{"a": 1, "\u0061": 2}"#, "a"),
            (r#"{"a": {"b": [0, {"c": null, "c": null}]}}"#, "a.b[1].c"),
        ] {
            assert_eq!(
                read(text.as_bytes()),
                Err(format!("{path} is given twice")),
                "{text}"
            );
        }
        assert!(read(b"{}x").is_err_and(|fault| fault.starts_with("the body is not well-formed")));
    }

    /// With a path written out for each value, this would copy 100 GB.
    #[test]
    fn a_long_key_costs_its_length_once() {
        let (key, items) = ("k".repeat(400_000), vec!["1"; 250_000].join(","));
        let text = format!(r#"{{"{key}": [{items}]}}"#);
        let value = read(text.as_bytes()).unwrap();
        assert_eq!(value[&key].as_array().unwrap().len(), 250_000);
    }

    #[test]
    fn everything_else_is_read_as_serde_json_reads_it() {
        for text in [
            r#"{"a": {"k": 1}, "b": {"k": 2}, "c": [{"k": 1}, {"k": 1}]}"#,
            r#"[-1, 18446744073709551615, 1.5e3, "x\ny", true, null, {}]"#,
        ] {
            let plain: Value = serde_json::from_str(text).unwrap();
            assert_eq!(read(text.as_bytes()), Ok(plain), "{text}");
        }
    }
}
