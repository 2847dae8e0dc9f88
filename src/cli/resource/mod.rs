//! Commands made from the API's own document: each verb is an operation, its options are the operation's parameters and the properties of its body.
//! So the command line accepts what the API accepts, with the API's descriptions.

mod adaptation;
mod answer_rows;
mod arguments;
mod body;
mod columns;
mod named;
mod nouns;
mod operation;
mod secret;
pub(super) mod show;

use std::collections::HashSet;

use axum::http::Method;
use clap::{ArgMatches, Args as _, FromArgMatches as _};
use serde_json::{Map, Value, json};

use super::Failure;
use super::confirm::confirmed;
use super::credential::Holder;
use super::names::{self, List};
use super::output::{self, Output, print};
use super::session::{Intent, Session, encoded};
use super::target::Target;
use crate::api;
use crate::config::{Config, Sources};
use arguments::{PAGING, argument_id};
use nouns::{Danger, NOUNS, Noun, Scope, Verb};
use operation::{Document, Operation};

/// Commands of the document.
#[derive(Debug)]
pub(super) struct Resources {
    document: Document,
    /// Method and path, below `/partner/v1`, of what a partner may do.
    of_partner: HashSet<(String, String)>,
}

/// Command that was given: its noun, its verb and the arguments.
struct Given<'m> {
    noun: &'static Noun,
    verb: &'static Verb,
    matches: &'m ArgMatches,
}

impl Resources {
    /// Makes the document of this version. No option depends on a setting, so the default configuration serves.
    ///
    /// # Errors
    /// The defaults of the configuration have faults.
    pub(super) fn new() -> Result<Self, Failure> {
        let config = Config::load(&Sources::default())
            .map_err(|faults| Failure::Startup(faults.to_string()))?;
        let declared = api::declared(&config).into_iter();
        let of_partner = declared.filter_map(|(method, path, _)| {
            let path = path.strip_prefix("/partner/v1")?;
            Some((method, path.to_owned()))
        });
        Ok(Self {
            document: Document::new(api::operators_document(&config)),
            of_partner: of_partner.collect(),
        })
    }

    /// Checks that the holder of the session's key may do this.
    ///
    /// # Errors
    /// It is a partner, and only the operator may.
    fn must_be_allowed(&self, session: &Session, operation: &Operation) -> Result<(), Failure> {
        let path = operation.path.strip_prefix("/operator");
        let (Some(path), Some(Holder::Partner)) = (path, session.holder()) else {
            return Ok(());
        };
        let operation = (operation.method.as_str().to_lowercase(), path.to_owned());
        match self.of_partner.contains(&operation) {
            true => Ok(()),
            false => session.must_be_operators(),
        }
    }

    /// Adds the commands to `root`; verbs that a noun already has stay as they are.
    pub(super) fn augment(&self, root: clap::Command) -> clap::Command {
        NOUNS.iter().fold(root, |root, noun| match noun.parent {
            None => self.add(root, noun),
            Some(parent) => root.mut_subcommand(parent, |known| self.add(known, noun)),
        })
    }

    fn add(&self, root: clap::Command, noun: &Noun) -> clap::Command {
        if root.find_subcommand(noun.name).is_some() {
            return root.mut_subcommand(noun.name, |known| self.verbs(known, noun));
        }
        let command = clap::Command::new(noun.name)
            .about(noun.about)
            .subcommand_required(true)
            .arg_required_else_help(true);
        root.subcommand(self.verbs(command, noun))
    }

    fn verbs(&self, command: clap::Command, noun: &Noun) -> clap::Command {
        let verbs = noun.verbs.iter();
        verbs.fold(command, |command, verb| {
            match self.document.operation(verb.operation) {
                Some(operation) if command.find_subcommand(verb.name).is_none() => {
                    command.subcommand(self.command(noun, verb, &operation))
                }
                Some(_) | None => command,
            }
        })
    }

