//! `trunkline org limits` and `trunkline partner limits`: shows and sets the limits of an org or a partner.

use serde::Serialize;
use trunkline_store::{LimitedBy, OrgLimit, Partner, Store, org_limits, orgs, partners};
use uuid::Uuid;

use super::output::{Output, Tabular, or_dash};
use super::{Failure, now};
use crate::api::default_limits;
use crate::config::Config;

/// A number, or `default`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct LimitSetting(Option<u32>);

/// Parses a limit that may be zero.
fn count(text: &str) -> Result<LimitSetting, String> {
    setting(text, 0)
}

/// Parses a limit per minute.
fn rate(text: &str) -> Result<LimitSetting, String> {
    setting(text, 1)
}

fn setting(text: &str, least: u32) -> Result<LimitSetting, String> {
    let greatest = OrgLimit::GREATEST;
    if text == "default" {
        return Ok(LimitSetting(None));
    }
    match text.parse() {
        Ok(number) if (least..=greatest).contains(&number) => Ok(LimitSetting(Some(number))),
        Ok(_) | Err(_) => Err(format!(
            "neither a whole number from {least} to {greatest} nor \"default\""
        )),
    }
}

/// Limits of an org, or the greatest values that a partner may set for its orgs.
#[derive(Copy, Clone, Debug, clap::Args)]
pub(super) struct OrgLimits {
    /// Outbound trunks.
    #[arg(long, value_name = "COUNT|default", value_parser = count)]
    outbound_trunks: Option<LimitSetting>,
    /// Agents.
    #[arg(long, value_name = "COUNT|default", value_parser = count)]
    agents: Option<LimitSetting>,
    /// Transfer destinations.
    #[arg(long, value_name = "COUNT|default", value_parser = count)]
    destinations: Option<LimitSetting>,
    /// API keys that the org or its partner makes.
    #[arg(long, value_name = "COUNT|default", value_parser = count)]
    api_keys: Option<LimitSetting>,
    /// Outbound trunks that register with their carriers.
    #[arg(long, value_name = "COUNT|default", value_parser = count)]
    registrations: Option<LimitSetting>,
    /// Webhooks.
    #[arg(long, value_name = "COUNT|default", value_parser = count)]
    webhooks: Option<LimitSetting>,
    /// API requests of an org's keys together in a minute.
    #[arg(long, value_name = "COUNT|default", value_parser = rate)]
    requests_per_minute: Option<LimitSetting>,
    /// Event streams that an org's keys together open in a minute.
    #[arg(long, value_name = "COUNT|default", value_parser = rate)]
    streaming_requests_per_minute: Option<LimitSetting>,
}

/// One limit in force.
#[derive(Debug, Serialize)]
struct LimitRow {
    limit: &'static str,
    value: u32,
    /// Present number; `null` for limits per minute.
    used: Option<u64>,
    /// The greatest value that the partner may set.
    partner_max: Option<u32>,
}

impl Tabular for LimitRow {
    const COLUMNS: &'static [&'static str] = &["limit", "value", "used", "partner max"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.limit.to_owned(),
            self.value.to_string(),
            or_dash(self.used),
            or_dash(self.partner_max),
        ]
    }
}

impl OrgLimits {
    /// Limits that were given on the command line.
    fn given(self) -> Vec<(OrgLimit, Option<u32>)> {
        let of = |limit| match limit {
            OrgLimit::OutboundTrunks => self.outbound_trunks,
            OrgLimit::Agents => self.agents,
            OrgLimit::Destinations => self.destinations,
            OrgLimit::ApiKeys => self.api_keys,
            OrgLimit::Registrations => self.registrations,
            OrgLimit::Webhooks => self.webhooks,
            OrgLimit::Requests => self.requests_per_minute,
            OrgLimit::Streams => self.streaming_requests_per_minute,
        };
        let given = OrgLimit::ALL.into_iter();
        given
            .filter_map(|limit| of(limit).map(|LimitSetting(most)| (limit, most)))
            .collect()
    }

