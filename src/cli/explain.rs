//! `trunkline explain`: explains from a capture file, or for one recorded call, why calls were refused, and how to fix it.
//! The API explains; this file reads captures and prints.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use axum::http::Method;
use serde::Serialize;
use serde_json::{Value, json};
use trunkline_capture::flow::Call;
use trunkline_capture::import::import;
use trunkline_routing::NearMiss;
use trunkline_sip::moment::Moment;
use trunkline_store::written;

use super::Failure;
use super::names::{self, List};
use super::output::{self, Output, print};
use super::session::{Intent, Session};
use super::target::Target;
use crate::config::Config;
use crate::explain::captured::{CapturedCall, caller, last_invite};
use crate::explain::suggested_commands::commands;
use crate::telemetry::redact;

/// Maximum number of calls of a capture that are explained; further ones are left out.
const MAX_CALLS: usize = 100;

/// Explains how the calls of a capture, or one recorded call, were routed, and how to fix those that were refused.
///
/// Reads what `capture import` reads, taken at the PBX or here. A recorded call is explained by its record; any other
/// by today's directory.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  trunkline explain refused.pcap --org Acme\n  trunkline explain refused.pcap --org Acme --json\n  trunkline explain 0198c0de-0000-7000-8000-000000000001\n  trunkline explain --last"
)]
pub(super) struct Command {
    /// The capture; or a call's id, or a part of it that no other call has.
    #[arg(
        value_name = "CAPTURE|CALL_ID",
        required_unless_present = "last",
        conflicts_with = "last"
    )]
    what: Option<PathBuf>,
    /// Explain the newest call.
    #[arg(long)]
    last: bool,
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    output: Output,
}

/// Call with its explanation.
#[derive(Debug, Serialize)]
struct ExplainedView {
    sip_call_id: Value,
    /// `null` for a call that was named by its id.
    request_uri: Option<String>,
    source: Value,
    /// The final response; `null` if the capture holds none.
    sip_code: Value,
    phrase: String,
    /// Id of the call if it is recorded; otherwise today's directory decided.
    call_id: Value,
    explanation: Vec<String>,
    /// Commands that would fix it.
    suggested_commands: Vec<String>,
    /// First line of the text.
    #[serde(skip)]
    title: String,
}

/// INVITE of a capture, with the body of the API's request that explains it.
struct Captured {
    seen: CapturedCall,
    body: Value,
}

impl Command {
    pub(super) async fn run(self, config: &Config) -> Result<(), Failure> {
        let captured = match self.capture() {
            Some(path) => captured(path, &config.sip.header_prefix)?,
            None => Vec::new(),
        };
        let session = self.target.open(config, Intent::Reads).await?;
        let explained = self.explain(&session, captured).await;
        session.close().await;

        let explained = explained?;
        if self.output.is_json() {
            print(&output::json(&explained));
        } else {
            let texts: Vec<String> = explained.iter().map(ExplainedView::text).collect();
            print(&texts.join("\n\n"));
        }
        Ok(())
    }

    /// Returns the path of the capture; `None` if a call is named.
    fn capture(&self) -> Option<&Path> {
        let path = self.what.as_deref()?;
        // A file with such a name is meant rather than a call.
        let is_call = path.to_str().is_some_and(names::is_part);
        (!is_call || path.exists()).then_some(path)
    }

    async fn explain(
        &self,
        session: &Session,
        captured: Vec<Captured>,
    ) -> Result<Vec<ExplainedView>, Failure> {
        if self.capture().is_some() {
            let mut explained = Vec::with_capacity(captured.len());
            for call in captured {
                explained.push(explain_captured(session, call).await?);
            }
            return Ok(explained);
        }

        let calls = List::new("/phone/calls", "call");
        let id = match self.what.as_deref().and_then(Path::to_str) {
            Some(named) => names::find(session, &calls, named).await?,
            None => names::last(session, &calls).await?,
        };
        Ok(vec![explain_recorded(session, &self.target, &id).await?])
    }
}

