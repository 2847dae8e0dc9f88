//! Bodies of requests, made of the options that were given.

use axum::http::Method;
use clap::ArgMatches;
use serde_json::{Map, Value, json};

use super::arguments::{argument_id, flag};
use super::nouns::Verb;
use super::operation::{Kind, Operation, Property};
use super::secret::secret;
use crate::cli::Failure;
use crate::cli::session::Session;

/// Properties of the body that the command takes.
pub(super) fn taken<'o>(
    verb: &Verb,
    operation: &'o Operation,
) -> impl Iterator<Item = &'o Property> {
    let hidden = verb.hidden;
    let all = operation.body.iter().flatten();
    all.filter(move |property| !hidden.contains(&property.name.as_str()))
}

/// Makes the body of the options; `None` if the operation takes none.
///
/// # Errors
/// A value has the wrong form.
pub(super) fn read(
    verb: &Verb,
    operation: &Operation,
    given: &ArgMatches,
) -> Result<Option<Map<String, Value>>, Failure> {
    if operation.body.is_none() {
        return Ok(None);
    }

    let mut body = Map::new();
    for property in taken(verb, operation) {
        let name = property.name.as_str();
        let values = given
            .try_get_many::<String>(&argument_id(name))
            .ok()
            .flatten();
        let values: Vec<&String> = values.map(Iterator::collect).unwrap_or_default();

        if let Some(first) = values.first() {
            let value = match property.kind {
                Kind::Texts(_) => json!(values),
                Kind::Text | Kind::Choice(_) | Kind::Whole(..) | Kind::Bool | Kind::Json => {
                    value(property, first)?
                }
            };
            body.insert(name.to_owned(), value);
        }
    }

    for (name, value) in verb.defaults {
        let value = || serde_json::from_str(value).unwrap_or_default();
        body.entry(*name).or_insert_with(value);
    }
    if let Some(adaptation) = &verb.adaptation {
        (adaptation.fill)(given, &mut body)?;
    }
    Ok(Some(body))
}

/// Refuses an update that changes nothing.
///
/// # Errors
/// The operation is an update.
pub(super) fn must_change(verb: &Verb, operation: &Operation) -> Result<(), Failure> {
    if operation.method != Method::PATCH {
        return Ok(());
    }
    let mut flags: Vec<String> = taken(verb, operation)
        .map(|property| format!("--{}", flag(property)))
        .collect();

    if let Some(adaptation) = &verb.adaptation {
        let more = clap::Command::new("");
        let more = taken(verb, operation).fold(more, |command, property| {
            command.arg(clap::Arg::new(argument_id(&property.name)))
        });
        let more = (adaptation.arguments)(more);
        let longs = more.get_arguments().filter_map(clap::Arg::get_long);
        flags.extend(longs.map(|long| format!("--{long}")));
    }

    Err(Failure::Startup(format!(
        "nothing to change: name at least one of {}",
        flags.join(", ")
    )))
}

/// Completes an object of an update with the API's current one, if only a part was given.
///
/// # Errors
/// The API has no such object.
pub(super) async fn merge(
    session: &Session,
    path: &str,
    property: &str,
    body: &mut Map<String, Value>,
) -> Result<(), Failure> {
    let Some(Value::Object(given)) = body.get_mut(property) else {
        return Ok(());
    };

    if given.contains_key("type") {
        given.retain(|_, value| !value.is_null());
        return Ok(());
    }

    let mut known = session.json(path).await?;
    let mut known = known[property].take();
    if let Some(whole) = known
        .as_object_mut()
        .filter(|whole| whole.contains_key("uri"))
    {
        whole.remove("username");
        whole.append(given);
        whole.retain(|_, value| !value.is_null());
        *given = std::mem::take(whole);
        return Ok(());
    }

    // Only credentials are to be removed, and a runtime of this type has none.
    if given.values().all(Value::is_null) {
        body.remove(property);
        return Ok(());
    }

    Err(Failure::Command(
        "only a SIP runtime has a user name: name it with --runtime".to_owned(),
    ))
}

fn value(property: &Property, text: &str) -> Result<Value, Failure> {
    let wrong = |expected: &str| {
        Failure::Startup(format!(
            "--{}: {text:?}: expected {expected}",
            flag(property)
        ))
    };
    if text == "none" && property.nullable {
        return Ok(Value::Null);
    }

    match &property.kind {
        Kind::Text if property.name == "password" => {
            secret("--password-file", text).map(Value::from)
        }
        Kind::Text | Kind::Choice(_) | Kind::Texts(_) => Ok(Value::from(text)),
        Kind::Whole(..) if text == "default" => Ok(Value::Null),
        Kind::Whole(..) => text
            .parse::<i64>()
            .map(Value::from)
            .map_err(|_| wrong("a whole number")),
        Kind::Bool => text
            .parse::<bool>()
            .map(Value::from)
            .map_err(|_| wrong("true or false")),
        Kind::Json => serde_json::from_str(text).map_err(|_| wrong("JSON")),
    }
}
