//! Commands made of the API's own document: each verb is an operation, its options are the operation's parameters and
//! the properties of its body. So the command line takes what the API takes, and says of it what the API says.

pub(super) mod names;
mod nouns;
mod operation;
mod show;

use std::io::{IsTerminal as _, Read as _, Write as _};

use axum::http::Method;
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Args as _, FromArgMatches as _};
use serde_json::{Map, Value, json};

use super::Failure;
use super::output::{self, Output, print};
use super::session::{Intent, Session, Target};
use crate::api;
use crate::config::{Config, Sources};
use nouns::{NOUNS, Noun, Verb};
use operation::{Document, Kind, Operation, Property};

/// Items that a list prints unless told otherwise.
const USUAL_LIMIT: &str = "50";
/// Parameters of pages, which the command line handles itself.
const PAGING: [&str; 2] = ["limit", "cursor"];
/// Maximum size of a file with a password, in octets.
const MAX_SECRET: u64 = 2_048;

/// Commands of the document.
#[derive(Debug)]
pub(super) struct Resources(Document);

impl Resources {
    /// Reads the document of this version. It depends on the configuration only where options don't.
    ///
    /// # Errors
    /// The defaults of the configuration have faults.
    pub(super) fn new() -> Result<Self, Failure> {
        let config = Config::load(&Sources::default())
            .map_err(|faults| Failure::Startup(faults.to_string()))?;
        Ok(Self(Document::new(api::document(&config))))
    }

    /// Adds the commands to `root`; verbs that a noun already has stay as they are.
    pub(super) fn augment(&self, root: clap::Command) -> clap::Command {
        NOUNS.iter().fold(root, |root, noun| {
            if root.find_subcommand(noun.name).is_some() {
                return root.mut_subcommand(noun.name, |known| self.verbs(known, noun));
            }
            let command = clap::Command::new(noun.name)
                .about(noun.about)
                .subcommand_required(true)
                .arg_required_else_help(true);
            root.subcommand(self.verbs(command, noun))
        })
    }

    fn verbs(&self, command: clap::Command, noun: &Noun) -> clap::Command {
        let verbs = noun.verbs.iter();
        verbs.fold(command, |command, verb| {
            match self.0.operation(verb.operation) {
                Some(operation) if command.find_subcommand(verb.name).is_none() => {
                    command.subcommand(self.command(verb, &operation))
                }
                Some(_) | None => command,
            }
        })
    }

    fn command(&self, verb: &Verb, operation: &Operation) -> clap::Command {
        let mut command = clap::Command::new(verb.name).about(operation.summary.clone());
        let by_org = |name: &&String| name.as_str() != "orgId";
        let parameters: Vec<&String> = operation.path_parameters.iter().filter(by_org).collect();
        for (at, name) in parameters.iter().enumerate() {
            let is_last = at + 1 == parameters.len() && self.can_list(operation, name);
            command = command.arg(path_argument(name, is_last));
            if is_last {
                let last = Arg::new("last").long("last").action(ArgAction::SetTrue);
                command = command.arg(last.help("Take the newest one."));
            }
        }

        let query = operation.query.iter();
        for property in query.filter(|one| !PAGING.contains(&one.name.as_str())) {
            command = command.arg(option(property, false));
        }
        for property in taken(verb, operation) {
            command = command.arg(match verb.positional.contains(&property.name.as_str()) {
                true => positional(property),
                false => option(property, operation.method == Method::PATCH),
            });
        }

        if is_list(operation) {
            let limit = Arg::new("limit").long("limit").value_name("COUNT");
            let limit = limit
                .value_parser(clap::value_parser!(u32).range(1..=10_000))
                .default_value(USUAL_LIMIT);
            command = command.arg(limit.help("Maximum number of items, the newest."));
        }
        if destroys(verb, operation) {
            let yes = Arg::new("yes").long("yes").action(ArgAction::SetTrue);
            command = command.arg(yes.help("Don't ask for confirmation."));
        }
        Output::augment_args(Target::augment_args(command))
    }

