//! The terminal: keys and the event stream go into the state, which is drawn when it has changed.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::http::Method;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior};
use uuid::Uuid;

use super::call::shown;
use super::filter::{Filter, Names};
use super::save;
use super::state::{Action, Connection, State};
use super::view::draw;
use crate::cli::Failure;
use crate::cli::event_stream::{EventSelection, Feed, News};
use crate::cli::names::{self, List};
use crate::cli::session::{NOT_TRUNKLINE, Refusal, Session};

/// Shortest time between two frames.
const FRAME: Duration = Duration::from_millis(80);
/// Interval at which the messages of an open call are read while it is up. With a key only events trigger a read, since requests count against the
/// limit of its org.
const REFRESH: Duration = Duration::from_secs(1);
/// Time within which the reader of keys sees that nobody listens any more.
const KEY_WAIT: Duration = Duration::from_millis(200);
/// Number of requests under way at which a further read is dropped. The next event makes up for it.
const MAX_READS: usize = 8;
/// Number of requests under way at which a further save is refused. Reads alone never reach it, since a person has named the file.
const MAX_REQUESTS: usize = 16;
/// Most keys that wait.
const KEYS: usize = 64;
/// Agents whose names are read.
const MAX_NAMES: usize = 1_000;

/// Answer to a request of the screen.
enum Answer {
    List(Vec<Value>),
    Names(Names),
    Record(Uuid, Value),
    Trace(Uuid, Value),
    Saved(PathBuf),
}

type Answered = Result<Answer, Refusal>;

/// Shows the calls of the list at `path`, or one call, until the person quits.
///
/// # Errors
/// There is no terminal, or the API refuses.
pub(super) async fn run(
    session: &Arc<Session>,
    path: &str,
    filter: Filter,
    call: Option<Uuid>,
) -> Result<(), Failure> {
    let broken = |error: io::Error| Failure::Command(format!("the terminal: {error}"));
    let mut terminal = ratatui::try_init().map_err(broken)?;
    let mut screen = ScreenLoop {
        session: Arc::clone(session),
        path: path.to_owned(),
        state: State::new(filter, call),
        requests: Requests::default(),
        refresh: interval(REFRESH),
    };
    let mut feed = Feed::start(Arc::clone(session), EventSelection::of_calls(None));
    let outcome = screen.run(&mut terminal, &mut feed).await;
    // Before anything is waited for: the person gets the terminal back at once, and a failure is printed on it.
    ratatui::restore();
    feed.stop().await;
    screen.requests.0.shutdown().await;
    outcome
}

