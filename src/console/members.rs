//! Page of the people who may log in to the console: their roles and sessions, and links that let them in.

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Redirect, Response};
use maud::{Markup, html};
use trunkline_store::{
    Access, Acting, Change, ListedSession, Member, Narrow, NewLogin, Page, Role, logins, sessions,
};

use super::backend::query;
use super::document::{Tone, badge, card, copied, moment, table};
use super::form_page::done;
use super::forms::{button, danger, token};
use super::frame::{Section, page};
use super::page::{ErrorPage, Html};
use super::visitor::{SubmittedForm, Visitor};
use crate::api::email::EMAIL;
use crate::api::field_type::FieldType as _;
use crate::api::page::Paging;
use crate::api::query::Query;
use crate::api::quota::Policy;
use crate::api::tenants::{issue_login_link, must_be_a_persons};
use crate::api::{Api, ApiError};

/// Members on a page.
const ROWS: u32 = 50;
/// Roles that can be given to a person.
const ROLES: u32 = 100;
/// Links that an org's administrators may make in a minute.
const LINKS_PER_MINUTE: u32 = 20;

/// Part of the members and sessions that the page shows.
struct Shown {
    /// Text in the address or name of the members.
    find: Option<String>,
    /// Members before the first one shown.
    skip: u32,
    sessions: Paging<Option<String>>,
}

impl Shown {
    /// Reads the query. What is wrong in it counts as absent: a broken link still shows the page.
    fn read(mut query: Query) -> Self {
        let find = query.text("find").map(|text| text.trim().to_owned());
        Self {
            find: find.filter(|text| !text.is_empty()),
            skip: query
                .read("skip", |text| text.parse().map_err(|_| String::new()))
                .unwrap_or_default(),
            sessions: Paging::read(&mut query, "members_sessions", None),
        }
    }
}

/// `GET /dashboard/{org_id}/members?find&skip&cursor`: `cursor` is the sessions'.
pub(super) async fn show(
    State(api): State<Api>,
    visitor: Visitor,
    RawQuery(raw): RawQuery,
    query: Query,
) -> Result<Html, ErrorPage> {
    let listed = listed(&api, &visitor, Shown::read(query)).await?;
    let content = html! { (done(raw.as_deref())) (listed) };
    Ok(page(&visitor, Section::Members, "Members", &content))
}

