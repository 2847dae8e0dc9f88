//! `trunkline explain`: explains from a capture file, or for one recorded call, why calls were refused, and how to fix it.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use trunkline_capture::import::import;
use trunkline_model::attempt::Attempt;
use trunkline_model::invite_facts::InviteFacts;
use trunkline_model::view::OrgView;
use trunkline_routing::{Decision, decide};
use trunkline_sip::moment::Moment;
use trunkline_store::{
    Error, InboundTrunk, Recorded, Store, Tx, Wrong, attempts, calls, explained, inbound_trunks,
    written,
};
use uuid::Uuid;

use super::org::OfOrg;
use super::output::{Output, json, print};
use super::session::must_exist;
use super::{Failure, startup};
use crate::api;
use crate::config::Config;
use crate::explain::call::Explanation;
use crate::explain::captured::CapturedCall;
use crate::explain::log_in::{self, FailureView};
use crate::explain::suggested_commands::{commands, quoted};
use crate::telemetry::redact;

/// Calls of a capture that are explained.
const MAX_CALLS: usize = 100;
/// Maximum difference between the clock of a capture and ours.
const MAX_SKEW: Duration = Duration::from_secs(24 * 3_600);

/// Explains how the calls of a capture, or one recorded call, were routed, and how to fix those that were refused.
///
/// Reads what `capture import` reads, taken at the PBX or here. A recorded call is explained by its record; any other
/// by today's directory.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  trunkline explain refused.pcap --org Acme\n  trunkline explain refused.pcap --org Acme --json\n  trunkline explain 0198c0de-0000-7000-8000-000000000001"
)]
pub(super) struct Command {
    /// The capture, or the id of a call.
    #[arg(value_name = "CAPTURE|CALL_ID")]
    what: PathBuf,
    #[command(flatten)]
    org: OfOrg,
    #[command(flatten)]
    output: Output,
}

/// One call.
#[derive(Debug, Serialize)]
struct ExplainedView {
    sip_call_id: String,
    /// `null` for a call that was named by its id.
    request_uri: Option<String>,
    source: Option<String>,
    /// The final response; `null` if the capture holds none.
    sip_code: Option<u16>,
    phrase: String,
    /// Id of the call if it is recorded; otherwise today's directory decided.
    call_id: Option<Uuid>,
    explanation: Vec<String>,
    /// Commands that would fix it.
    #[serde(rename = "mend")]
    fixes: Vec<String>,
    /// First line of the text.
    #[serde(skip)]
    title: String,
}

impl Command {
    pub(super) async fn run(self, config: &Config) -> Result<(), Failure> {
        let named = self.what.to_str().and_then(|text| api::id_of(text).ok());
        let calls = match named {
            Some(_) => Vec::new(),
            None => self.calls(&config.sip.header_prefix)?,
        };
        if named.is_some() {
            must_exist(config)?;
        }
        let store = startup::open_store(config).await?;
        let id = self.org.id(&store).await?;
        let org_name = self
            .org
            .as_given()
            .map_or_else(|| id.to_string(), str::to_owned);
        let directory = startup::open_directory(config, &store).await?;
        let view = directory.load();
        let org = view
            .org(id)
            .ok_or_else(|| Failure::Command("the org was deleted just now".to_owned()))?;

        let trunk = match store.read(move |tx| inbound_trunks::of_org(tx, id)).await {
            Ok(trunk) => Some(trunk),
            Err(Error::Wrong(Wrong::Absent(_))) => None,
            Err(error) => return Err(error.into()),
        };

        let realm = startup::with_known_realm(config, &store).await?.sip.realm();
        let context = OrgContext {
            store: &store,
            org,
            name: &org_name,
            trunk: trunk.as_ref(),
            realm: &realm,
        };

        let mut explained = Vec::new();
        if let Some(call) = named {
            explained.push(context.explain_recorded(call).await?);
        }
        for seen in &calls {
            explained.push(context.explain(seen).await?);
        }

        if self.output.is_json() {
            print(&json(&explained));
        } else {
            let texts: Vec<String> = explained.iter().map(ExplainedView::text).collect();
            print(&texts.join("\n\n"));
        }

        Ok(())
    }

    fn calls(&self, prefix: &str) -> Result<Vec<CapturedCall>, Failure> {
        let wrong = |what: &dyn std::fmt::Display| {
            Failure::Command(format!("{}: {what}", self.what.display()))
        };
        let file = File::open(&self.what).map_err(|error| wrong(&error))?;
        let mut calls = Vec::new();
        import(
            BufReader::with_capacity(256 * 1024, file),
            None,
            &mut |call| {
                if calls.len() < MAX_CALLS {
                    calls.extend(CapturedCall::read(&call, prefix));
                }
                Ok(())
            },
        )
        .map_err(|fault| wrong(&fault))?;

        if calls.is_empty() {
            return Err(wrong(&"it holds no INVITE that begins a call"));
        }

        Ok(calls)
    }
}

/// Org by which a call is judged.
struct OrgContext<'h> {
    store: &'h Store,
    org: &'h OrgView,
    name: &'h str,
    trunk: Option<&'h InboundTrunk>,
    realm: &'h str,
}

