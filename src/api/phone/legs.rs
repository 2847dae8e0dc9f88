//! Finds the SIP messages of a call in the traces: those of its caller, of the runtimes that were called, of a transfer
//! destination called from here, and of a leg that replaced the caller's. Reads files.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;
use trunkline_capture::Captured;
use trunkline_capture::message::Message as Sip;
use trunkline_model::record::Direction;
use trunkline_sip::moment::Moment;
use trunkline_store::{Call, transfers};

use crate::api::{Api, ApiError};
use crate::traces::dialog::PeerDialog;
use crate::traces::show::masked;
use crate::traces::successor::Successor;
use crate::traces::{FoundMessages, Traces};

/// Time from the call's beginning within which a runtime is called.
const SET_UP_TIME: Duration = Duration::from_secs(120);
/// Time before the record's beginning that may hold a challenge and its answer, and time after its end that may hold
/// retransmitted answers.
const BEFORE: Duration = Duration::from_secs(40);
const AFTER: Duration = Duration::from_secs(40);
/// Maximum number of legs of each kind; with more, the trace counts as incomplete.
const MAX_LEGS: usize = 8;
/// Traces read at once. One may search every file of a long call and holds megabytes; further requests wait.
static READERS: Semaphore = Semaphore::const_new(4);
/// Longest wait of a request for its turn, after which it is refused with 503. A node that sent the request waits longer than this. Until
/// then the request takes one of the places for commands of other nodes (see `remote`).
const PATIENCE: Duration = Duration::from_secs(5);

/// Message with its leg.
#[derive(Clone, Debug)]
pub(super) struct Message {
    /// `caller`, `runtime` or `destination`.
    pub(super) name: &'static str,
    pub(super) is_sent: bool,
    pub(super) captured: Captured,
}

/// Reads the messages that this node has, on a thread that may wait for the disk. Returns the call, its messages, and true if
/// none is missing.
pub(super) async fn messages_here(
    api: &Api,
    call: Call,
) -> Result<(Call, Vec<Message>, bool), ApiError> {
    let Some(engine) = api.engine() else {
        return Ok((call, Vec::new(), true));
    };

    let transferred_at = match call.transfer {
        Some(_) => {
            let (org, id) = (call.org_id, call.id);
            let first = move |tx: &mut _| transfers::first_requested_at(tx, org, id);
            api.store().read(first).await?
        }
        None => None,
    };

    let traces = Arc::clone(engine.traces());
    let session_header = format!("{}-SESSION-ID", api.config().sip.header_prefix);
    let now = api.now();
    // Before the blocking thread is taken: waiting requests must not use up the runtime's threads.
    let permit = match timeout(PATIENCE, READERS.acquire()).await {
        Ok(permit) => permit.map_err(|fault| ApiError::Broke(fault.into()))?,
        Err(_) => {
            return Err(ApiError::Unavailable {
                message: "Other traces are being read".to_owned(),
                wait_s: PATIENCE.as_secs(),
            });
        }
    };
    let read = tokio::task::spawn_blocking(move || {
        // Kept until the search ends, although the client may have gone by then.
        let _permit = permit;
        let search = Search {
            traces: &traces,
            call: &call,
            session_header: &session_header,
            transferred_at,
        };
        let (legs, is_complete) = legs(&search, now);
        (call, legs, is_complete)
    });
    read.await.map_err(|fault| ApiError::Broke(fault.into()))
}

/// Call whose legs are searched for.
struct Search<'s> {
    traces: &'s Traces,
    call: &'s Call,
    /// Header that names the session in our INVITEs.
    session_header: &'s str,
    /// Time of the request for the first of the call's transfers.
    transferred_at: Option<Moment>,
}

