//! State of the screen: takes keys and the API's answers, and returns the next action. It draws nothing and waits for nothing.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "most keys of a keyboard do nothing here"
)]

use std::path::PathBuf;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::Value;
use uuid::Uuid;

use super::call::{CallLine, CallTable};
use super::filter::{Filter, Names};
use super::save::ENDINGS;
use crate::explain::ladder::{Ladder, Rung};

/// Rows that a page moves by.
const PAGE: isize = 20;
/// Longest text in a prompt, in characters.
const MAX_INPUT: usize = 200;

/// Work for the program around the state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Action {
    Quit,
    /// Read the messages of this call.
    Load(Uuid),
    Save {
        call: Uuid,
        file: PathBuf,
    },
}

/// Connection to the event stream.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) enum Connection {
    #[default]
    Opening,
    Open,
    Lost(String),
}

/// Screen that is shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Screen {
    List,
    Ladder(OpenCall),
    /// One message of the ladder, with the number of lines that were scrolled past.
    Message(OpenCall, usize),
}

/// The call whose messages are shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct OpenCall {
    pub(super) id: Uuid,
    pub(super) ladder: Ladder,
    pub(super) is_loaded: bool,
    /// False if messages are missing, for which there was no room.
    pub(super) is_complete: bool,
    /// Place of the selected item.
    pub(super) selected: usize,
}

/// Line that the person types.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Prompt {
    pub(super) kind: PromptKind,
    pub(super) text: String,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum PromptKind {
    Search,
    Filter,
    Save(Uuid),
}

/// Everything that the view draws.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) calls: CallTable,
    pub(super) names: Names,
    pub(super) filter: Filter,
    /// Text that shown calls contain, in lower case.
    pub(super) search: String,
    /// The selected call; `None` follows the newest.
    selected: Option<Uuid>,
    pub(super) screen: Screen,
    pub(super) prompt: Option<Prompt>,
    /// A sentence for the person, until the next key.
    pub(super) notice: Option<String>,
    pub(super) connection: Connection,
}

impl State {
    /// Opens with the list, or with one call.
    pub(super) fn new(filter: Filter, call: Option<Uuid>) -> Self {
        Self {
            calls: CallTable::default(),
            names: Names::new(),
            filter,
            search: String::new(),
            selected: call,
            screen: call.map_or(Screen::List, |id| Screen::Ladder(OpenCall::new(id))),
            prompt: None,
            notice: None,
            connection: Connection::default(),
        }
    }

    /// Returns the calls that pass filter and search, oldest first.
    pub(super) fn shown(&self) -> Vec<&CallLine> {
        let is_found = |call: &&CallLine| {
            self.filter.matches(call, &self.names)
                && (self.search.is_empty() || self.contains(call, &self.search))
        };
        self.calls.all().filter(is_found).collect()
    }

    fn contains(&self, call: &CallLine, text: &str) -> bool {
        let agent = call.agent.and_then(|agent| self.names.get(&agent));
        let transfer = call.transfer.as_ref();
        let fields = [&call.from, &call.to, &call.status, &call.direction]
            .into_iter()
            .chain(call.e164.iter().flatten())
            .chain(&call.call_ids)
            .chain(&call.reason)
            .chain(&call.user_agent)
            .chain(agent)
            .chain(transfer.map(|transfer| &transfer.destination));
        let is_in = |field: &String| field.to_lowercase().contains(text);
        fields.into_iter().any(is_in) || call.id.to_string().contains(text)
    }

    /// Index of the selected call among those that are shown.
    pub(super) fn selection(&self, shown: &[&CallLine]) -> Option<usize> {
        let place = |id: Uuid| shown.iter().position(|call| call.id == id);
        self.selected.and_then(place).or(shown.len().checked_sub(1))
    }

    /// The call whose messages are shown.
    pub(super) fn open_call(&self) -> Option<&OpenCall> {
        match &self.screen {
            Screen::List => None,
            Screen::Ladder(open) | Screen::Message(open, _) => Some(open),
        }
    }

    /// The call that is open and may bring further messages.
    pub(super) fn live_call(&self) -> Option<Uuid> {
        let id = self.open_call()?.id;
        let has_ended = self.calls.one(id).is_some_and(|call| call.has_ended);
        (!has_ended).then_some(id)
    }

    pub(super) fn handle_list(&mut self, calls: &[Value]) {
        self.calls.take_list(calls);
    }

