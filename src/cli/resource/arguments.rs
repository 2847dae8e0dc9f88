//! Options and arguments of the commands, made of parameters and properties.

use axum::http::Method;
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction};

use super::nouns::{self, Verb};
use super::operation::{Kind, Operation, Property};
use crate::api;

/// Parameters of pages, which the command line handles itself.
pub(super) const PAGING: [&str; 3] = ["limit", "cursor", "offset"];

/// Place of an option in the request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Use {
    /// Parameter of the query.
    Filter,
    /// Property that a new object may have.
    New,
    /// Property that an update may change.
    Change,
}

/// Id of the argument for a property or parameter, apart from those of every command.
pub(super) fn argument_id(name: &str) -> String {
    format!("field.{name}")
}

/// Word for what a parameter identifies: `phone_number` for `phoneNumberId`, `agent` for `agent_id`.
fn identified(name: &str) -> &str {
    match name {
        "phone_agent_id" => "agent",
        "orgId" => "org",
        "partnerId" => "partner",
        "keyId" | "api_key_id" => "key",
        "number_id" | "phoneNumberId" | "phone_numbers" => "number",
        "allowed_networks" => "network",
        name => name.strip_suffix("_id").unwrap_or(name),
    }
}

/// Adds the argument for a parameter of the path; `--last` too, if the newest can be found.
pub(super) fn path(
    command: clap::Command,
    verb: &Verb,
    name: &str,
    or_last: bool,
) -> clap::Command {
    let word = identified(name);
    let argument = Arg::new(argument_id(name)).value_name(word.replace('_', "-").to_uppercase());
    if verb.options.contains(&name) {
        let argument = argument.long(word.to_owned()).required(true);
        return command.arg(argument.help("Its id or name."));
    }
    if !or_last {
        let is_id = name.ends_with("_id") || name.ends_with("Id");
        let help = if is_id {
            "Its id or name."
        } else {
            "The value that the list shows."
        };
        return command.arg(argument.help(help).required(true));
    }

    let last = Arg::new("last").long("last").action(ArgAction::SetTrue);
    let argument = argument
        .help("Its id, its name, or a part of the id that no other has.")
        .required_unless_present("last")
        .conflicts_with("last");
    command.arg(argument).arg(last.help("Use the newest one."))
}

/// Makes the option, or the argument, for a property of the body.
pub(super) fn of_body(verb: &Verb, operation: &Operation, property: &Property) -> Arg {
    let name = property.name.as_str();
    let has_default = verb.defaults.iter().any(|(known, _)| *known == name);
    if verb.positional.contains(&name) {
        let shown = identified(name).replace('_', "-").to_uppercase();
        let required = property.required || name == "destination_id";
        let argument = Arg::new(argument_id(name)).help(about(property));
        let argument = typed(argument, property).value_name(shown);
        return checked(argument, property).required(required && !has_default);
    }

    let is_change = operation.method == Method::PATCH || has_default;
    let option = option(property, if is_change { Use::Change } else { Use::New });
    checked(option, property)
}

/// Makes the option for a property or parameter.
pub(super) fn option(property: &Property, place: Use) -> Arg {
    let argument = Arg::new(argument_id(&property.name))
        .long(flag(property))
        .help(about(property))
        .required(property.required && place != Use::Change);
    typed(argument, property)
}

