//! Pages of a kind of object that the API creates, lists, changes and deletes: one description per kind, the same handlers for all.

use axum::extract::RawQuery;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::{get, post};
use maud::{Markup, html};
use serde_json::Value;
use trunkline_store::names::NamedKind;

use super::backend::{BackendRefusal, items, parameter, query, text};
use super::choice::{self, Choice};
use super::document::table;
use super::fields::{Field, Filled, changes, conflicts, new_body};
use super::form_page::{conflict, done, form_of, refusal, revealed, shown_status};
use super::forms::{danger, token};
use super::frame::{Section, headed};
use super::names::Names;
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
    pub(super) cells: fn(&Visitor, &Value, &Names) -> Vec<Markup>,
    /// Fields of an object with ids of others, of which pages show the names.
    pub(super) mentions: &'static [&'static str],
    /// Title of an object.
    pub(super) name: fn(&Value) -> String,
    /// Paths of the API's lists that every form of the kind needs whole.
    pub(super) needs: &'static [&'static str],
    /// Paths whose answers an object's own page needs as well; `{id}` is the object's id.
    pub(super) needs_of_one: &'static [&'static str],
    /// Kinds of objects that can be chosen beside an object's form.
    pub(super) choices: &'static [NamedKind],
    /// Fields of the form that creates one.
    pub(super) fields: fn(&[Value]) -> Vec<Field>,
    /// Fields of the form that changes an object; if there are none, there is no such form.
    pub(super) changeable: fn(&[Value]) -> Vec<Field>,
    /// Adapts the body that was read from a form to what the API takes.
    pub(super) tidy: fn(&mut Value),
    /// Content of an object's page beside its form.
    pub(super) beside: fn(&Visitor, &Value, &Beside) -> Markup,
    /// Field of a new object that is shown once, with a sentence about it.
    pub(super) secret: Option<(&'static str, &'static str)>,
    /// Warning beside the button that deletes one.
    pub(super) delete: &'static str,
    pub(super) actions: &'static [Action],
}

/// Content of an object's page beside its form.
#[derive(Debug)]
pub(super) struct Beside {
    /// Answers that `needs_of_one` named.
    pub(super) needs: Vec<Value>,
    /// Choices in the order of `choices`.
    pub(super) choices: Vec<Choice>,
    /// Names of what the object mentions.
    pub(super) names: Names,
}

