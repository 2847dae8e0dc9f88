//! `trunkline explain CAPTURE`: explains from a capture file why calls were refused, and how to fix it.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use trunkline_capture::import::import;
use trunkline_model::attempt::Attempt;
use trunkline_model::view::OrgView;
use trunkline_routing::{Decision, decide};
use trunkline_sip::moment::Moment;
use trunkline_store::{
    Error, InboundTrunk, Recorded, Store, Tx, Wrong, attempts, explained, inbound_trunks, written,
};
use uuid::Uuid;

use super::org::OfOrg;
use super::output::{Output, json, print};
use super::{Failure, startup};
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

/// Explains how the calls of a capture were routed, and how to fix those that were refused.
///
/// Reads what `capture import` reads, taken at the PBX or here. A recorded call is explained by its record; any other
/// by today's directory.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  trunkline explain refused.pcap --org Acme\n  trunkline explain refused.pcap --org Acme --json"
)]
pub(super) struct Command {
    /// The capture.
    file: PathBuf,
    #[command(flatten)]
    org: OfOrg,
    #[command(flatten)]
    output: Output,
}

/// One call.
#[derive(Debug, Serialize)]
struct ExplainedView {
    sip_call_id: String,
    request_uri: String,
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
}

impl Command {
    pub(super) async fn run(self, config: &Config) -> Result<(), Failure> {
        let calls = self.calls(&config.sip.header_prefix)?;
        let store = startup::open_store(config).await?;
        let id = self.org.id(&store).await?;
        let named = self
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
            name: &named,
            trunk: trunk.as_ref(),
            realm: &realm,
        };

        let mut explained = Vec::new();
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
            Failure::Command(format!("{}: {what}", self.file.display()))
        };
        let file = File::open(&self.file).map_err(|error| wrong(&error))?;
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
            request_uri: seen.request_uri.clone(),
            source: seen.source.map(|source| source.to_string()),
            sip_code: (seen.status > 0).then_some(seen.status),
            phrase: seen.phrase.clone(),
            call_id: None,
            explanation: Vec::new(),
            fixes: Vec::new(),
        };

        if let Some(recorded) = self.recorded(seen).await? {
            let failures = self.failures(&seen.call_id).await?;
            view.call_id = Some(recorded.id);
            let org = self.org.routing.id;
            let attempts = self
                .store
                .read(move |tx| attempts::of_call(tx, org, recorded.id))
                .await?;
            view.fill_in(recorded, failures, &attempts, self.name);
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

impl ExplainedView {
    fn fill_in(
        &mut self,
        recorded: Recorded,
        failures: Vec<FailureView>,
        attempts: &[Attempt],
        org: &str,
    ) {
        self.fixes = fixes(recorded.decision.as_ref(), org);
        let explanation = Explanation::new(
            recorded.decision,
            recorded.asked.as_ref(),
            recorded.reason.as_deref(),
            failures,
            attempts,
        );
        self.explanation = explanation.explanation;
    }

    fn text(&self) -> String {
        let mut lines = vec![format!(
            "INVITE {}{}: {}",
            self.request_uri,
            self.source
                .as_ref()
                .map(|source| format!(" from {source}"))
                .unwrap_or_default(),
            match self.sip_code {
                Some(code) => format!("{code} {}", self.phrase),
                None => "no final response in the capture".to_owned(),
            }
        )];

        lines.extend(self.explanation.iter().map(|said| format!("  {said}")));
        if !self.fixes.is_empty() {
            lines.push("To fix it:".to_owned());
            lines.extend(self.fixes.iter().map(|command| format!("  {command}")));
        }

        let lines: Vec<_> = lines.iter().map(|line| redact::escape(line)).collect();
        lines.join("\n")
    }
}