    /// Returns true if the API lists what the parameter names.
    fn can_list(&self, operation: &Operation, parameter: &str) -> bool {
        self.0.lists(&prefix(&operation.path, parameter))
    }

    /// Returns true if the command is one of these.
    pub(super) fn is_one(&self, matches: &ArgMatches) -> bool {
        chosen(matches).is_some()
    }

    /// Runs the command, if it is one of these.
    ///
    /// # Errors
    /// The API can't be reached, or refuses.
    pub(super) async fn run(&self, config: &Config, matches: &ArgMatches) -> Result<(), Failure> {
        let Some((verb, given)) = chosen(matches) else {
            return Ok(());
        };
        match self.0.operation(verb.operation) {
            Some(operation) => self.perform(config, (verb, &operation), given).await,
            None => Ok(()),
        }
    }

    async fn perform(
        &self,
        config: &Config,
        (verb, operation): (&Verb, &Operation),
        given: &ArgMatches,
    ) -> Result<(), Failure> {
        let said = |fault: clap::Error| Failure::Startup(fault.to_string());
        let target = Target::from_arg_matches(given).map_err(said)?;
        let output = Output::from_arg_matches(given).map_err(said)?;
        let body = body(verb, operation, given)?;
        if destroys(verb, operation) {
            confirmed(given, &operation.summary)?;
        }

        let intent = match operation.method == Method::GET {
            true => Intent::Reads,
            false => Intent::Changes,
        };
        let session = target.open(config, intent).await?;
        let outcome = self.exchange((verb, operation), (given, body), &session, output);
        let outcome = outcome.await;
        session.close().await;
        outcome
    }

    async fn exchange(
        &self,
        (verb, operation): (&Verb, &Operation),
        (given, body): (&ArgMatches, Option<Map<String, Value>>),
        session: &Session,
        output: Output,
    ) -> Result<(), Failure> {
        let path = self.path(operation, given, session).await?;
        let mut filters = Vec::new();
        for property in &operation.query {
            let value = given
                .try_get_one::<String>(&argument_id(&property.name))
                .ok()
                .flatten();
            let Some(value) = value.filter(|_| !PAGING.contains(&property.name.as_str())) else {
                continue;
            };
            let value = named(session, &property.name, value).await?;
            filters.push((property.name.as_str(), value));
        }
        let filters: Vec<(&str, &str)> = filters
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();

        if is_list(operation) {
            let most = given.get_one::<u32>("limit").copied().unwrap_or(50);
            let items = names::read(session, &path, &filters, most as usize).await?;
            match output.is_json() {
                true => print(&output::json(&items)),
                false => show::list(&items, verb.columns),
            }
            return Ok(());
        }

        let body = match body {
            Some(mut body) => {
                for (name, value) in &mut body {
                    if let Value::String(text) = value {
                        *text = named(session, name, text).await?;
                    }
                }
                Some(Value::Object(body))
            }
            None => None,
        };
        let path = match filters.is_empty() {
            true => path,
            false => format!("{path}?{}", super::session::encoded(&filters)?),
        };
        let answer = session
            .answer(&operation.method, &path, body.as_ref())
            .await?;
        match (output.is_json(), answer["items"].as_array()) {
            (true, _) => print(&output::json(&answer)),
            (false, Some(items)) => show::list(items, verb.columns),
            (false, None) if answer == json!({"success": true}) => print("Done."),
            (false, None) => show::object(&answer),
        }
        Ok(())
    }

