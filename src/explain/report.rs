//! Report of a call to `sip:doctor@` on a trunk: what its INVITE shows, recent failed log-ins, and settings to enter in
//! that PBX.

use std::borrow::Cow;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trunkline_calls::{DOCTOR, Reason};
use trunkline_model::settings::TransferWay;
use trunkline_sip::moment::Moment;
use trunkline_store::{
    Error, Narrow, Recorded, Store, auth_failures, explained, inbound_trunks, written,
};
use uuid::Uuid;

use super::finding::Finding;
use super::log_in;
use super::pbx::{self, Pbx};
use super::pbx_settings::{self, Trunk};

/// Length of the period for failed log-ins.
const PERIOD: Duration = Duration::from_secs(24 * 3_600);
/// Failed log-ins that are read.
const MAX_FAILURES: u32 = 100;

/// Report on a trunk.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TrunkReport")]
pub struct Report {
    /// Instruction to make a report.
    pub how: String,
    /// The call that made it; `null` if nobody has called yet.
    pub call_id: Option<Uuid>,
    pub at: Option<String>,
    source: Option<String>,
    transport: Option<String>,
    pub user_agent: Option<String>,
    /// The phone system, where its `User-Agent` is known.
    pub pbx: Option<Cow<'static, str>>,
    /// Results of the checks.
    pub findings: Vec<Finding>,
    /// Settings to paste or enter in that phone system, without the password.
    pub settings: Option<String>,
}

/// Returns the newest report on the org's trunk.
///
/// # Errors
/// The org has no trunk, or the store doesn't answer.
pub async fn of_trunk(
    store: &Store,
    org: Uuid,
    endpoint: &str,
    realm: &str,
    now: Moment,
) -> Result<Report, Error> {
    let trunk = store
        .read(move |tx| inbound_trunks::of_org(tx, org))
        .await?;

    let first = Moment::from_secs(0);
    let examined = Reason::Examined.code();
    let calls = store
        .read(move |tx| explained::recorded(tx, org, first, now, Some(examined), 1))
        .await?;

    let failures = store
        .read(move |tx| auth_failures::list(tx, org, &Narrow::default(), None, MAX_FAILURES))
        .await?;

    let mut report = Report {
        how: format!("Call sip:{DOCTOR}@{endpoint} from the PBX with the trunk's credentials."),
        call_id: None,
        at: None,
        source: None,
        transport: None,
        user_agent: None,
        pbx: None,
        findings: Vec::new(),
        settings: None,
    };

    let late = failures
        .items
        .iter()
        .filter(|failure| now.since(failure.at) <= PERIOD);
    // The list is newest first.
    if let Some(last) = late.clone().next() {
        report.findings.push(Finding::warning(
            "log_ins",
            format!(
                "{} failed in the last 24 hours, the last from {} {} ({}).",
                log_in::counted(late.count(), MAX_FAILURES),
                last.source,
                log_in::as_whom(&last.username),
                last.part
            ),
            log_in::sentence(&last.part),
        ));
    }

    if let Some(call) = calls.first() {
        report.add_findings(call, trunk.default_country, trunk.transfer_way);
        let settings = Trunk {
            endpoint,
            username: &trunk.username,
            password: pbx_settings::PASSWORD,
            realm,
        };
        let pbx = report.user_agent.as_deref().and_then(Pbx::of_user_agent);
        report.pbx = pbx.map(|pbx| pbx.name().into());
        report.settings = pbx.map(|pbx| pbx_settings::settings(pbx, settings));
    }

    Ok(report)
}

impl Report {
    fn add_findings(
        &mut self,
        call: &Recorded,
        country: Option<trunkline_routing::Country>,
        way: TransferWay,
    ) {
        let Some(asked) = &call.asked else { return };
        self.call_id = Some(call.id);
        self.at = Some(written(call.started_at));
        self.source = Some(asked.source.to_string());
        self.transport = Some(asked.transport.to_string());
        self.user_agent = asked.user_agent.as_deref().map(str::to_owned);
        self.findings.extend(pbx::examine(asked, country, way));
    }
}
