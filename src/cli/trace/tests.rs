//! Screens as snapshots: keys and events go into the state, and what is drawn is compared.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::{Value, json};
use uuid::Uuid;

use super::filter::Filter;
use super::state::{Action, Connection, State};
use super::view::draw;

const AGENT: Uuid = Uuid::from_u128(0xa);

fn id(number: u128) -> Uuid {
    Uuid::from_u128(0x0198_c0de_0000_7000_8000_0000_0000_0000 + number)
}

fn event(kind: &str, number: u128, more: Value) -> Value {
    let mut data = json!({
        "call_id": id(number), "session_id": id(100), "agent_id": AGENT, "direction": "inbound",
        "from_number": format!("+4930123456{number:02}"), "to_number": "+12025550123",
        "started_at": format!("2026-11-26T10:00:0{number}.250Z"), "caller_call_id": format!("{number}@pbx"),
        "user_agent": "Asterisk PBX 22.10.0"
    });
    if let (Value::Object(data), Value::Object(more)) = (&mut data, more) {
        data.extend(more);
    }
    json!({"type": kind, "data": data})
}

/// A state with three calls: one that is over, a refused one, and one that is up and being transferred.
fn state() -> State {
    let mut state = State::new(Filter::default(), None);
    state.connection = Connection::Open;
    state.names.insert(AGENT, "Echo".to_owned());
    let ended = json!({"status": "completed", "ended_at": "2026-11-26T10:00:05Z", "sip_code": 200});
    let refused = json!({"status": "refused", "ended_at": "2026-11-26T10:00:02Z", "sip_code": 480, "reason": "no_agent",
        "agent_id": null, "session_id": id(102)});
    let up = json!({"status": "in_progress", "answered_at": "2026-11-26T10:00:04Z"});
    for event in [
        event("call.ended", 1, ended),
        event("call.refused", 2, refused),
        event("call.answered", 3, up),
        json!({"type": "transfer.updated", "data": {"call_id": id(3), "status": "ringing", "destination": "Front desk"}}),
    ] {
        state.handle_event(&event);
    }

    state
}

fn trace() -> Value {
    let message = |at: &str, leg: &str, direction: &str, summary: &str, text: &str| {
        json!({"type": "message", "at": format!("2026-11-26T10:00:{at}Z"), "leg": leg, "direction": direction, "transport": "udp",
            "source": "198.51.100.7:5060", "destination": "192.0.2.1:5060", "summary": summary, "text": text})
    };
    let invite = "INVITE sip:+12025550123@192.0.2.1 SIP/2.0\r\nFrom: <sip:a@pbx>;tag=\u{1b}[2J\r\nCall-ID: 3@pbx\r\n\
                  Content-Type: application/sdp\r\n\r\nv=0\r\nm=audio 4000 RTP/AVP 0\r\n";
    json!({"complete": true, "items": [
        message("03.250", "caller", "received", "INVITE", invite),
        {"type": "decision", "at": "2026-11-26T10:00:03.251Z",
            "text": "The dialled number +12025550123 is assigned to agent \"Echo\", which is available."},
        message("03.252", "runtime", "sent", "INVITE", invite),
        message("03.300", "runtime", "received", "200 OK (INVITE)", "SIP/2.0 200 OK\r\nCall-ID: b\r\n\r\n"),
        message("03.301", "caller", "sent", "200 OK (INVITE)", "SIP/2.0 200 OK\r\nCall-ID: 3@pbx\r\n\r\n"),
        message("04.500", "destination", "sent", "INVITE", invite),
        message("05.100", "destination", "received", "486 Busy Here (INVITE)", "SIP/2.0 486 Busy Here\r\n\r\n"),
    ]})
}

fn press(state: &mut State, codes: &[KeyCode]) -> Option<Action> {
    let keys = codes
        .iter()
        .map(|code| KeyEvent::new(*code, KeyModifiers::NONE));
    keys.map(|key| state.handle_key(key)).last().flatten()
}

fn typed(state: &mut State, text: &str) {
    let codes: Vec<KeyCode> = text.chars().map(KeyCode::Char).collect();
    press(state, &codes);
}

fn screen(state: &State, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    terminal.draw(|frame| draw(state, frame)).expect("drawn");
    terminal.backend().to_string()
}

