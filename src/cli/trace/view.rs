//! The screen drawn from its state: the list of calls, the ladder of one, one message. It changes nothing.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

use trunkline_sip::header::text::printable;

use super::call::CallLine;
use super::state::{Connection, OpenCall, PromptKind, Screen, State};
use crate::explain::ladder::{Ladder, Party, Passed, Rung, RungContent, seconds};

/// Width from which the selected message is shown beside the ladder.
const WIDE: u16 = 130;
/// Columns of a ladder's times.
const TIMES: usize = 11;

/// Draws the whole screen.
pub(super) fn draw(state: &State, frame: &mut Frame<'_>) {
    let rows = [
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ];

    let [head, body, foot] = Layout::vertical(rows).areas(frame.area());
    frame.render_widget(title(state), head);
    match &state.screen {
        Screen::List => list(state, frame, body),
        Screen::Ladder(open) if body.width >= WIDE => {
            let columns = [
                Constraint::Percentage(60),
                Constraint::Length(2),
                Constraint::Fill(1),
            ];
            let [left, _, right] = Layout::horizontal(columns).areas(body);
            ladder(state, open, frame, left);
            message(open, 0, frame, right);
        }
        Screen::Ladder(open) => ladder(state, open, frame, body),
        Screen::Message(open, scrolled) => message(open, *scrolled, frame, body),
    }

    frame.render_widget(bottom(state), foot);
}

fn title(state: &State) -> Line<'static> {
    let mut words = vec![" trunkline trace ".to_owned()];
    match state.open_call() {
        Some(open) => words.push(format!("call {}", open.id)),
        None => {
            let (all, shown) = (state.calls.len(), state.shown().len());
            words.push(match all == shown {
                true => format!("{all} calls"),
                false => format!("{shown} of {all} calls"),
            });
            if !state.filter.is_empty() {
                words.push(format!("filter {}", state.filter));
            }
            if !state.search.is_empty() {
                words.push(format!("search {}", state.search));
            }
        }
    }

    match &state.connection {
        Connection::Opening => words.push("connecting".to_owned()),
        Connection::Open => {}
        Connection::Lost(fault) => words.push(fault.clone()),
    }
    let style = Style::new().add_modifier(Modifier::REVERSED);
    // Wider than any terminal, so that the bar reaches the edge.
    Line::styled(format!("{:<400}", words.join("  ")), style)
}

fn bottom(state: &State) -> Line<'static> {
    if let Some(notice) = &state.notice {
        return Line::styled(notice.clone(), Style::new().fg(Color::Yellow));
    }
    if let Some(prompt) = &state.prompt {
        let name = match prompt.kind {
            PromptKind::Search => "Search",
            PromptKind::Filter => {
                "Filter (number: agent: trunk: call-id: user-agent: status: direction:)"
            }
            PromptKind::Save(_) => "Save to (Tab: .pcap .flow .txt)",
        };
        return Line::from(format!("{name}: {}\u{2588}", prompt.text));
    }

    let keys = match state.screen {
        Screen::List => "↑↓ select  Enter messages  / search  f filter  c clear  s save  q quit",
        Screen::Ladder(_) => {
            "↑↓ select  Enter message  t next call of the session  s save  r reload  q back"
        }
        Screen::Message(..) => "↑↓ scroll  ←→ other messages  s save  q back",
    };
    Line::styled(keys, Style::new().fg(Color::DarkGray))
}

/// Rows from `first` that fit into `height`, with the selected one among them.
fn window(count: usize, selected: usize, height: usize) -> std::ops::Range<usize> {
    let first = selected.saturating_sub(height / 2);
    let first = first.min(count.saturating_sub(height));
    first..count.min(first + height)
}

fn list(state: &State, frame: &mut Frame<'_>, area: Rect) {
    let shown = state.shown();
    let selected = state.selection(&shown);
    let height = usize::from(area.height).saturating_sub(1);
    let head = row(["TIME", "DIR", "STATUS", "FROM", "TO", "AGENT", "OUTCOME"].map(str::to_owned));
    let mut lines = vec![Line::styled(
        head,
        Style::new().add_modifier(Modifier::BOLD),
    )];
    for place in window(shown.len(), selected.unwrap_or(0), height) {
        let call = shown[place];
        let style = match Some(place) == selected {
            true => Style::new().add_modifier(Modifier::REVERSED),
            false => Style::new().fg(color_of(call)),
        };
        lines.push(Line::styled(call_row(state, call), style));
    }

    frame.render_widget(Paragraph::new(lines), area);
}