    /// Fills the parameters of the path in, whose names become ids.
    async fn path(
        &self,
        operation: &Operation,
        given: &ArgMatches,
        session: &Session,
    ) -> Result<String, Failure> {
        let mut path = operation.path.clone();
        for name in &operation.path_parameters {
            let place = format!("{{{name}}}");
            if name == "orgId" {
                let org = session.operators_org().ok_or_else(|| {
                    Failure::Startup("only the operator, or a partner by the API, may do this: run it on the daemon's machine".to_owned())
                })?;
                path = path
                    .replace("/partner/v1/", "/operator/")
                    .replace(&place, &org.to_string());
                continue;
            }

            let list = prefix(&path, name);
            let can_list = self.can_list(operation, name);
            let value = given
                .try_get_one::<String>(&argument_id(name))
                .ok()
                .flatten();
            let id = match value {
                Some(value) if can_list => names::find(session, &list, value).await?,
                Some(value) => match nouns::list_of(name) {
                    Some(list) => names::find(session, list, value).await?,
                    None => value.clone(),
                },
                None => names::last(session, &list).await?,
            };
            if !is_segment(&id) {
                return Err(Failure::Startup(format!("{id:?} is no id")));
            }
            path = path.replace(&place, &id);
        }
        Ok(path)
    }
}

/// Finds the verb and its arguments.
fn chosen(matches: &ArgMatches) -> Option<(&'static Verb, &ArgMatches)> {
    let (noun, further) = matches.subcommand()?;
    let (word, given) = further.subcommand()?;
    let noun = NOUNS.iter().find(|known| known.name == noun)?;
    let verb = noun.verbs.iter().find(|known| known.name == word)?;
    Some((verb, given))
}

/// Part of the path before a parameter.
fn prefix(path: &str, parameter: &str) -> String {
    let place = format!("/{{{parameter}}}");
    path.split(&place).next().unwrap_or_default().to_owned()
}

/// Returns true if the text can stand in a path as it is.
fn is_segment(text: &str) -> bool {
    let is_plain = |octet: u8| octet.is_ascii_alphanumeric() || b"-_.+".contains(&octet);
    !text.is_empty() && text.bytes().all(is_plain)
}

/// Turns a name into an id, where the property is the id of something that the API lists.
async fn named(session: &Session, property: &str, value: &str) -> Result<String, Failure> {
    match nouns::list_of(property) {
        Some(list) => names::find(session, list, value).await,
        None => Ok(value.to_owned()),
    }
}

fn is_list(operation: &Operation) -> bool {
    operation.query.iter().any(|one| one.name == "cursor")
}

fn destroys(verb: &Verb, operation: &Operation) -> bool {
    verb.destroys || operation.method == Method::DELETE
}

/// Properties of the body that the command takes.
fn taken<'o>(verb: &Verb, operation: &'o Operation) -> impl Iterator<Item = &'o Property> {
    let hidden = verb.hidden;
    let all = operation.body.iter().flatten();
    all.filter(move |property| !hidden.contains(&property.name.as_str()))
}

fn path_argument(name: &str, or_last: bool) -> Arg {
    let shown = name
        .trim_end_matches("_id")
        .replace('_', "-")
        .to_uppercase();
    let argument = Arg::new(argument_id(name)).value_name(shown);
    match or_last {
        true => argument
            .help("Its id, its name, or a part of the id that only one has.")
            .required_unless_present("last")
            .conflicts_with("last"),
        false => argument.help("Its id or name.").required(true),
    }
}

/// Id of the argument for a property or parameter, apart from those of every command.
fn argument_id(name: &str) -> String {
    format!("field.{name}")
}

/// Name of the option for a property: ids are named by what they identify.
fn flag(property: &Property) -> String {
    match property.name.as_str() {
        "phone_agent_id" => "agent".to_owned(),
        "password" => "password-file".to_owned(),
        // Every command has `--url`, the address of the API.
        "url" => "receiver".to_owned(),
        name => name
            .strip_suffix("_id")
            .filter(|_| nouns::list_of(name).is_some())
            .unwrap_or(name)
            .replace('_', "-"),
    }
}

