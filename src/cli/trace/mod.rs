//! `trunkline trace`: follows calls on a screen, from their list to the messages of one, or prints them as lines.
//!
//! Calls come by the event stream, which costs an org none of its requests. `state` takes keys and events and is
//! pure, `view` draws it, `screen` has the terminal; `plain` has the lines that are printed where there is none.

mod call;
mod filter;
mod plain;
mod save;
mod screen;
mod state;
#[cfg(test)]
mod tests;
mod view;

use std::io::{IsTerminal as _, stdin, stdout};
use std::path::PathBuf;
use std::sync::Arc;

use uuid::Uuid;

use super::event_stream::EventSelection;
use super::follow::{FollowFormat, Within, follow, print_once};
use super::names::{self, List};
use super::output::print;
use super::session::{Intent, Session, encoded};
use super::target::Target;
use super::{Failure, startup};
use crate::api;
use crate::config::Config;
use filter::{Field, Filter};
use plain::{CallItems, CallList, ItemPrinter};

/// Calls of the list that are shown at the start.
const PAGE: &str = "100";
/// Name of the inbound trunk in `--trunk`.
const INBOUND: &str = "inbound";

/// Follows calls. On a terminal: the list of calls, the ladder of one, its messages with their SDP and the decisions
/// between them. Without one, or with `--plain`: a line for each call, and another when its state changes; with a call's
/// id a line for each message, until the call ends.
///
/// With a key, each call that is opened costs its org a request; the list costs one at the start.
#[derive(Debug, clap::Args)]
#[command(
    group(clap::ArgGroup::new("one").args(["call", "last"])),
    after_help = "Examples:\n  trunkline trace\n  trunkline trace --last\n  trunkline trace --status refused --number +442071838750\n  trunkline trace 0198c0de-0000-7000-8000-000000000001 --plain --messages\n  trunkline trace 0198c0de-0000-7000-8000-000000000001 --save call.pcap\n  trunkline trace --once --json"
)]
pub(super) struct Command {
    /// Id of one call, or a part of it that no other call has. The call is followed until it ends.
    #[arg(value_name = "CALL")]
    call: Option<String>,
    /// Follow the newest call.
    #[arg(long)]
    last: bool,
    #[command(flatten)]
    target: Target,
    /// Only calls of this status.
    #[arg(long, conflicts_with = "one")]
    status: Option<String>,
    /// Only calls from or to this number, as sent or as E.164.
    #[arg(long, conflicts_with = "one")]
    number: Option<String>,
    /// Only calls with this agent.
    #[arg(long, value_name = "ID|NAME", conflicts_with = "one")]
    agent: Option<String>,
    /// Only calls through this outbound trunk, or `inbound` for the inbound one.
    #[arg(long, value_name = "ID|NAME", conflicts_with = "one")]
    trunk: Option<String>,
    /// Only calls with this text in a leg's `Call-ID`.
    #[arg(long, value_name = "TEXT", conflicts_with = "one")]
    call_id: Option<String>,
    /// Only calls with this text in the caller's `User-Agent`. It is known of calls that begin while the command runs.
    #[arg(long, value_name = "TEXT", conflicts_with = "one")]
    user_agent: Option<String>,
    /// Only `inbound` or `outbound` calls.
    #[arg(long, conflicts_with = "one")]
    direction: Option<String>,
    /// Print whole messages instead of a line for each.
    #[arg(long, requires = "one")]
    messages: bool,
    /// Save the call's messages to a new file and end; its ending names the form: `.pcap`, `.flow` or `.txt`.
    #[arg(long, value_name = "FILE", requires = "one")]
    save: Option<PathBuf>,
    /// Print lines on a terminal too.
    #[arg(long)]
    plain: bool,
    /// Print the present state and end.
    #[arg(long)]
    once: bool,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
}