    /// Applies an event. An open call that it names is read again.
    pub(super) fn handle_event(&mut self, event: &Value) -> Option<Action> {
        let id = self.calls.take_event(event)?;
        let is_open = self.open_call().is_some_and(|open| open.id == id);
        is_open.then_some(Action::Load(id))
    }

    /// Takes the trace of a call. The selection moves along if it was at the end.
    pub(super) fn handle_trace(&mut self, id: Uuid, trace: &Value) {
        let (open, is_ladder) = match &mut self.screen {
            Screen::List => return,
            Screen::Ladder(open) => (open, true),
            Screen::Message(open, _) => (open, false),
        };
        // The answer may come after the person has opened another call.
        if open.id != id {
            return;
        }

        let was_at_end = open.is_loaded && open.selected + 1 >= open.ladder.rungs.len();
        open.ladder = Ladder::read(trace);
        open.is_loaded = true;
        open.is_complete = trace["complete"] != false;
        let last = open.ladder.rungs.len().saturating_sub(1);
        open.selected = match is_ladder && was_at_end {
            true => last,
            false => open.selected.min(last),
        };
    }

    /// Takes the record of a call that isn't in the list.
    pub(super) fn handle_record(&mut self, id: Uuid, record: &Value) {
        self.calls.entry(id).update(record);
    }

    pub(super) fn handle_key(&mut self, key: KeyEvent) -> Option<Action> {
        self.notice = None;
        // In raw mode Ctrl-C is a key and sends no signal.
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Some(Action::Quit);
        }

        if let Some(prompt) = self.prompt.take() {
            return self.type_key(prompt, key);
        }

