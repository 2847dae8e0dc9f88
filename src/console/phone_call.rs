//! The phone's call: a WebSocket from the page (RFC 6455). Binary messages are 20 ms of G.711 µ-law each way, text messages are JSON.
//!
//! A session with the right to change things is the credential, and is checked again during the call. A browser that breaks a rule, doesn't read, or
//! has disconnected ends only its own call.

use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{
    CloseCode, CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade, close_code,
};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use trunkline_bounds::Holder;
use trunkline_calls::Reason;
use trunkline_net::media::AudioFrame;
use trunkline_sip::moment::Moment;
use trunkline_store::{Acting, AuditedAction, audit, sessions};
use uuid::Uuid;

use super::page::ErrorPage;
use super::visitor::Visitor;
use crate::api::{Api, client, dashboard_session};
use crate::engine::{BrowserCall, BrowserCallee, BrowserCommand, BrowserEvent, BrowserOrder};

/// Limits on browsers' calls: on this node, and of one org. A session has one.
const CALLS: usize = 128;
const CALLS_OF_ORG: usize = 16;

/// Longest message of a browser in octets; a longer one ends the call.
const MAX_MESSAGE: usize = 512;
/// Most octets that wait to be written to a browser. One for which more would wait counts as gone.
const MAX_UNSENT: usize = 64 * 1024;
/// Burst of messages that a browser may send, and their rate per second after it; more end the call. Audio alone is fifty a second.
const AT_ONCE: u32 = 200;
const A_SECOND: u32 = 100;
/// Most keys that one message may press; a message with more ends the call.
const MAX_KEYS: usize = 32;
/// Longest number in characters, with its plus sign; a longer one ends the call.
const MAX_NUMBER: usize = 40;

/// Time for the page to name the callee; without a name the WebSocket is then closed.
const FIRST_WORD: Duration = Duration::from_secs(5);
/// Time that a write may take: a browser that reads more slowly has no use for audio.
const WRITE: Duration = Duration::from_secs(5);
/// Time in which a browser answers the end of its WebSocket (RFC 6455 §7.1.1), and the messages that may still be on their way.
const FAREWELL: Duration = Duration::from_secs(2);
const ON_THEIR_WAY: usize = 500;
/// Interval of pings, and of checks of the session, and the silence after which a browser has gone.
const CHECK: Duration = Duration::from_secs(3);
const SILENCE: Duration = Duration::from_secs(12);

/// Calls of browsers that are up; clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Phones(Arc<Mutex<HashMap<[u8; 32], Uuid>>>);

/// Place of one call, released when dropped.
#[derive(Debug)]
struct Place {
    phones: Phones,
    session: [u8; 32],
}

/// Bound that forbids another call.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Full {
    Session,
    Org,
    Node,
}

impl Phones {
    fn enter(&self, session: [u8; 32], org: Uuid) -> Result<Place, Full> {
        let mut open = self.open();
        if open.contains_key(&session) {
            return Err(Full::Session);
        }
        if open.values().filter(|of| **of == org).count() >= CALLS_OF_ORG {
            return Err(Full::Org);
        }
        if open.len() >= CALLS {
            return Err(Full::Node);
        }

        open.insert(session, org);
        Ok(Place {
            phones: self.clone(),
            session,
        })
    }

    fn open(&self) -> MutexGuard<'_, HashMap<[u8; 32], Uuid>> {
        self.0.lock().expect("nothing panics while it is held")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.phones.open().remove(&self.session);
    }
}

/// Text message of a page.
#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "snake_case", deny_unknown_fields)]
enum Word {
    Call {
        agent_id: Option<Uuid>,
        to: Option<String>,
    },
    Digits {
        digits: String,
    },
    HangUp {},
}

