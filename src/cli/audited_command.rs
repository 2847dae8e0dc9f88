//! Describes what a command changes, for the audit log: its words, and the names of the given arguments. Argument
//! values aren't kept.

use clap::parser::ValueSource;
use clap::{ArgMatches, Command};
use trunkline_store::{Acting, Actor, ActorKind, AuditedAction};
use uuid::Uuid;

use crate::engine::clock::wall_time as now;

/// Arguments that say where or how a command runs, and that change nothing.
const NO_FIELDS: [&str; 7] = [
    "config", "data_dir", "json", "no_serve", "org", "set", "yes",
];

/// First word of the commands that work on this machine's store, with or without a daemon.
const LOCAL_NOUN: &str = "key";

/// Command line as the audit log records it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct AuditedCommand {
    words: Vec<String>,
    fields: Vec<String>,
    /// First argument that is an id, except the org's.
    id: Option<Uuid>,
    /// Partner that an argument names, or that the created object belongs to.
    partner: Option<Uuid>,
    /// Kind of object that the command changes; `None`: the installation.
    resource: Option<&'static str>,
    /// Org that the created object belongs to. No argument sets it.
    org: Option<Uuid>,
}

impl AuditedCommand {
    pub(super) fn read(command: &Command, matches: &ArgMatches) -> Self {
        let (mut command, mut matches) = (command, matches);
        let mut given = Self {
            words: Vec::new(),
            fields: Vec::new(),
            id: None,
            partner: None,
            resource: None,
            org: None,
        };

        while let Some((word, further)) = matches.subcommand() {
            let Some(next) = command.find_subcommand(word) else {
                break;
            };
            given.words.push(word.to_owned());
            (command, matches) = (next, further);
        }

        for argument in command.get_arguments() {
            let name = argument.get_id().as_str();
            let is_there = matches.try_contains_id(name).unwrap_or_default();
            // A default and a variable of the environment aren't given by the person who runs the command.
            if NO_FIELDS.contains(&name)
                || !is_there
                || matches.value_source(name) != Some(ValueSource::CommandLine)
            {
                continue;
            }

            given.fields.push(name.to_owned());
            let raw = matches.try_get_raw(name).ok().flatten();
            let id = raw.and_then(|mut raw| Uuid::parse_str(raw.next()?.to_str()?).ok());
            match name {
                "partner" => given.partner = id,
                // The object of a command is its positional argument.
                _ if argument.is_positional() => given.id = given.id.or(id),
                _ => {}
            }
        }

        given
    }

    /// First word.
    fn noun(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    /// Returns true if the command works on the store of an installation, which must exist.
    pub(super) fn needs_installation(&self) -> bool {
        self.noun() == LOCAL_NOUN
    }

    /// Returns the entry for one object of a command that creates several, each with an entry of its own.
    pub(super) fn part(&self, resource: &'static str) -> Self {
        Self {
            resource: Some(resource),
            ..self.clone()
        }
    }

    /// Same entry, for an object of a partner.
    pub(super) fn of_partner(self, partner: Uuid) -> Self {
        Self {
            partner: Some(partner),
            ..self
        }
    }

    /// Same entry, for an object of an org.
    pub(super) fn of_org(self, org: Uuid) -> Self {
        Self {
            org: Some(org),
            ..self
        }
    }

    /// Kind of object that the command changes.
    fn resource(&self) -> &'static str {
        self.resource.unwrap_or("installation")
    }

    /// Runs the command's work within its audit scope.
    pub(super) async fn scope<T>(self, work: impl Future<Output = T>) -> T {
        let resource = self.resource();
        let words = self.words.join(" ");
        let acting = Acting::new(AuditedAction {
            at: now(),
            address: None,
            action: words.clone(),
            resource,
            resource_id: self.id.or(self.partner.filter(|_| resource == "partner")),
            request_id: None,
        });

        let actor = Actor {
            kind: ActorKind::Command,
            id: None,
            name: format!("trunkline {words}"),
        };

        acting
            .scope(async {
                Acting::by(actor, self.org, self.partner);
                Acting::fields(self.fields.iter().map(String::as_str));
                work.await
            })
            .await
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::super::Cli;
    use super::*;

    #[test]
    fn a_command_is_its_words_and_the_names_of_its_arguments() {
        let command = Cli::command();
        let arguments = [
            "trunkline",
            "key",
            "retire-signing",
            "5f1c2d3e4a5b6c7d",
            "--api-keys",
            "--data-dir",
            "/tmp/x",
        ];
        let matches = command.clone().try_get_matches_from(arguments).unwrap();
        let given = AuditedCommand::read(&command, &matches);
        assert_eq!(given.words, ["key", "retire-signing"]);
        assert_eq!(given.fields, ["kid", "api_keys"]);
        assert_eq!((given.resource(), given.id), ("installation", None));
    }
}
