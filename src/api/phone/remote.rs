//! Runs commands to a call on the node that has it.
//!
//! This node runs the command if it has the call; otherwise it asks the other node through the database. The client
//! sees no difference. An outbound call to a PBX whose connection ends at another node is placed by that node.

use std::time::Duration;

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use trunkline_calls::HangUpRequester;
use trunkline_calls::dial::outbound::NewOutboundCall;
use trunkline_calls::features::transfer::TransferRequest;
use trunkline_store::{Call, CommandState, Kind, idempotency, node_commands};
use uuid::Uuid;

use super::command_result::CommandResult;
use super::{calls, commands};
use crate::api::error::Refusal;
use crate::api::idempotency::current_claim;
use crate::api::{Api, ApiError};
use crate::engine::Handle;

/// Interval between checks for commands from other nodes.
const LISTEN_INTERVAL: Duration = Duration::from_millis(200);
/// Interval between checks for the answer of another node.
const CHECK_INTERVAL: Duration = Duration::from_millis(25);
/// Time after which a command that the other node hasn't taken is withdrawn.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Time within which a command that the other node has taken must be done, counted from its sending. Placing a call takes up to 16 seconds
/// there: after a shorter time, a client would get an error for a call that was placed, and would dial twice.
const DONE_WITHIN: Duration = Duration::from_secs(25);
/// `Retry-After` in seconds if another node can't answer now.
const RETRY_AFTER_S: u64 = 5;
/// Number of running commands of other nodes at which no more are taken.
const CONCURRENT: usize = 64;

/// Command to a call, run by the node that has the call.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub(crate) enum RemoteCommand {
    HangUp,
    /// The call's bot hangs up.
    HangUpByBot,
    /// Holds the call, or resumes it.
    Turn {
        held: bool,
    },
    Transfer {
        ask: TransferRequest,
        /// True if the call's bot transfers it.
        by_bot: bool,
    },
    /// Reads the messages of the call, which may be over.
    Trace,
}

/// Command of one node to another.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum NodeCommand {
    Call(RemoteCommand),
    Place { place: NewOutboundCall },
}

impl RemoteCommand {
    /// Runs the command on the node that has the call.
    pub(crate) async fn run(self, api: &Api, call: Call) -> Result<CommandResult, ApiError> {
        let is_up = call.ended_at.is_none();
        let other = api.engine().and_then(|engine| engine.another_of(call.id));
        match other.filter(|_| is_up) {
            Some(node) if api.store().is_shared() => self.send(api, &call, node).await,
            Some(node) => Err(ApiError::Conflict(format!(
                "The call is up on node {node}: ask that node"
            ))),
            None => self.run_here(api, call).await,
        }
    }

    async fn run_here(self, api: &Api, call: Call) -> Result<CommandResult, ApiError> {
        match self {
            Self::HangUp => commands::hang_up::end(api, call, HangUpRequester::Operator).await,
            Self::HangUpByBot => {
                must_have_bot(api, &call)?;
                commands::hang_up::end(api, call, HangUpRequester::Agent).await
            }
            Self::Turn { held } => commands::hold::turn(api, call, held).await,
            Self::Transfer { ask, by_bot } => {
                if by_bot {
                    must_have_bot(api, &call)?;
                }
                commands::transfer::begin(api, &call, ask).await
            }
            Self::Trace => commands::trace::given(api, call).await,
        }
    }

    /// Has another node run the command.
    pub(super) async fn send(
        self,
        api: &Api,
        call: &Call,
        node: u8,
    ) -> Result<CommandResult, ApiError> {
        let asked = NodeCommand::Call(self);
        ask(api, call.org_id, call.id, node, "the call", &asked).await
    }
}

/// Checks that a bot was dialled for the call.
///
/// # Errors
/// 404 for a call of another runtime.
fn must_have_bot(api: &Api, call: &Call) -> Result<(), ApiError> {
    let live = api.live().one(call.org_id, call.id);
    match live.is_some_and(|live| live.has_bot) {
        true => Ok(()),
        false => Err(ApiError::absent(Kind::Call)),
    }
}

/// Has another node place a call.
pub(super) async fn place(
    api: &Api,
    order: NewOutboundCall,
    node: u8,
) -> Result<CommandResult, ApiError> {
    let (org, no_call) = (order.org, Uuid::nil());
    let asked = NodeCommand::Place { place: order };
    ask(api, org, no_call, node, "the connection to the PBX", &asked).await
}

