//! Choice of one object among any number of them: an input whose suggestions follow what is typed. The person types a name, and the page that takes the
//! form looks it up, so a browser without scripts can choose too.

use axum::extract::RawQuery;
use axum::http::StatusCode;
use maud::{Markup, html};
use trunkline_store::names::NamedKind;
use uuid::Uuid;

use super::backend::{BackendRefusal, Client, parameter, query};
use super::names::Names;
use super::page::{ErrorPage, Html};
use super::visitor::Visitor;
use crate::api::phone::{NameView, NamesView};

/// Digits of an id that tell objects of one name apart: the last ones, which are random.
const TELLING: usize = 12;

/// The input's suggestions: those that it begins with, and the page that has others.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    pub(super) url: String,
    first: Vec<Suggestion>,
}

/// An object to choose, with the text that means it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Suggestion {
    id: Uuid,
    text: String,
}

impl Choice {
    /// Reads the first suggestions.
    ///
    /// # Errors
    /// The API's refusal.
    pub(super) async fn of(visitor: &Visitor, kind: NamedKind) -> Result<Self, BackendRefusal> {
        Ok(Self {
            url: visitor.path(&format!("choices/{}", kind.as_str())),
            first: suggestions(&found(&visitor.client, kind, "").await?),
        })
    }

    /// Options of the first suggestions.
    pub(super) fn options(&self) -> Markup {
        options(&self.first)
    }
}

async fn found(
    client: &Client,
    kind: NamedKind,
    name: &str,
) -> Result<Vec<NameView>, BackendRefusal> {
    let asked = query(&[("kind", kind.as_str()), ("search", name)]);
    let names: NamesView = client.get(&format!("/phone/names{asked}")).await?;
    Ok(names.items)
}

/// Objects of an answer: each is meant by its name, or by name and id where another has the same name.
fn suggestions(objects: &[NameView]) -> Vec<Suggestion> {
    let is_alone = |name: &str| {
        let alike = objects.iter().filter(|object| object.name == name);
        alike.count() == 1
    };
    let suggestion = |NameView { id, name, .. }: &NameView| Suggestion {
        id: *id,
        // A name that ends like an id of another would be taken for that one.
        text: match is_alone(name) && with_id(name).is_none() {
            true => name.clone(),
            false => format!("{name} ({})", telling(*id)),
        },
    };
    objects.iter().map(suggestion).collect()
}

fn telling(id: Uuid) -> String {
    let id = id.to_string();
    id[id.len() - TELLING..].to_owned()
}

fn options(suggestions: &[Suggestion]) -> Markup {
    html! {
        @for suggestion in suggestions { option value=(suggestion.text) data-id=(suggestion.id) {} }
    }
}

/// `GET /dashboard/{org_id}/choices/{kind}?search`: options for what was typed.
pub(super) async fn show(visitor: Visitor, RawQuery(raw): RawQuery) -> Result<Html, ErrorPage> {
    let word = visitor.word("kind");
    let kind = NamedKind::ALL
        .into_iter()
        .find(|kind| kind.as_str() == word);
    let kind = kind.ok_or_else(ErrorPage::not_found)?;
    let search = parameter(raw.as_deref(), "search");
    let found = found(&visitor.client, kind, search.trim()).await?;
    Ok(Html(options(&suggestions(&found))))
}

/// Returns the text that means the object with this id; empty for no id, and for an object that is gone.
///
/// # Errors
/// The API's refusal.
pub(super) async fn text_of(
    client: &Client,
    kind: NamedKind,
    id: Option<Uuid>,
) -> Result<String, BackendRefusal> {
    let names = Names::of(client, id.into_iter().collect()).await?;
    let Some((id, name)) = id.and_then(|id| Some((id, names.get(id)?))) else {
        return Ok(String::new());
    };
    let alike = suggestions(&found(client, kind, name).await?);
    let own = alike.into_iter().find(|suggestion| suggestion.id == id);
    // Of more of one name than the API finds at once, the id itself means the object.
    Ok(own.map_or_else(|| id.to_string(), |own| own.text))
}

/// Returns the id of the object that the text of the field means; `None` for an empty text.
///
/// # Errors
/// 400 for the field if no object has this name, or several have it; else the API's refusal.
pub(super) async fn chosen(
    client: &Client,
    kind: NamedKind,
    field: &str,
    typed: &str,
) -> Result<Option<Uuid>, BackendRefusal> {
    let typed = typed.trim();
    if typed.is_empty() {
        return Ok(None);
    }
    if let Ok(id) = crate::api::id_of(typed) {
        return Ok(Some(id));
    }

    let mut ids = meant(&found(client, kind, typed).await?, typed, "");
    if let Some((name, end)) = with_id(typed) {
        ids.extend(meant(&found(client, kind, name).await?, name, end));
    }
    let noun = kind.as_str().replace('_', " ");
    let message = match ids.as_slice() {
        [id] => return Ok(Some(*id)),
        [] => format!("There is no {noun} {typed:?}."),
        _ => format!("Several have this name: choose the {noun} among the suggestions."),
    };
    Err(BackendRefusal {
        status: StatusCode::BAD_REQUEST,
        message: message.clone(),
        faults: vec![(Some(field.to_owned()), message)],
    })
}

/// Name and end of the id in a text such as `Sales (00000000100b)`.
fn with_id(typed: &str) -> Option<(&str, &str)> {
    let (name, end) = typed.strip_suffix(')')?.rsplit_once(" (")?;
    let is_hex = end.bytes().all(|octet| octet.is_ascii_hexdigit());
    (end.len() == TELLING && is_hex).then_some((name, end))
}

/// Ids of the objects with this name, or without regard to case if none has it exactly, that end so.
fn meant(objects: &[NameView], name: &str, end: &str) -> Vec<Uuid> {
    let with = |is_named: &dyn Fn(&str) -> bool| -> Vec<Uuid> {
        let meant = objects
            .iter()
            .filter(|object| is_named(&object.name) && object.id.to_string().ends_with(end));
        meant.map(|object| object.id).collect()
    };
    let exact = with(&|other| other == name);
    match exact.is_empty() {
        true => with(&|other| other.to_lowercase() == name.to_lowercase()),
        false => exact,
    }
}

#[cfg(test)]
mod tests {
    use trunkline_store::names::ObjectName;

    use super::*;

    const FIRST: Uuid = Uuid::from_u128(0x0198_c0de_0000_7000_8000_0000_0000_000a);
    const SECOND: Uuid = Uuid::from_u128(0x0198_c0de_0000_7000_8000_0000_0000_100b);

    #[test]
    fn objects_of_one_name_have_the_end_of_their_ids() {
        let found = [(FIRST, "Sales"), (SECOND, "Sales"), (SECOND, "Support")].map(|(id, name)| {
            NameView::new(
                NamedKind::Agent,
                ObjectName {
                    id,
                    name: name.to_owned(),
                },
            )
        });
        let texts: Vec<String> = suggestions(&found)
            .into_iter()
            .map(|one| one.text)
            .collect();
        assert_eq!(
            texts,
            ["Sales (00000000000a)", "Sales (00000000100b)", "Support"]
        );
        for (typed, ids) in [
            ("Sales (00000000100b)", vec![SECOND]),
            ("Sales (000000000000)", vec![]),
        ] {
            let (name, end) = with_id(typed).unwrap();
            assert_eq!(meant(&found, name, end), ids, "{typed}");
        }
        assert_eq!(meant(&found, "Sales", ""), [FIRST, SECOND]);
        assert_eq!(meant(&found, "support", ""), [SECOND]);
        assert_eq!(with_id("Sales (night)"), None);
    }
}
