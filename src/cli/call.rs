//! `trunkline call follow`: one call's events and decisions as they happen.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Failure;
use super::call_rows::{FollowedCall, decision_row};
use super::event_stream::EventSelection;
use super::follow::{FollowFormat, FollowedLines, Within, follow};
use super::names::{self, List};
use super::session::{Intent, Session};
use super::target::Target;
use crate::config::Config;

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
        let session = Arc::new(target.open(config, Intent::Reads).await?);
        let followed = follow_call(&session, call.as_deref(), json).await;
        session.close_shared().await;
        followed
    }
}

async fn follow_call(
    session: &Arc<Session>,
    named: Option<&str>,
    is_json: bool,
) -> Result<(), Failure> {
    let calls = List::new("/phone/calls", "call");
    let id = match named {
        Some(named) => names::find(session, &calls, named).await?,
        None => names::last(session, &calls).await?,
    };

    let selection = EventSelection::of_calls(None);
    let mut steps = CallSteps {
        call: FollowedCall::new(Arc::clone(session), id),
        is_json,
    };
    follow(session, selection, None, &mut steps, Within::Command).await
}

/// Rows of one call: its events, with the decisions of its trace between them.
struct CallSteps {
    call: FollowedCall,
    is_json: bool,
}

impl CallSteps {
    /// Returns the decisions of the trace that are new. Without traces there are none.
    async fn decisions(&mut self) -> Vec<String> {
        // Items count as read once they were returned, so the next event makes up for a failed read.
        let items = self.call.new_items().await.unwrap_or_default();
        let decisions = items.iter().filter(|item| item["type"] == "decision");
        let line = |decision: &Value| match self.is_json {
            true => decision.to_string(),
            false => decision_row(self.call.id(), decision),
        };
        decisions.map(line).collect()
    }

    async fn steps(&self, event: &Value) -> Vec<String> {
        match self.is_json {
            true => vec![event.to_string()],
            false => self.call.rows(event).await,
        }
    }
}

impl FollowFormat for CallSteps {
    async fn catch_up(&mut self) -> Result<FollowedLines, Failure> {
        let record = self.call.record().await?;
        let mut lines = self.decisions().await;
        if record["ended_at"].is_null() {
            return Ok(lines.into());
        }

        // The stream brings no event of a call that had ended before it was opened.
        let end = json!({"type": "call.ended", "timestamp": record["ended_at"], "data": record});
        lines.extend(self.steps(&end).await);
        Ok(FollowedLines::last(lines))
    }

    async fn take_event(&mut self, event: &Value) -> Result<FollowedLines, Failure> {
        if !self.call.is_subject_of(event) {
            return Ok(FollowedLines::default());
        }

        let mut lines = self.decisions().await;
        lines.extend(self.steps(event).await);
        match event["type"].as_str() {
            Some("call.ended" | "call.refused") => Ok(FollowedLines::last(lines)),
            Some(_) | None => Ok(lines.into()),
        }
    }
}
