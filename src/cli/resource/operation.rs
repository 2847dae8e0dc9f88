//! Operations of the OpenAPI document, with their parameters and the properties of their bodies.

use std::collections::BTreeMap;

use axum::http::Method;
use serde_json::{Map, Value};

use crate::cli::names::Paging;

/// The document.
#[derive(Debug)]
pub(super) struct Document(Value);

/// One operation.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) summary: String,
    /// Names in braces, in the order of the path.
    pub(super) path_parameters: Vec<String>,
    pub(super) query: Vec<Property>,
    /// Properties of the body; `None` if it takes none.
    pub(super) body: Option<Vec<Property>>,
}

/// Parameter of the query, or property of a body.
#[derive(Clone, Debug)]
pub(super) struct Property {
    pub(super) name: String,
    pub(super) about: String,
    pub(super) kind: Kind,
    pub(super) nullable: bool,
    pub(super) required: bool,
}

/// Form of a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Text,
    Choice(Vec<String>),
    /// Integer from the first to the second.
    Whole(i64, i64),
    Bool,
    /// List of texts: of these words, or of any.
    Texts(Vec<String>),
    /// Anything else, given as JSON.
    Json,
}

impl Document {
    pub(super) const fn new(document: Value) -> Self {
        Self(document)
    }

    /// Returns the operation with this id.
    pub(super) fn operation(&self, id: &str) -> Option<Operation> {
        let paths = self.0["paths"].as_object()?;
        paths.iter().find_map(|(path, methods)| {
            let (method, found) = methods
                .as_object()?
                .iter()
                .find(|(_, operation)| operation["operationId"] == id)?;
            Some(self.read(path, method, found))
        })
    }

    /// Returns the division into pages of the list at this path; `None` if it can't be read as a list.
    pub(super) fn paging(&self, path: &str) -> Option<Paging> {
        let get = &self.0["paths"][path]["get"];
        let parameters = get["parameters"].as_array().map_or(&[][..], Vec::as_slice);
        let takes = |name: &str| parameters.iter().any(|one| one["name"] == name);
        let answer = &get["responses"]["200"]["content"]["application/json"]["schema"];
        let is_list = self.resolved(answer)["properties"]["items"].is_object();

        match (takes("cursor"), takes("offset")) {
            (true, _) => Some(Paging::Cursor),
            (_, true) => Some(Paging::Offset),
            (false, false) => is_list.then_some(Paging::Whole),
        }
    }

    fn read(&self, path: &str, method: &str, operation: &Value) -> Operation {
        let in_braces = |part: &str| Some(part.strip_prefix('{')?.strip_suffix('}')?.to_owned());
        let parameters = operation["parameters"].as_array();
        let parameters = parameters.map_or(&[][..], Vec::as_slice).iter();
        let query = parameters
            .filter(|one| one["in"] == "query")
            .filter_map(|one| {
                let mut read = property(one["name"].as_str()?, self.resolved(&one["schema"]));
                read.required = one["required"] == true;
                if let Some(about) = one["description"].as_str() {
                    read.about = about.to_owned();
                }
                Some(read)
            })
            .collect();

        let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
        Operation {
            method: Method::from_bytes(method.to_uppercase().as_bytes()).unwrap_or(Method::GET),
            path: path.to_owned(),
            summary: operation["summary"].as_str().unwrap_or_default().to_owned(),
            path_parameters: path.split('/').filter_map(in_braces).collect(),
            query,
            body: (!schema.is_null()).then(|| self.properties(schema)),
        }
    }

    fn resolved<'d>(&'d self, schema: &'d Value) -> &'d Value {
        let name = schema["$ref"]
            .as_str()
            .and_then(|at| at.strip_prefix("#/components/schemas/"));
        name.map_or(schema, |name| &self.0["components"]["schemas"][name])
    }

    /// Properties of a body. If it has alternatives: the properties of all, required where all require them.
    fn properties(&self, schema: &Value) -> Vec<Property> {
        let schema = self.resolved(schema);
        let alternatives = ["oneOf", "anyOf"]
            .iter()
            .find_map(|word| schema[*word].as_array())
            .map_or(std::slice::from_ref(schema), Vec::as_slice);

        let mut found: BTreeMap<String, Property> = BTreeMap::new();
        let none = Map::new();
        for alternative in alternatives {
            let alternative = self.resolved(alternative);
            let properties = alternative["properties"].as_object().unwrap_or(&none);
            for (name, schema) in properties {
                let read = property(name, self.resolved(schema));
                found
                    .entry(name.clone())
                    .and_modify(|known| known.merge(&read))
                    .or_insert(read);
            }
        }

        for known in found.values_mut() {
            known.required = alternatives.iter().all(|alternative| {
                let required = self.resolved(alternative)["required"].as_array();
                required.is_some_and(|all| all.iter().any(|one| *one == known.name))
            });
        }
        found.into_values().collect()
    }
}

impl Property {
    /// Merges another alternative's description of the same property.
    fn merge(&mut self, other: &Self) {
        self.nullable |= other.nullable;
        self.kind = match (&self.kind, &other.kind) {
            (Kind::Json, other) => other.clone(),
            (Kind::Choice(one), Kind::Choice(other)) => {
                let mut all = one.clone();
                all.extend(other.iter().filter(|word| !one.contains(word)).cloned());
                Kind::Choice(all)
            }
            (known, _) => known.clone(),
        };
        if other.about.len() > self.about.len() {
            self.about.clone_from(&other.about);
        }
    }
}

fn property(name: &str, schema: &Value) -> Property {
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    };
    let nullable = types.contains(&"null");
    let words = |of: &Value| -> Vec<String> {
        let all = of.as_array().map_or(&[][..], Vec::as_slice).iter();
        all.filter_map(|word| word.as_str().map(str::to_owned))
            .collect()
    };
    let constant = schema["const"].as_str().map(|word| vec![word.to_owned()]);
    let choices = constant.unwrap_or_else(|| words(&schema["enum"]));
    let is_bool = types.contains(&"boolean") || schema["const"].is_boolean();

    let kind = if !choices.is_empty() {
        Kind::Choice(choices)
    } else if types.contains(&"integer") {
        let bound = |name: &str| schema[name].as_i64();
        Kind::Whole(
            bound("minimum").unwrap_or(0),
            bound("maximum").unwrap_or(i64::MAX),
        )
    } else if is_bool {
        Kind::Bool
    } else if types.contains(&"array") && schema["items"]["type"] == "string" {
        Kind::Texts(words(&schema["items"]["enum"]))
    } else if types.contains(&"string") {
        Kind::Text
    } else {
        Kind::Json
    };

    Property {
        name: name.to_owned(),
        about: schema["description"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        kind,
        nullable,
        required: false,
    }
}