fn typed(argument: Arg, property: &Property) -> Arg {
    let argument = match &property.kind {
        Kind::Choice(_) => argument.value_name(property.name.replace('_', "-").to_uppercase()),
        Kind::Texts(_) => argument.value_name("VALUE"),
        Kind::Bool => argument.value_name("BOOL"),
        Kind::Whole(..) => argument.value_name("COUNT"),
        Kind::Json => argument.value_name("JSON"),
        Kind::Text if property.name == "password" => argument.value_name("FILE"),
        Kind::Text => argument.value_name("VALUE"),
    };

    let none = property.nullable.then_some("none".to_owned());
    match &property.kind {
        Kind::Choice(words) => {
            let words: Vec<String> = words.iter().cloned().chain(none).collect();
            argument.value_parser(PossibleValuesParser::new(words))
        }
        Kind::Texts(words) if words.is_empty() => argument.action(ArgAction::Append),
        Kind::Texts(words) => argument
            .action(ArgAction::Append)
            .value_delimiter(',')
            .value_parser(PossibleValuesParser::new(words.clone())),
        Kind::Bool => argument
            .num_args(0..=1)
            .default_missing_value("true")
            .value_parser(["true", "false"]),
        Kind::Whole(least, most) => {
            let (least, most, nullable) = (*least, *most, property.nullable);
            argument.value_parser(move |text: &str| whole(text, least, most, nullable))
        }
        Kind::Text | Kind::Json => argument,
    }
}

fn whole(text: &str, least: i64, most: i64, nullable: bool) -> Result<String, String> {
    let is_number = text
        .parse::<i64>()
        .is_ok_and(|number| (least..=most).contains(&number));
    match is_number || (nullable && matches!(text, "none" | "default")) {
        true => Ok(text.to_owned()),
        false => Err(format!("expected a whole number from {least} to {most}")),
    }
}

/// Adds the API's check of every property of this name, so that a wrong text is refused before anything is sent.
fn checked(argument: Arg, property: &Property) -> Arg {
    let check: fn(&str) -> Result<(), String> = match (property.name.as_str(), &property.kind) {
        ("name", Kind::Text) => |text| api::name(text).map(drop),
        ("language", Kind::Text) => |text| api::language_tag(text).map(drop),
        ("phone_number", Kind::Text) => |text| crate::cli::e164(text).map(drop),
        ("expires_at", Kind::Text) => |text| match api::timestamp(text) {
            Some(_) => Ok(()),
            None => Err("not an RFC 3339 time, as 2027-01-31T00:00:00Z is".to_owned()),
        },
        _ => return argument,
    };
    let nullable = property.nullable;
    argument.value_parser(move |text: &str| match nullable && text == "none" {
        true => Ok(text.to_owned()),
        false => check(text).map(|()| text.to_owned()),
    })
}

/// Name of the option for a property: ids are named by what they identify.
pub(super) fn flag(property: &Property) -> String {
    match property.name.as_str() {
        "password" => "password-file".to_owned(),
        // Every command has `--url`, the address of the API.
        "url" => "receiver".to_owned(),
        "actionIds" => "action-ids".to_owned(),
        "allowed_addresses" | "allowed_networks" => "allow".to_owned(),
        "default_country" => "country".to_owned(),
        "phone_numbers" => "number".to_owned(),
        name if nouns::list_of(name).is_some() => identified(name).replace('_', "-"),
        name => name.replace('_', "-"),
    }
}

fn about(property: &Property) -> String {
    let mut about = property.about.clone();
    if property.name == "password" {
        about.push_str(" A file that holds it; `-` for standard input.");
    }

    match property.kind {
        Kind::Texts(_) if about.is_empty() => about.push_str("May be given more than once."),
        Kind::Texts(_) => about.push_str(" May be given more than once."),
        Kind::Whole(..) if property.nullable => {
            about.push_str(" `none`, or `default`, clears it.");
        }
        Kind::Text | Kind::Choice(_) | Kind::Bool | Kind::Json | Kind::Whole(..) => {
            if property.nullable {
                about.push_str(" `none` clears it.");
            }
        }
    }

    about
}

/// Items that a list prints by default.
const LIMIT: &str = "50";

/// Makes the option for the length of a list.
pub(super) fn limit() -> Arg {
    Arg::new("limit")
        .long("limit")
        .value_name("COUNT")
        .value_parser(clap::value_parser!(u32).range(1..=10_000))
        .default_value(LIMIT)
        .help("Maximum number of items, newest first.")
}

pub(super) fn yes() -> Arg {
    Arg::new("yes")
        .long("yes")
        .action(ArgAction::SetTrue)
        .help("Don't ask for confirmation.")
}