impl Command {
    pub(super) fn run(self, config: &Config) -> Result<(), Failure> {
        startup::block_on(async {
            let session = Arc::new(self.target.open(config, Intent::Reads).await?);
            let outcome = self.run_in(&session).await;
            // Feed and requests have been stopped by now, so this is the last handle.
            session.close_shared().await;
            outcome
        })
    }

    async fn run_in(&self, session: &Arc<Session>) -> Result<(), Failure> {
        let call = self.call(session).await?;
        if let (Some(call), Some(file)) = (call, &self.save) {
            save::save(session, call, file).await?;
            print(&format!("Saved to {}.", file.display()));
            return Ok(());
        }

        let agent = find(session, List::new("/phone", "agent"), self.agent.as_deref()).await?;
        let trunk = self.trunk(session).await?;
        let path = self.list(agent.as_deref(), trunk.as_deref())?;
        let filter = self.filter(agent, trunk);
        if self.is_plain() {
            return match call {
                Some(call) => {
                    let printer = ItemPrinter::new(self.messages);
                    let mut items = CallItems::new(session, call, printer, self.json);
                    self.print(session, &mut items).await
                }
                None => {
                    let mut list = CallList::new(Arc::clone(session), path, filter, self.json);
                    self.print(session, &mut list).await
                }
            };
        }
        screen::run(session, &path, filter, call).await
    }

    async fn print(
        &self,
        session: &Arc<Session>,
        format: &mut impl FollowFormat,
    ) -> Result<(), Failure> {
        if self.once {
            return print_once(format).await;
        }
        let selection = EventSelection::of_calls(None);
        follow(session, selection, None, format, Within::Command).await
    }

    /// Returns the one call that is asked for.
    async fn call(&self, session: &Session) -> Result<Option<Uuid>, Failure> {
        let calls = List::new("/phone/calls", "call");
        let id = match &self.call {
            Some(call) => names::find(session, &calls, call).await?,
            None if self.last => names::last(session, &calls).await?,
            None => return Ok(None),
        };
        api::id_of(&id).map(Some).map_err(Failure::Startup)
    }

    fn is_plain(&self) -> bool {
        let has_terminal = stdin().is_terminal() && stdout().is_terminal();
        self.plain || self.once || self.json || self.messages || !has_terminal
    }

    async fn trunk(&self, session: &Session) -> Result<Option<String>, Failure> {
        if self.trunk.as_deref() != Some(INBOUND) {
            let trunks = List::new("/phone/sip/outbound-trunks", "outbound-trunk");
            return find(session, trunks, self.trunk.as_deref()).await;
        }
        let trunk = session.json("/phone/sip/inbound-trunk").await?;
        Ok(trunk["id"].as_str().map(str::to_owned))
    }

    /// Conditions on every call. Those that the API knows have narrowed the list already.
    fn filter(&self, agent: Option<String>, trunk: Option<String>) -> Filter {
        Filter::new([
            (Field::Status, self.status.clone()),
            (Field::Number, self.number.clone()),
            (Field::Agent, agent),
            (Field::Trunk, trunk),
            (Field::CallId, self.call_id.clone()),
            (Field::UserAgent, self.user_agent.clone()),
            (Field::Direction, self.direction.clone()),
        ])
    }

    fn list(&self, agent: Option<&str>, trunk: Option<&str>) -> Result<String, Failure> {
        let filters = [
            ("limit", Some(PAGE)),
            ("status", self.status.as_deref()),
            ("number", self.number.as_deref()),
            ("agent_id", agent),
            ("trunk_id", trunk),
            ("direction", self.direction.as_deref()),
        ];
        let given: Vec<(&str, &str)> = filters
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
            .collect();
        Ok(format!("/phone/calls?{}", encoded(&given)?))
    }
}

async fn find(
    session: &Session,
    list: List,
    given: Option<&str>,
) -> Result<Option<String>, Failure> {
    match given {
        Some(given) => Ok(Some(names::find(session, &list, given).await?)),
        None => Ok(None),
    }
}
