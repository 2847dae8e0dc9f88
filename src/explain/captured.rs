//! Call in a capture as its caller sent it: the facts for routing, the response, and the reason if it wasn't
//! authenticated.

use std::net::SocketAddr;

use trunkline_capture::flow::{Call, Entry, Role};
use trunkline_routing::Facts;
use trunkline_sip::auth;
use trunkline_sip::header::uri::Uri;
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::{Framing, HeaderName, Message, Method, invite, lex};
use trunkline_store::InboundTrunk;

use trunkline_calls::HeaderPrefix;
use trunkline_calls::inbound::admission::facts_of;

/// Call in a capture.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CapturedCall {
    /// Call-ID.
    pub call_id: String,
    /// Time of the INVITE, if known.
    pub at: Option<Moment>,
    /// Source address.
    pub source: Option<SocketAddr>,
    /// Request-URI.
    pub request_uri: String,
    /// Facts that routing reads.
    pub facts: Facts,
    /// Status of the final response, if there was one.
    pub status: Option<u16>,
    /// Reason phrase.
    pub phrase: String,
    /// Text of `Warning`, without code and agent.
    pub warning: Option<String>,
    /// Value of `X-Trunkline-Reason`.
    pub reason: Option<String>,
    /// Credentials of the caller, if it sent any.
    credentials: Option<SentCredentials>,
    /// The response challenges again because the nonce was too old (`stale=true`).
    is_stale: bool,
}

/// Digest credentials in an INVITE.
#[derive(Clone, PartialEq, Eq, Debug)]
struct SentCredentials {
    username: String,
    realm: String,
    uri: Vec<u8>,
}

impl CapturedCall {
    /// Reads an INVITE and the final response to it; `None` if the INVITE can't be read, or belongs to a call that is up.
    /// `prefix` is that of our own headers. Time and source are left out: [`Self::sent`] adds them.
    pub fn of(invite: &[u8], response: Option<&[u8]>, prefix: &str) -> Option<Self> {
        let asked = lex(invite, Framing::Datagram).ok().filter(begins)?;
        let read = invite::read(&asked).ok()?;
        let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();

        let mut seen = Self {
            call_id: text(asked.call_id()),
            at: None,
            source: None,
            request_uri: text(asked.request_uri()),
            facts: facts_of(read, HeaderPrefix::from(prefix).agent_id()),
            status: None,
            phrase: String::new(),
            warning: None,
            reason: None,
            credentials: SentCredentials::of(&asked),
            is_stale: false,
        };

        let answer = response.and_then(|octets| lex(octets, Framing::Datagram).ok());
        if let Some(answer) = answer.filter(|answer| answer.status() >= 200) {
            seen.answered(&answer);
        }
        Some(seen)
    }

    /// Same call, with what the capture knows of its INVITE.
    #[must_use]
    pub fn sent(self, at: Option<Moment>, source: Option<SocketAddr>) -> Self {
        Self { at, source, ..self }
    }

    fn answered(&mut self, answer: &Message<'_>) {
        let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
        self.status = Some(answer.status());
        self.phrase = text(answer.reason());
        let warning = answer.first(HeaderName::Warning).map(text);
        self.warning = warning.and_then(|warning| {
            let (_, quoted) = warning.split_once('"')?;
            Some(quoted.trim_end().trim_end_matches('"').to_owned())
        });
        self.reason = answer.other("X-Trunkline-Reason").map(text);

        let challenges = answer.all(HeaderName::WwwAuthenticate);
        self.is_stale = challenges
            .filter_map(|value| auth::Challenge::parse(value).ok())
            .any(|challenge| challenge.stale);
    }

    /// Returns true if the caller failed to authenticate.
    pub const fn is_locked_out(&self) -> bool {
        matches!(self.status, Some(401 | 407))
    }

    /// Returns the wrong part of the credentials, compared with the trunk that they were meant for.
    pub fn wrong_part(&self, trunk: &InboundTrunk, realm: &str) -> &'static str {
        let Some(sent) = &self.credentials else {
            return "address";
        };
        let asked = Uri::parse(self.request_uri.as_bytes()).ok();
        let hashed = Uri::parse(&sent.uri).ok();
        let is_other_number = asked.zip(hashed).is_some_and(|(asked, hashed)| {
            hashed.user.is_some() && hashed.user_unescaped() != asked.user_unescaped()
        });

        // The digest itself isn't computed again: the password is what remains if all else is right.
        if sent.realm != realm {
            "realm"
        } else if sent.username != trunk.username {
            "user"
        } else if self.is_stale {
            "nonce"
        } else if is_other_number {
            "uri"
        } else {
            "password"
        }
    }
}

/// Octets of the caller's last INVITE in a capture, and of the final response to it.
pub fn last_invite(call: &Call) -> Option<(&[u8], Option<&[u8]>)> {
    let sent = |entry: &&Entry| entry.from == Role::Caller && entry.to == Role::Us;
    // The last INVITE has the credentials, if the one before was challenged.
    let (octets, last) = call
        .entries
        .iter()
        .filter(sent)
        .filter_map(|entry| Some((&*entry.octets, lex(&entry.octets, Framing::Datagram).ok()?)))
        .rfind(|(_, message)| begins(message))?;

    let answers = call.entries.iter().filter(|entry| entry.from == Role::Us);
    let answer = answers
        .filter_map(|entry| Some((&*entry.octets, lex(&entry.octets, Framing::Datagram).ok()?)))
        .find(|(_, answer)| {
            answer.status() >= 200
                && answer.method() == Method::Invite
                // Not the challenge to the INVITE before it.
                && answer.cseq().number == last.cseq().number
        });
    Some((octets, answer.map(|(octets, _)| octets)))
}

/// Source address of a capture's caller.
pub fn caller(call: &Call) -> Option<SocketAddr> {
    let source = call.peers.iter().find(|(role, _)| *role == Role::Caller);
    source.map(|(_, address)| *address)
}

/// Returns true for an INVITE outside a dialog.
fn begins(message: &Message<'_>) -> bool {
    message.is_request() && message.method() == Method::Invite && message.to_tag().is_none()
}

impl SentCredentials {
    fn of(message: &Message<'_>) -> Option<Self> {
        let value = message.first(HeaderName::Authorization)?;
        let credentials = auth::Credentials::parse(value).ok()?;
        let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
        Some(Self {
            username: text(&credentials.username_unescaped()),
            realm: text(credentials.realm),
            uri: credentials.uri.to_vec(),
        })
    }
}
