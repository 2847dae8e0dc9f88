//! `trunkline call follow`: one call's events and decisions as they happen.

use serde_json::{Value, json};
use trunkline_sip::header::text::printable;

use super::Failure;
use super::event;
use super::event_stream::EventStream;
use super::names::{self, List};
use super::output::print;
use super::session::{Intent, Session};
use super::target::Target;
use crate::config::Config;

/// Types of the events of a call.
const TYPES: &str =
    "call.started,call.ringing,call.answered,call.ended,call.refused,transfer.updated";

/// Calls of an org.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Prints a call's events and decisions as they happen, until it ends.
    #[command(
        after_help = "Examples:\n  trunkline call follow --last\n  trunkline call follow 5b1c9e77d2a0 --json"
    )]
    Follow {
        /// The call's id, or a part of it that no other call has.
        #[arg(required_unless_present = "last", conflicts_with = "last")]
        call: Option<String>,
        /// Follow the newest call.
        #[arg(long)]
        last: bool,
        #[command(flatten)]
        target: Target,
        /// Print one JSON object per line.
        #[arg(long)]
        json: bool,
    },
}

impl Command {
    pub(super) async fn run(self, config: &Config) -> Result<(), Failure> {
        let Self::Follow {
            call, target, json, ..
        } = self;
        let session = target.open(config, Intent::Reads).await?;
        let followed = follow(&session, call.as_deref(), json).await;
        session.close().await;
        followed
    }
}

async fn follow(session: &Session, named: Option<&str>, is_json: bool) -> Result<(), Failure> {
    let calls = List::new("/phone/calls", "call");
    let id = match named {
        Some(named) => names::find(session, &calls, named).await?,
        None => names::last(session, &calls).await?,
    };

    // The stream is open before the record is read, so that no event falls between them.
    let mut events = EventStream::open(session, Some(TYPES), None).await?;
    let record = session.json(&format!("/phone/calls/{id}")).await?;
    let mut printed = Printed {
        session,
        decisions: 0,
        is_json,
    };
    printed.new_decisions(&id).await;
    // The stream brings no event of a call that had ended before it was opened.
    if !record["ended_at"].is_null() {
        let end = json!({"type": "call.ended", "timestamp": record["ended_at"], "data": record});
        printed.event(&end);
        return Ok(());
    }

    loop {
        let event = events.expect_next().await?;
        if event["data"]["call_id"] != id {
            continue;
        }
        printed.new_decisions(&id).await;
        printed.event(&event);
        if matches!(event["type"].as_str(), Some("call.ended" | "call.refused")) {
            return Ok(());
        }
    }
}

/// Printer of a followed call; it counts the decisions that it has printed.
struct Printed<'s> {
    session: &'s Session,
    decisions: usize,
    is_json: bool,
}

impl Printed<'_> {
    fn event(&self, event: &Value) {
        print(&match self.is_json {
            true => event.to_string(),
            false => event::line(event),
        });
    }

    /// Prints the decisions of the trace that are new. Without traces there are none.
    async fn new_decisions(&mut self, call: &str) {
        let path = format!("/phone/calls/{call}/trace");
        // `decisions` counts those printed, so the next event makes up for a failed read.
        let Ok(trace) = self.session.json(&path).await else {
            return;
        };

        let items = trace["items"].as_array().map_or(&[][..], Vec::as_slice);
        let decisions = items.iter().filter(|item| item["type"] == "decision");

        for decision in decisions.skip(self.decisions) {
            self.decisions += 1;
            print(&match self.is_json {
                true => decision.to_string(),
                false => {
                    let of = |name: &str| decision[name].as_str().unwrap_or_default();
                    format!("{}  * {}", of("at"), printable(of("text")))
                }
            });
        }
    }
}