    /// Sets the given limits of one org, and shows all.
    pub(super) async fn run(
        self,
        store: &Store,
        config: &Config,
        org: Uuid,
        output: Output,
    ) -> Result<(), Failure> {
        let defaults = default_limits(config);
        let given = self.given();
        if !given.is_empty() {
            store
                .write(move |tx| {
                    org_limits::limit(tx, org, &given, LimitedBy::Operator, defaults, now())
                })
                .await?;
        }

        let (stored, counts) = (
            store.read(move |tx| org_limits::of_org(tx, org)).await?,
            store
                .read(move |tx| org_limits::counts(tx, org, now()))
                .await?,
        );
        let has_partner = store
            .read(move |tx| orgs::by_id(tx, org))
            .await?
            .partner_id
            .is_some();

        let rows = OrgLimit::ALL.map(|limit| {
            let (own, default) = (stored.of(limit), limit.default_of(defaults));
            let counted = counts.iter().find(|(known, _)| *known == limit);
            LimitRow {
                limit: limit.as_str(),
                value: own.in_force(default),
                used: counted.map(|(_, held)| *held),
                partner_max: has_partner.then(|| own.greatest(default)),
            }
        });

        output.list(&rows);
        Ok(())
    }
}

/// Limits of a partner.
#[derive(Copy, Clone, Debug, clap::Args)]
pub(super) struct PartnerLimits {
    /// API requests of the partner's own keys together in a minute.
    #[arg(long, value_name = "COUNT|default", value_parser = rate)]
    partner_requests_per_minute: Option<LimitSetting>,
    /// Login links in a minute.
    #[arg(long, value_name = "COUNT|default", value_parser = rate)]
    login_links_per_minute: Option<LimitSetting>,
    #[command(
        flatten,
        next_help_heading = "Greatest values that the partner may set for one of its orgs"
    )]
    orgs: OrgLimits,
}

/// Limit of a partner, or the greatest value that it may set for an org.
#[derive(Debug, Serialize)]
struct PartnerLimitRow {
    limit: &'static str,
    value: u32,
    /// `partner`: the partner's own; `org`: for each of its orgs.
    of: &'static str,
}

impl Tabular for PartnerLimitRow {
    const COLUMNS: &'static [&'static str] = &["limit", "value", "of"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.limit.to_owned(),
            self.value.to_string(),
            self.of.to_owned(),
        ]
    }
}

impl PartnerLimits {
    /// Sets the given limits, and shows all.
    pub(super) async fn run(
        self,
        store: &Store,
        config: &Config,
        partner: Uuid,
        output: Output,
    ) -> Result<(), Failure> {
        let defaults = default_limits(config);
        let of = |setting: Option<LimitSetting>| setting.map(|LimitSetting(most)| most);
        let requests = of(self.partner_requests_per_minute);
        let links = of(self.login_links_per_minute);
        if requests.is_some() || links.is_some() {
            store
                .write(move |tx| partners::limit(tx, partner, requests, links, now()))
                .await?;
        }

        let given = self.orgs.given();
        if !given.is_empty() {
            store
                .write(move |tx| org_limits::limit_partner(tx, partner, &given, now()))
                .await?;
        }

        let known: Partner = store.read(move |tx| partners::by_id(tx, partner)).await?;
        let set = store
            .read(move |tx| org_limits::of_partner(tx, partner))
            .await?;
        let usual = &config.limits;
        let row = |limit, value, of| PartnerLimitRow { limit, value, of };
        let requests = known.requests_per_minute;
        let links = known.login_links_per_minute;
        let mut rows = vec![
            row(
                "partner_requests_per_minute",
                requests.unwrap_or(usual.partner_requests_per_minute),
                "partner",
            ),
            row(
                "login_links_per_minute",
                links.unwrap_or(usual.login_links_per_minute),
                "partner",
            ),
        ];

        for limit in OrgLimit::ALL {
            let own = set.iter().find(|(known, _)| *known == limit);
            let most = own.map_or(limit.default_of(defaults), |(_, most)| *most);
            rows.push(row(limit.as_str(), most, "org"));
        }

        output.list(&rows);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_a_number_or_the_default() {
        for (text, least, expected) in [
            ("0", 0, Some(Some(0))),
            ("250", 1, Some(Some(250))),
            ("1000000", 1, Some(Some(1_000_000))),
            ("default", 1, Some(None)),
            ("0", 1, None),
            ("1000001", 0, None),
            ("99999999999", 0, None),
            ("-1", 0, None),
            ("", 0, None),
            ("many", 0, None),
            ("1.5", 0, None),
        ] {
            let found = setting(text, least).ok().map(|LimitSetting(most)| most);
            assert_eq!(found, expected, "{text}");
        }
    }
}
