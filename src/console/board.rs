//! Calls of an org that are up, rendered once for all pages that show them, at most twice a second.
//!
//! A task follows an org while one of its pages is open. Events wake it, and it reads what has no event every 1.5 s. So an open page costs a
//! comparison while nothing changes.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use maud::{Markup, html};
use tokio::sync::watch;
use trunkline_model::record::{Direction, Status};
use trunkline_sip::moment::Moment;
use trunkline_store::calls_up::{CallCounts, RemoteCalls};
use trunkline_store::{Call, SilentNode, calls_up, nodes};
use uuid::Uuid;

use super::document::{Tone, badge, headings, moment, row_of, status};
use super::figures::{Figures, Window, counted};
use super::invisible::marked;
use super::page::base_of;
use crate::api::phone::from_memory;
use crate::api::time::written;
use crate::api::{Api, ApiError};

/// Pause after a rendering.
const PAUSE: Duration = Duration::from_millis(500);
/// Time that an event is waited for after the pause.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// Calls that are listed.
const ROWS: usize = 100;
/// Limits on open pages: on this node, of one org, and of one session. A page beyond one of them gets 429.
const PLACES: usize = 256;
const PLACES_OF_ORG: usize = PLACES / 4;
const PLACES_OF_SESSION: usize = 8;
/// Time for which figures that were counted serve all pages of their org.
const FIGURES_AGE: Duration = Duration::from_secs(10);
/// Time for which a silent node is named. One that is silent for longer counts as removed.
const NAMED_FOR: Duration = Duration::from_secs(24 * 3600);

/// A part of a page, which replaces the one of the same id.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) html: Arc<str>,
    pub(super) hash: u64,
}

impl Part {
    pub(super) fn new(markup: Markup) -> Self {
        let html = marked(markup.into_string());
        let mut hasher = DefaultHasher::new();
        html.hash(&mut hasher);
        Self {
            // A hasher with fixed keys: a page that reconnects to another node finds the same hashes there.
            hash: hasher.finish(),
            html: html.into(),
        }
    }
}

/// Parts for readers, and for people who may change things.
#[derive(Clone, Debug, Default)]
pub(super) struct Board {
    reading: Vec<Part>,
    writing: Vec<Part>,
}

impl Board {
    pub(super) fn parts(&self, writes: bool) -> &[Part] {
        match writes {
            true => &self.writing,
            false => &self.reading,
        }
    }

    fn is_like(&self, other: &Self) -> bool {
        let hashes = |parts: &[Part]| parts.iter().map(|part| part.hash).collect::<Vec<_>>();
        // Both kinds show the same calls, and `writing` has buttons beside them. So comparing `writing` is enough.
        hashes(&self.writing) == hashes(&other.writing)
    }
}

/// Boards that are followed, and the places of pages that are open.
#[derive(Clone, Debug, Default)]
pub(super) struct Boards(Arc<Mutex<Open>>);

#[derive(Debug, Default)]
struct Open {
    boards: HashMap<Uuid, watch::Sender<Arc<Board>>>,
    sessions: HashMap<[u8; 32], usize>,
    orgs: HashMap<Uuid, usize>,
    places: usize,
    /// Figures, and the time at which they were counted.
    figures: HashMap<(Uuid, Window), (Moment, Figures)>,
}

/// Place of an open page, released when dropped.
#[derive(Debug)]
pub(super) struct Place {
    boards: Boards,
    session: [u8; 32],
    org: Uuid,
}

impl Boards {
    /// Takes a place for a page of this session in this org; `None` if the limit is reached.
    pub(super) fn enter(&self, session: [u8; 32], org: Uuid) -> Option<Place> {
        let mut open = self.open();
        let own = open.sessions.get(&session).copied().unwrap_or_default();
        let of_org = open.orgs.get(&org).copied().unwrap_or_default();
        if open.places >= PLACES || of_org >= PLACES_OF_ORG || own >= PLACES_OF_SESSION {
            return None;
        }

        open.places += 1;
        open.orgs.insert(org, of_org + 1);
        open.sessions.insert(session, own + 1);
        Some(Place {
            boards: self.clone(),
            session,
            org,
        })
    }