async fn listed(api: &Api, visitor: &Visitor, shown: Shown) -> Result<Markup, ErrorPage> {
    let (org, now) = (visitor.org, api.now());
    let (find, skip) = (shown.find.clone(), shown.skip);
    // One more than is shown tells whether there are more.
    let mut members = api
        .read(move |tx| logins::members(tx, org, find.as_deref(), skip, ROWS + 1))
        .await?;
    let has_more = members.len() > ROWS as usize;
    members.truncate(ROWS as usize);

    let (after, limit) = (shown.sessions.after, shown.sessions.limit);
    let open = api
        .read(move |tx| sessions::page(tx, org, None, after, limit, now))
        .await?;
    let roles = api
        .read(move |tx| logins::roles(tx, org, &Narrow::default(), None, ROLES))
        .await?;

    let find = shown.find.as_deref().unwrap_or_default();
    let people = html! {
        form.filters method="get" action=(visitor.path("members")) role="search" {
            div.field { label for="find" { "Name or e-mail" } input #find type="search" name="find" value=(find); }
            button type="submit" { "Find" }
        }
        (people(visitor, &members, &roles))
        div.pages {
            @if skip > 0 { a.button href=(visitor.path(&format!("members{}", query(&[("find", find)])))) { "First" } }
            @if has_more {
                @let next = (skip + ROWS).to_string();
                a.button href=(visitor.path(&format!("members{}", query(&[("find", find), ("skip", &next)])))) rel="next" { "More" }
            }
        }
    };
    let sessions = html! {
        (logged_in(visitor, &open))
        @if let Some(next) = open.next {
            @let next = shown.sessions.next(next);
            div.pages { a.button href=(visitor.path(&format!("members{}", query(&[("cursor", &next)])))) rel="next" { "Older" } }
        }
    };

    Ok(html! {
        (card("members", "Members", &people))
        @if visitor.writes() { (card("invite", "Let a person in", &invite(visitor, &roles))) }
        (card("sessions", "Sessions", &sessions))
    })
}

fn people(visitor: &Visitor, members: &[Member], roles: &Page<Role>) -> Markup {
    let columns = ["Name", "E-mail", "Role", "Member since", ""];

    let rows: Vec<_> = members
        .iter()
        .map(|member| {
            let remove = format!("members/{}/remove", member.id);
            let is_self = member.email == visitor.session.record.email;

            vec![
                html! { strong { (member.name) } @if is_self { " " (badge(Tone::Quiet, "you")) } },
                html! { (member.email) },
                html! {
                    @if visitor.writes() {
                        (role_of(visitor, member, roles))
                    } @else {
                        (if member.writes { "administrator" } else { "reads only" })
                    }
                },
                moment(member.created_at),
                html! {
                    @if visitor.writes() && !is_self {
                        (danger(visitor, &remove, "Remove", "Their sessions end at once, and their links are no longer good."))
                    }
                },
            ]
        })
        .collect();

    table("Members", &columns, &rows, "There is no member.")
}

/// Role of a member, as a form that changes it.
fn role_of(visitor: &Visitor, member: &Member, roles: &Page<Role>) -> Markup {
    let is_like = |role: &&Role| (role.access == Access::Write) == member.writes;
    let current = roles.items.iter().find(is_like).map(|role| role.id);
    html! {
        form.transfer method="post" action=(visitor.path(&format!("members/{}/role", member.id))) {
            (token(visitor))
            select name="role" aria-label={ "Role of " (member.name) } {
                @for role in &roles.items { option value=(role.id) selected[Some(role.id) == current] { (role.name) } }
            }
            button.small type="submit" { "Set" }
        }
    }
}

fn invite(visitor: &Visitor, roles: &Page<Role>) -> Markup {
    html! {
        p.soft { "A link lets one person in, once, within a quarter of an hour. Send it to them yourself." }
        form method="post" action=(visitor.path("members/login-links")) {
            (token(visitor))
            div.field { label for="email" { "E-mail" } input #email type="email" name="email" required autocomplete="off"; }
            div.field { label for="name" { "Name" } input #name type="text" name="name" autocomplete="off"; }
            div.field {
                label for="role" { "Role of a new member" }
                select #role name="role" {
                    @for role in &roles.items { option value=(role.id) selected[role.name == "member"] { (role.name) } }
                }
            }
            div.go { button type="submit" { "Make a link" } }
        }
    }
}

fn logged_in(visitor: &Visitor, open: &Page<ListedSession>) -> Markup {
    let columns = ["Person", "Logged in", "Until", ""];

    let rows: Vec<_> = open
        .items
        .iter()
        .map(|session| {
            let own = visitor.session.record.id == session.id;
            vec![
                html! { (session.name) " " span.soft { (session.email) } @if own { " " (badge(Tone::Quiet, "this one")) } },
                moment(session.created_at),
                moment(session.expires_at),
                html! {
                    @if visitor.writes() && !own { (button(visitor, &format!("members/sessions/{}/end", session.id), "End")) }
                },
            ]
        })
        .collect();
    table("Sessions", &columns, &rows, "Nobody is logged in.")
}

/// `POST /dashboard/{org_id}/members/login-links`: makes a link for a person and shows it once.
pub(super) async fn invite_person(
    State(api): State<Api>,
    form: SubmittedForm,
) -> Result<Response, ErrorPage> {
    let visitor = &form.visitor;
    visitor.must_write()?;
    let taken = api.quotas().take(
        Policy::LoginLinks,
        visitor.org,
        LINKS_PER_MINUTE,
        api.monotonic(),
    );
    // A tally of its own: the limit isn't one of the API's, so no header field reports it.
    crate::api::quota::Tally::default().note(taken)?;

    // This page writes to the store itself, so it judges the fields that a route of the API would.
    let mut faults = Vec::new();
    let email = EMAIL.read(form.text("email").trim().into(), "email", &mut faults);
    let Some(email) = email else {
        return Err(ApiError::BadRequest(faults).into());
    };
    let name = Some(form.text("name").trim().to_owned()).filter(|name| !name.is_empty());
    if name
        .as_ref()
        .is_some_and(|name| name.chars().count() > 255 || name.chars().any(char::is_control))
    {
        return Err(ApiError::bad("name: expected one line of at most 255 characters").into());
    }
    // A role that can't be read counts as none, and a new member then gets the one that only reads.
    let role = crate::api::id_of(form.text("role")).ok();

    Acting::of_org(visitor.org);
    let login = NewLogin {
        email,
        name,
        roles: role.into_iter().collect(),
    };
    must_be_a_persons(&login)?;
    // With a confirmation: the link is passed on by mail or chat, where software opens links before people do.
    let link = issue_login_link(&api, visitor.org, login, true).await?;
    let content = html! {
        div.banner.good role="status" {
            p { strong { "The link for " (form.text("email")) "." } " It is shown this once: copy it now." }
            (copied("login-link", link.url()))
        }
        (listed(&api, visitor, Shown::read(Query::default())).await?)
    };
    Ok((
        StatusCode::OK,
        page(visitor, Section::Members, "Members", &content),
    )
        .into_response())
}

/// `POST /dashboard/{org_id}/members/{member_id}/role`: 409 for the last administrator.
pub(super) async fn set_role(
    State(api): State<Api>,
    form: SubmittedForm,
) -> Result<Redirect, ErrorPage> {
    let visitor = &form.visitor;
    visitor.must_write()?;
    let (org, member) = (visitor.org, visitor.id("member_id")?);
    let role = crate::api::id_of(form.text("role"))
        .map_err(|fault| ApiError::bad(format!("role: {fault}")))?;
    api.write(move |tx, now| logins::set_role(tx, org, member, role, now))
        .await?;
    // The cached sessions have the old role.
    api.forget_credentials(Change::Session(org));
    Ok(Redirect::to(&visitor.path("members?done=done")))
}

/// `POST /dashboard/{org_id}/members/{member_id}/remove`: 409 for the last administrator.
pub(super) async fn remove(
    State(api): State<Api>,
    form: SubmittedForm,
) -> Result<Redirect, ErrorPage> {
    let visitor = &form.visitor;
    visitor.must_write()?;
    let (org, member) = (visitor.org, visitor.id("member_id")?);
    api.write(move |tx, now| logins::remove(tx, org, member, now))
        .await?;
    api.forget_credentials(Change::Session(org));
    Ok(Redirect::to(&visitor.path("members?done=done")))
}

/// `POST /dashboard/{org_id}/members/sessions/{sessionId}/end`
pub(super) async fn end_session(
    State(api): State<Api>,
    form: SubmittedForm,
) -> Result<Redirect, ErrorPage> {
    let visitor = &form.visitor;
    visitor.must_write()?;
    let (org, session) = (visitor.org, visitor.id("sessionId")?);
    api.write(move |tx, now| sessions::end_of_org(tx, org, Some(session), now))
        .await?;
    api.forget_credentials(Change::Session(org));
    Ok(Redirect::to(&visitor.path("members?done=done")))
}