    fn command(&self, noun: &Noun, verb: &Verb, operation: &Operation) -> clap::Command {
        let mut command = clap::Command::new(verb.name).visible_aliases(verb.aliases);
        if !verb.example.is_empty() {
            command = command.after_help(format!("Examples:\n  {}", verb.example));
        }

        let named = |name: &&String| name.as_str() != "orgId" || noun.scope == Scope::Installation;
        let parameters: Vec<&String> = operation.path_parameters.iter().filter(named).collect();
        for (at, name) in parameters.iter().enumerate() {
            let is_last = at + 1 == parameters.len();
            // If this argument could be left out, the one that follows would be read in its place.
            let may_lack = is_last && verb.positional.is_empty();
            let or_last = may_lack && self.list(verb, operation, name).is_some();
            command = arguments::path(command, verb, name, or_last);
        }

        let query = operation.query.iter();
        for property in query.filter(|one| !PAGING.contains(&one.name.as_str())) {
            command = command.arg(arguments::option(property, arguments::Use::Filter));
        }
        for property in body::taken(verb, operation) {
            command = command.arg(arguments::of_body(verb, operation, property));
        }
        if let Some(adaptation) = &verb.adaptation {
            command = (adaptation.arguments)(command);
        }

        if self.paging(operation).is_some() {
            command = command.arg(arguments::limit());
        }
        if danger(verb, operation) != Danger::None {
            command = command.arg(arguments::yes());
        }
        // Last, because a derived group of options sets its own doc comment as the command's description.
        let command = Output::augment_args(Target::augment_args(command))
            .about(match verb.about {
                "" => operation.summary.clone(),
                about => about.to_owned(),
            })
            .long_about(None);
        match noun.scope {
            Scope::Org => command,
            Scope::Installation => command.mut_arg("org", |org| org.hide(true)),
        }
    }

    /// Returns the paging of the list that the operation reads; `None` if it reads no list, or one that comes whole.
    fn paging(&self, operation: &Operation) -> Option<names::Paging> {
        let is_read = operation.method == Method::GET;
        let paging = self.document.paging(&operation.path).filter(|_| is_read)?;
        (paging != names::Paging::Whole).then_some(paging)
    }

    /// Returns the list in which the object of an id parameter is found; `None` if the API has no such list, or the
    /// parameter is no id. The list's path may itself hold parameters.
    fn list(&self, verb: &Verb, operation: &Operation, parameter: &str) -> Option<List> {
        if !parameter.ends_with("_id") && !parameter.ends_with("Id") {
            return None;
        }

        let is_last = operation
            .path_parameters
            .last()
            .is_some_and(|last| last == parameter);
        let place = format!("/{{{parameter}}}");
        let before = operation.path.split(&place).next().unwrap_or_default();
        let path = match verb.among.filter(|_| is_last) {
            Some(path) => path,
            None => nouns::list_of(parameter).unwrap_or(before),
        };

        Some(List {
            paging: self.document.paging(path)?,
            path: path.to_owned(),
            noun: nouns::noun_of(parameter),
        })
    }

    /// Runs the command, if it is one of the document.
    ///
    /// # Errors
    /// The API can't be reached, or refuses.
    pub(super) async fn run(&self, config: &Config, matches: &ArgMatches) -> Result<(), Failure> {
        let Some(given) = chosen(matches) else {
            return Ok(());
        };
        match self.document.operation(given.verb.operation) {
            Some(operation) => self.perform(config, &given, operation).await,
            None => Ok(()),
        }
    }

    async fn perform(
        &self,
        config: &Config,
        given: &Given<'_>,
        mut operation: Operation,
    ) -> Result<(), Failure> {
        let said = |fault: clap::Error| Failure::Startup(fault.to_string());
        let target = Target::from_arg_matches(given.matches).map_err(said)?;
        let output = Output::from_arg_matches(given.matches).map_err(said)?;
        let verb = given.verb;

        // What is wrong with the arguments is found before the API is asked.
        let mut body = body::read(verb, &operation, given.matches)?;
        if body.as_ref().is_some_and(Map::is_empty) {
            match verb.shows.and_then(|shows| self.document.operation(shows)) {
                Some(shows) => (operation, body) = (shows, None),
                None => body::must_change(verb, &operation)?,
            }
        }
        let is_confirmed = || given.matches.get_flag("yes");
        match danger(verb, &operation) {
            Danger::None => {}
            Danger::Asks => confirmed(is_confirmed(), &operation.summary)?,
        }

        // A verb with `begins` may create the first object of an installation, and so the data directory.
        let intent = match verb.begins {
            true => Intent::Begins,
            false => Intent::Reads,
        };
        let session = match given.noun.scope {
            Scope::Org => target.open(config, intent).await?,
            Scope::Installation => target.open_without_org(config, intent).await?,
        };
        let outcome = match self.must_be_allowed(&session, &operation) {
            Ok(()) => {
                let exchanged = self.exchange(given, &operation, body, &session, output);
                exchanged.await
            }
            Err(refused) => Err(refused),
        };
        session.close().await;
        outcome
    }

