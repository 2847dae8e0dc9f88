//! Objects inside a body, read by the same fields as the body itself.

use serde_json::Value;

use super::body::Fields;
use super::field_type::{FieldType, another, kind};

/// Type of an object, read by a function that leaves its faults with the fields.
#[derive(Copy, Clone, Debug)]
pub(super) struct Object<T>(pub(super) fn(&mut Fields) -> Option<T>);

impl<T> FieldType for Object<T> {
    type Read = T;

    fn schema(&self) -> Value {
        Fields::schema_read_by(|mut fields| drop(self.0(&mut fields)))
    }

    fn read(&self, value: Value, path: &str, faults: &mut Vec<String>) -> Option<T> {
        let Self(reader) = self;
        object(value, path, faults, reader)
    }
}

/// Reads an object by a function that leaves its faults with the fields.
pub(super) fn object<T>(
    value: Value,
    path: &str,
    faults: &mut Vec<String>,
    reader: impl FnOnce(&mut Fields) -> Option<T>,
) -> Option<T> {
    let kind = kind(&value);
    let Value::Object(map) = value else {
        return another(path, "an object", kind, faults);
    };
    let mut fields = Fields::of(map, format!("{path}."));
    let read = reader(&mut fields);
    let found = fields.faults();
    let sound = found.is_empty();
    faults.extend(found);
    read.filter(|_| sound)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::field_type::Count;

    #[test]
    fn objects_lead_the_path_on() {
        let object = Object(|fields| fields.required("size", Count::new(1..=2)));

        for (value, read, expected) in [
            (json!({"size": 2}), Some(2), &[][..]),
            (
                json!({"size": 3, "y": 1}),
                None,
                &[
                    "x.size: expected a whole number from 1 to 2",
                    "x.y: is no field of this request",
                ],
            ),
            (
                json!({"size": 1, "y": 1}),
                None,
                &["x.y: is no field of this request"],
            ),
        ] {
            let mut faults = Vec::new();
            assert_eq!(object.read(value, "x", &mut faults), read);
            assert_eq!(faults, expected);
        }
    }
}