    /// Returns an org's figures, counted at most once in ten seconds.
    ///
    /// # Errors
    /// The database is away.
    pub(super) async fn figures(
        &self,
        api: &Api,
        org: Uuid,
        window: Window,
    ) -> Result<Figures, ApiError> {
        let now = api.monotonic();
        let known = self.open().figures.get(&(org, window)).cloned();
        if let Some((counted_at, figures)) = known
            && now.since(counted_at) < FIGURES_AGE
        {
            return Ok(figures);
        }

        // Counted without the lock: two pages may count at once, but none waits for the database with the lock held.
        let figures = counted(api, org, window).await?;
        let mut open = self.open();
        open.figures
            .retain(|_, (counted_at, _)| now.since(*counted_at) < FIGURES_AGE);
        open.figures.insert((org, window), (now, figures.clone()));
        Ok(figures)
    }

    /// Returns a receiver of the org's board. The first one starts the task that renders it.
    pub(super) fn watch(&self, api: &Api, org: Uuid) -> watch::Receiver<Arc<Board>> {
        let mut open = self.open();
        if let Some(sender) = open.boards.get(&org) {
            return sender.subscribe();
        }
        let (sender, receiver) = watch::channel(Arc::default());
        open.boards.insert(org, sender);
        tokio::spawn(follow(self.clone(), api.clone(), org));
        receiver
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().expect("nothing panics while it is held")
    }

    /// Shows a new board. Returns false, and removes the board, if no page shows it any more.
    fn show(&self, org: Uuid, board: Board) -> bool {
        let mut open = self.open();
        let Some(sender) = open.boards.get(&org) else {
            return false;
        };

        // Under the lock that `watch` takes: no page can subscribe to a board that is just being removed.
        if sender.receiver_count() == 0 {
            open.boards.remove(&org);
            return false;
        }

        sender.send_if_modified(|shown| {
            let is_new = !shown.is_like(&board);
            if is_new {
                *shown = Arc::new(board);
            }
            is_new
        });
        true
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.boards.open();
        open.places -= 1;
        leave(&mut open.orgs, self.org);
        leave(&mut open.sessions, self.session);
    }
}

/// Frees one place; a key without places is removed, so that the map doesn't grow.
fn leave<K: Eq + Hash>(places: &mut HashMap<K, usize>, of: K) {
    if let Some(own) = places.get_mut(&of) {
        *own -= 1;
        if *own == 0 {
            places.remove(&of);
        }
    }
}

/// Renders an org's board again and again, while a page shows it and the server runs.
async fn follow(boards: Boards, api: Api, org: Uuid) {
    // The node has no stream left, or stops. The removal ends the pages' streams, and browsers open them again.
    let Ok(mut events) = api.streams().enter_console(org) else {
        boards.open().boards.remove(&org);
        return;
    };

    loop {
        // Before the calls are read, so that an event during the rendering causes another one.
        events.seen();
        let board = rendered(&api, org).await;
        if !boards.show(org, board) {
            return;
        }
        // Bounds the renderings for an org that has events all the time.
        tokio::time::sleep(PAUSE).await;
        let is_open = tokio::select! {
            is_open = events.news() => is_open,
            () = tokio::time::sleep(MAX_WAIT) => true,
        };
        if !is_open {
            // The server stops: dropping the sender ends the pages' streams.
            boards.open().boards.remove(&org);
            return;
        }
    }
}

/// Renders the calls that are up now.
pub(super) async fn rendered(api: &Api, org: Uuid) -> Board {
    let calls = up(api, org).await;
    let silent = silent(api).await;
    let names = names(api, org);
    let base = base_of(api);
    let parts = |writes: bool| {
        vec![
            Part::new(missing(&silent)),
            Part::new(counters(calls.counts)),
            Part::new(table(
                &calls,
                &names,
                &format!("{base}/dashboard/{org}"),
                writes,
            )),
        ]
    };

    Board {
        reading: parts(false),
        writing: parts(true),
    }
}