    async fn exchange(
        &self,
        given: &Given<'_>,
        operation: &Operation,
        body: Option<Map<String, Value>>,
        session: &Session,
        output: Output,
    ) -> Result<(), Failure> {
        let (noun, verb) = (given.noun, given.verb);
        let path = self.path(given, operation, session).await?;
        let filters = self.filters(given, operation, session).await?;
        let filters: Vec<(&str, &str)> = filters
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();

        if let Some(paging) = self.paging(operation) {
            let most = given.matches.get_one::<u32>("limit").copied();
            let list = List {
                path,
                paging,
                noun: noun.name,
            };
            let most = most.unwrap_or(u32::MAX) as usize;
            let items = names::read(session, &list, &filters, most).await?;
            match output.is_json() {
                true => print(&output::json(&items)),
                false => show::list(&items, verb.columns),
            }
            return Ok(());
        }

        let body = match body {
            Some(mut body) => {
                self.name_ids(session, &mut body).await?;
                if let Some(property) = verb.adaptation.and_then(|adaptation| adaptation.merges) {
                    body::merge(session, &path, property, &mut body).await?;
                }
                Some(Value::Object(body))
            }
            None => None,
        };
        let path = match filters.is_empty() {
            true => path,
            false => format!("{path}?{}", encoded(&filters)?),
        };
        let answer = session
            .answer(&operation.method, &path, body.as_ref())
            .await?;
        show_answer(verb, answer, output);
        Ok(())
    }

    /// Turns names of the body into ids.
    async fn name_ids(
        &self,
        session: &Session,
        body: &mut Map<String, Value>,
    ) -> Result<(), Failure> {
        for (name, value) in body {
            if let Value::String(text) = value {
                *text = self.named(session, name, text).await?;
            }
        }
        Ok(())
    }

    async fn filters<'o>(
        &self,
        given: &Given<'_>,
        operation: &'o Operation,
        session: &Session,
    ) -> Result<Vec<(&'o str, String)>, Failure> {
        let mut filters = Vec::new();
        for property in &operation.query {
            let value = text_of(given.matches, &property.name);
            let Some(value) = value.filter(|_| !PAGING.contains(&property.name.as_str())) else {
                continue;
            };
            let value = self.named(session, &property.name, value).await?;
            filters.push((property.name.as_str(), value));
        }
        Ok(filters)
    }

    /// Returns the id of the object that `value` names, if the property is the id of an object that the API lists. Any
    /// other value is returned unchanged.
    async fn named(
        &self,
        session: &Session,
        property: &str,
        value: &str,
    ) -> Result<String, Failure> {
        match nouns::list_of(property) {
            Some(path) => {
                let list = List {
                    paging: self.document.paging(path).unwrap_or(names::Paging::Cursor),
                    ..List::new(path, nouns::noun_of(property))
                };
                names::find(session, &list, value).await
            }
            None => Ok(value.to_owned()),
        }
    }

    /// Fills in the parameters of the path; names become ids.
    async fn path(
        &self,
        given: &Given<'_>,
        operation: &Operation,
        session: &Session,
    ) -> Result<String, Failure> {
        let mut filled: Vec<(String, String)> = Vec::new();
        let fill = |path: &str, filled: &[(String, String)]| {
            let all = filled.iter();
            all.fold(path.to_owned(), |path, (place, value)| {
                path.replace(place, value)
            })
        };

        for name in &operation.path_parameters {
            let place = format!("{{{name}}}");
            if name == "orgId" && given.noun.scope == Scope::Org {
                filled.push((place, session.chosen_org()?.to_string()));
                continue;
            }

            let list = self.list(given.verb, operation, name).map(|list| List {
                path: fill(&list.path, &filled),
                ..list
            });
            let id = match (text_of(given.matches, name), list) {
                (Some(value), Some(list)) => names::find(session, &list, value).await?,
                (Some(value), None) => value.clone(),
                (None, Some(list)) => names::last(session, &list).await?,
                (None, None) => String::new(),
            };
            if id.is_empty() {
                return Err(Failure::Startup("an id must not be empty".to_owned()));
            }
            filled.push((place, escaped(&id)));
        }
        Ok(fill(&operation.path, &filled))
    }
}

