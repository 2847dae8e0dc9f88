//! Final form of the document's schemas: what clients and their generators read best, regardless of the Rust types.

use serde_json::{Map, Value, json};

use super::property_texts;

/// Gives every schema in `value` its final form: enumerations as `enum`, times as `date-time`, and a description for
/// each property.
pub(super) fn shape(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if let Some(Value::Object(properties)) = map.get_mut("properties") {
                for (name, property) in properties {
                    mark_time(name, property);
                    describe(name, property);
                }
            }
            map.values_mut().for_each(shape);
            let is_free = is_object(map) && !SHAPES.iter().any(|key| map.contains_key(*key));
            if is_free {
                map.insert("additionalProperties".to_owned(), true.into());
            }
            enumerate(value);
        }
        Value::Array(values) => values.iter_mut().for_each(shape),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Keys that say what an object holds.
const SHAPES: [&str; 5] = [
    "properties",
    "additionalProperties",
    "oneOf",
    "anyOf",
    "allOf",
];

/// Returns true if a schema is of an object. One that says nothing of its content takes any: generators make an empty type of it unless it says so.
fn is_object(schema: &Map<String, Value>) -> bool {
    match schema.get("type") {
        Some(Value::String(kind)) => kind == "object",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
        _ => false,
    }
}

/// Marks a property whose name ends in `_at` as a time.
fn mark_time(name: &str, property: &mut Value) {
    let is_text = property["type"] == "string" || property["type"] == json!(["string", "null"]);
    if is_text && (name.ends_with("_at") || name == "at") {
        property["format"] = json!("date-time");
    }
}

/// Gives a property without a description the one of its name. A property that only refers to a schema is described
/// there.
fn describe(name: &str, property: &mut Value) {
    let Value::Object(schema) = property else {
        return;
    };
    if schema.contains_key("$ref") {
        return;
    }
    let Some((description, example)) = property_texts::of(name) else {
        return;
    };

    schema
        .entry("description")
        .or_insert_with(|| description.into());

    let example = example.and_then(|example| serde_json::from_str::<Value>(example).ok());
    if let Some(example) = example {
        schema.entry("examples").or_insert_with(|| json!([example]));
    }
}

/// Turns a `oneOf` of described words, which the types produce, into an `enum`, which generators understand. The
/// description lists the words' meanings.
fn enumerate(schema: &mut Value) {
    let Some(branches) = schema.get("oneOf").and_then(Value::as_array) else {
        return;
    };

    let is_word = |branch: &&Value| branch["type"] == "string" && branch["const"].is_string();
    let words: Vec<&Value> = branches.iter().filter(is_word).collect();
    if words.is_empty() {
        return;
    }

    let mut enumeration = json!({
        "type": "string",
        "enum": words.iter().map(|word| &word["const"]).collect::<Vec<_>>(),
    });
    let listed: Vec<String> = words.iter().filter_map(|word| line(word)).collect();
    let listed = listed.join("\n");
    let others: Vec<Value> = branches
        .iter()
        .filter(|branch| !is_word(branch))
        .cloned()
        .collect();

    let Some(map) = schema.as_object_mut() else {
        return;
    };
    map.remove("oneOf");

    if others.is_empty() {
        let heading = map.get("description").and_then(Value::as_str);
        let description = match heading {
            Some(heading) if !listed.is_empty() => format!("{heading}\n\n{listed}"),
            Some(heading) => heading.to_owned(),
            None => listed,
        };
        map.insert("type".to_owned(), enumeration["type"].take());
        map.insert("enum".to_owned(), enumeration["enum"].take());
        if !description.is_empty() {
            map.insert("description".to_owned(), description.into());
        }
        return;
    }

    if !listed.is_empty() {
        enumeration["description"] = listed.into();
    }

    let mut branches = others;
    branches.push(enumeration);
    map.insert("oneOf".to_owned(), branches.into());
}

/// Allows additional properties in answers, because an answer may get more fields and a strict client would break.
pub(super) fn open(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if map.get("additionalProperties") == Some(&Value::Bool(false)) {
                map.remove("additionalProperties");
            }
            map.values_mut().for_each(open);
        }
        Value::Array(values) => values.iter_mut().for_each(open),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Moves objects inside the branches of a schema to schemas with names. Generators make a type of each named schema,
