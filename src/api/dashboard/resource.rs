//! Pages of a kind of object that the API creates, lists, changes and deletes: one description per kind, the same handlers for all.

use axum::extract::RawQuery;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::{get, post};
use maud::{Markup, html};
use serde_json::Value;

use super::backend::{BackendRefusal, items, query, text};
use super::document::table;
use super::fields::{Field, Filled, changes, conflicts, inputs, new_body, other_faults};
use super::forms::{danger, token};
use super::frame::{Section, headed};
use super::page::{ErrorPage, Html};
use super::visitor::{SubmittedForm, Visitor};
use crate::api::routes::Routes;

/// A kind of object.
pub(super) struct Resource {
    /// Path below the org's page.
    pub(super) at: &'static str,
    /// Path of the API's list.
    pub(super) api: &'static str,
    /// Name of the id in paths.
    pub(super) parameter: &'static str,
    pub(super) section: Section,
    pub(super) title: &'static str,
    /// Noun for one object, as in "New agent".
    pub(super) noun: &'static str,
    /// Purpose of the kind, in a sentence.
    pub(super) about: &'static str,
    pub(super) empty: &'static str,
    pub(super) columns: &'static [&'static str],
    /// Cells of a row, without the link to the object's page.
    pub(super) cells: fn(&Visitor, &Value, &[Value]) -> Vec<Markup>,
    /// Title of an object.
    pub(super) name: fn(&Value) -> String,
    /// Paths of the API whose answers every page of the kind needs.
    pub(super) needs: &'static [&'static str],
    /// Paths whose answers an object's own page needs as well; `{id}` is the object's id.
    pub(super) needs_of_one: &'static [&'static str],
    /// Fields of the form that creates one.
    pub(super) fields: fn(&[Value]) -> Vec<Field>,
    /// Fields of the form that changes an object; if there are none, there is no such form.
    pub(super) changeable: fn(&[Value]) -> Vec<Field>,
    /// Adapts the body that was read from a form to what the API takes.
    pub(super) tidy: fn(&mut Value),
    /// Content of an object's page beside its form, with the answers that `needs_of_one` named.
    pub(super) beside: fn(&Visitor, &Value, &[Value]) -> Markup,
    /// Field of a new object that is shown once, with a sentence about it.
    pub(super) secret: Option<(&'static str, &'static str)>,
    /// Warning beside the button that deletes one.
    pub(super) delete: &'static str,
    pub(super) actions: &'static [Action],
}

/// Further command on an object, beside update and delete.
pub(super) struct Action {
    /// Last part of the path.
    pub(super) at: &'static str,
    pub(super) method: Method,
    /// Path of the API: `{id}` is the object's id, `{named}` the id in the form field [`named`](Self::named).
    pub(super) api: &'static str,
    /// Form field with the id for `{named}`.
    pub(super) named: Option<&'static str>,
    pub(super) body: fn(&SubmittedForm) -> Value,
    /// Field of the answer that is shown once, with a sentence about it.
    pub(super) secret: Option<(&'static str, &'static str)>,
}

/// Objects on a page of a list.
const ROWS: &str = "50";

impl Resource {
    /// Paths of the pages.
    pub(super) fn routes(&'static self) -> Routes {
        let at = |rest: &str| format!("/dashboard/{{org_id}}/{}{rest}", self.at);
        let one = at(&format!("/{{{}}}", self.parameter));
        let list = get(move |visitor, query| self.list(visitor, query))
            .post(move |form| self.create(form));
        let mut routes = Routes::new()
            .route(&at(""), list)
            .route(&at("/new"), get(move |visitor| self.blank(visitor)))
            .route(
                &one,
                get(move |visitor, query| self.show(visitor, query))
                    .post(move |form| self.update(form)),
            )
            .route(
                &format!("{one}/delete"),
                post(move |form| self.delete(form)),
            );
        for action in self.actions {
            let path = format!("{one}/{}", action.at);
            routes = routes.route(&path, post(move |form| self.act(action, form)));
        }

        routes
    }