#[test]
fn the_list_is_searched_and_filtered() {
    let mut state = state();
    insta::assert_snapshot!("list", screen(&state, 100, 7));
    typed(&mut state, "/2@P");
    insta::assert_snapshot!("search", screen(&state, 100, 7));
    press(&mut state, &[KeyCode::Enter]);
    insta::assert_snapshot!("found", screen(&state, 100, 7));
    press(&mut state, &[KeyCode::Esc]);

    // A filter that can't be read stays to be corrected.
    typed(&mut state, "fwho:me");
    press(&mut state, &[KeyCode::Enter]);
    assert!(state.notice.is_some() && state.prompt.is_some());
    for _ in 0.."who:me".len() {
        press(&mut state, &[KeyCode::Backspace]);
    }
    typed(&mut state, "agent:echo status:in_progress");
    press(&mut state, &[KeyCode::Enter]);
    insta::assert_snapshot!("filtered", screen(&state, 100, 7));
    press(&mut state, &[KeyCode::Char('c')]);
    assert_eq!(state.shown().len(), 3);
    assert_eq!(press(&mut state, &[KeyCode::Char('q')]), Some(Action::Quit));
}

#[test]
fn a_call_is_opened_to_its_messages_and_saved() {
    let mut state = state();
    let opened = press(&mut state, &[KeyCode::Enter]);
    assert_eq!(opened, Some(Action::Load(id(3))));
    insta::assert_snapshot!("opening", screen(&state, 100, 12));
    state.handle_trace(id(3), &trace());
    insta::assert_snapshot!("ladder", screen(&state, 100, 12));
    insta::assert_snapshot!("wide", screen(&state, 160, 12));
    press(&mut state, &[KeyCode::Enter]);
    insta::assert_snapshot!("message", screen(&state, 70, 14));
    press(&mut state, &[KeyCode::Right]);
    insta::assert_snapshot!("decision", screen(&state, 70, 6));

    typed(&mut state, "s");
    press(&mut state, &[KeyCode::Tab, KeyCode::Tab]);
    insta::assert_snapshot!("save", screen(&state, 100, 4));
    let saved = press(&mut state, &[KeyCode::Enter]);
    let file = format!("{}.txt", id(3)).into();
    assert_eq!(saved, Some(Action::Save { call: id(3), file }));
    press(&mut state, &[KeyCode::Esc, KeyCode::Esc]);
    insta::assert_snapshot!("back", screen(&state, 100, 6));
}

#[test]
fn an_open_call_follows_its_events_and_its_session() {
    let mut state = state();
    press(&mut state, &[KeyCode::Enter]);
    state.handle_trace(id(3), &trace());
    press(&mut state, &[KeyCode::End]);
    assert_eq!(state.live_call(), Some(id(3)));

    // An event of the open call has its trace read again; another call's doesn't.
    let over = json!({"status": "transferred", "ended_at": "2026-11-26T10:00:09Z"});
    assert_eq!(
        state.handle_event(&event("call.ringing", 4, json!({"status": "ringing"}))),
        None
    );
    let read = state.handle_event(&event("call.ended", 3, over));
    assert_eq!(read, Some(Action::Load(id(3))));
    assert_eq!(state.live_call(), None);

    // The selection was at the end, and stays there.
    let mut longer = trace();
    let last = longer["items"][6].clone();
    longer["items"].as_array_mut().expect("items").push(last);
    state.handle_trace(id(3), &longer);
    assert_eq!(state.open_call().map(|open| open.selected), Some(7));
    state.handle_trace(id(9), &trace());
    assert_eq!(
        state.open_call().map(|open| open.ladder.rungs.len()),
        Some(8)
    );

    let next = press(&mut state, &[KeyCode::Char('t')]);
    assert_eq!(next, Some(Action::Load(id(4))), "the next of its session");
}

#[test]
fn the_selection_stays_with_its_call_or_follows_the_newest() {
    let mut state = state();
    let selected = |state: &State| {
        let shown = state.shown();
        state.selection(&shown).map(|place| shown[place].id)
    };
    assert_eq!(selected(&state), Some(id(3)));

    state.handle_event(&event("call.started", 5, json!({"status": "queued"})));
    assert_eq!(selected(&state), Some(id(5)));

    press(&mut state, &[KeyCode::Up]);
    state.handle_event(&event("call.started", 6, json!({"status": "queued"})));
    assert_eq!(selected(&state), Some(id(3)));

    press(&mut state, &[KeyCode::Home, KeyCode::Up]);
    assert_eq!(selected(&state), Some(id(1)));

    press(&mut state, &[KeyCode::End]);
    state.handle_event(&event("call.started", 7, json!({"status": "queued"})));
    assert_eq!(selected(&state), Some(id(7)));
}

#[test]
fn a_small_terminal_is_drawn_too() {
    let mut state = state();
    for _ in 0..3 {
        for (width, height) in [(1, 1), (12, 3), (11, 9), (13, 9), (20, 2), (30, 8)] {
            screen(&state, width, height);
        }
        press(&mut state, &[KeyCode::Enter]);
        state.handle_trace(id(3), &trace());
    }
}
