//! `trunkline contact`: exports a contact for a person who asks for the data, and erases one, which takes more than one
//! request each. The other commands for contacts are made by `resource`.

use std::io::{self, Write as _};
use std::time::Duration;

use axum::http::Method;
use serde::Serialize;
use serde_json::Value;

use super::confirm::confirmed;
use super::names::{self, List};
use super::output::{Output, Tabular};
use super::session::{Intent, Session, encoded};
use super::target::Target;
use super::{Failure, now};
use crate::config::Config;

/// Contacts of an org.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Prints everything that is kept of a contact as JSON: itself, its calls with their transfers, and its handoffs.
    #[command(
        after_help = "Examples:\n  trunkline contact export ann@example.com > contact.json\n  trunkline contact export 019a0000-0000-7000-8000-000000000000 --org Acme > contact.json"
    )]
    Export {
        /// The contact's id, a part of it, its e-mail address or its name.
        contact: String,
        #[command(flatten)]
        target: Target,
    },
    /// Erases a contact and everything kept of it: the contact is gone at once, and running daemons erase what they
    /// hold.
    #[command(
        after_help = "Example:\n  trunkline contact erase 019a0000-0000-7000-8000-000000000000 --org Acme\n\nRepeating it with the same id shows the same erasure. Without a running daemon the erasure continues when one starts."
    )]
    Erase {
        /// The contact's id, a part of it, its e-mail address or its name.
        contact: String,
        #[command(flatten)]
        target: Target,
        /// Seconds to wait for the daemons.
        #[arg(long, value_name = "SECONDS", default_value_t = 30)]
        wait: u64,
        /// Don't ask for confirmation.
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Shows the state of an erasure, and its receipt once it is complete.
    #[command(
        after_help = "Example:\n  trunkline contact receipt 019a0000-0000-7000-8000-0000000000e1 --org Acme --json"
    )]
    Receipt {
        /// The erasure's id.
        #[arg(value_parser = crate::api::id_of)]
        erasure: uuid::Uuid,
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        output: Output,
    },
}

/// Interval between checks whether an erasure is complete.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// Calls of one page of an export.
const PAGE: &str = "100";

/// An erasure, as the API shows it.
#[derive(Serialize)]
#[serde(transparent)]
struct Erasure(Value);

impl Tabular for Erasure {
    const COLUMNS: &'static [&'static str] = &[
        "id",
        "contact",
        "status",
        "requested",
        "completed",
        "calls",
        "trace messages",
    ];

    fn cells(&self) -> Vec<String> {
        let Self(erasure) = self;
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        vec![
            text(&erasure["id"]),
            text(&erasure["contact_id"]),
            text(&erasure["status"]).replace('_', " "),
            text(&erasure["requested_at"]),
            text(&erasure["completed_at"]),
            erasure["erased"]["calls"].to_string(),
            erasure["erased"]["trace_messages"].to_string(),
        ]
    }
}

impl Command {
    pub(super) async fn run(self, config: &Config) -> Result<(), Failure> {
        if let Self::Erase { yes, .. } = &self {
            confirmed(*yes, "Erases the contact")?;
        }
        let (Self::Export { target, .. }
        | Self::Erase { target, .. }
        | Self::Receipt { target, .. }) = &self;
        let session = target.open(config, Intent::Reads).await?;
        let done = self.perform(&session).await;
        session.close().await;
        done
    }

    async fn perform(&self, session: &Session) -> Result<(), Failure> {
        let contacts = List::new("/widget/contacts", "contact");

        match self {
            Self::Export { contact, .. } => {
                let id = names::find(session, &contacts, contact).await?;
                export(session, &id).await
            }

            Self::Erase {
                contact,
                wait,
                output,
                ..
            } => {
                let id = names::find(session, &contacts, contact).await?;
                let erasure = erase(session, &id, Duration::from_secs(*wait)).await?;
                output.one(&Erasure(erasure));
                Ok(())
            }

            Self::Receipt {
                erasure, output, ..
            } => {
                let shown = session.json(&format!("/widget/erasures/{erasure}")).await?;
                output.one(&Erasure(shown));
                Ok(())
            }
        }
    }
}