/// Finds the verb and its arguments.
fn chosen(matches: &ArgMatches) -> Option<Given<'_>> {
    let (first, further) = matches.subcommand()?;
    let (second, given) = further.subcommand()?;
    let beneath = NOUNS
        .iter()
        .find(|known| known.parent == Some(first) && known.name == second);
    let (noun, word, matches) = match beneath {
        Some(noun) => {
            let (word, given) = given.subcommand()?;
            (noun, word, given)
        }
        None => {
            let known = |noun: &&Noun| noun.parent.is_none() && noun.name == first;
            (NOUNS.iter().find(known)?, second, given)
        }
    };

    let verb = noun.verbs.iter().find(|known| known.name == word)?;
    Some(Given {
        noun,
        verb,
        matches,
    })
}

fn text_of<'m>(matches: &'m ArgMatches, name: &str) -> Option<&'m String> {
    matches
        .try_get_one::<String>(&argument_id(name))
        .ok()
        .flatten()
}

fn danger(verb: &Verb, operation: &Operation) -> Danger {
    match verb.danger {
        Danger::None if operation.method == Method::DELETE => Danger::Asks,
        Danger::None | Danger::Asks => verb.danger,
    }
}

/// Escapes a segment of a path (RFC 3986 §2.1).
fn escaped(text: &str) -> String {
    let octets = text.bytes().map(|octet| match octet {
        octet if octet.is_ascii_alphanumeric() || b"-_.~+".contains(&octet) => {
            char::from(octet).to_string()
        }
        octet => format!("%{octet:02X}"),
    });
    octets.collect()
}

fn show_answer(verb: &Verb, mut answer: Value, output: Output) {
    if let Some(rows) = verb.rows {
        answer = rows(answer);
    }
    match (output.is_json(), &answer) {
        (true, _) => print(&output::json(&answer)),
        (false, Value::Array(items)) => show::list(items, verb.columns),
        (false, _) if answer["items"].is_array() => {
            let items = answer["items"].as_array().map_or(&[][..], Vec::as_slice);
            show::list(items, verb.columns);
        }
        (false, _) if answer == json!({"success": true}) => print(verb.says),
        (false, _) => show::object(&answer),
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
                for operation in std::iter::once(verb.operation).chain(verb.shows) {
                    let found = resources.document.operation(operation);
                    assert!(found.is_some(), "{} {}: {operation}", noun.name, verb.name);
                }
            }
        }
    }

    #[test]
    fn a_command_says_what_the_document_says_of_its_operation() {
        let resources = Resources::new().unwrap();
        let root = resources.augment(clap::Command::new("trunkline"));
        for noun in NOUNS.iter().filter(|noun| noun.parent.is_none()) {
            let of_noun = root.find_subcommand(noun.name).unwrap();
            for verb in noun.verbs {
                let command = of_noun.find_subcommand(verb.name).unwrap();
                let about = command.get_about().unwrap().to_string();
                let summary = resources
                    .document
                    .operation(verb.operation)
                    .unwrap()
                    .summary;
                let expected = match verb.about {
                    "" => summary,
                    about => about.to_owned(),
                };
                assert_eq!(about, expected, "{} {}", noun.name, verb.name);
                assert!(command.get_long_about().is_none(), "{}", verb.name);
            }
        }
    }

    #[test]
    fn the_whole_command_line_is_sound() {
        use clap::CommandFactory as _;
        let resources = Resources::new().unwrap();
        resources.augment(crate::cli::Cli::command()).debug_assert();
    }

    #[test]
    fn a_segment_is_escaped() {
        for (text, expected) in [
            ("+442071838750", "+442071838750"),
            ("10.20.0.0/16", "10.20.0.0%2F16"),
            ("a?b#ü", "a%3Fb%23%C3%BC"),
        ] {
            assert_eq!(escaped(text), expected);
        }
    }
}