    async fn list(
        &'static self,
        visitor: Visitor,
        RawQuery(raw): RawQuery,
    ) -> Result<Html, ErrorPage> {
        let cursor = parameter(raw.as_deref(), "cursor");
        let needs = self.needed(&visitor, self.needs, "").await?;
        let asked = query(&[("limit", ROWS), ("cursor", &cursor)]);
        let found = visitor.client.get(&format!("{}{asked}", self.api)).await?;
        let rows: Vec<_> = items(&found)
            .iter()
            .map(|item| self.row(&visitor, item, &needs))
            .collect();

        let heading = html! {
            div { h1 { (self.title) } p.under { (self.about) } }
            @if visitor.writes() {
                div.actions { a.button.main href=(visitor.path(&format!("{}/new", self.at))) { "New" } }
            }
        };
        let content = html! {
            (done(raw.as_deref()))
            section.card aria-label=(self.title) id=(self.at) {
                (table(self.title, self.columns, &rows, self.empty))
                @if !text(&found, "next").is_empty() {
                    div.pages { a.button href=(visitor.path(&format!("{}{}", self.at, query(&[("cursor", text(&found, "next"))])))) rel="next" { "More" } }
                }
            }
        };
        Ok(headed(
            &visitor,
            self.section,
            self.title,
            &heading,
            &content,
        ))
    }

    fn row(&self, visitor: &Visitor, item: &Value, needs: &[Value]) -> Vec<Markup> {
        let page = visitor.path(&format!("{}/{}", self.at, text(item, "id")));
        let mut cells = (self.cells)(visitor, item, needs);
        if let Some(first) = cells.first_mut() {
            *first = html! { a.row href=(page) { (*first) } };
        }
        cells
    }

    async fn blank(&'static self, visitor: Visitor) -> Result<Html, ErrorPage> {
        visitor.must_write()?;
        let needs = self.needed(&visitor, self.needs, "").await?;
        let fields = (self.fields)(&needs);
        Ok(self.new_page(&visitor, &fields, Filled::Empty, None))
    }

    fn new_page(
        &self,
        visitor: &Visitor,
        fields: &[Field],
        filled: Filled<'_>,
        refused: Option<&BackendRefusal>,
    ) -> Html {
        let title = format!("New {}", self.noun);
        let content = html! {
            form.card method="post" action=(visitor.path(self.at)) {
                (token(visitor))
                (form_of(fields, filled, refused))
                div.go { button type="submit" { "Create" } a.plain href=(visitor.path(self.at)) { "Cancel" } }
            }
        };

        headed(
            visitor,
            self.section,
            &title,
            &self.crumbs(visitor, &title),
            &content,
        )
    }

    fn crumbs(&self, visitor: &Visitor, title: &str) -> Markup {
        html! {
            div {
                p.crumbs { a href=(visitor.path(self.at)) { (self.title) } }
                h1 { (title) }
            }
        }
    }

    async fn create(&'static self, form: SubmittedForm) -> Result<Response, ErrorPage> {
        let visitor = &form.visitor;
        visitor.must_write()?;
        let needs = self.needed(visitor, self.needs, "").await?;
        let fields = (self.fields)(&needs);
        let mut body = new_body(&fields, &form.fields);
        (self.tidy)(&mut body);

        match visitor
            .client
            .send(Method::POST, self.api, Some(&body))
            .await
        {
            Ok(made) => {
                let page = visitor.path(&format!("{}/{}", self.at, text(&made, "id")));
                Ok(match self.secret {
                    // In the answer to the POST: a redirection would need the secret in its URL, or kept here.
                    Some((field, sentence)) => {
                        let title = format!("New {}", self.noun);
                        revealed(
                            visitor,
                            self.section,
                            &title,
                            (text(&made, field), sentence),
                            &page,
                        )
                        .into_response()
                    }
                    None => Redirect::to(&page).into_response(),
                })
            }

            Err(refused) => {
                let status = shown_status(&refused)?;
                let page = self.new_page(
                    visitor,
                    &fields,
                    Filled::Submitted(&form.fields),
                    Some(&refused),
                );
                Ok((status, page).into_response())
            }
        }
    }

