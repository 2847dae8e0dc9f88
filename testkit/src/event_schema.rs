//! Checks recorded events against the published schema: exactly its fields, each of its type.

use serde_json::Value;

/// The schema of events, as it is published.
pub fn schema() -> Value {
    serde_json::from_str(include_str!("../../docs/events.schema.json")).expect("JSON")
}

/// Asserts that an event has exactly the fields of its kind, each of its type; the message says where it doesn't. The content of nested arrays and
/// objects isn't checked.
pub fn assert_fits(kind: &str, data: &Value) {
    let schema = schema();
    let branches = schema["oneOf"].as_array().expect("branches");

    let mut of_kind = branches.iter().filter(|branch| {
        let kinds = branch["properties"]["type"]["enum"].as_array();
        kinds.expect("types").iter().any(|known| known == kind)
    });
    let branch = of_kind
        .next()
        .unwrap_or_else(|| panic!("{kind} is in no branch"));
    assert!(of_kind.next().is_none(), "{kind} is in two branches");

    let name = branch["properties"]["data"]["$ref"]
        .as_str()
        .expect("a reference");
    let name = name.strip_prefix("#/$defs/").expect("one of this document");

    let properties = schema["$defs"][name]["properties"].as_object();
    let (properties, fields) = (
        properties.expect("properties"),
        data.as_object().expect("an object"),
    );

    let mut names: Vec<_> = properties.keys().collect();
    let mut there: Vec<_> = fields.keys().collect();
    names.sort();
    there.sort();
    assert_eq!(there, names, "{kind}");

    for (name, value) in fields {
        let property = &properties[name];
        let types = match &property["type"] {
            Value::String(one) => vec![one.as_str()],
            Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
                panic!("{kind}.{name} has no type")
            }
        };

        let found = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };

        assert!(
            types.contains(&found),
            "{kind}.{name}: {value} is none of {types:?}"
        );
        if let Some(words) = property["enum"].as_array() {
            assert!(
                words.contains(value),
                "{kind}.{name}: {value} is none of {words:?}"
            );
        }
    }
}