/// `GET /dashboard/{org_id}/phone/call`: a WebSocket that is one call.
pub(super) async fn open(
    State(api): State<Api>,
    visitor: Visitor,
    Extension(phones): Extension<Phones>,
    parts: Parts,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, ErrorPage> {
    visitor.must_write()?;
    // A page of another site may open a WebSocket with this cookie; browsers always send Origin with one.
    let has_origin = parts.headers.contains_key(header::ORIGIN);
    if !has_origin || !dashboard_session::is_own(&parts, &api) {
        return Err(ErrorPage::new(
            StatusCode::FORBIDDEN,
            "That call did not come from the console",
            "Open the phone's page, and call from there.",
        ));
    }

    let upgrade = upgrade.map_err(|_| {
        ErrorPage::new(
            StatusCode::UPGRADE_REQUIRED,
            "That is a WebSocket",
            "Open the phone's page, and call from there.",
        )
    })?;
    let place = phones
        .enter(visitor.session.hash, visitor.org)
        .map_err(too_many)?;
    let address = client::address(&parts, &api.config().http.trusted_proxies);
    let upgrade = upgrade
        .max_message_size(MAX_MESSAGE)
        .max_frame_size(MAX_MESSAGE)
        // Each message is written at once: buffered audio would come late. Unsent octets are bounded all the same.
        .write_buffer_size(0)
        .max_write_buffer_size(MAX_UNSENT);

    Ok(upgrade.on_upgrade(move |socket| async move {
        let mut line = Line {
            socket,
            allowance: Allowance::new(api.monotonic()),
            heard_at: api.monotonic(),
            is_recorded: false,
            api,
            visitor,
            address,
        };
        let end = line.serve().await;
        // The next call may begin while the browser still learns of this one's end.
        drop(place);
        line.close(end).await;
    }))
}

fn too_many(full: Full) -> ErrorPage {
    let (title, text) = match full {
        Full::Session => (
            "You are in a call already",
            "A session has one call. Hang up on the other page first.",
        ),
        Full::Org | Full::Node => (
            "Too many people call from this page",
            "Try again when one of them has hung up.",
        ),
    };
    ErrorPage::new(StatusCode::TOO_MANY_REQUESTS, title, text)
}

/// Messages that a browser may still send.
#[derive(Debug)]
struct Allowance {
    left: u32,
    filled_at: Moment,
}

impl Allowance {
    const fn new(now: Moment) -> Self {
        Self {
            left: AT_ONCE,
            filled_at: now,
        }
    }

    /// Takes a message; false if there were too many.
    fn takes(&mut self, now: Moment) -> bool {
        let gained = now.since(self.filled_at).as_millis() * u128::from(A_SECOND) / 1_000;
        if gained > 0 {
            self.filled_at = now;
            let gained = u32::try_from(gained).unwrap_or(AT_ONCE);
            self.left = self.left.saturating_add(gained).min(AT_ONCE);
        }

        let is_left = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_left
    }
}

/// End of a WebSocket, as reported to the browser.
#[derive(Debug)]
enum End {
    /// The call is over, and the page knows.
    Over,
    /// The browser broke a rule.
    Broken(&'static str),
    /// The browser sent octets that can't be read further, with the code for it.
    Unreadable(CloseCode),
    /// The session has ended, or may call no more.
    LoggedOut,
    /// The browser has gone, or doesn't read.
    Gone,
}

/// A browser's WebSocket.
struct Line {
    socket: WebSocket,
    allowance: Allowance,
    /// Time at which the browser was last heard.
    heard_at: Moment,
    /// True once the call has its audit entry.
    is_recorded: bool,
    api: Api,
    visitor: Visitor,
    address: Option<IpAddr>,
}

impl Line {
    /// Closes the WebSocket.
    async fn close(mut self, end: End) {
        let (code, reason) = match end {
            End::Over => (close_code::NORMAL, "The call is over."),
            End::Broken(why) => (close_code::POLICY, why),
            End::Unreadable(code) => (code, "That is no message of the page."),
            End::LoggedOut => (close_code::POLICY, "Your session has ended."),
            // A browser that has disconnected gets nothing.
            End::Gone => return,
        };

        let close = Message::Close(Some(CloseFrame {
            code,
            reason: Utf8Bytes::from_static(reason),
        }));
        // The connection ends in any case.
        if self.send(close).await.is_err() {
            return;
        }
        match end {
            // Nothing is read from the WebSocket any more, not even the browser's close frame.
            End::Unreadable(_) => sleep(FAREWELL).await,
            End::Over | End::Broken(_) | End::LoggedOut | End::Gone => {
                let _ = timeout(FAREWELL, self.read_rest()).await;
            }
        }
    }

    /// Reads what the browser sent before it learned of the end. TCP resets a connection that is closed with unread octets, and a reset discards what
    /// the browser has not read yet: the end of the call and its reason.
    async fn read_rest(&mut self) {
        for _ in 0..ON_THEIR_WAY {
            if !matches!(self.socket.recv().await, Some(Ok(_))) {
                return;
            }
        }
    }

    /// Runs the call to its end.
    async fn serve(&mut self) -> End {
        let callee = match timeout(FIRST_WORD, self.callee()).await {
            Ok(Ok(callee)) => callee,
            Ok(Err(end)) => return end,
            Err(_) => return End::Broken("The page did not say whom to call."),
        };

        let call = match self.begin(callee) {
            Ok(call) => call,
            Err(refusal) => {
                let sent = self.say(&refusal).await;
                return sent.err().unwrap_or(End::Over);
            }
        };
        self.carry(call).await
    }

    /// Waits for the first message, which names the callee.
    async fn callee(&mut self) -> Result<BrowserCallee, End> {
        loop {
            let received = self.socket.recv().await;

            match self.read(received)? {
                Some(Read::Word(Word::Call {
                    agent_id: Some(agent),
                    to: None,
                })) => return Ok(BrowserCallee::Agent(agent)),
                Some(Read::Word(Word::Call {
                    agent_id: None,
                    to: Some(number),
                })) if is_number(&number) => return Ok(BrowserCallee::Number(number.into())),
                Some(Read::Word(Word::Call { .. })) => {
                    return Err(End::Broken("Name an agent, or a number of digits."));
                }
                Some(Read::Word(Word::HangUp {})) => return Err(End::Over),
                Some(Read::Word(Word::Digits { .. }) | Read::Audio(_)) => {
                    return Err(End::Broken("The call has not begun."));
                }
                None => {}
            }
        }
    }

    /// Begins the call, or returns the reason for which there is none.
    fn begin(&self, callee: BrowserCallee) -> Result<BrowserCall, Value> {
        let org = self.visitor.org;
        let refusal = |code: &str, sentence: &str| json!({"event": "ended", "code": code, "sentence": sentence});
        let view = self.api.directory().load();
        let known = view.org(org);
        if let BrowserCallee::Agent(agent) = callee
            && known.is_none_or(|org| org.routing.agents.iter().all(|own| own.id != agent))
        {
            return Err(refusal("not_found", "There is no such agent."));
        }

        let Some(engine) = self.api.engine() else {
            return Err(refusal("draining", "This node takes no calls."));
        };
        let name = &self.visitor.session.record.name;
        let order = BrowserOrder {
            holder: known.map_or(Holder::alone(org), |org| org.holder()),
            callee,
            name: name.as_str().into(),
        };
        engine.call_from_browser(order).map_err(|none| {
            let reason = Reason::from(none);
            refusal(reason.code(), reason.sentence())
        })
    }

    /// Carries audio and words between the browser and its call, until either ends.
    async fn carry(&mut self, mut call: BrowserCall) -> End {
        let end = self.exchange(&mut call).await;

        // Dropping the other channels hangs up. The call's `Began` may still be unread, and the audit log needs it.
        let BrowserCall {
            mut events,
            audio,
            commands,
        } = call;
        drop((audio, commands));
        let began = async {
            while !self.is_recorded
                && let Some(event) = events.recv().await
            {
                if let BrowserEvent::Began(call) = event {
                    self.record(call);
                }
            }
        };
        let _ = timeout(FAREWELL, began).await;

        end
    }

    /// Passes audio and words on. Nothing here waits for the database, since audio would wait too.
    async fn exchange(&mut self, call: &mut BrowserCall) -> End {
        let mut checks = interval(CHECK);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // One future for the whole call: made anew in each turn, its timer would begin again with every frame.
        let mut session = pin!(self.session_ends());

        loop {
            let done = tokio::select! {
                () = &mut session => Err(End::LoggedOut),
                received = self.socket.recv() => match self.read(received) {
                    Ok(Some(read)) => self.hear(call, read),
                    Ok(None) => Ok(()),
                    Err(end) => Err(end),
                },
                // Without audio left, this branch is off: the end of the call comes by `events`.
                Some(frame) = call.audio.heard.recv() => {
                    self.send(Message::Binary(frame.to_vec().into())).await
                }
                event = call.events.recv() => match event {
                    Some(event) => self.tell(event).await,
                    None => Err(End::Over),
                },
                _ = checks.tick() => self.check().await,
            };
            if let Err(end) = done {
                return end;
            }
        }
    }

    /// Reads a message; `None` for one that only shows that the browser is connected.
    fn read(
        &mut self,
        received: Option<Result<Message, axum::Error>>,
    ) -> Result<Option<Read>, End> {
        let message = match received {
            Some(Ok(message)) => message,
            Some(Err(fault)) => return Err(end_by(fault)),
            None => return Err(End::Gone),
        };
        let now = self.api.monotonic();
        self.heard_at = now;
        if !self.allowance.takes(now) {
            return Err(End::Broken("Too many messages."));
        }

        match message {
            Message::Binary(octets) => match AudioFrame::try_from(&*octets) {
                Ok(frame) => Ok(Some(Read::Audio(Box::new(frame)))),
                Err(_) => Err(End::Broken("A frame of audio has 160 octets.")),
            },
            Message::Text(text) => match serde_json::from_str(&text) {
                Ok(word) => Ok(Some(Read::Word(word))),
                Err(_) => Err(End::Broken("That message is not known.")),
            },
            Message::Ping(_) | Message::Pong(_) => Ok(None),
            Message::Close(_) => Err(End::Gone),
        }
    }

    /// Passes audio or a command of the browser to its call.
    fn hear(&self, call: &BrowserCall, read: Read) -> Result<(), End> {
        match read {
            Read::Audio(frame) => {
                // A frame beyond the queue is lost, as one on the network would be.
                let _ = call.audio.spoken.try_send(*frame);
                Ok(())
            }
            Read::Word(Word::Digits { digits }) if is_keys(&digits) => {
                // Keys beyond the queue are lost: no person presses that many.
                let _ = call.commands.try_send(BrowserCommand::Press(digits.into()));
                Ok(())
            }
            Read::Word(Word::HangUp {}) => {
                // Where there is no room, the end of this WebSocket hangs up.
                let asked = call.commands.try_send(BrowserCommand::HangUp);
                asked.map_err(|_| End::Over)
            }
            Read::Word(Word::Call { .. }) => Err(End::Broken("The call has begun already.")),
            Read::Word(Word::Digits { .. }) => Err(End::Broken("That is no key.")),
        }
    }

    /// Reports an event of the call to the browser. The first one names the call, which then gets its audit entry.
    async fn tell(&mut self, event: BrowserEvent) -> Result<(), End> {
        let message = match event {
            BrowserEvent::Began(call) => {
                self.record(call);
                json!({"event": "began", "call_id": call})
            }
            BrowserEvent::Ringing => json!({"event": "ringing"}),
            BrowserEvent::Answered => json!({"event": "answered"}),
            BrowserEvent::NoAudio(sentence) => json!({"event": "no_audio", "sentence": sentence}),
            BrowserEvent::Ended {
                status,
                code,
                sentence,
            } => {
                json!({"event": "ended", "status": status, "code": code, "sentence": sentence})
            }
        };

        self.say(&message).await
    }

    /// Writes the call into the audit log, with the session that made it, on a task of its own.
    fn record(&mut self, call: Uuid) {
        self.is_recorded = true;
        let session = &self.visitor.session.record;
        let acting = Acting::new(AuditedAction {
            at: self.api.now(),
            address: self.address,
            action: "GET /dashboard/{org_id}/phone/call".to_owned(),
            resource: "call",
            resource_id: Some(call),
            request_id: None,
        });
        let actor = session.actor();
        let org = Some(session.org_id);

        let store = self.api.store().clone();
        tokio::spawn(async move {
            acting
                .clone()
                .scope(async { Acting::by(actor, org, None) })
                .await;
            if let Err(error) = audit::record(&store, acting).await {
                let error = &error as &dyn std::error::Error;
                tracing::error!(error, call.id = %call, "writing the audit entry of a browser's call failed");
            }
        });
    }

    /// Sends a ping, and checks that the browser is still there.
    async fn check(&mut self) -> Result<(), End> {
        if self.api.monotonic().since(self.heard_at) >= SILENCE {
            return Err(End::Gone);
        }
        self.send(Message::Ping(axum::body::Bytes::new())).await
    }

    /// Waits until the session is over or may no longer call. While the database is away, the session counts as valid. A suspended org's calls go on.
    fn session_ends(&self) -> impl Future<Output = ()> + use<> {
        let (api, hash) = (self.api.clone(), self.visitor.session.hash);
        async move {
            loop {
                sleep(CHECK).await;
                let now = api.now();
                let found = api.read_inline(move |tx| sessions::by_token(tx, hash, now));
                if let Ok(found) = found.await
                    && !found.is_some_and(|session| session.writes)
                {
                    return;
                }
            }
        }
    }

    async fn say(&mut self, message: &Value) -> Result<(), End> {
        self.send(Message::Text(message.to_string().into())).await
    }

    /// Sends a message. A browser that doesn't take it in time has gone.
    async fn send(&mut self, message: Message) -> Result<(), End> {
        match timeout(WRITE, self.socket.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(End::Gone),
        }
    }
}

/// Returns the end for a fault of reading: a close code for what RFC 6455 §7.4.1 has one for; else the connection broke.
fn end_by(fault: axum::Error) -> End {
    use tungstenite::Error;
    use tungstenite::error::ProtocolError;

    let fault = fault.into_inner().downcast::<Error>();
    match fault.as_deref() {
        Ok(Error::Capacity(_)) => End::Unreadable(close_code::SIZE),
        Ok(Error::Utf8(_)) => End::Unreadable(close_code::INVALID),
        Ok(Error::Protocol(ProtocolError::ResetWithoutClosingHandshake)) => End::Gone,
        Ok(Error::Protocol(_)) => End::Unreadable(close_code::PROTOCOL),
        Ok(_) | Err(_) => End::Gone,
    }
}

/// Message of a browser.
enum Read {
    Audio(Box<AudioFrame>),
    Word(Word),
}

/// Returns true if a text can be dialled.
fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('+').unwrap_or(text);
    (1..MAX_NUMBER).contains(&digits.len()) && is_dialled(digits)
}

fn is_keys(text: &str) -> bool {
    (1..=MAX_KEYS).contains(&text.len()) && is_dialled(text)
}

fn is_dialled(text: &str) -> bool {
    text.bytes()
        .all(|key| key.is_ascii_digit() || matches!(key, b'*' | b'#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment::from_secs(1_790_000_000);

    #[test]
    fn a_session_has_one_call_and_an_org_has_a_bound() {
        let phones = Phones::default();
        let org = Uuid::from_u128(1);
        let enter = |number: u8| phones.enter([number; 32], org);
        let first = enter(0).unwrap();
        assert_eq!(enter(0).unwrap_err(), Full::Session);
        let _others: Vec<_> = (1..CALLS_OF_ORG as u8)
            .map(|number| enter(number).unwrap())
            .collect();
        assert_eq!(enter(99).unwrap_err(), Full::Org);
        let _foreign = phones.enter([99; 32], Uuid::from_u128(2)).unwrap();
        drop(first);
        assert!(enter(0).is_ok(), "what was dropped is free");
    }

    #[test]
    fn a_browser_that_sends_without_end_is_stopped() {
        let mut allowance = Allowance::new(NOW);
        assert_eq!((0..1_000).take_while(|_| allowance.takes(NOW)).count(), 200);
        let later = NOW + Duration::from_secs(1);
        assert_eq!(
            (0..1_000).take_while(|_| allowance.takes(later)).count(),
            100
        );
    }

    #[test]
    fn audio_of_a_microphone_is_never_too_much() {
        let mut allowance = Allowance::new(NOW);
        for frame in 0..100_000 {
            assert!(allowance.takes(NOW + Duration::from_millis(20 * frame)));
        }
    }

    #[test]
    fn numbers_and_keys_are_told_from_other_texts() {
        for (text, number, keys) in [
            ("+442071838750", true, false),
            ("100", true, true),
            ("*21#", true, true),
            ("", false, false),
            ("+", false, false),
            ("doctor", false, false),
            ("1@example.com", false, false),
            ("1;x=y", false, false),
            ("1\r\nX: y", false, false),
        ] {
            assert_eq!((is_number(text), is_keys(text)), (number, keys), "{text}");
        }
        assert!(!is_number(&"1".repeat(MAX_NUMBER)));
    }
}