/// Reads the calls of a capture.
fn captured(path: &Path, prefix: &str) -> Result<Vec<Captured>, Failure> {
    let wrong =
        |what: &dyn std::fmt::Display| Failure::Command(format!("{}: {what}", path.display()));
    let file = File::open(path).map_err(|error| wrong(&error))?;
    let mut calls = Vec::new();
    import(
        BufReader::with_capacity(256 * 1024, file),
        None,
        &mut |call| {
            if calls.len() < MAX_CALLS {
                calls.extend(Captured::read(&call, prefix));
            }
            Ok(())
        },
    )
    .map_err(|fault| wrong(&fault))?;

    match calls.is_empty() {
        true => Err(wrong(&"no INVITE in it begins a call")),
        false => Ok(calls),
    }
}

impl Captured {
    fn read(call: &Call, prefix: &str) -> Option<Self> {
        let (invite, response) = last_invite(call)?;
        let seen = CapturedCall::of(invite, response, prefix)?;
        let source = caller(call);

        let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
        // 0 says that the capture has no times.
        let sent_at = (call.started > 0).then(|| Moment::from_micros(call.started));
        let body = json!({
            "invite": text(invite),
            "response": response.map(text),
            "source": source.map(|source| source.to_string()),
            "sent_at": sent_at.map(written),
        });
        Some(Self {
            seen: seen.sent(sent_at, source),
            body,
        })
    }
}

async fn explain_captured(session: &Session, call: Captured) -> Result<ExplainedView, Failure> {
    let Captured { seen, mut body } = call;
    if let Some(fields) = body.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    let explained = session
        .answer(&Method::POST, "/phone/sip/explain", Some(&body))
        .await?;

    Ok(ExplainedView {
        title: title(&seen),
        sip_call_id: json!(seen.call_id),
        request_uri: Some(seen.request_uri),
        source: json!(seen.source),
        sip_code: json!(seen.status),
        phrase: seen.phrase,
        call_id: explained["call_id"].clone(),
        explanation: texts(&explained["explanation"]),
        suggested_commands: texts(&explained["suggested_commands"]),
    })
}

/// Explains a call by its record alone.
async fn explain_recorded(
    session: &Session,
    target: &Target,
    id: &str,
) -> Result<ExplainedView, Failure> {
    let call = session.json(&format!("/phone/calls/{id}")).await?;
    let known = session.json(&format!("/phone/calls/{id}/routing")).await?;

    let near: Vec<NearMiss> =
        serde_json::from_value(known["near_misses"].clone()).map_err(|fault| {
            Failure::Command(format!(
                "this version can't read the API's explanation: {fault}"
            ))
        })?;

    let org = match (target.org(), session.operators_org()) {
        (Some(named), _) => named,
        (None, Some(org)) => org.to_string(),
        // A placeholder in the suggested commands.
        (None, None) => "ORG".to_owned(),
    };

    let of = |name: &str| call[name].as_str().unwrap_or_default();
    let code = match call["sip_code"].as_u64() {
        Some(code) => format!(" ({code})"),
        None => String::new(),
    };

    Ok(ExplainedView {
        title: format!(
            "Call {id} from {} to {}: {}{code}",
            of("from_number"),
            of("to_number"),
            of("status").replace('_', " ")
        ),
        sip_call_id: call["caller_call_id"].clone(),
        request_uri: None,
        source: known["log_in"]["source"].clone(),
        sip_code: call["sip_code"].clone(),
        phrase: String::new(),
        call_id: json!(id),
        explanation: texts(&known["explanation"]),
        suggested_commands: commands(&near, &org),
    })
}

fn texts(list: &Value) -> Vec<String> {
    let all = list.as_array().into_iter().flatten();
    all.filter_map(|text| text.as_str().map(str::to_owned))
        .collect()
}

fn title(seen: &CapturedCall) -> String {
    let source = seen.source.map(|source| format!(" from {source}"));
    let answer = match seen.status {
        None => "no final response in the capture".to_owned(),
        Some(code) => format!("{code} {}", seen.phrase),
    };
    let source = source.unwrap_or_default();
    format!("INVITE {}{source}: {answer}", seen.request_uri)
}

impl ExplainedView {
    fn text(&self) -> String {
        let mut lines = vec![self.title.clone()];

        lines.extend(self.explanation.iter().map(|said| format!("  {said}")));
        if !self.suggested_commands.is_empty() {
            lines.push("To fix it:".to_owned());
            lines.extend(
                self.suggested_commands
                    .iter()
                    .map(|command| format!("  {command}")),
            );
        }

        let lines: Vec<_> = lines.iter().map(|line| redact::escape(line)).collect();
        lines.join("\n")
    }
}
