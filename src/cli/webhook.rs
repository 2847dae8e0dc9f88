//! `trunkline webhook listen`: sends the org's events to an address of your own, signed as the daemon signs them.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, USER_AGENT};
use axum::http::{Request, Uri};
use serde_json::{Value, json};
use trunkline_store::Password;

use super::event_stream::EventSelection;
use super::follow::{FollowFormat, FollowedLines, Within, follow};
use super::session::{HttpClient, Intent, chain, http_client};
use super::target::Target;
use super::{Failure, now};
use crate::config::Config;
use crate::engine::clock;
use crate::webhooks;

/// Timeout of a receiver's answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Receivers of an org's events.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Sends each event of the org to a URL, for example of a receiver under development, and prints its answer. It
    /// makes no webhook, and sends nothing twice.
    #[command(
        after_help = "Examples:\n  trunkline webhook listen --forward-to http://127.0.0.1:3000/events\n  trunkline webhook listen --forward-to http://127.0.0.1:3000/events --types call.ended --json"
    )]
    Listen {
        /// Address of the receiver.
        #[arg(long, value_name = "URL", value_parser = receiver)]
        forward_to: Uri,
        /// Types of events, separated by commas; all, if it is not given.
        #[arg(long)]
        types: Option<String>,
        /// Secret that signs, such as whsec_…; if it is not given, a new one is made and printed.
        #[arg(long, env = "TRUNKLINE_WEBHOOK_SECRET", hide_env_values = true)]
        secret: Option<String>,
        /// End after this many events.
        #[arg(long)]
        count: Option<u32>,
        #[command(flatten)]
        target: Target,
        /// Print one JSON object per line.
        #[arg(long)]
        json: bool,
    },
}

fn receiver(text: &str) -> Result<Uri, String> {
    let uri = text.parse::<Uri>().ok();
    uri.filter(|uri| matches!(uri.scheme_str(), Some("http" | "https")))
        .ok_or_else(|| "expected an address such as http://127.0.0.1:3000/events".to_owned())
}

impl Command {
    pub(super) async fn run(self, config: &Config) -> Result<(), Failure> {
        let Self::Listen {
            forward_to,
            types,
            secret,
            count,
            target,
            json,
        } = self;
        let mut forwarder = Forwarder {
            to: forward_to,
            secret: secret.map_or_else(webhooks::new_secret, Password::new),
            client: http_client(),
            is_json: json,
            has_begun: false,
        };

        let session = Arc::new(target.open(config, Intent::Reads).await?);
        let selection = EventSelection { types, since: None };
        let within = Within::Command;
        let forwarded = follow(&session, selection, count, &mut forwarder, within).await;
        session.close_shared().await;
        forwarded
    }
}

/// Sender of events to one receiver. It prints each answer.
struct Forwarder {
    to: Uri,
    secret: Password,
    client: HttpClient,
    is_json: bool,
    /// True once the secret was printed.
    has_begun: bool,
}

/// Answer of a receiver: its status and the milliseconds until then, or why there is none.
type Forwarded = Result<(u16, u128), String>;

impl FollowFormat for Forwarder {
    async fn catch_up(&mut self) -> Result<FollowedLines, Failure> {
        if std::mem::replace(&mut self.has_begun, true) {
            return Ok(FollowedLines::default());
        }
        let secret = self.secret.reveal();
        let line = match self.is_json {
            true => json!({"secret": secret}).to_string(),
            false => format!("Events are sent to {}, signed with {secret}", self.to),
        };
        Ok(vec![line].into())
    }

    async fn take_event(&mut self, event: &Value) -> Result<FollowedLines, Failure> {
        let outcome = self.forward(event).await;
        Ok(vec![line(event, &outcome, self.is_json)].into())
    }
}

impl Forwarder {
    async fn forward(&self, event: &Value) -> Forwarded {
        // One text is signed and sent: a receiver verifies the signature over the octets that it gets.
        let body = event.to_string();
        let id = event["id"].as_str().unwrap_or_default();
        let now = now();
        let signature = webhooks::signature(&self.secret, id, now, &body);
        let request = Request::post(self.to.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, concat!("Trunkline/", env!("CARGO_PKG_VERSION")))
            .header("webhook-id", id)
            .header("webhook-timestamp", now.as_secs())
            .header("webhook-signature", signature)
            .body(Body::from(body))
            .map_err(|fault| fault.to_string())?;

        let sent = clock::now();
        let answer = tokio::time::timeout(TIMEOUT, self.client.request(request)).await;
        let answer = answer
            .map_err(|_| format!("no answer within {} s", TIMEOUT.as_secs()))?
            .map_err(|fault| chain(&fault))?;
        Ok((
            answer.status().as_u16(),
            clock::now().since(sent).as_millis(),
        ))
    }
}

fn line(event: &Value, outcome: &Forwarded, is_json: bool) -> String {
    if is_json {
        let (status, milliseconds, fault) = match outcome {
            Ok((status, took)) => (Some(status), Some(took), None),
            Err(fault) => (None, None, Some(fault)),
        };
        return json!({"event": event, "status": status, "answered_ms": milliseconds, "fault": fault})
            .to_string();
    }

    let of = |name: &str| event[name].as_str().unwrap_or_default();
    let answer = match outcome {
        Ok((status, took)) => format!("{status} in {took} ms"),
        Err(fault) => fault.clone(),
    };
    format!("{}  {:<18}  {answer}", of("timestamp"), of("type"))
}