fn color_of(call: &CallLine) -> Color {
    match call.status.as_str() {
        "queued" | "ringing" => Color::Cyan,
        "in_progress" => Color::Green,
        "refused" | "failed" | "lost" => Color::Red,
        _ => Color::Reset,
    }
}

fn call_row(state: &State, call: &CallLine) -> String {
    let direction = match call.direction.as_str() {
        "outbound" => "out",
        _ => "in",
    };
    let agent = call.agent.map(|agent| {
        let name = state.names.get(&agent).cloned();
        name.unwrap_or_else(|| agent.to_string()[24..].to_owned())
    });
    let mut outcome = call.outcome();
    if let Some(transfer) = &call.transfer {
        outcome.push_str(&format!(" to {}", transfer.destination));
    }

    let time = call.started_at.get(11..23).unwrap_or(&call.started_at);
    row([
        time.to_owned(),
        direction.to_owned(),
        call.status.clone(),
        call.from.clone(),
        call.to.clone(),
        agent.unwrap_or_default(),
        outcome,
    ])
}

fn row(cells: [String; 7]) -> String {
    const WIDTHS: [usize; 7] = [12, 3, 11, 16, 16, 14, 200];
    let cells = cells.iter().zip(WIDTHS);
    let cells = cells.map(|(cell, width)| format!("{:<width$}", cut(cell, width)));
    cells.collect::<Vec<_>>().join(" ")
}

/// The text, shortened to a width.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}…")
}