/// An object, and what its page needs.
struct Whole {
    object: Value,
    needs: Vec<Value>,
    beside: Beside,
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
    /// Form field with the text of a choice. The body gets the id that it means.
    pub(super) choice: Option<(&'static str, NamedKind)>,
    pub(super) body: fn(&SubmittedForm, Option<String>) -> Value,
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
        let asked = query(&[("limit", ROWS), ("cursor", &cursor)]);
        let found = visitor.client.get(&format!("{}{asked}", self.api)).await?;
        let names = Names::mentioned(&visitor.client, items(&found), self.mentions).await?;
        let rows: Vec<_> = items(&found)
            .iter()
            .map(|item| self.row(&visitor, item, &names))
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

    fn row(&self, visitor: &Visitor, item: &Value, names: &Names) -> Vec<Markup> {
        let page = visitor.path(&format!("{}/{}", self.at, text(item, "id")));
        let mut cells = (self.cells)(visitor, item, names);
        if let Some(first) = cells.first_mut() {
            *first = html! { a.row href=(page) { (*first) } };
        }
        cells
    }

    async fn blank(&'static self, visitor: Visitor) -> Result<Html, ErrorPage> {
        visitor.must_write()?;
        let needs = self.needed(&visitor).await?;
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
        let needs = self.needed(visitor).await?;
        let fields = (self.fields)(&needs);
        let mut body = new_body(&fields, &form.fields);
        (self.tidy)(&mut body);

        match visitor.client.post::<Value>(self.api, &body).await {
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
                            text(&made, field),
                            sentence,
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
        let Whole {
            object,
            needs,
            beside,
        } = self.whole(&visitor).await?;
        let fields = (self.changeable)(&needs);
        let form = self.edit_form(&visitor, &object, (&fields, Filled::With(&object)), None);
        let content = html! {
            (done(raw.as_deref()))
            div.edit {
                div { (form) }
                div { ((self.beside)(&visitor, &object, &beside)) }
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
                    input type="hidden" name="version" value=(version_of(object));
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
        let whole = self.whole(visitor).await?;
        let current = &whole.object;
        let fields = (self.changeable)(&whole.needs);
        let title = (self.name)(current);

        // Before the fields are compared: beside a newer object, what the person left alone in an old form would
        // count as a change back.
        let version = form.text("version");

        if version != version_of(current) {
            return Ok(self.outdated(&form, &whole));
        }

        let at = format!("{}/{}", self.at, text(current, "id"));
        let saved = visitor.path(&format!("{at}?done=saved"));
        let mut body = changes(&fields, &form.fields, current);
        (self.tidy)(&mut body);
        if body.as_object().is_some_and(serde_json::Map::is_empty) {
            return Ok(Redirect::to(&saved).into_response());
        }

        let path = format!("{}/{}", self.api, text(current, "id"));
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
                let edit = self.edit_form(visitor, current, filled, Some(&refused));
                let beside = (self.beside)(visitor, current, &whole.beside);
                let content = html! { div.edit { div { (edit) } div { (beside) } } };
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
    fn outdated(&self, form: &SubmittedForm, whole: &Whole) -> Response {
        let (visitor, current) = (&form.visitor, &whole.object);
        let fields = (self.changeable)(&whole.needs);
        let differing = conflicts(&fields, &form.fields, current);
        let edit = self.edit_form(
            visitor,
            current,
            (&fields, Filled::Submitted(&form.fields)),
            None,
        );
        let content = html! {
            (conflict(&differing))
            div.edit { div { (edit) } div { ((self.beside)(visitor, current, &whole.beside)) } }
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

        let mut chosen = None;
        if let Some((field, kind)) = action.choice {
            chosen = match choice::chosen(&visitor.client, kind, field, form.text(field)).await {
                Ok(chosen) => chosen,
                Err(refused) => return self.not_done(visitor, &refused),
            };
        }
        let body = (action.body)(&form, chosen);
        let page = format!("{}/{id}", self.at);
        if let Some((field, sentence)) = action.secret {
            return match visitor.client.post::<Value>(&path, &body).await {
                Ok(answer) => {
                    let (secret, page) = (text(&answer, field), visitor.path(&page));
                    let shown =
                        revealed(visitor, self.section, self.title, secret, sentence, &page);
                    Ok(shown.into_response())
                }
                Err(refused) => self.not_done(visitor, &refused),
            };
        }

        let body = (!body.is_null()).then_some(&body);
        match visitor
            .client
            .send(action.method.clone(), &path, body)
            .await
        {
            Ok(()) => Ok(Redirect::to(&visitor.path(&format!("{page}?done=done"))).into_response()),
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

    /// Returns the object of the path with what its page needs.
    async fn whole(&self, visitor: &Visitor) -> Result<Whole, ErrorPage> {
        let (client, id) = (&visitor.client, visitor.id(self.parameter)?.to_string());
        let object = client.get(&format!("{}/{id}", self.api)).await?;

        let mut beside = Beside {
            needs: Vec::with_capacity(self.needs_of_one.len()),
            choices: Vec::with_capacity(self.choices.len()),
            names: Names::mentioned(client, std::slice::from_ref(&object), self.mentions).await?,
        };
        for path in self.needs_of_one {
            beside
                .needs
                .push(client.get(&path.replace("{id}", &id)).await?);
        }
        // Only who may change things chooses.
        for kind in self.choices.iter().filter(|_| visitor.writes()) {
            beside.choices.push(Choice::of(visitor, *kind).await?);
        }
        Ok(Whole {
            needs: self.needed(visitor).await?,
            object,
            beside,
        })
    }

    /// Returns the API's lists that the forms need, one after the other.
    async fn needed(&self, visitor: &Visitor) -> Result<Vec<Value>, ErrorPage> {
        let mut lists = Vec::with_capacity(self.needs.len());
        for path in self.needs {
            lists.push(visitor.client.all(path).await?);
        }
        Ok(lists)
    }
}

/// Version of an object; empty for a kind that has none, which no form changes.
fn version_of(object: &Value) -> &str {
    object["updated_at"].as_str().unwrap_or_default()
}

impl std::fmt::Debug for Resource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resource")
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}
