//! Names of the objects that a page mentions by their ids.

use std::collections::{BTreeSet, HashMap};

use maud::{Markup, html};
use uuid::Uuid;

use super::backend::{BackendRefusal, Client};
use crate::api::phone::NamesView;

/// Ids in one request to the API.
const AT_ONCE: usize = 100;

/// Names by id.
#[derive(Clone, Debug, Default)]
pub(super) struct Names(HashMap<Uuid, String>);

impl Names {
    /// Reads the names of the objects with these ids.
    ///
    /// # Errors
    /// The API's refusal.
    pub(super) async fn of(client: &Client, ids: BTreeSet<Uuid>) -> Result<Self, BackendRefusal> {
        let ids: Vec<String> = ids.iter().map(Uuid::to_string).collect();
        let mut names = HashMap::new();
        for some in ids.chunks(AT_ONCE) {
            let path = format!("/phone/names?ids={}", some.join(","));
            let found: NamesView = client.get(&path).await?;
            names.extend(
                found
                    .items
                    .into_iter()
                    .map(|object| (object.id, object.name)),
            );
        }
        Ok(Self(names))
    }

    /// Returns a name; `None` if there is no such object any more.
    pub(super) fn get(&self, id: Uuid) -> Option<&str> {
        self.0.get(&id).map(String::as_str)
    }

    /// Name of an object, or what there is in its place.
    pub(super) fn shown(&self, id: Option<Uuid>) -> Markup {
        match id.map(|id| self.get(id)) {
            Some(Some(name)) => html! { (name) },
            Some(None) => html! { span.soft { "deleted" } },
            None => html! { span.soft { "none" } },
        }
    }
}