/// Calls that are up.
#[derive(Clone, PartialEq, Debug, Default)]
struct CallsUp {
    /// The newest ones, [`ROWS`] at most.
    newest: Vec<Call>,
    /// Counts of all.
    counts: CallCounts,
}

impl CallsUp {
    /// Joins the calls of this node with those of other nodes.
    fn new(own: Vec<Call>, others: RemoteCalls) -> Self {
        let RemoteCalls {
            mut newest,
            mut counts,
        } = others;
        for call in &own {
            counts.add(call.status, call.held == Some(true), 1);
        }

        newest.extend(own);
        newest.sort_unstable_by_key(|call| std::cmp::Reverse((call.started_at, call.id)));
        newest.truncate(ROWS);
        Self { newest, counts }
    }
}

/// Returns the calls that are up: those of this node from memory, those of other nodes from the database.
async fn up(api: &Api, org: Uuid) -> CallsUp {
    let live = api.live().of_org(org).into_iter();
    let own = live.filter(|live| !live.is_over()).map(from_memory);

    let others = match api.store().is_shared() {
        true => {
            let node = api.engine().map(|engine| engine.node());
            let found = api.read_of(org, move |tx| {
                calls_up::on_other_nodes(tx, org, node, ROWS as u32)
            });
            // While the database is away, the calls of this node are shown.
            found.await.unwrap_or_default()
        }
        false => RemoteCalls::default(),
    };
    CallsUp::new(own.collect(), others)
}

/// Nodes that don't answer, of those that share the database.
async fn silent(api: &Api) -> Vec<SilentNode> {
    if !api.store().is_shared() {
        return Vec::new();
    }
    let found = api.read(|tx| nodes::silent(tx, NAMED_FOR)).await;
    // While the database is away, calls of other nodes are unknown.
    found.unwrap_or_default()
}

/// Warning that calls of these nodes are missing.
fn missing(silent: &[SilentNode]) -> Markup {
    html! {
        div #silent-nodes role="status" {
            @for node in silent {
                div.banner.bad {
                    p { strong { "Node " (node.node) " doesn't answer" } " since " (moment(node.since)) ". Its calls are not shown here: they may be up or over." }
                }
            }
        }
    }
}

/// Names of the org's agents.
fn names(api: &Api, org: Uuid) -> HashMap<Uuid, String> {
    let view = api.directory().load();
    let agents = view.org(org).map_or(&[][..], |org| &org.routing.agents);
    agents
        .iter()
        .map(|agent| (agent.id, agent.name.to_string()))
        .collect()
}

fn counters(counts: CallCounts) -> Markup {
    html! {
        dl.tiles #counters {
            div { dt { "Up" } dd { (counts.in_progress) } }
            div { dt { "Ringing" } dd { (counts.ringing) } }
            div { dt { "On hold" } dd { (counts.held) } }
        }
    }
}

const COLUMNS: [&str; 7] = ["Started", "From", "To", "Agent", "Status", "For", ""];

fn table(calls: &CallsUp, names: &HashMap<Uuid, String>, page: &str, writes: bool) -> Markup {
    let left_out = calls.counts.total().saturating_sub(calls.newest.len());
    html! {
        section.card #up aria-label="Calls that are up" {
            @if calls.newest.is_empty() {
                p.empty { "No call is up." }
            } @else {
                div.scroll {
                    table aria-label="Calls that are up" {
                        (headings(&COLUMNS))
                        tbody {
                            @for call in &calls.newest { (row_of(&COLUMNS, &row(call, names, page, writes))) }
                        }
                    }
                }
                @if left_out > 0 { p.soft { "and " (left_out) " more" } }
            }
        }
    }
}