impl OrgContext<'_> {
    async fn explain(&self, seen: &CapturedCall) -> Result<ExplainedView, Failure> {
        let mut view = ExplainedView {
            sip_call_id: seen.call_id.clone(),
            request_uri: Some(seen.request_uri.clone()),
            source: seen.source.map(|source| source.to_string()),
            sip_code: (seen.status > 0).then_some(seen.status),
            phrase: seen.phrase.clone(),
            call_id: None,
            explanation: Vec::new(),
            fixes: Vec::new(),
            title: seen_title(seen),
        };

        if let Some(recorded) = self.recorded(seen).await? {
            let failures = self.failures(&seen.call_id).await?;
            view.call_id = Some(recorded.id);
            let attempts = self.attempts(recorded.id).await?;
            let facts = (recorded.decision, recorded.asked, recorded.reason);
            view.fill_in(facts, failures, &attempts, self.name);
        } else if seen.is_locked_out() {
            self.locked_out(seen, &mut view);
        } else {
            let decision = decide(&seen.facts, &self.org.routing, &|_| false);
            view.explanation = decision.sentences();
            view.fixes = fixes(Some(&decision), self.name);
            view.explanation.extend(seen.warning.iter().map(|warning| {
                let reason = seen.reason.as_deref().unwrap_or("no reason given");
                format!("The answer said: {warning} ({reason}).")
            }));
        }

        Ok(view)
    }

    /// Explains a call by its record alone.
    async fn explain_recorded(&self, id: Uuid) -> Result<ExplainedView, Failure> {
        let org = self.org.routing.id;
        let read =
            move |tx: &mut Tx| Ok((calls::by_id(tx, org, id)?, explained::of_call(tx, org, id)?));
        let (call, known) = self.store.read(read).await?;
        let failures = self.failures(&call.caller_call_id).await?;
        let attempts = self.attempts(id).await?;

        let code = call
            .sip_code
            .map_or_else(String::new, |code| format!(" ({code})"));
        let status = call.status.as_str().replace('_', " ");
        let source = known.asked.as_ref().map(|asked| asked.source.to_string());
        let mut view = ExplainedView {
            title: format!(
                "Call {id} from {} to {}: {status}{code}",
                call.from_number, call.to_number
            ),
            sip_call_id: call.caller_call_id,
            request_uri: None,
            source,
            sip_code: call.sip_code,
            phrase: String::new(),
            call_id: Some(id),
            explanation: Vec::new(),
            fixes: Vec::new(),
        };
        let facts = (known.decision, known.asked, call.reason);
        view.fill_in(facts, failures, &attempts, self.name);
        Ok(view)
    }

    async fn attempts(&self, call: Uuid) -> Result<Vec<Attempt>, Failure> {
        let org = self.org.routing.id;
        let read = move |tx: &mut Tx| attempts::of_call(tx, org, call);
        Ok(self.store.read(read).await?)
    }

    async fn recorded(&self, seen: &CapturedCall) -> Result<Option<Recorded>, Failure> {
        let at = Moment::from_micros(seen.at);
        let earliest = at
            .as_micros()
            .saturating_sub(MAX_SKEW.as_micros().try_into().unwrap_or(0));
        let period = (Moment::from_micros(earliest), at + MAX_SKEW);
        let (org, id) = (self.org.routing.id, seen.call_id.clone());
        let found = move |tx: &mut Tx| explained::of_call_id(tx, org, &id, period);
        Ok(self.store.read(found).await?)
    }

    async fn failures(&self, call_id: &str) -> Result<Vec<FailureView>, Failure> {
        let (org, id) = (self.org.routing.id, call_id.to_owned());
        let failed = move |tx: &mut Tx| explained::log_ins_failed(tx, org, &id);
        let failures = self.store.read(failed).await?;
        let failures = failures.into_iter().map(|failure| FailureView {
            at: written(failure.at),
            explanation: log_in::sentence(&failure.part),
            part: failure.part,
        });
        Ok(failures.collect())
    }

    fn locked_out(&self, seen: &CapturedCall, view: &mut ExplainedView) {
        let org = quoted(self.name);
        let Some(trunk) = self.trunk else {
            view.explanation
                .push("The org has no inbound trunk: nobody can log in.".to_owned());
            view.fixes
                .push(format!("trunkline trunk create --org {org}"));
            return;
        };

        let part = seen.wrong_part(trunk, self.realm);
        view.explanation.push(log_in::sentence(part).to_owned());
        if let ("address", Some(source)) = (part, seen.source) {
            let ip = source.ip();
            view.fixes
                .push(format!("trunkline trunk update --org {org} --allow {ip}"));
        }

        view.fixes.push(format!("trunkline trunk show --org {org}"));
    }
}

fn fixes(decision: Option<&Decision>, org: &str) -> Vec<String> {
    let near = decision.map(|decision| commands(&decision.near_misses, org));
    near.unwrap_or_default()
}

fn seen_title(seen: &CapturedCall) -> String {
    let source = seen.source.map(|source| format!(" from {source}"));
    let answer = match seen.status {
        0 => "no final response in the capture".to_owned(),
        code => format!("{code} {}", seen.phrase),
    };
    let source = source.unwrap_or_default();
    format!("INVITE {}{source}: {answer}", seen.request_uri)
}

impl ExplainedView {
    fn fill_in(
        &mut self,
        (decision, asked, reason): (Option<Decision>, Option<InviteFacts>, Option<String>),
        failures: Vec<FailureView>,
        attempts: &[Attempt],
        org: &str,
    ) {
        self.fixes = fixes(decision.as_ref(), org);
        let explanation = Explanation::new(
            decision,
            asked.as_ref(),
            reason.as_deref(),
            failures,
            attempts,
        );
        self.explanation = explanation.explanation;
    }

    fn text(&self) -> String {
        let mut lines = vec![self.title.clone()];

        lines.extend(self.explanation.iter().map(|said| format!("  {said}")));
        if !self.fixes.is_empty() {
            lines.push("To fix it:".to_owned());
            lines.extend(self.fixes.iter().map(|command| format!("  {command}")));
        }

        let lines: Vec<_> = lines.iter().map(|line| redact::escape(line)).collect();
        lines.join("\n")
    }
}