fn interval(period: Duration) -> Interval {
    let mut interval = tokio::time::interval(period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

/// Reads keys and changes of the terminal's size on a separate thread, as long as the receiver exists.
fn keys() -> mpsc::Receiver<Event> {
    let (sender, keys) = mpsc::channel(KEYS);
    std::thread::spawn(move || {
        // The thread can't be cancelled while it reads a key, so it looks for keys in turns.
        while !sender.is_closed() {
            match event::poll(KEY_WAIT) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(_) => return,
            }
            let Ok(event) = event::read() else { return };
            if sender.blocking_send(event).is_err() {
                return;
            }
        }
    });
    keys
}

struct ScreenLoop {
    session: Arc<Session>,
    path: String,
    state: State,
    requests: Requests,
    refresh: Interval,
}

/// Requests under way.
#[derive(Default)]
struct Requests(JoinSet<Answered>);

impl Requests {
    /// Starts a request that reads. While [`MAX_READS`] requests are under way, it is dropped.
    fn read(&mut self, request: impl Future<Output = Answered> + Send + 'static) {
        if self.0.len() < MAX_READS {
            self.0.spawn(request);
        }
    }

    /// Starts to save a call. Returns false if too many requests are under way.
    #[must_use]
    fn save(&mut self, request: impl Future<Output = Answered> + Send + 'static) -> bool {
        let has_room = self.0.len() < MAX_REQUESTS;
        if has_room {
            self.0.spawn(request);
        }
        has_room
    }
}

impl ScreenLoop {
    async fn run(
        &mut self,
        terminal: &mut DefaultTerminal,
        feed: &mut Feed,
    ) -> Result<(), Failure> {
        let broken = |error: io::Error| Failure::Command(format!("the terminal: {error}"));
        let mut keys = keys();
        // The default action would end the process and leave the terminal in raw mode.
        let mut end = signal(SignalKind::terminate()).map_err(broken)?;
        let mut frames = interval(FRAME);
        let mut has_changed = true;

        self.requests.read(names(Arc::clone(&self.session)));
        if let Some(call) = self.state.open_call().map(|open| open.id) {
            self.load(call);
        }

        loop {
            tokio::select! {
                key = keys.recv() => match key {
                    // The terminal is gone.
                    None => return Ok(()),
                    // Some terminals report the release of a key as well.
                    Some(Event::Key(key)) if key.kind == KeyEventKind::Press => {
                        let action = self.state.handle_key(key);
                        if self.act(action).is_none() {
                            return Ok(());
                        }
                        has_changed = true;
                    }
                    Some(_) => has_changed = true,
                },

                news = feed.next() => {
                    self.take(news)?;
                    has_changed = true;
                }
                Some(answer) = self.requests.0.join_next() => {
                    if let Ok(answer) = answer {
                        self.answer(answer);
                    }
                    has_changed = true;
                }

                _ = self.refresh.tick() => {
                    if let Some(call) = self.state.live_call().filter(|_| self.session.operators_org().is_some()) {
                        self.load(call);
                    }
                }
                _ = frames.tick(), if has_changed => {
                    terminal.draw(|frame| draw(&self.state, frame)).map_err(broken)?;
                    has_changed = false;
                }
                _ = end.recv() => return Ok(()),
            }
        }
    }

    /// Carries out the state's action; `None` ends the command.
    fn act(&mut self, action: Option<Action>) -> Option<()> {
        match action {
            None => {}
            Some(Action::Quit) => return None,
            Some(Action::Load(call)) => self.load(call),
            Some(Action::Save { call, file }) => {
                let session = Arc::clone(&self.session);
                let begins = self.requests.save(async move {
                    save::save(&session, call, &file).await?;
                    Ok(Answer::Saved(file))
                });
                if !begins {
                    let notice = "Not saved: too many requests are under way. Try again.";
                    self.state.notice = Some(notice.to_owned());
                }
            }
        }
        Some(())
    }

    fn take(&mut self, news: News) -> Result<(), Failure> {
        match news {
            News::Open { is_resumed } => {
                self.state.connection = Connection::Open;
                // A resumed stream brings the events that were missed. A new one doesn't, so the list is read again.
                if !is_resumed {
                    let (session, path) = (Arc::clone(&self.session), self.path.clone());
                    self.requests.read(async move {
                        let mut shown = json(&session, &path).await?;
                        let calls = match shown["items"].as_array_mut() {
                            Some(calls) => std::mem::take(calls),
                            None => Vec::new(),
                        };
                        Ok(Answer::List(calls))
                    });
                }
            }

            News::Event(event) => {
                let action = self.state.handle_event(&event);
                self.act(action);
            }

            News::Lost { fault, pause } => {
                let seconds = pause.as_secs();
                self.state.connection = Connection::Lost(format!("{fault}: again in {seconds} s"));
            }
            News::Refused(failure) => return Err(failure),
        }

        Ok(())
    }

    fn answer(&mut self, answer: Answered) {
        match answer {
            Ok(Answer::List(calls)) => self.state.handle_list(&calls),
            Ok(Answer::Names(names)) => self.state.names = names,
            Ok(Answer::Record(call, record)) => self.state.handle_record(call, &record),
            Ok(Answer::Trace(call, trace)) => self.state.handle_trace(call, &trace),
            Ok(Answer::Saved(file)) => {
                self.state.notice = Some(format!("Saved to {}.", file.display()));
            }
            Err(refusal) => {
                if let Some(pause) = refusal.retry_after {
                    // The API has named a time: reading before it would only be refused again.
                    self.refresh.reset_after(pause);
                }
                self.state.notice = Some(refusal.failure.to_string());
            }
        }
    }

    /// Reads the messages of a call, and its record if it isn't in the list.
    fn load(&mut self, call: Uuid) {
        let session = Arc::clone(&self.session);
        self.requests.read(async move {
            let trace = json(&session, &format!("/phone/calls/{call}/trace")).await?;
            Ok(Answer::Trace(call, trace))
        });
        if self.state.calls.one(call).is_none() {
            let session = Arc::clone(&self.session);
            self.requests.read(async move {
                let record = json(&session, &format!("/phone/calls/{call}")).await?;
                Ok(Answer::Record(call, record))
            });
        }
    }
}

/// Reads the names of the newest 1,000 agents. A key that may not read them shows their ids.
async fn names(session: Arc<Session>) -> Answered {
    let agents = List::new("/phone", "agent");
    let agents = names::read(&session, &agents, &[], MAX_NAMES).await;
    let agents = agents.unwrap_or_default();
    let named = agents.iter().filter_map(|agent| {
        let id = agent["id"].as_str()?.parse().ok()?;
        Some((id, shown(&agent["name"])?))
    });
    Ok(Answer::Names(named.collect()))
}

async fn json(session: &Session, path: &str) -> Result<Value, Refusal> {
    let answer = session
        .send_once(&Method::GET, path, "application/json", None)
        .await?;
    let octets = session.read_body(answer).await?;
    serde_json::from_slice(&octets).map_err(|_| Failure::Command(NOT_TRUNKLINE.to_owned()).into())
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test]
    async fn a_save_begins_while_reads_take_up_their_share() {
        let mut requests = Requests::default();
        for _ in 0..100 {
            requests.read(pending());
        }
        assert_eq!(requests.0.len(), MAX_READS);

        let saved = (0..100).filter(|_| requests.save(pending())).count();
        assert_eq!(saved, MAX_REQUESTS - MAX_READS);
    }
}
