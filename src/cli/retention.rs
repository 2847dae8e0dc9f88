//! `trunkline org retention`: shows and sets for how many days an org's data is kept.

use serde::Serialize;
use trunkline_store::{OrgChange, Retained, RetentionChange, Store, aged, orgs};
use uuid::Uuid;

use super::output::{Output, Tabular, or_dash};
use super::{Failure, now};
use crate::api::default_retention;
use crate::config::{Config, Retention};

/// Days, or `default`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct DaysSetting(Option<u32>);

fn days(text: &str) -> Result<DaysSetting, String> {
    let longest = Retention::LONGEST;
    if text == "default" {
        return Ok(DaysSetting(None));
    }
    match text.parse() {
        Ok(days) if (1..=longest).contains(&days) => Ok(DaysSetting(Some(days))),
        Ok(_) | Err(_) => Err(format!(
            "neither a whole number from 1 to {longest} nor \"default\""
        )),
    }
}

/// Days for which an org's data is kept.
#[derive(Copy, Clone, Debug, clap::Args)]
pub(super) struct RetentionSettings {
    /// Calls, with their transfers and events.
    #[arg(long, value_name = "DAYS|default", value_parser = days)]
    calls_days: Option<DaysSetting>,
    /// Headers, metadata and the facts of each call's INVITE; the call stays.
    #[arg(long, value_name = "DAYS|default", value_parser = days)]
    sessions_days: Option<DaysSetting>,
    /// Contacts that no call names any more.
    #[arg(long, value_name = "DAYS|default", value_parser = days)]
    contacts_days: Option<DaysSetting>,
    /// Handoffs.
    #[arg(long, value_name = "DAYS|default", value_parser = days)]
    handoffs_days: Option<DaysSetting>,
}

/// Days of one kind of data.
#[derive(Debug, Serialize)]
struct RetentionRow {
    data: &'static str,
    /// Days set for the org; `null` if the operator's apply.
    days: Option<u32>,
    /// `null`: until it is deleted otherwise.
    days_in_force: Option<u32>,
}

impl Tabular for RetentionRow {
    const COLUMNS: &'static [&'static str] = &["data", "days", "days in force"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.data.to_owned(),
            or_dash(self.days),
            or_dash(self.days_in_force),
        ]
    }
}

impl RetentionSettings {
    /// Sets the given days, and shows all.
    pub(super) async fn run(
        self,
        store: &Store,
        config: &Config,
        org: Uuid,
        output: Output,
    ) -> Result<(), Failure> {
        let given = |setting: Option<DaysSetting>| setting.map(|DaysSetting(days)| days);
        let retention = RetentionChange {
            calls: given(self.calls_days),
            sessions: given(self.sessions_days),
            contacts: given(self.contacts_days),
            handoffs: given(self.handoffs_days),
        };

        if retention != RetentionChange::default() {
            let change = OrgChange {
                retention,
                ..OrgChange::default()
            };
            store
                .write(move |tx| orgs::update(tx, org, &change, now()))
                .await?;
        }

        let own = store.read(move |tx| aged::days_of(tx, org)).await?;
        let in_force = own.or(default_retention(config));
        let rows = Retained::ALL.map(|kind| RetentionRow {
            data: kind.as_str(),
            days: own.of(kind),
            days_in_force: in_force.of(kind),
        });
        output.list(&rows);

        Ok(())
    }
}