/// Requests an erasure, and waits until it is complete, but no longer than `wait`.
async fn erase(session: &Session, id: &str, wait: Duration) -> Result<Value, Failure> {
    let path = format!("/widget/contacts/{id}");
    let mut erasure = session.answer(&Method::DELETE, &path, None).await?;
    let path = format!(
        "/widget/erasures/{}",
        erasure["id"].as_str().unwrap_or_default()
    );

    let until = now() + wait;
    // An erasure that isn't complete by then goes on without this command; `contact receipt` shows it.
    while erasure["completed_at"].is_null() && now() < until {
        tokio::time::sleep(CHECK_INTERVAL).await;
        erasure = session.json(&path).await?;
    }
    Ok(erasure)
}

/// Prints an export page by page, as one object: pages of calls, then of handoffs.
async fn export(session: &Session, id: &str) -> Result<(), Failure> {
    let mut out = io::stdout();
    let mut printed = ExportPrinter::default();
    let mut cursor: Option<String> = None;
    loop {
        let mut query = vec![("limit", PAGE)];
        query.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
        let path = format!("/widget/contacts/{id}/export?{}", encoded(&query)?);
        let page = session.json(&path).await?;
        cursor = page["next"].as_str().map(str::to_owned);

        let text = printed.page(&page, cursor.is_none());
        // Flushed page by page, so that a reader that has gone ends the requests as well.
        write!(out, "{text}")
            .and_then(|()| out.flush())
            .map_err(|error| Failure::Command(format!("the export can't be written: {error}")))?;
        if cursor.is_none() {
            return Ok(());
        }
    }
}

/// Joins the pages of an export to one object.
#[derive(Debug, Default)]
struct ExportPrinter {
    has_begun: bool,
    has_calls: bool,
    in_handoffs: bool,
    has_handoffs: bool,
}

impl ExportPrinter {
    /// Returns the text of the next page.
    fn page(&mut self, page: &Value, is_last: bool) -> String {
        let mut text = String::new();
        if !self.has_begun {
            text += &format!("{{\"contact\":{},\"calls\":[", page["contact"]);
            self.has_begun = true;
        }
        text += &items(&page["calls"], &mut self.has_calls);

        // Handoffs begin on the page of the last call.
        let handoffs = &page["handoffs"];
        let has_some = handoffs.as_array().is_some_and(|some| !some.is_empty());
        if (has_some || is_last) && !self.in_handoffs {
            text += "],\"handoffs\":[";
            self.in_handoffs = true;
        }
        text += &items(handoffs, &mut self.has_handoffs);

        if is_last {
            text += "]}\n";
        }
        text
    }
}

/// Returns the items of a list, each behind a comma but for the first of all pages.
fn items(list: &Value, has_some: &mut bool) -> String {
    let mut text = String::new();
    for item in list.as_array().into_iter().flatten() {
        if *has_some {
            text.push(',');
        }
        text += &item.to_string();
        *has_some = true;
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pages_of_an_export_become_one_object() {
        let whole = json!({"contact": {"id": 1}, "calls": [1, 2, 3], "handoffs": [4, 5, 6]});
        let page = |calls: &[u8], handoffs: &[u8]| json!({"contact": {"id": 1}, "calls": calls, "handoffs": handoffs});
        let nothing = json!({"contact": {"id": 1}, "calls": [], "handoffs": []});
        for (pages, expected) in [
            (vec![page(&[1, 2, 3], &[4, 5, 6])], &whole),
            (
                vec![page(&[1, 2], &[]), page(&[3], &[4]), page(&[], &[5, 6])],
                &whole,
            ),
            (vec![page(&[1, 2, 3], &[]), page(&[], &[4, 5, 6])], &whole),
            (vec![page(&[], &[])], &nothing),
        ] {
            let mut printer = ExportPrinter::default();
            let last = pages.len() - 1;
            let pages = pages.iter().enumerate();
            let text: String = pages
                .map(|(place, page)| printer.page(page, place == last))
                .collect();
            let read: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(&read, expected, "{text}");
        }
    }
}