fn ladder(state: &State, open: &OpenCall, frame: &mut Frame<'_>, area: Rect) {
    let width = usize::from(area.width);
    let parties = open.ladder.parties();
    let columns = columns(parties.len(), width);

    let mut lines = vec![Line::from(summary(state, open))];
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let names: Vec<&str> = parties.iter().map(|party| party.name()).collect();
    lines.push(Line::styled(centred(&names, &columns, width), bold));
    let shown: Vec<String> = parties
        .iter()
        .map(|party| address_of(&open.ladder, *party))
        .collect();
    let addresses: Vec<&str> = shown.iter().map(String::as_str).collect();
    lines.push(Line::from(centred(&addresses, &columns, width)));

    let rungs = &open.ladder.rungs;
    let height = usize::from(area.height).saturating_sub(lines.len());
    for place in window(rungs.len(), open.selected, height) {
        let text = line_of(open, &rungs[place], &columns, width);
        let style = match place == open.selected {
            true => Style::new().add_modifier(Modifier::REVERSED),
            false => style_of(&rungs[place]),
        };
        lines.push(Line::styled(text, style));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

/// Address of a peer, by its first message.
fn address_of(ladder: &Ladder, party: Party) -> String {
    let mut messages = ladder.rungs.iter().filter_map(Rung::message);
    let message = messages.find(|message| message.peer == party);
    message.map_or_else(String::new, |message| printable(message.peer_address()))
}

/// The call in one line above its ladder.
fn summary(state: &State, open: &OpenCall) -> String {
    let Some(call) = state.calls.one(open.id) else {
        return match open.is_loaded {
            true => String::new(),
            false => "…".to_owned(),
        };
    };

    let mut words = vec![format!("{} → {}", call.from, call.to), call.status.clone()];
    words.push(call.outcome());
    if let Some(transfer) = &call.transfer {
        words.push(format!("to {}", transfer.destination));
    }

    words.extend(call.user_agent.clone());
    words.extend(call.call_ids.first().map(|id| format!("Call-ID {id}")));
    if !open.is_complete {
        words.push("some messages are missing".to_owned());
    }

    words.retain(|word| !word.is_empty());
    words.join("  ")
}

/// Middle of each party's column.
fn columns(parties: usize, width: usize) -> Vec<usize> {
    let space = width.saturating_sub(TIMES);
    let middle = |party: usize| TIMES + space * (2 * party + 1) / (2 * parties);
    (0..parties).map(middle).collect()
}

/// Line with each text in the middle of its column, cut to the column's width.
fn centred(texts: &[&str], columns: &[usize], width: usize) -> String {
    let room = width.saturating_sub(TIMES) / columns.len().max(1);
    let mut line = vec![' '; width];
    for (text, column) in texts.iter().zip(columns) {
        let text = cut(text, room.saturating_sub(1));
        put(
            &mut line,
            column.saturating_sub(text.chars().count() / 2),
            &text,
        );
    }
    line.into_iter().collect()
}

/// Writes over a part of a line, as far as it reaches.
fn put(line: &mut [char], at: usize, text: &str) {
    for (cell, char) in line.iter_mut().skip(at).zip(text.chars()) {
        *cell = char;
    }
}

/// One line of the ladder.
fn line_of(open: &OpenCall, rung: &Rung, columns: &[usize], width: usize) -> String {
    let mut line = vec![' '; width];
    put(&mut line, 0, &offset(open, rung));

    match &rung.content {
        RungContent::Decision(text) => {
            let text = cut(&printable(text), width.saturating_sub(TIMES + 2));
            put(&mut line, TIMES, &format!("* {text}"));
        }
        RungContent::Message(message) => {
            for column in columns {
                put(&mut line, *column, "│");
            }
            arrow(&mut line, message, columns);
        }
    }
    line.into_iter().collect()
}

/// Draws a message between the columns of its sender and its receiver, with its summary in the middle.
fn arrow(line: &mut [char], message: &Passed, columns: &[usize]) {
    let (from, to) = message.ends();
    let ends = [from, to].map(|party| columns.get(party as usize).copied());
    let [Some(from), Some(to)] = ends else { return };
    let (left, right) = (from.min(to) + 1, from.max(to));
    // In a narrow terminal both columns may be the same.
    if right <= left {
        return;
    }

    let sdp = if message.has_sdp() { " (SDP)" } else { "" };
    let room = right.saturating_sub(left + 4);
    let label = cut(&format!("{}{sdp}", printable(&message.summary)), room);

    put(line, left, &"─".repeat(right.saturating_sub(left)));
    let middle = left + (right - left).saturating_sub(label.chars().count() + 2) / 2;
    put(line, middle, &format!(" {label} "));
    match from < to {
        true => put(line, right - 1, "▶"),
        false => put(line, left, "◀"),
    }
}

/// Time since the first rung.
fn offset(open: &OpenCall, rung: &Rung) -> String {
    format!("{:>9}", seconds(open.ladder.passed(rung)))
}

fn style_of(rung: &Rung) -> Style {
    let color = match &rung.content {
        RungContent::Decision(_) => Color::Yellow,
        RungContent::Message(message) => match message.status() {
            None => Color::Cyan,
            Some(..300) => Color::Green,
            Some(300..400) => Color::Magenta,
            Some(_) => Color::Red,
        },
    };
    Style::new().fg(color)
}

/// The selected message with its SDP, and the decisions that follow it.
fn message(open: &OpenCall, scrolled: usize, frame: &mut Frame<'_>, area: Rect) {
    let Some(rung) = open.selected_rung() else {
        return;
    };
    let decision = |text: &str| {
        let style = Style::new().fg(Color::Yellow);
        Line::styled(format!("* {}", printable(text)), style)
    };

    let mut lines = Vec::new();
    match &rung.content {
        RungContent::Decision(text) => lines.push(decision(text)),
        RungContent::Message(message) => {
            let (from, to) = message.ends();
            let [transport, source, destination] =
                [&message.transport, &message.source, &message.destination]
                    .map(|text| printable(text));
            lines.push(Line::styled(
                format!(
                    "{}  {} → {}  {transport} {source} → {destination}",
                    offset(open, rung).trim_start(),
                    from.name(),
                    to.name()
                ),
                Style::new().add_modifier(Modifier::BOLD),
            ));
            lines.extend(message_lines(message));

            let later = open.ladder.rungs.iter().skip(open.selected + 1);
            let following = later.map_while(|rung| match &rung.content {
                RungContent::Decision(text) => Some(decision(text)),
                RungContent::Message(_) => None,
            });
            lines.push(Line::default());
            lines.extend(following);
        }
    }

    let first = scrolled.min(lines.len().saturating_sub(1));
    let text = Paragraph::new(lines.split_off(first)).wrap(Wrap { trim: false });
    frame.render_widget(text, area);
}

fn message_lines(message: &Passed) -> Vec<Line<'static>> {
    let sdp = Style::new().fg(Color::Green);
    let lines: Vec<String> = message.text.lines().map(printable).collect();
    let head = lines.iter().position(String::is_empty);
    let head = head.unwrap_or(lines.len());

    let lines = lines.into_iter().enumerate();
    let styled = lines.map(|(place, line)| match line.split_once(':') {
        _ if place > head => Line::styled(line, sdp),
        Some((name, value)) if place > 0 => Line::from(vec![
            Span::styled(format!("{name}:"), Style::new().fg(Color::Cyan)),
            Span::raw(value.to_owned()),
        ]),
        _ => Line::styled(line, Style::new().add_modifier(Modifier::BOLD)),
    });
    styled.collect()
}