/// Returns all legs in order of time, with credentials hidden, and whether all messages are included.
fn legs(search: &Search<'_>, now: Moment) -> (Vec<Message>, bool) {
    let (traces, call) = (search.traces, search.call);
    let from = call.started_at - BEFORE;
    let until = call.ended_at.unwrap_or(now) + AFTER;

    let mut is_cut = false;
    let called = called(search, now, &mut is_cut);
    let call_ids: Vec<&str> = std::iter::once(&*call.caller_call_id)
        .chain(called.iter().map(|(_, id)| &**id))
        .collect();

    let FoundMessages {
        messages,
        is_cut: is_long,
    } = traces.of(&call_ids, from, until);
    is_cut |= is_long;

    let mut of_caller = Vec::new();

    let mut legs: Vec<Message> = Vec::with_capacity(messages.len());
    for (is_sent, captured) in messages {
        let id = Sip::parse(&captured.octets)
            .first("Call-ID")
            .unwrap_or_default();
        match called.iter().find(|(_, known)| *known == id) {
            Some((name, _)) if id != call.caller_call_id => {
                legs.push(shown(name, is_sent, captured));
            }
            Some(_) | None => of_caller.push((is_sent, captured)),
        }
    }

    // The caller chose its Call-ID, and a caller of another org may use the same: only this call's dialog is shown. The
    // Call-ID of an outbound call is ours.
    if call.direction == Direction::Inbound {
        of_caller = of_one_dialog(of_caller, call.started_at.as_micros());
    }

    // A leg that replaced the caller's may have been replaced in its turn.
    for count in 0.. {
        let successor = Successor::find(traces, &of_caller, call.ended_at);
        let Some(successor) = readable(successor, &mut is_cut) else {
            break;
        };
        if count == MAX_LEGS {
            is_cut = true;
            break;
        }
        let FoundMessages {
            messages,
            is_cut: is_long,
        } = traces.of(&[&successor.call_id], successor.from, until);
        is_cut |= is_long;
        let own = of_one_dialog(messages, successor.began);
        if own.is_empty() {
            break;
        }
        let before = std::mem::replace(&mut of_caller, own);
        legs.extend(before.into_iter().map(of("caller")));
    }

    legs.extend(of_caller.into_iter().map(of("caller")));
    legs.sort_by_key(|leg| leg.captured.at);
    (legs, !is_cut)
}

/// Returns what was read; nothing, and marks the trace as cut, if a file can't be read.
fn readable<T: Default>(read: io::Result<T>, is_cut: &mut bool) -> T {
    read.unwrap_or_else(|fault| {
        tracing::warn!(%fault, "a trace can't be read");
        *is_cut = true;
        T::default()
    })
}

fn of(name: &'static str) -> impl Fn((bool, Captured)) -> Message {
    move |(is_sent, captured)| shown(name, is_sent, captured)
}

fn shown(name: &'static str, is_sent: bool, mut captured: Captured) -> Message {
    captured.octets = masked(&captured.octets);
    Message {
        name,
        is_sent,
        captured,
    }
}