/// Sends a command to a node and waits for the answer.
async fn ask(
    api: &Api,
    org: Uuid,
    call: Uuid,
    node: u8,
    has: &str,
    asked: &NodeCommand,
) -> Result<CommandResult, ApiError> {
    let what = serde_json::to_string(asked).map_err(|fault| ApiError::Broke(Box::new(fault)))?;
    let changes_nothing = matches!(asked, NodeCommand::Call(RemoteCommand::Trace));
    // Committed before the wait: the other node reads it from the database (see `idempotency::WorksOn::Call`). From then on that node may
    // carry it out, whatever becomes of this one.
    let claim = current_claim();
    let ask = api
        .write(move |tx, now| {
            if let Some(claim) = &claim {
                idempotency::begin(tx, claim, now)?;
            }
            node_commands::put(tx, org, call, node, &what, now)
        })
        .await?;

    match outcome(api, org, ask).await {
        Outcome::Answered(status, body) => heard(status, body),
        Outcome::Withdrawn => Err(ApiError::Unavailable {
            message: format!("Node {node} has {has} and does not answer: nothing was done"),
            wait_s: RETRY_AFTER_S,
        }),
        Outcome::Unknown if changes_nothing => Err(ApiError::Unavailable {
            message: format!("Node {node} has {has} and has not answered yet"),
            wait_s: RETRY_AFTER_S,
        }),
        Outcome::Unknown => Err(ApiError::OutcomeUnknown(format!(
            "Node {node} has {has} and has not answered yet: the command may still be carried out"
        ))),
    }
}

/// Outcome of a command to another node.
enum Outcome {
    /// Status and body of the node's answer.
    Answered(u16, String),
    /// The node hasn't taken the command, and never will.
    Withdrawn,
    /// The node has taken the command and doesn't answer, or the database is away.
    Unknown,
}

/// Waits for the outcome of a command.
async fn outcome(api: &Api, org: Uuid, ask: Uuid) -> Outcome {
    let answered = async || {
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            let state = api.read(move |tx| node_commands::state(tx, org, ask));
            if let CommandState::Answered(status, body) = state.await? {
                return Ok::<_, trunkline_store::Error>((status, body));
            }
        }
    };

    let answer = match tokio::time::timeout(TIMEOUT, answered()).await {
        Ok(answer) => Some(answer),
        Err(_) => match api
            .write(move |tx, _| node_commands::withdraw(tx, org, ask))
            .await
        {
            // The withdrawal and the other node's taking exclude each other: each changes only a row that isn't taken.
            Ok(true) => return Outcome::Withdrawn,
            Ok(false) => tokio::time::timeout(DONE_WITHIN - TIMEOUT, answered())
                .await
                .ok(),
            // It isn't known whether the node takes the command, so this can't be answered as a withdrawal.
            Err(error) => Some(Err(error)),
        },
    };

    match answer {
        Some(Ok((status, body))) => {
            // A command that stays is deleted with later ones.
            let _ = api
                .write(move |tx, _| node_commands::forget(tx, org, ask))
                .await;
            Outcome::Answered(status, body)
        }
        Some(Err(error)) => {
            tracing::warn!(%error, "reading another node's answer failed");
            Outcome::Unknown
        }
        None => Outcome::Unknown,
    }
}

/// Turns another node's answer into one of this node.
fn heard(status: u16, body: String) -> Result<CommandResult, ApiError> {
    let status = StatusCode::from_u16(status).unwrap_or_default();
    if status.is_success() {
        return Ok(CommandResult { status, body });
    }

    let (code, message) = Refusal::read(&body).into_parts();
    let message = message.to_string();
    let wait_s = RETRY_AFTER_S;
    let error = match status {
        StatusCode::BAD_REQUEST => ApiError::bad(message),
        StatusCode::NOT_FOUND => ApiError::NotFound(message),
        StatusCode::FORBIDDEN => ApiError::Forbidden(message),
        StatusCode::CONFLICT => ApiError::Conflict(message),
        StatusCode::TOO_MANY_REQUESTS => ApiError::AtLimit { message, wait_s },
        StatusCode::SERVICE_UNAVAILABLE => ApiError::Unavailable { message, wait_s },
        // The message of a 500 is its cause. It is logged here, under the client's request, and not shown.
        _ => ApiError::Broke(message.into()),
    };

    Err(error.with_code(code))
}