fn row(call: &Call, names: &HashMap<Uuid, String>, page: &str, writes: bool) -> Vec<Markup> {
    let at = format!("{page}/calls/{}", call.id);
    let is_held = call.held == Some(true);
    let way = match call.direction {
        Direction::Inbound => ("inbound", "↙"),
        Direction::Outbound => ("outbound", "↗"),
    };
    let agent = call.agent_id.and_then(|agent| names.get(&agent));

    vec![
        html! { a.row id={ "call-" (call.id) } href=(at) { (moment(call.started_at)) } },
        html! { span.way title=(way.0) { (way.1) } " " (call.from_number) },
        html! { (call.to_number) },
        html! { @match agent { Some(name) => (name), None => span.soft { "none" } } },
        html! { (status(call.status)) @if is_held { " " (badge(Tone::Warn, "on hold")) } },
        html! { time.since datetime=(written(call.answered_at.unwrap_or(call.started_at))) { "up" } },
        html! { @if writes { (commands(call, &at)) } },
    ]
}

/// Buttons of the page's only form, which has the token, so that the rows are the same for all sessions.
fn commands(call: &Call, at: &str) -> Markup {
    let is_up = call.status == Status::InProgress;

    html! {
        div.buttons {
            @if is_up {
                @if call.held == Some(true) {
                    button.small type="submit" form="command" formaction={ (at) "/resume" } { "Resume" }
                } @else {
                    button.small type="submit" form="command" formaction={ (at) "/hold" } { "Hold" }
                }
                a.button.small href={ (at) "#now" } { "Transfer…" }
            }
            details.danger id={ "end-" (call.id) } {
                summary { "Hang up…" }
                button.danger.small type="submit" form="command" formaction={ (at) "/hangup" } { "Hang up" }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::phone::call_that_is_up;

    #[test]
    fn a_session_has_its_share_of_the_places() {
        let boards = Boards::default();
        let (first, org) = ([1; 32], Uuid::from_u128(1));
        let held: Vec<_> = (0..PLACES_OF_SESSION)
            .map(|_| boards.enter(first, org).expect("a place"))
            .collect();
        assert!(boards.enter(first, org).is_none());
        assert!(boards.enter([2; 32], org).is_some());

        drop(held);
        assert!(boards.enter(first, org).is_some());
        assert_eq!(boards.open().places, 0);
    }

    #[test]
    fn an_org_has_its_share_of_the_places() {
        let boards = Boards::default();
        let (greedy, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let enter = |org, session: usize| boards.enter([session as u8; 32], org);
        let held: Vec<_> = (0..PLACES_OF_ORG)
            .map(|page| enter(greedy, page / PLACES_OF_SESSION).expect("a place"))
            .collect();
        assert!(enter(greedy, 100).is_none());
        assert!(enter(other, 101).is_some());

        drop(held);
        assert!(enter(greedy, 100).is_some());
    }

    #[test]
    fn calls_of_other_nodes_count_behind_those_of_this_one() {
        let call = |id, seconds| call_that_is_up(id, Moment::from_secs(seconds));
        let own: Vec<Call> = (0..150).map(|id| call(id, 2_000)).collect();
        let mut counts = CallCounts::default();
        counts.add(Status::InProgress, true, 20);
        counts.add(Status::Ringing, false, 30);

        for (seconds, is_first) in [(1_000, false), (3_000, true)] {
            let others = RemoteCalls {
                newest: vec![call(1_000, seconds)],
                counts,
            };
            let up = CallsUp::new(own.clone(), others);
            assert_eq!(up.newest.len(), ROWS);
            assert_eq!(up.newest[0].id == Uuid::from_u128(1_000), is_first);

            let expected = CallCounts {
                ringing: 30,
                in_progress: 170,
                held: 20,
            };
            assert_eq!(up.counts, expected);
            let page = table(&up, &HashMap::new(), "", false).into_string();
            assert!(page.contains("and 100 more"));
        }
    }
}
