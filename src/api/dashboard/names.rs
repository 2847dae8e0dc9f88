//! Names of the objects that a page mentions by their ids.

use std::collections::{BTreeSet, HashMap};

use maud::{Markup, html};
use serde_json::Value;

use super::backend::{BackendRefusal, Client, items, text};

/// Ids in one request to the API.
const AT_ONCE: usize = 100;

/// Names by id.
#[derive(Clone, Debug, Default)]
pub(super) struct Names(HashMap<String, String>);

impl Names {
    /// Reads the names of the objects that these items mention in these fields.
    ///
    /// # Errors
    /// The API's refusal.
    pub(super) async fn mentioned(
        client: &Client,
        items: &[Value],
        fields: &[&str],
    ) -> Result<Self, BackendRefusal> {
        let mut ids = BTreeSet::new();
        for item in items {
            ids.extend(fields.iter().map(|field| text(item, field)));
        }
        Self::of(client, ids).await
    }

    /// Reads the names of the objects with these ids.
    ///
    /// # Errors
    /// The API's refusal.
    pub(super) async fn of(
        client: &Client,
        mut ids: BTreeSet<&str>,
    ) -> Result<Self, BackendRefusal> {
        ids.remove("");
        let ids: Vec<&str> = ids.into_iter().collect();
        let mut names = HashMap::new();
        for some in ids.chunks(AT_ONCE) {
            let found = client
                .get(&format!("/phone/names?ids={}", some.join(",")))
                .await?;
            let found = items(&found).iter();
            names.extend(found.map(|object| {
                let [id, name] = ["id", "name"].map(|field| text(object, field).to_owned());
                (id, name)
            }));
        }
        Ok(Self(names))
    }

    /// Returns a name; `None` if there is no such object any more.
    pub(super) fn get(&self, id: &str) -> Option<&str> {
        self.0.get(id).map(String::as_str)
    }

    /// Name of an object, or what there is in its place.
    pub(super) fn shown(&self, id: &str) -> Markup {
        match self.get(id) {
            Some(name) => html! { (name) },
            None if id.is_empty() => html! { span.soft { "none" } },
            None => html! { span.soft { "deleted" } },
        }
    }
}
