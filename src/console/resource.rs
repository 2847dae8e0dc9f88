//! Pages of a kind of object that the API creates, lists, changes and deletes: one description per kind, the same handlers for all.

use axum::extract::RawQuery;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::{get, post};
use maud::{Markup, html};
use serde::de::DeserializeOwned;
use serde_json::Value;
use trunkline_store::names::NamedKind;
use uuid::Uuid;

use super::backend::{BackendRefusal, Client, parameter, query};
use super::choice;
use super::document::table;
use super::fields::{Field, changes, conflicts, new_body};
use super::form_page::{conflict, done, form_of, refusal, revealed, shown_status};
use super::forms::{danger, token};
use super::frame::{Section, headed};
use super::names::Names;
use super::page::{ErrorPage, Html};
use super::visitor::{FormFields, SubmittedForm, Visitor};
use crate::api::page::Page;
use crate::api::routes::Routes;

/// Paths, texts and commands of a kind of object.
pub(super) struct Kind {
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
    /// Warning beside the button that deletes one.
    pub(super) delete: &'static str,
    pub(super) actions: &'static [Action],
}

/// Object with pages of its own, as the API shows it.
pub(super) trait Resource: DeserializeOwned + Send + Sync + 'static {
    /// Paths, texts and commands.
    const KIND: Kind;

    /// The object's id.
    fn id(&self) -> Uuid;

    /// Title of the object's page.
    fn title(&self) -> String;

    /// Version of the object; empty for a kind that has none, which no form changes.
    fn version(&self) -> &str {
        ""
    }

    /// Id of another object, of which pages show the name.
    fn mentioned(&self) -> Option<Uuid> {
        None
    }

    /// Cells of a row, without the link to the object's page.
    fn cells(&self, names: &Names) -> Vec<Markup>;

    /// Fields of the form that changes an object, or else of the one that creates one. If there are none, there is no such form.
    fn fields(
        object: Option<&Self>,
        client: &Client,
    ) -> impl Future<Output = Result<Vec<Field>, BackendRefusal>> + Send;

    /// Objects within this one that fields lead into, each under its name.
    fn nested(&self) -> Value {
        Value::Null
    }

    /// Adapts the body that was read from a form to what the API takes.
    fn tidy(_: &mut Value) {}

    /// Creates an object.
    fn create(
        client: &Client,
        body: &Value,
    ) -> impl Future<Output = Result<Created, BackendRefusal>> + Send {
        async move {
            let object: Self = client.post(Self::KIND.api, body).await?;
            let id = object.id();
            Ok(Created { id, secret: None })
        }
    }

    /// Content of the object's page beside its form.
    fn beside(
        &self,
        visitor: &Visitor,
    ) -> impl Future<Output = Result<Markup, BackendRefusal>> + Send;
}