    async fn show(
        &'static self,
        visitor: Visitor,
        RawQuery(raw): RawQuery,
    ) -> Result<Html, ErrorPage> {
        let (object, needs, own) = self.whole(&visitor).await?;
        let fields = (self.changeable)(&needs);
        let form = self.edit_form(&visitor, &object, (&fields, Filled::With(&object)), None);
        let content = html! {
            (done(raw.as_deref()))
            div.edit {
                div { (form) }
                div { ((self.beside)(&visitor, &object, &own)) }
            }
        };

        let title = (self.name)(&object);
        Ok(headed(
            &visitor,
            self.section,
            &title,
            &self.crumbs(&visitor, &title),
            &content,
        ))
    }

    /// Form that changes an object, with the version that it was made for.
    fn edit_form(
        &self,
        visitor: &Visitor,
        object: &Value,
        (fields, filled): (&[Field], Filled<'_>),
        refused: Option<&BackendRefusal>,
    ) -> Markup {
        let at = format!("{}/{}", self.at, text(object, "id"));

        html! {
            @if !fields.is_empty() {
                form.card method="post" action=(visitor.path(&at)) {
                    (token(visitor))
                    input type="hidden" name="version" value=(text(object, "updated_at"));
                    fieldset.all disabled[!visitor.writes()] {
                        (form_of(fields, filled, refused))
                        @if visitor.writes() { div.go { button type="submit" { "Save" } } }
                    }
                }
            }
            @if visitor.writes() {
                p { a href=(visitor.path(&format!("audit{}", query(&[("resource_id", text(object, "id"))])))) { "Changes so far" } }
                (danger(visitor, &format!("{at}/delete"), "Delete", self.delete))
            }
        }
    }

    async fn update(&'static self, form: SubmittedForm) -> Result<Response, ErrorPage> {
        let visitor = &form.visitor;
        visitor.must_write()?;
        let (current, needs, own) = self.whole(visitor).await?;
        let fields = (self.changeable)(&needs);
        let title = (self.name)(&current);

        // Before the fields are compared: beside a newer object, what the person left alone in an old form would
        // count as a change back.
        let version = form.text("version");

        if version != text(&current, "updated_at") {
            return Ok(self.outdated(&form, &(current, needs, own)));
        }

        let at = format!("{}/{}", self.at, text(&current, "id"));
        let saved = visitor.path(&format!("{at}?done=saved"));
        let mut body = changes(&fields, &form.fields, &current);
        (self.tidy)(&mut body);
        if body.as_object().is_some_and(serde_json::Map::is_empty) {
            return Ok(Redirect::to(&saved).into_response());
        }

        let path = format!("{}/{}", self.api, text(&current, "id"));
        match visitor.client.change(&path, version, &body).await {
            Ok(_) => Ok(Redirect::to(&saved).into_response()),

            Err(refused) if refused.status == StatusCode::PRECONDITION_FAILED => {
                // Another form was saved between the look at the object and the change.
                let whole = self.whole(visitor).await?;
                Ok(self.outdated(&form, &whole))
            }

            Err(refused) => {
                let status = shown_status(&refused)?;
                let filled = (&*fields, Filled::Submitted(&form.fields));
                let edit = self.edit_form(visitor, &current, filled, Some(&refused));
                let content = html! { div.edit { div { (edit) } div { ((self.beside)(visitor, &current, &own)) } } };
                let page = headed(
                    visitor,
                    self.section,
                    &title,
                    &self.crumbs(visitor, &title),
                    &content,
                );
                Ok((status, page).into_response())
            }
        }
    }

    /// Page for a form that is older than its object: both values of what differs, and the form again.
    fn outdated(
        &self,
        form: &SubmittedForm,
        (current, needs, own): &(Value, Vec<Value>, Vec<Value>),
    ) -> Response {
        let visitor = &form.visitor;
        let fields = (self.changeable)(needs);
        let differing = conflicts(&fields, &form.fields, current);
        let edit = self.edit_form(
            visitor,
            current,
            (&fields, Filled::Submitted(&form.fields)),
            None,
        );
        let content = html! {
            (conflict(&differing))
            div.edit { div { (edit) } div { ((self.beside)(visitor, current, own)) } }
        };

        let title = (self.name)(current);
        let crumbs = self.crumbs(visitor, &title);
        let page = headed(visitor, self.section, &title, &crumbs, &content);
        (StatusCode::CONFLICT, page).into_response()
    }

    async fn delete(&'static self, form: SubmittedForm) -> Result<Response, ErrorPage> {
        let visitor = &form.visitor;
        visitor.must_write()?;
        let path = format!("{}/{}", self.api, visitor.id(self.parameter)?);
        match visitor.client.send(Method::DELETE, &path, None).await {
            Ok(_) => {
                let list = visitor.path(&format!("{}?done=deleted", self.at));
                Ok(Redirect::to(&list).into_response())
            }
            Err(refused) => self.not_done(visitor, &refused),
        }
    }

    async fn act(
        &'static self,
        action: &'static Action,
        form: SubmittedForm,
    ) -> Result<Response, ErrorPage> {
        let visitor = &form.visitor;
        visitor.must_write()?;

        let id = visitor.id(self.parameter)?;
        let mut path = action.api.replace("{id}", &id.to_string());
        if let Some(field) = action.named {
            // An id and nothing else: another text of the form could lead to any path of the API.
            let named = crate::api::id_of(form.text(field));
            let named = named.map_err(|_| ErrorPage::not_found())?;
            path = path.replace("{named}", &named.to_string());
        }

        let body = (action.body)(&form);
        let body = (!body.is_null()).then_some(&body);
        match visitor
            .client
            .send(action.method.clone(), &path, body)
            .await
        {
            Ok(answer) => {
                let page = format!("{}/{id}", self.at);
                Ok(match action.secret {
                    Some((field, sentence)) => {
                        let page = visitor.path(&page);
                        let secret = (text(&answer, field), sentence);
                        revealed(visitor, self.section, self.title, secret, &page).into_response()
                    }
                    None => {
                        Redirect::to(&visitor.path(&format!("{page}?done=done"))).into_response()
                    }
                })
            }

            Err(refused) => self.not_done(visitor, &refused),
        }
    }

    /// Page for a command that the API refused.
    fn not_done(&self, visitor: &Visitor, refused: &BackendRefusal) -> Result<Response, ErrorPage> {
        let status = shown_status(refused)?;
        let content = html! {
            (refusal(refused))
            p { a.button href=(visitor.path(self.at)) { "Back to " (self.title) } }
        };
        let page = headed(
            visitor,
            self.section,
            self.title,
            &html! { h1 { "That did not work" } },
            &content,
        );
        Ok((status, page).into_response())
    }

    /// Returns the object of the path, the answers to `needs`, and those to `needs_of_one`.
    async fn whole(&self, visitor: &Visitor) -> Result<(Value, Vec<Value>, Vec<Value>), ErrorPage> {
        let id = visitor.id(self.parameter)?.to_string();
        let object = visitor.client.get(&format!("{}/{id}", self.api)).await?;
        let needs = self.needed(visitor, self.needs, &id).await?;
        let own = self.needed(visitor, self.needs_of_one, &id).await?;
        Ok((object, needs, own))
    }

    /// Returns the API's answers at these paths, one after the other.
    async fn needed(
        &self,
        visitor: &Visitor,
        paths: &[&str],
        id: &str,
    ) -> Result<Vec<Value>, ErrorPage> {
        let mut answers = Vec::with_capacity(paths.len());
        for path in paths {
            answers.push(visitor.client.get(&path.replace("{id}", id)).await?);
        }
        Ok(answers)
    }
}

impl std::fmt::Debug for Resource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resource")
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

/// Value of a parameter of the query.
pub(super) fn parameter(raw: Option<&str>, wanted: &str) -> String {
    // A query that can't be read counts as empty: a broken link still shows its page.
    let pairs: Vec<(String, String)> =
        serde_urlencoded::from_str(raw.unwrap_or_default()).unwrap_or_default();
    let found = pairs.into_iter().find(|(name, _)| name == wanted);
    found.map(|(_, value)| value).unwrap_or_default()
}

/// Message that a change was made, shown after the redirection.
pub(super) fn done(raw: Option<&str>) -> Markup {
    let said = match parameter(raw, "done").as_str() {
        "saved" => "Saved. Calls that begin from now on follow it.",
        "deleted" => "Deleted.",
        "done" => "Done.",
        _ => return Markup::default(),
    };
    html! { div.banner.good role="status" { p { (said) } } }
}

/// Status of a page that shows the refusal.
///
/// # Errors
/// Refusals that aren't about the form (401, 403, 404, 5xx) have a page of their own.
pub(super) fn shown_status(refused: &BackendRefusal) -> Result<StatusCode, ErrorPage> {
    let is_shown = refused.status.is_client_error()
        && ![
            StatusCode::UNAUTHORIZED,
            StatusCode::FORBIDDEN,
            StatusCode::NOT_FOUND,
        ]
        .contains(&refused.status);
    match is_shown {
        true => Ok(refused.status),
        false => Err(refused.clone().into()),
    }
}

/// The API's sentence for a refusal.
pub(super) fn refusal(refused: &BackendRefusal) -> Markup {
    html! { div.banner.bad role="alert" { p { (refused.message) } } }
}

/// Fields of a form, below the faults that belong to none of them.
pub(super) fn form_of(
    fields: &[Field],
    filled: Filled<'_>,
    refused: Option<&BackendRefusal>,
) -> Markup {
    let faults = refused.map_or(&[][..], |refused| &refused.faults);

    html! {
        @if let Some(refused) = refused {
            @if faults.is_empty() {
                (refusal(refused))
            } @else {
                div.banner.bad role="alert" {
                    p { "Not saved: see what is marked." }
                    @for (path, message) in other_faults(fields, faults) {
                        p { @if let Some(path) = path { strong { (path) } " " } (message) }
                    }
                }
            }
        }
        (inputs(fields, filled, faults))
    }
}

/// Both values of each field that differs, where the object was changed meanwhile.
pub(super) fn conflict(differing: &[(impl AsRef<str>, String, String)]) -> Markup {
    html! {
        div.banner.bad role="alert" id="conflict" {
            p { strong { "It was changed while you were editing it." } " Nothing was saved. The form below has your values: save it again to replace the others." }
            table aria-label="Both values" {
                thead { tr { th scope="col" { "Field" } th scope="col" { "You entered" } th scope="col" { "It is now" } } }
                tbody {
                    @for (label, submitted, current) in differing {
                        tr { td data-label="Field" { (label.as_ref()) } td data-label="You entered" { (submitted) } td data-label="It is now" { (current) } }
                    }
                }
            }
        }
    }
}

/// Page that shows a secret, this once.
pub(super) fn revealed(
    visitor: &Visitor,
    section: Section,
    title: &str,
    (secret, sentence): (&str, &str),
    next: &str,
) -> Html {
    let content = html! {
        div.banner.good role="status" {
            p { strong { (sentence) } " It is shown this once: copy it now." }
            (super::document::copied("secret", secret))
        }
        p { a.button href=(next) { "Continue" } }
    };
    headed(visitor, section, title, &html! { h1 { (title) } }, &content)
}
