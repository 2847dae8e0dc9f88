//! `/partner/v1/orgs`: a partner's orgs, and `/operator/orgs`: all of them. `external_id` is the partner's own id for an org, which makes creation safe
//! to retry.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use trunkline_store::{Conflict, Error, Narrow, NewOrg, Org, SuspendedBy, Tx, Wrong, orgs};
use uuid::Uuid;

use super::integrations::{self, BookingsField};
use crate::api::body::{Body, Fields};
use crate::api::caller::{Operator, PartnerCaller, Provisioner};
use crate::api::field_type::{Parsed, Text, shown};
use crate::api::idempotency::once_for;
use crate::api::language::LANGUAGE;
use crate::api::openapi::read_by;
use crate::api::operations::{Audience, Operations};
use crate::api::page::{Page, Paging};
use crate::api::path::Named;
use crate::api::query::{Query, text_schema};
use crate::api::time::written;
use crate::api::{Api, ApiError};
use crate::config::Config;

pub(super) fn operations(api: &mut Operations<'_>, by: Audience) {
    let config = api.config();
    let mut of = api.provisioning(by);
    if by == Audience::Operator {
        of.get("/orgs", list, "listOrgs", "Every org, newest first", |op| {
            op.query("name", text_schema(), "Only orgs of this name.")
                .query("search", text_schema(), "Only orgs with this text in their name or external id, in any case, or with this id.")
                .lists::<OperatorsOrgView>()
        });
    } else {
        of.get(
            "/orgs",
            list_of_partner,
            "listOrgs",
            "The partner's orgs, newest first",
            |op| {
                let limit = json!({"type": "integer", "minimum": 1, "maximum": 100, "default": 50});
                let offset =
                    json!({"type": "integer", "minimum": 0, "maximum": u32::MAX, "default": 0});
                let op = op.query("limit", limit, "Orgs on a page.");
                op.query("offset", offset, "Orgs to skip.")
                    .query(
                        "external_id",
                        text_schema(),
                        "Only the org of this external id.",
                    )
                    .query("name", text_schema(), "Only orgs of this name.")
                    .gives::<OrgsView>(200)
            },
        );
    }

    of.post_once(
        "/orgs",
        once_for::<Provisioner, _>(create),
        "createOrg",
        "Creates an org, at most one for each `external_id`",
        |op| {
            let body = read_by(|fields| described(config, fields, by == Audience::Partner));
            op.may_refuse(&[502]).body(body).gives::<NewOrgView>(201)
        },
    );

    // An external id is one partner's.
    if by == Audience::Operator {
        return;
    }
    of.get(
        "/orgs/by-external-id/{externalId}",
        by_external_id,
        "findOrg",
        "The partner's org with this external id",
        |op| op.may_refuse(&[404]).gives::<OrgView>(200),
    );
}

/// Orgs on a page when `limit` is absent.
const DEFAULT_LIMIT: u32 = 50;

/// A new org.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "NewOrg")]
pub(crate) struct NewOrgView {
    pub(crate) id: Uuid,
    pub(crate) name: String,
    widget_token: String,
    pub(crate) external_id: Option<String>,
}

/// An org.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Org")]
pub(crate) struct OrgView {
    #[serde(flatten)]
    pub(crate) org: NewOrgView,
    pub(crate) created_at: String,
}

/// An org in the operator's list.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OperatorsOrg")]
pub(crate) struct OperatorsOrgView {
    #[serde(flatten)]
    pub(crate) org: OrgView,
    pub(crate) partner_id: Option<Uuid>,
    pub(crate) suspended_by: Vec<SuspendedBy>,
}

/// A page of orgs, newest first.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OrgPage")]
pub(crate) struct OrgsView {
    data: Vec<OrgView>,
    /// Number of orgs in all.
    total: u64,
}

impl From<Org> for NewOrgView {
    fn from(org: Org) -> Self {
        Self {
            id: org.id,
            name: org.name,
            widget_token: org.widget_token,
            external_id: org.external_id,
        }
    }
}

impl From<Org> for OrgView {
    fn from(org: Org) -> Self {
        Self {
            created_at: written(org.created_at),
            org: org.into(),
        }
    }
}

impl From<Org> for OperatorsOrgView {
    fn from(org: Org) -> Self {
        Self {
            partner_id: org.partner_id,
            suspended_by: org.suspended_by(),
            org: org.into(),
        }
    }
}

/// `POST /partner/v1/orgs {name, external_id, website, language, ai_instructions, integrations}`: 201; 409 if the
/// partner has an org with that external id, which is checked before the integrations and again when the org is stored;
/// 409 for the operator who gives the name of another org; 400 if a third party refuses credentials, 502 if it doesn't answer. On an error no org is created.
async fn create(
    State(api): State<Api>,
    caller: Provisioner,
    body: Body,
) -> Result<(StatusCode, Json<NewOrgView>), ApiError> {
    let partner = caller.partner_id();
    let new = described(api.config(), body.fields()?, partner.is_some())?;
    if let (Some(partner), Some(external_id)) = (partner, &new.external_id) {
        is_free(&api, partner, external_id).await?;
    }

    // Outside a transaction: a third party that is slow must not hold up SQLite's only writer.
    integrations::check(&api, &new.bookings, "No org was made").await?;
    let create = move |tx: &mut Tx, now| {
        // The operator's commands find an org by its name. Partners' customers may share one.
        if partner.is_none() {
            orgs::must_be_only(tx, &new.name, None)?;
        }
        orgs::create(tx, partner, &new, now)
    };
    let org = api.write(create).await?;
    Ok((StatusCode::CREATED, Json(org.into())))
}

