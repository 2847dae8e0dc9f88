//! Call records as the API lists them.

use std::collections::BTreeMap;

use serde::Deserialize;
use trunkline_bench::daemon::Daemon;
use trunkline_bench::http;

/// A record's status, as far as a kill can change it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    /// `queued`, `ringing` or `in_progress`.
    Alive,
    /// `lost`.
    Lost,
    /// Any other.
    Ended(String),
}

impl From<String> for Status {
    fn from(status: String) -> Self {
        match status.as_str() {
            "queued" | "ringing" | "in_progress" => Self::Alive,
            "lost" => Self::Lost,
            _ => Self::Ended(status),
        }
    }
}

#[derive(Deserialize)]
struct Page {
    items: Vec<Item>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct Item {
    id: String,
    status: String,
}

/// Records by id.
#[derive(Default)]
pub(crate) struct Records(BTreeMap<String, Status>);

impl Records {
    /// Returns the newest hundred.
    pub(crate) fn newest(daemon: &Daemon) -> Self {
        Self::of(page(daemon, None).items)
    }

    /// Returns all records, page by page.
    pub(crate) fn all(daemon: &Daemon) -> Self {
        let mut records = Self::default();
        let mut cursor = None;
        loop {
            let page = page(daemon, cursor.as_deref());
            records.extend(Self::of(page.items));
            cursor = page.next;
            if cursor.is_none() {
                return records;
            }
        }
    }

    fn of(items: Vec<Item>) -> Self {
        Self(
            items
                .into_iter()
                .map(|item| (item.id, item.status.into()))
                .collect(),
        )
    }

    /// Adds later records, which replace earlier ones.
    pub(crate) fn extend(&mut self, later: Self) {
        self.0.extend(later.0);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn count(&self, status: Status) -> usize {
        self.0.values().filter(|found| **found == status).count()
    }

    /// Returns the records of `acknowledged` that these contradict: one is missing, or an ended one has changed.
    pub(crate) fn contradictions(&self, acknowledged: &Self) -> Vec<String> {
        let judge = |(id, then): (&String, &Status)| match (then, self.0.get(id)) {
            (_, None) => Some(format!("{id}, then {then:?}, is missing")),
            (Status::Alive, Some(_)) => None,
            (then, Some(now)) => (then != now).then(|| format!("{id} was {then:?} and is {now:?}")),
        };
        acknowledged.0.iter().filter_map(judge).collect()
    }
}

fn page(daemon: &Daemon, cursor: Option<&str>) -> Page {
    let cursor = cursor.map_or(String::new(), |cursor| format!("&cursor={cursor}"));
    let path = format!("/phone/calls?limit=100{cursor}");
    let (status, body) =
        http::get(daemon.http, &path, Some(&daemon.announcement.api_key)).expect("the API answers");
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"))
}

#[test]
fn a_missing_and_a_changed_record_are_found() {
    let records = |rows: &[(&str, &str)]| {
        Records(
            rows.iter()
                .map(|(id, status)| ((*id).to_owned(), Status::from((*status).to_owned())))
                .collect(),
        )
    };

    let acknowledged = records(&[
        ("a", "completed"),
        ("b", "in_progress"),
        ("c", "completed"),
        ("d", "ringing"),
    ]);

    let now = records(&[
        ("a", "completed"),
        ("b", "lost"),
        ("c", "lost"),
        ("e", "completed"),
    ]);

    assert_eq!(
        now.contradictions(&acknowledged),
        [
            "c was Ended(\"completed\") and is Lost",
            "d, then Alive, is missing"
        ]
    );
}