/// and some confuse two unnamed ones. A branch is named by the field that distinguishes it.
pub(super) fn name_branches(schemas: &mut Map<String, Value>) {
    let mut waiting: Vec<String> = schemas.keys().cloned().collect();
    while let Some(name) = waiting.pop() {
        let Some(schema) = schemas.get_mut(&name) else {
            continue;
        };
        let mut named = Vec::new();
        let branches = schema.get_mut("oneOf").and_then(Value::as_array_mut);
        for branch in branches.into_iter().flatten() {
            let properties = branch.get("properties").and_then(Value::as_object);
            if let Some(own) = properties.and_then(distinguished_by) {
                let branch_name = name.clone() + &own;
                let reference = json!({"$ref": format!("#/components/schemas/{branch_name}")});
                let mut hoisted = std::mem::replace(branch, reference);
                name_only_property(&branch_name, &mut hoisted, &mut named);
                named.push((branch_name, hoisted));
            }
        }

        waiting.extend(named.iter().map(|(name, _)| name.clone()));
        schemas.extend(named);
    }
}

/// Distinguishing word of a branch, as part of a name: its constant, else its first property.
fn distinguished_by(properties: &Map<String, Value>) -> Option<String> {
    let constant = properties
        .values()
        .find_map(|property| property["const"].as_str());
    let first = || properties.keys().next().map(String::as_str);
    constant.or_else(first).map(camel)
}

/// Names the object that is the only content of a branch.
fn name_only_property(branch: &str, schema: &mut Value, named: &mut Vec<(String, Value)>) {
    let Some(properties) = schema["properties"].as_object_mut() else {
        return;
    };
    if properties.len() != 1 {
        return;
    }
    for property in properties.values_mut() {
        if property.get("properties").is_some() {
            let name = format!("{branch}Details");
            let reference = json!({"$ref": format!("#/components/schemas/{name}")});
            named.push((name, std::mem::replace(property, reference)));
        }
    }
}

/// Turns `call.ended` and `agent_busy` into parts of a name: `CallEnded`, `AgentBusy`.
pub(super) fn camel(words: &str) -> String {
    let capital = |word: &str| {
        let (first, rest) = word.split_at_checked(1).unwrap_or((word, ""));
        first.to_ascii_uppercase() + rest
    };
    words.split(['.', '_']).map(capital).collect()
}

/// Line of the list of words.
fn line(word: &Value) -> Option<String> {
    let (word, says) = (word["const"].as_str()?, word["description"].as_str()?);
    let says = says.replace('\n', " ");
    Some(format!("- `{word}`: {says}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn described_words_become_an_enumeration() {
        let mut schema = json!({"description": "How.", "oneOf": [
            {"type": "string", "const": "a", "description": "The first."},
            {"type": "string", "const": "b"},
        ]});
        shape(&mut schema);
        let wanted = json!({"description": "How.\n\n- `a`: The first.", "type": "string", "enum": ["a", "b"]});
        assert_eq!(schema, wanted);
    }

    #[test]
    fn words_beside_objects_become_one_branch() {
        let object = json!({"type": "object", "properties": {}});
        let word = json!({"type": "string", "const": "none", "description": "Nobody."});
        let mut schema = json!({"oneOf": [word, object]});
        shape(&mut schema);
        let branch =
            json!({"type": "string", "enum": ["none"], "description": "- `none`: Nobody."});
        assert_eq!(schema, json!({"oneOf": [object, branch]}));
    }

    #[test]
    fn branches_get_names() {
        let inner = json!({"type": "object", "properties": {"id": {"type": "string"}}});
        let branch = json!({"type": "object", "properties": {"agent_busy": inner}});
        let sip = json!({"type": "object", "properties": {"type": {"const": "sip"}, "uri": {}}});
        let Value::Object(mut schemas) = json!({"Outcome": {"oneOf": [branch, sip]}}) else {
            unreachable!("it is an object");
        };
        name_branches(&mut schemas);
        let to = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
        let branches = json!([to("OutcomeAgentBusy"), to("OutcomeSip")]);
        assert_eq!(schemas["Outcome"]["oneOf"], branches);
        let only = &schemas["OutcomeAgentBusy"]["properties"]["agent_busy"];
        assert_eq!(only, &to("OutcomeAgentBusyDetails"));
        assert_eq!(schemas["OutcomeAgentBusyDetails"], inner);
        assert_eq!(schemas["OutcomeSip"], sip);
        assert_eq!(camel("call.ended"), "CallEnded");
    }

    #[test]
    fn a_property_keeps_its_own_description() {
        let mut schema = json!({"properties": {
            "name": {"type": "string", "description": "Its own."},
            "created_at": {"type": "string"},
        }});
        shape(&mut schema);
        let properties = &schema["properties"];
        assert_eq!(properties["name"]["description"], "Its own.");
        assert_eq!(properties["created_at"]["format"], "date-time");
        assert!(properties["created_at"]["description"].is_string());
    }
}