/// `GET /operator/orgs?name&search&limit&cursor`: newest first.
async fn list(
    State(api): State<Api>,
    _: Operator,
    mut query: Query,
) -> Result<Page<OperatorsOrgView>, ApiError> {
    let given: Narrow = [query.text("name"), query.text("search")];
    let paging = Paging::read(&mut query, "operators_orgs", given);
    query.finish()?;

    let (narrow, after, limit) = (paging.filters.clone(), paging.after, paging.limit);
    let found = api.read(move |tx| orgs::page(tx, &narrow, after, limit));
    Ok(paging.page(found.await?, OperatorsOrgView::from))
}

/// `GET /partner/v1/orgs?limit&offset&external_id&name`
async fn list_of_partner(
    State(api): State<Api>,
    caller: PartnerCaller,
    mut query: Query,
) -> Result<Json<OrgsView>, ApiError> {
    let limit = query.read("limit", |text| number(text, 1, 100));
    let offset = query.read("offset", |text| number(text, 0, u32::MAX));
    let narrow = [query.text("external_id"), query.text("name")];
    query.finish()?;

    let (limit, offset) = (limit.unwrap_or(DEFAULT_LIMIT), offset.unwrap_or(0));
    // Not inline: the database walks past all orgs before `offset`.
    let (orgs, total) = api
        .read_of(caller.id(), move |tx| {
            orgs::of_partner(tx, caller.id(), &narrow, limit, offset.into())
        })
        .await?;
    let data = orgs.into_iter().map(OrgView::from).collect();
    Ok(Json(OrgsView { data, total }))
}

/// `GET /partner/v1/orgs/by-external-id/{externalId}`
async fn by_external_id(
    State(api): State<Api>,
    caller: PartnerCaller,
    named: Named,
    query: Query,
) -> Result<Json<OrgView>, ApiError> {
    query.finish()?;
    let external_id = named.text("externalId").unwrap_or_default();
    let (partner, id) = (caller.id(), external_id.to_owned());
    let found = api.read_inline(move |tx| orgs::by_external_id(tx, partner, &id));
    match found.await {
        Ok(org) => Ok(Json(org.into())),
        // No org has an id that can't be stored.
        Err(Error::Wrong(Wrong::Absent(_) | Wrong::Text)) => Err(ApiError::NotFound(format!(
            "There is no org with the external id {}",
            shown(external_id)
        ))),
        Err(error) => Err(error.into()),
    }
}

/// Web site of a customer.
pub(super) const WEBSITE: Parsed<String> = Parsed::new("an http or https address", |text| {
    is_website(text).then(|| text.to_owned())
})
.like(WEBSITE_PATTERN)
.at_most(MAX_WEBSITE)
.example("https://bakery.example");

/// Regular expression for what [`is_website`] checks.
const WEBSITE_PATTERN: &str =
    r"^https?://[^\s/?#@\u0000-\u001F\u007F-\u009F]+([/?#][^\s\u0000-\u001F\u007F-\u009F]*)?$";

const MAX_WEBSITE: usize = 2048;

/// Checks a scheme, a host without blanks or a user name, and a rest without blanks.
fn is_website(text: &str) -> bool {
    let rest = text
        .strip_prefix("https://")
        .or_else(|| text.strip_prefix("http://"));
    let Some(rest) = rest else { return false };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    // In JSON Schema's regular expressions the byte order mark is a blank (ECMA-262 §12.2).
    let is_blank = |char: char| char.is_whitespace() || char.is_control() || char == '\u{FEFF}';
    !host.is_empty()
        && !host.contains('@')
        && !rest.contains(is_blank)
        && text.chars().count() <= MAX_WEBSITE
}

/// Reads a new org. An external id is a partner's.
fn described(config: &Config, mut fields: Fields, is_partners: bool) -> Result<NewOrg, ApiError> {
    let name = fields.required("name", Text::line(1..=255));
    let external_id = match is_partners {
        true => fields.optional("external_id", Text::line(1..=255)),
        false => None,
    };
    let website = fields.optional("website", WEBSITE);
    let language = fields.optional("language", LANGUAGE);
    let ai_instructions = fields.optional("ai_instructions", Text::lines(0..=65_536));
    let booking = config.integrations.booking.as_ref();
    let key = booking.map(|booking| &*booking.key);
    let bookings = fields.optional("integrations", BookingsField { key });

    fields.done(|| {
        Some(NewOrg {
            name: name?,
            external_id,
            website,
            language: language.unwrap_or("en").to_owned(),
            ai_instructions,
            bookings: bookings.unwrap_or_default(),
        })
    })
}

async fn is_free(api: &Api, partner: Uuid, external_id: &str) -> Result<(), ApiError> {
    let id = external_id.to_owned();
    let known = api.read_inline(move |tx| orgs::by_external_id(tx, partner, &id));
    match known.await {
        Ok(_) => Err(Conflict::ExternalIdTaken(external_id.to_owned()).into()),
        Err(Error::Wrong(Wrong::Absent(_))) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn number(text: &str, least: u32, most: u32) -> Result<u32, String> {
    let number = text.parse().ok();
    number
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| format!("expected a number from {least} to {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_website_has_a_scheme_and_a_host() {
        for (text, is) in [
            ("https://bakery.example", true),
            ("http://bakery.example:8080/a?b=c#d", true),
            ("https://bäckerei.example/ü", true),
            ("", false),
            ("bakery.example", false),
            ("ftp://bakery.example", false),
            ("javascript:alert(1)", false),
            ("https://", false),
            ("https:///a", false),
            ("https://user@bakery.example", false),
            ("https://bakery.example/a b", false),
            ("https://bakery.example/\u{85}", false),
        ] {
            assert_eq!(is_website(text), is, "{text}");
        }

        let long = "a".repeat(MAX_WEBSITE);
        assert!(!is_website(&format!("https://{long}")));
    }
}