        match &self.screen {
            Screen::List => self.list_key(key.code),
            Screen::Ladder(_) => self.ladder_key(key.code),
            Screen::Message(..) => self.message_key(key.code),
        }
    }

    fn list_key(&mut self, code: KeyCode) -> Option<Action> {
        match code {
            KeyCode::Char('q') | KeyCode::Esc if self.search.is_empty() => {
                return Some(Action::Quit);
            }
            KeyCode::Char('q') | KeyCode::Esc => self.search.clear(),
            KeyCode::Char('/') => self.ask(PromptKind::Search, self.search.clone()),
            KeyCode::Char('f') => self.ask(PromptKind::Filter, self.filter.to_string()),
            KeyCode::Char('c') => (self.search, self.filter) = Default::default(),
            KeyCode::Char('s') => self.ask_file(self.selected_id()),
            KeyCode::Enter => {
                let id = self.selected_id()?;
                return Some(self.open(id));
            }
            code => self.move_selection(step(code)?),
        }

        None
    }

    fn ladder_key(&mut self, code: KeyCode) -> Option<Action> {
        let Screen::Ladder(open) = &mut self.screen else {
            return None;
        };

        match code {
            KeyCode::Char('q') | KeyCode::Esc => {
                self.selected = Some(open.id);
                self.screen = Screen::List;
            }
            KeyCode::Char('r') => return Some(Action::Load(open.id)),
            KeyCode::Char('s') => {
                let id = open.id;
                self.ask_file(Some(id));
            }
            KeyCode::Char('t') => return self.next_of_session(),
            KeyCode::Enter if !open.ladder.rungs.is_empty() => {
                self.screen = Screen::Message(open.clone(), 0);
            }
            code => open.select(step(code)?),
        }

        None
    }

    fn message_key(&mut self, code: KeyCode) -> Option<Action> {
        let Screen::Message(open, scrolled) = &mut self.screen else {
            return None;
        };

        match code {
            KeyCode::Char('q') | KeyCode::Esc | KeyCode::Enter => {
                self.screen = Screen::Ladder(open.clone());
            }
            KeyCode::Char('s') => {
                let id = open.id;
                self.ask_file(Some(id));
            }
            KeyCode::Left | KeyCode::Char('p') => {
                open.select(-1);
                *scrolled = 0;
            }
            KeyCode::Right | KeyCode::Char('n') => {
                open.select(1);
                *scrolled = 0;
            }
            code => {
                let message = open.selected_rung().and_then(Rung::message);
                let last = message.map_or(0, |message| message.text.lines().count());
                *scrolled = scrolled.saturating_add_signed(step(code)?).min(last);
            }
        }

        None
    }

    fn type_key(&mut self, mut prompt: Prompt, key: KeyEvent) -> Option<Action> {
        match key.code {
            KeyCode::Esc => return None,
            KeyCode::Enter => return self.enter(prompt),
            KeyCode::Backspace => {
                prompt.text.pop();
            }
            KeyCode::Char('u') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                prompt.text.clear();
            }
            KeyCode::Tab if matches!(prompt.kind, PromptKind::Save(_)) => {
                prompt.text = with_next_ending(&prompt.text);
            }
            KeyCode::Char(char) if prompt.text.chars().count() < MAX_INPUT => {
                prompt.text.push(char);
            }
            _ => {}
        }

        self.prompt = Some(prompt);
        None
    }

    fn enter(&mut self, prompt: Prompt) -> Option<Action> {
        match prompt.kind {
            PromptKind::Search => self.search = prompt.text.to_lowercase(),
            PromptKind::Filter => match Filter::parse(&prompt.text) {
                Ok(filter) => self.filter = filter,
                Err(fault) => {
                    self.notice = Some(fault);
                    self.prompt = Some(prompt);
                }
            },
            PromptKind::Save(call) => {
                let file = PathBuf::from(prompt.text);
                return Some(Action::Save { call, file });
            }
        }
        None
    }

    fn ask(&mut self, kind: PromptKind, text: String) {
        self.prompt = Some(Prompt { kind, text });
    }

    fn ask_file(&mut self, call: Option<Uuid>) {
        if let Some(call) = call {
            self.ask(PromptKind::Save(call), format!("{call}.{}", ENDINGS[0]));
        }
    }

    fn selected_id(&self) -> Option<Uuid> {
        let shown = self.shown();
        Some(shown.get(self.selection(&shown)?)?.id)
    }

    fn move_selection(&mut self, by: isize) {
        let shown = self.shown();
        let Some(selection) = self.selection(&shown) else {
            return;
        };
        let last = shown.len() - 1;
        let selected = selection.saturating_add_signed(by).min(last);
        // At the end of the list the selection follows calls that begin.
        self.selected = (selected < last).then(|| shown[selected].id);
    }

    fn open(&mut self, id: Uuid) -> Action {
        self.selected = Some(id);
        self.screen = Screen::Ladder(OpenCall::new(id));
        Action::Load(id)
    }

    /// Opens the next call of the same session, for example after a transfer by the PBX.
    fn next_of_session(&mut self) -> Option<Action> {
        let id = self.open_call()?.id;
        let session = self.calls.one(id)?.session;
        let of_session: Vec<Uuid> = self
            .calls
            .all()
            .filter(|call| session.is_some() && call.session == session)
            .map(|call| call.id)
            .collect();

        let place = of_session.iter().position(|known| *known == id)?;
        let next = of_session[(place + 1) % of_session.len()];

        if next == id {
            self.notice = Some("No other call of this session is known.".to_owned());
            return None;
        }
        Some(self.open(next))
    }
}

impl OpenCall {
    const fn new(id: Uuid) -> Self {
        Self {
            id,
            ladder: Ladder { rungs: Vec::new() },
            is_loaded: false,
            is_complete: true,
            selected: 0,
        }
    }

    pub(super) fn selected_rung(&self) -> Option<&Rung> {
        self.ladder.rungs.get(self.selected)
    }

    fn select(&mut self, by: isize) {
        let last = self.ladder.rungs.len().saturating_sub(1);
        self.selected = self.selected.saturating_add_signed(by).min(last);
    }
}

/// Rows by which a key moves; `None` for a key that moves nothing.
fn step(code: KeyCode) -> Option<isize> {
    match code {
        KeyCode::Up | KeyCode::Char('k') => Some(-1),
        KeyCode::Down | KeyCode::Char('j') => Some(1),
        KeyCode::PageUp => Some(-PAGE),
        KeyCode::PageDown => Some(PAGE),
        KeyCode::Home | KeyCode::Char('g') => Some(isize::MIN),
        KeyCode::End | KeyCode::Char('G') => Some(isize::MAX),
        _ => None,
    }
}

/// The file's name with the next of the endings.
fn with_next_ending(text: &str) -> String {
    let mut file = PathBuf::from(text);
    let ending = file.extension().and_then(|ending| ending.to_str());
    let place = ENDINGS.iter().position(|known| Some(*known) == ending);
    let next = place.map_or(0, |place| (place + 1) % ENDINGS.len());
    file.set_extension(ENDINGS[next]);
    file.to_string_lossy().into_owned()
}