/// Runs commands of other nodes while the API serves.
pub(crate) async fn serve(api: Api) {
    let engine = api.engine().filter(|_| api.store().is_shared());
    let Some(node) = engine.map(Handle::node) else {
        return;
    };

    // Dropped when the server stops, which cuts off the running commands. Their senders then answer that the outcome is unknown.
    let mut running = JoinSet::new();
    let mut fails = false;
    loop {
        tokio::time::sleep(LISTEN_INTERVAL).await;
        while running.try_join_next().is_some() {}
        // The commands stay untaken. One that waits too long is withdrawn by its sender, which learns that nothing was
        // done.
        if running.len() >= CONCURRENT {
            continue;
        }

        match take(&api, node).await {
            Ok(taken) => {
                fails = false;
                for ask in taken {
                    running.spawn(carry_out(api.clone(), ask));
                }
            }
            Err(error) if !fails => {
                fails = true;
                tracing::warn!(%error, "commands of other nodes can't be read until the database is back");
            }
            Err(_) => {}
        }
    }
}

/// Takes the commands for this node. Most checks find none and need no write transaction.
async fn take(
    api: &Api,
    node: u8,
) -> Result<Vec<node_commands::NodeCommand>, trunkline_store::Error> {
    // No command older than `TIMEOUT` is taken: its sender has withdrawn it, or has died.
    if !api
        .read(move |tx| node_commands::are_waiting(tx, node, TIMEOUT))
        .await?
    {
        return Ok(Vec::new());
    }
    api.write(move |tx, now| node_commands::take(tx, node, TIMEOUT, now))
        .await
}

async fn carry_out(api: Api, ask: node_commands::NodeCommand) {
    let done = match serde_json::from_str::<NodeCommand>(&ask.what) {
        Ok(NodeCommand::Place { place }) => commands::outbound::begin(&api, place).await,
        Ok(NodeCommand::Call(command)) => match calls::find(&api, ask.org_id, ask.call_id).await {
            Ok(call) => command.run_here(&api, call).await,
            Err(error) => Err(error),
        },
        // A newer node may send a command that this version doesn't know.
        Err(fault) => Err(ApiError::Broke(Box::new(fault))),
    };

    let (status, body) = match done {
        Ok(result) => (result.status, result.body),
        Err(error) => (error.status(), Refusal::from(&error).written()),
    };

    let answered =
        api.write(move |tx, _| node_commands::answer(tx, ask.id, status.as_u16(), &body));
    if let Err(error) = answered.await {
        tracing::warn!(call.id = %ask.call_id, %error, "storing the result of another node's command failed");
    }
}

#[cfg(test)]
mod tests {
    use trunkline_calls::features::transfer::DestinationChoice;
    use trunkline_model::handoff::Report;

    use super::*;

    #[test]
    fn a_command_is_read_as_it_was_written() {
        let ask = |chosen| TransferRequest {
            chosen,
            report: Report::default(),
        };
        for command in [
            RemoteCommand::HangUp,
            RemoteCommand::HangUpByBot,
            RemoteCommand::Turn { held: true },
            RemoteCommand::Trace,
            RemoteCommand::Transfer {
                ask: ask(DestinationChoice::Name("Sales".into())),
                by_bot: false,
            },
            RemoteCommand::Transfer {
                ask: ask(DestinationChoice::Id(uuid::Uuid::from_u128(7))),
                by_bot: true,
            },
        ] {
            let asked = NodeCommand::Call(command);
            let written = serde_json::to_string(&asked).unwrap();
            let read: NodeCommand = serde_json::from_str(&written).unwrap();
            assert_eq!(format!("{read:?}"), format!("{asked:?}"), "{written}");
        }
        let asked = NodeCommand::Place {
            place: NewOutboundCall {
                org: Uuid::from_u128(1),
                agent: Uuid::from_u128(2),
                number: trunkline_routing::E164::parse("+442071838750").unwrap(),
                ringing_timeout: Duration::from_secs(45),
                max_duration: Duration::from_secs(14_400),
                metadata: Some(r#"{"a":1}"#.into()),
            },
        };
        let written = serde_json::to_string(&asked).unwrap();
        let read: NodeCommand = serde_json::from_str(&written).unwrap();
        assert_eq!(format!("{read:?}"), format!("{asked:?}"), "{written}");
    }

    #[test]
    fn refusals_come_back_as_what_they_were() {
        for status in [400, 403, 404, 409, 429, 500, 503] {
            let error = heard(status, "its_own\nno".to_owned()).unwrap_err();
            assert_eq!(
                (error.status().as_u16(), error.to_string().as_str()),
                (status, "no")
            );
            let written = Refusal::from(&error).written();
            assert_eq!(written, "its_own\nno", "{status}");
        }

        let told = heard(202, "{}".to_owned()).unwrap();
        assert_eq!(
            (told.status, told.body.as_str()),
            (StatusCode::ACCEPTED, "{}")
        );
    }
}