/// A new object.
#[derive(Debug)]
pub(super) struct Created {
    pub(super) id: Uuid,
    /// A part that is shown once, and a sentence about it.
    pub(super) secret: Option<(String, &'static str)>,
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
    pub(super) body: fn(&SubmittedForm, Option<Uuid>) -> Value,
}

/// Objects on a page of a list.
const ROWS: &str = "50";

/// Paths of the pages of a kind.
pub(super) fn routes<R: Resource>() -> Routes {
    let kind = R::KIND;
    let at = |rest: &str| format!("/dashboard/{{org_id}}/{}{rest}", kind.at);
    let one = at(&format!("/{{{}}}", kind.parameter));
    let mut routes = Routes::new()
        .route(&at(""), get(list::<R>).post(create::<R>))
        .route(&at("/new"), get(blank::<R>))
        .route(&one, get(show::<R>).post(update::<R>))
        .route(&format!("{one}/delete"), post(delete::<R>));
    for action in kind.actions {
        let path = format!("{one}/{}", action.at);
        routes = routes.route(&path, post(move |form| act::<R>(action, form)));
    }

    routes
}

async fn list<R: Resource>(visitor: Visitor, RawQuery(raw): RawQuery) -> Result<Html, ErrorPage> {
    let kind = R::KIND;
    let cursor = parameter(raw.as_deref(), "cursor");
    let asked = query(&[("limit", ROWS), ("cursor", &cursor)]);
    let page: Page<R> = visitor.client.get(&format!("{}{asked}", kind.api)).await?;
    let mentioned = page.items.iter().filter_map(R::mentioned);
    let names = Names::of(&visitor.client, mentioned.collect()).await?;
    let rows: Vec<_> = page
        .items
        .iter()
        .map(|object| row(&visitor, object, &names))
        .collect();

    let heading = html! {
        div { h1 { (kind.title) } p.under { (kind.about) } }
        @if visitor.writes() {
            div.actions { a.button.main href=(visitor.path(&format!("{}/new", kind.at))) { "New" } }
        }
    };
    let content = html! {
        (done(raw.as_deref()))
        section.card aria-label=(kind.title) id=(kind.at) {
            (table(kind.title, kind.columns, &rows, kind.empty))
            @if let Some(next) = &page.next {
                div.pages { a.button href=(visitor.path(&format!("{}{}", kind.at, query(&[("cursor", next)])))) rel="next" { "More" } }
            }
        }
    };
    Ok(headed(
        &visitor,
        kind.section,
        kind.title,
        &heading,
        &content,
    ))
}

fn row<R: Resource>(visitor: &Visitor, object: &R, names: &Names) -> Vec<Markup> {
    let page = visitor.path(&format!("{}/{}", R::KIND.at, object.id()));
    let mut cells = object.cells(names);
    if let Some(first) = cells.first_mut() {
        *first = html! { a.row href=(page) { (*first) } };
    }
    cells
}

async fn blank<R: Resource>(visitor: Visitor) -> Result<Html, ErrorPage> {
    visitor.must_write()?;
    let fields = R::fields(None, &visitor.client).await?;
    Ok(new_page(&visitor, &R::KIND, &fields, None, None))
}

fn new_page(
    visitor: &Visitor,
    kind: &Kind,
    fields: &[Field],
    submitted: Option<&FormFields>,
    refused: Option<&BackendRefusal>,
) -> Html {
    let title = format!("New {}", kind.noun);
    let content = html! {
        form.card method="post" action=(visitor.path(kind.at)) {
            (token(visitor))
            (form_of(fields, submitted, refused))
            div.go { button type="submit" { "Create" } a.plain href=(visitor.path(kind.at)) { "Cancel" } }
        }
    };

    page_of_one(visitor, kind, &title, &content)
}

/// Page of one object, below that of all.
fn page_of_one(visitor: &Visitor, kind: &Kind, title: &str, content: &Markup) -> Html {
    let crumbs = html! {
        div {
            p.crumbs { a href=(visitor.path(kind.at)) { (kind.title) } }
            h1 { (title) }
        }
    };
    headed(visitor, kind.section, title, &crumbs, content)
}

async fn create<R: Resource>(form: SubmittedForm) -> Result<Response, ErrorPage> {
    let (visitor, kind) = (&form.visitor, R::KIND);
    visitor.must_write()?;
    let fields = R::fields(None, &visitor.client).await?;
    let mut body = new_body(&fields, &form.fields);
    R::tidy(&mut body);

    match R::create(&visitor.client, &body).await {
        Ok(Created { id, secret }) => {
            let page = visitor.path(&format!("{}/{id}", kind.at));
            Ok(match secret {
                // In the answer to the POST: a redirection would need the secret in its URL, or kept here.
                Some((secret, sentence)) => {
                    let title = format!("New {}", kind.noun);
                    revealed(visitor, kind.section, &title, &secret, sentence, &page)
                        .into_response()
                }
                None => Redirect::to(&page).into_response(),
            })
        }

        Err(refused) => {
            let status = shown_status(&refused)?;
            let page = new_page(visitor, &kind, &fields, Some(&form.fields), Some(&refused));
            Ok((status, page).into_response())
        }
    }
}

async fn show<R: Resource>(visitor: Visitor, RawQuery(raw): RawQuery) -> Result<Html, ErrorPage> {
    let object: R = found(&visitor).await?;
    let fields = R::fields(Some(&object), &visitor.client).await?;
    let edit = edit_form(&visitor, &object, &fields, None, None);
    let content = html! {
        (done(raw.as_deref()))
        (in_columns(&visitor, &object, &edit).await?)
    };

    Ok(page_of_one(&visitor, &R::KIND, &object.title(), &content))
}

/// Returns the object of the path.
async fn found<R: Resource>(visitor: &Visitor) -> Result<R, ErrorPage> {
    let id = visitor.id(R::KIND.parameter)?;
    let path = format!("{}/{id}", R::KIND.api);
    Ok(visitor.client.get(&path).await?)
}

/// An object's form, and the rest of its page beside it.
async fn in_columns<R: Resource>(
    visitor: &Visitor,
    object: &R,
    edit: &Markup,
) -> Result<Markup, ErrorPage> {
    let beside = object.beside(visitor).await?;
    Ok(html! { div.edit { div { (edit) } div { (beside) } } })
}

/// Form that changes an object, with the version that it was made for.
fn edit_form<R: Resource>(
    visitor: &Visitor,
    object: &R,
    fields: &[Field],
    submitted: Option<&FormFields>,
    refused: Option<&BackendRefusal>,
) -> Markup {
    let id = object.id().to_string();
    let at = format!("{}/{id}", R::KIND.at);

    html! {
        @if !fields.is_empty() {
            form.card method="post" action=(visitor.path(&at)) {
                (token(visitor))
                input type="hidden" name="version" value=(object.version());
                fieldset.all disabled[!visitor.writes()] {
                    (form_of(fields, submitted, refused))
                    @if visitor.writes() { div.go { button type="submit" { "Save" } } }
                }
            }
        }
        @if visitor.writes() {
            p { a href=(visitor.path(&format!("audit{}", query(&[("resource_id", &id)])))) { "Changes so far" } }
            (danger(visitor, &format!("{at}/delete"), "Delete", R::KIND.delete))
        }
    }
}

async fn update<R: Resource>(form: SubmittedForm) -> Result<Response, ErrorPage> {
    let visitor = &form.visitor;
    visitor.must_write()?;
    let current: R = found(visitor).await?;

    // Before the fields are compared: beside a newer object, what the person left alone in an old form would
    // count as a change back.
    let version = form.text("version");
    if version != current.version() {
        return outdated(&form, &current).await;
    }

    let id = current.id();
    let saved = visitor.path(&format!("{}/{id}?done=saved", R::KIND.at));
    let fields = R::fields(Some(&current), &visitor.client).await?;
    let mut body = changes(&fields, &form.fields, &current.nested());
    R::tidy(&mut body);
    if body.as_object().is_some_and(serde_json::Map::is_empty) {
        return Ok(Redirect::to(&saved).into_response());
    }

    let path = format!("{}/{id}", R::KIND.api);
    match visitor.client.change(&path, version, &body).await {
        Ok(()) => Ok(Redirect::to(&saved).into_response()),

        Err(refused) if refused.status == StatusCode::PRECONDITION_FAILED => {
            // Another form was saved between the look at the object and the change.
            outdated(&form, &found::<R>(visitor).await?).await
        }

        Err(refused) => {
            let status = shown_status(&refused)?;
            let submitted = Some(&form.fields);
            let edit = edit_form(visitor, &current, &fields, submitted, Some(&refused));
            let content = in_columns(visitor, &current, &edit).await?;
            let page = page_of_one(visitor, &R::KIND, &current.title(), &content);
            Ok((status, page).into_response())
        }
    }
}

/// Page for a form that is older than its object: both values of what differs, and the form again.
async fn outdated<R: Resource>(form: &SubmittedForm, current: &R) -> Result<Response, ErrorPage> {
    let visitor = &form.visitor;
    let fields = R::fields(Some(current), &visitor.client).await?;
    let differing = conflicts(&fields, &form.fields);
    let edit = edit_form(visitor, current, &fields, Some(&form.fields), None);
    let content = html! {
        (conflict(&differing))
        (in_columns(visitor, current, &edit).await?)
    };

    let page = page_of_one(visitor, &R::KIND, &current.title(), &content);
    Ok((StatusCode::CONFLICT, page).into_response())
}

async fn delete<R: Resource>(form: SubmittedForm) -> Result<Response, ErrorPage> {
    let (visitor, kind) = (&form.visitor, R::KIND);
    visitor.must_write()?;
    let path = format!("{}/{}", kind.api, visitor.id(kind.parameter)?);
    match visitor.client.send(Method::DELETE, &path, None).await {
        Ok(()) => {
            let list = visitor.path(&format!("{}?done=deleted", kind.at));
            Ok(Redirect::to(&list).into_response())
        }
        Err(refused) => not_done(visitor, &kind, &refused),
    }
}

async fn act<R: Resource>(
    action: &'static Action,
    form: SubmittedForm,
) -> Result<Response, ErrorPage> {
    let (visitor, kind) = (&form.visitor, R::KIND);
    visitor.must_write()?;

    let id = visitor.id(kind.parameter)?;
    let mut path = action.api.replace("{id}", &id.to_string());
    if let Some(field) = action.named {
        // An id and nothing else: another text of the form could lead to any path of the API.
        let named = crate::api::id_of(form.text(field));
        let named = named.map_err(|_| ErrorPage::not_found())?;
        path = path.replace("{named}", &named.to_string());
    }

    let mut chosen = None;
    if let Some((field, of)) = action.choice {
        chosen = match choice::chosen(&visitor.client, of, field, form.text(field)).await {
            Ok(chosen) => chosen,
            Err(refused) => return not_done(visitor, &kind, &refused),
        };
    }
    let body = (action.body)(&form, chosen);
    let body = (!body.is_null()).then_some(&body);
    match visitor
        .client
        .send(action.method.clone(), &path, body)
        .await
    {
        Ok(()) => {
            let page = visitor.path(&format!("{}/{id}?done=done", kind.at));
            Ok(Redirect::to(&page).into_response())
        }
        Err(refused) => not_done(visitor, &kind, &refused),
    }
}

/// Page for a command that the API refused.
pub(super) fn not_done(
    visitor: &Visitor,
    kind: &Kind,
    refused: &BackendRefusal,
) -> Result<Response, ErrorPage> {
    let status = shown_status(refused)?;
    let content = html! {
        (refusal(refused))
        p { a.button href=(visitor.path(kind.at)) { "Back to " (kind.title) } }
    };
    let heading = html! { h1 { "That did not work" } };
    let page = headed(visitor, kind.section, kind.title, &heading, &content);
    Ok((status, page).into_response())
}