/// Finds the legs that we called, as names and Call-IDs. Each of our INVITEs names the session.
fn called(search: &Search<'_>, now: Moment, is_cut: &mut bool) -> Vec<(&'static str, String)> {
    let (traces, call) = (search.traces, search.call);
    // Exactly as we write it; no caller's header passes in this form.
    let session = format!("\r\n{}: {}\r\n", search.session_header, call.session_id);
    let mut begun = |from: Moment, until: Moment| {
        let begun = traces.begun(session.as_bytes(), from, until);
        let mut begun = readable(begun, is_cut);
        *is_cut |= begun.len() > MAX_LEGS;
        begun.truncate(MAX_LEGS);
        begun
    };

    // Runtimes that were tried before the one that answered, or that never answered.
    let set_up = call
        .answered_at
        .or(call.ended_at)
        .unwrap_or(now)
        .min(call.started_at + SET_UP_TIME);
    let mut called: Vec<(&'static str, String)> = begun(call.started_at, set_up)
        .into_iter()
        .map(|id| ("runtime", id))
        .collect();

    let answered = call.runtime_call_id.clone().filter(|id| !id.is_empty());
    called.extend(answered.map(|id| ("runtime", id)));
    // A transfer that ends as REFER may have begun as a bridge, and an earlier transfer may have been a bridge. No runtime is called any more
    // by then, so these legs are destinations.
    if let Some(from) = search.transferred_at {
        let last = call.transfer.as_ref();
        let until = last.and_then(|last| last.ended_at).unwrap_or(now);
        let destinations = begun(from, until).into_iter();
        called.extend(destinations.map(|id| ("destination", id)));
    }

    let mut known: Vec<String> = Vec::new();
    called.retain(|(_, id)| {
        let is_new = !known.contains(id);
        known.push(id.clone());
        is_new
    });

    called
}

/// Keeps the messages of one dialog, which began at this time.
fn of_one_dialog(mut messages: Vec<(bool, Captured)>, began: u64) -> Vec<(bool, Captured)> {
    let Some(dialog) = PeerDialog::find(&messages, began) else {
        return Vec::new();
    };
    messages.retain(|(is_sent, captured)| dialog.holds(*is_sent, captured));
    messages
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use trunkline_sip::flow::{Flow, Transport};

    use super::*;
    use crate::api::phone::call_that_is_up;
    use crate::traces::Tap;

    const BEGAN: Moment = Moment::from_secs(1_000);

    fn clock() -> Moment {
        Moment::from_secs(1_100)
    }

    /// Notes a message between us and the peer of this number.
    fn note(tap: &mut Tap, seconds: u64, peer: u16, is_sent: bool, text: &str) {
        let flow = Flow {
            transport: Transport::Udp,
            listener: 0,
            connection: 0,
            local: SocketAddr::from(([127, 0, 0, 1], 5060)),
            peer: SocketAddr::from(([127, 0, 0, 1], 6000 + peer)),
        };
        let at = BEGAN + Duration::from_secs(seconds);
        tap.note(at, flow, is_sent, format!("{text}\r\n\r\n").as_bytes());
        tap.hand_on();
    }

    /// Returns the number of messages that are found, and whether none is missing.
    fn found(traces: &Traces, call: &Call) -> (usize, bool) {
        let search = Search {
            traces,
            call,
            session_header: "X-SESSION-ID",
            transferred_at: None,
        };
        let (messages, is_complete) = legs(&search, clock());
        (messages.len(), is_complete)
    }

    #[test]
    fn a_trace_without_some_of_the_runtimes_is_not_complete() {
        let traces = Traces::new(1, None, None, clock).expect("traces");
        let (call, mut tap) = (call_that_is_up(1, BEGAN), traces.tap(0));

        for leg in 1..=MAX_LEGS + 1 {
            let session = call.session_id;
            let invite = format!(
                "INVITE sip:r SIP/2.0\r\nCall-ID: runtime {leg}\r\nX-SESSION-ID: {session}"
            );
            note(&mut tap, leg as u64, 0, true, &invite);
            assert_eq!(
                found(&traces, &call),
                (leg.min(MAX_LEGS), leg <= MAX_LEGS),
                "{leg}"
            );
        }
    }

    #[test]
    fn a_trace_without_some_of_the_replaced_legs_is_not_complete() {
        let traces = Traces::new(1, None, None, clock).expect("traces");
        let (call, mut tap) = (call_that_is_up(1, BEGAN), traces.tap(0));

        // The first leg is the caller's, and each later one replaces the one before it.
        for leg in 0..=MAX_LEGS + 1 {
            let (seconds, peer) = (2 * leg as u64, u16::try_from(leg).expect("a port"));
            let tags = format!(
                "Call-ID: caller {leg}\r\nFrom: <sip:a@h>;tag=theirs{leg}\r\nTo: <sip:b@h>"
            );
            let replaces = leg.checked_sub(1).map_or_else(String::new, |before| {
                format!("\r\nReplaces: caller {before};to-tag=ours{before};from-tag=theirs{before}")
            });
            let invite = format!("INVITE sip:b SIP/2.0\r\n{tags}{replaces}");
            note(&mut tap, seconds, peer, false, &invite);
            let answer = format!("SIP/2.0 200 OK\r\n{tags};tag=ours{leg}");
            note(&mut tap, seconds, peer, true, &answer);
            if let Some(before) = leg.checked_sub(1) {
                let bye = format!(
                    "BYE sip:a SIP/2.0\r\nCall-ID: caller {before}\r\nFrom: <sip:b@h>;tag=ours{before}\r\nTo: <sip:a@h>;tag=theirs{before}"
                );
                note(&mut tap, seconds + 1, peer - 1, true, &bye);
            }
            let shown = leg.min(MAX_LEGS);
            let byes = leg.min(MAX_LEGS + 1);
            assert_eq!(
                found(&traces, &call),
                (2 * (shown + 1) + byes, leg <= MAX_LEGS),
                "{leg}"
            );
        }
    }
}