fn positional(property: &Property) -> Arg {
    let shown = property.name.trim_end_matches("_id").to_uppercase();
    Arg::new(argument_id(&property.name))
        .value_name(shown)
        .help(about(property))
        .required(property.required || property.name == "destination_id")
}

fn option(property: &Property, is_update: bool) -> Arg {
    let argument = Arg::new(argument_id(&property.name))
        .long(flag(property))
        .help(about(property))
        .required(property.required && !is_update);
    match &property.kind {
        Kind::Choice(words) => {
            let none = property.nullable.then_some("none");
            let words = words.iter().map(String::as_str).chain(none);
            let words: Vec<String> = words.map(str::to_owned).collect();
            argument.value_parser(PossibleValuesParser::new(words))
        }
        Kind::Texts => argument.value_name("VALUE").action(ArgAction::Append),
        Kind::Bool => argument.value_name("BOOL"),
        Kind::Whole => argument.value_name("COUNT"),
        Kind::Json => argument.value_name("JSON"),
        Kind::Text if property.name == "password" => argument.value_name("FILE"),
        Kind::Text => argument.value_name("VALUE"),
    }
}

fn about(property: &Property) -> String {
    let mut about = property.about.clone();
    if property.name == "password" {
        about.push_str(" A file that holds it; `-` for standard input.");
    }
    if property.nullable && property.kind != Kind::Texts {
        about.push_str(" `none` clears it.");
    }
    about
}

/// Makes the body of the options.
///
/// # Errors
/// A value has the wrong form, or an update changes nothing.
fn body(
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
                Kind::Texts => json!(values),
                Kind::Text | Kind::Choice(_) | Kind::Whole | Kind::Bool | Kind::Json => {
                    value(property, first)?
                }
            };
            body.insert(name.to_owned(), value);
        }
    }

    if operation.method == Method::PATCH && body.is_empty() {
        let flags: Vec<String> = taken(verb, operation)
            .map(|property| format!("--{}", flag(property)))
            .collect();
        return Err(Failure::Startup(format!(
            "nothing to change: name at least one of {}",
            flags.join(", ")
        )));
    }
    Ok(Some(body))
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
        Kind::Text if property.name == "password" => secret(text).map(Value::from),
        Kind::Text | Kind::Choice(_) | Kind::Texts => Ok(Value::from(text)),
        Kind::Whole => text
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

/// Reads a password from a file, so that `ps` doesn't show it.
fn secret(path: &str) -> Result<String, Failure> {
    let said =
        |fault: std::io::Error| Failure::Startup(format!("--password-file: {path}: {fault}"));
    let mut text = String::new();
    match path {
        "-" => std::io::stdin().take(MAX_SECRET).read_to_string(&mut text),
        path => std::fs::File::open(path)
            .map_err(said)?
            .take(MAX_SECRET)
            .read_to_string(&mut text),
    }
    .map_err(said)?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// Asks before something is destroyed.
///
/// # Errors
/// The person says no, or there is nobody to ask and no `--yes`.
fn confirmed(given: &ArgMatches, summary: &str) -> Result<(), Failure> {
    if given.get_flag("yes") {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(Failure::Startup(
            "this can't be undone: confirm it with --yes".to_owned(),
        ));
    }

    let mut stderr = std::io::stderr();
    let _ = write!(stderr, "{summary}: are you sure? [y/N] ");
    let _ = stderr.flush();
    let mut answer = String::new();
    let _ = std::io::stdin().read_line(&mut answer);
    match matches!(answer.trim(), "y" | "Y" | "yes") {
        true => Ok(()),
        false => Err(Failure::Command("nothing was done".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_is_an_operation() {
        let resources = Resources::new().unwrap();
        for noun in NOUNS {
            for verb in noun.verbs {
                assert!(
                    resources.0.operation(verb.operation).is_some(),
                    "{} {}: {}",
                    noun.name,
                    verb.name,
                    verb.operation
                );
            }
        }
    }
}
