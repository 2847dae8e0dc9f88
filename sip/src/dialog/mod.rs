//! Dialogs (RFC 3261 §12): their identity, CSeq numbers, remote target and route set. Beside them the parts of a dialog's session: its timer,
//! and the SDP of media that ends here.
//!
//! A dialog is a plain value that can be serialised and read back. It sends nothing and knows neither transactions
//! nor calls.

pub mod body;
pub mod compared;
mod connection_line;
pub mod direction;
mod ip_version;
mod payload;
mod route_set;
mod rtp_attributes;
pub mod sdp;
pub mod session_timer;
pub mod streams;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::header::name_addr::NameAddr;
use crate::header::text;
use crate::header::uri::{Scheme, Uri};
use crate::wire::print::Head;
use crate::wire::{HeaderName, Message, Method};

/// One dialog, early or confirmed. All its text lies in one buffer of exactly its size.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Stored", try_from = "Stored")]
pub struct Dialog {
    text: Box<[u8]>, // Call-ID, local address, remote address, remote target, route set
    ends: [u16; PARTS],
    local_tag: u16, // octets at the end of the local address
    remote_tag: u16,
    local_seq: u32,
    remote_seq: Option<u32>,
    confirmed: bool,
    owns_call_id: bool,
}

const PARTS: usize = 5;
const CALL_ID: usize = 0;
const LOCAL: usize = 1;
const REMOTE: usize = 2;
const TARGET: usize = 3;
const ROUTES: usize = 4;

/// A request whose CSeq isn't above the last one. The answer is 500 (RFC 3261 §12.2.2).
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a CSeq that isn't above the last one")]
pub struct OutOfOrder;

/// Reason why a message makes no dialog: a sentence about its header that can't be used.
pub fn unusable_because(message: &Message<'_>) -> &'static str {
    if message.is_cut() {
        return "its header has too many or too long lines";
    }
    match route_set::as_recorded(message) {
        Err(fault) => fault.as_str(),
        Ok(_) if message.is_request() && contact(message).is_none() => {
            "its Contact is missing or can't be read"
        }
        Ok(_) => "its From, To or Contact is too long",
    }
}

impl Dialog {
    /// The dialog that our answer to `invite` creates, under our To-tag (RFC 3261 §12.1.1). `None` if the INVITE has no
    /// usable Contact, From or Record-Route.
    pub fn uas(invite: &Message<'_>, local_tag: &[u8]) -> Option<Self> {
        let parts = Parts {
            call_id: invite.call_id(),
            local: Address::new(invite.to_uri(), Some(local_tag))?,
            remote: Address::new(invite.from_uri(), invite.from_tag())?,
            // RFC 3261 §8.1.1.8: an INVITE must have one. Without it no request of ours could reach the peer.
            target: contact(invite)?,
            routes: &route_set::as_recorded(invite).ok()?,
        };
        Self::new(&parts, 0, Some(invite.cseq().number))
    }

    /// The same dialog with another local tag: each early dialog of one INVITE has its own (RFC 3261 §12.1.1). `None` past 64 KiB.
    pub fn with_local_tag(&self, tag: &[u8]) -> Option<Self> {
        let [call_id, remote, target, routes] =
            [CALL_ID, REMOTE, TARGET, ROUTES].map(|part| self.part(part));
        let local = [self.local_address(), b";tag=", tag];
        let (text, ends) = join([&[call_id], &local, &[remote], &[target], &[routes]])?;
        Some(Self {
            text,
            ends,
            local_tag: u16::try_from(tag.len()).ok()?,
            ..*self
        })
    }

    /// The dialog that a peer's answer to our INVITE to `request_uri` creates. Without a usable Contact, `request_uri` stays the target
    /// (RFC 3261 §12.1.2). `None` if From, To or Record-Route can't be used, or if lines of the answer were cut, since a route may be
    /// among them.
    pub fn uac(request_uri: &[u8], response: &Message<'_>) -> Option<Self> {
        if response.is_cut() {
            return None;
        }
        Self::of_answer(request_uri, response, &route_set::reversed(response).ok()?)
    }

    /// [`Dialog::uac`] without a route set, for an answer whose routes can't be read. It serves to send BYE to the answer's source.
    pub fn uac_without_routes(request_uri: &[u8], response: &Message<'_>) -> Option<Self> {
        Self::of_answer(request_uri, response, b"")
    }

    fn of_answer(request_uri: &[u8], response: &Message<'_>, routes: &[u8]) -> Option<Self> {
        let parts = Parts {
            call_id: response.call_id(),
            local: Address::new(response.from_uri(), response.from_tag())?,
            remote: Address::new(response.to_uri(), response.to_tag())?,
            target: contact(response).unwrap_or(request_uri),
            routes,
        };
        let mut dialog = Self::new(&parts, response.cseq().number, None)?;
        dialog.confirmed = is_success(response);
        dialog.owns_call_id = true;
        Some(dialog)
    }

    fn new(parts: &Parts<'_>, local_seq: u32, remote_seq: Option<u32>) -> Option<Self> {
        let (text, ends) = join([
            &[parts.call_id],
            &parts.local.pieces(),
            &parts.remote.pieces(),
            &[parts.target],
            &[parts.routes],
        ])?;

        Some(Self {
            text,
            ends,
            local_tag: u16::try_from(parts.local.tag.len()).ok()?,
            remote_tag: u16::try_from(parts.remote.tag.len()).ok()?,
            local_seq,
            remote_seq,
            confirmed: false,
            owns_call_id: false,
        })
    }

    /// Takes the CSeq of a request in this dialog. ACK and CANCEL carry the number of their INVITE and always pass.
    pub fn receive_request(&mut self, request: &Message<'_>) -> Result<(), OutOfOrder> {
        if matches!(request.method(), Method::Ack | Method::Cancel) {
            return Ok(());
        }
        let number = request.cseq().number;
        // RFC 3261 §12.2.1.1 demands "strictly monotonically increasing" numbers. An equal one is another request here,
        // since a retransmission is absorbed by its transaction.
        if self.remote_seq.is_some_and(|last| number <= last) {
            return Err(OutOfOrder);
        }
        // RFC 3261 §12.2.2: a gap "is not an error condition". Requests before this one may have been lost, or
        // challenged by a proxy.
        self.remote_seq = Some(number);
        Ok(())
    }

    /// Takes the Contact of a target refresh: an INVITE or UPDATE in this dialog, or an answer to one (RFC 3261 §12.2). While
    /// the dialog is early, the 2xx also brings the final route set (§13.2.2.4).
    pub fn refresh_target(&mut self, message: &Message<'_>) {
        // A message without a usable Contact leaves the target as it is.
        let target = contact(message).unwrap_or(self.part(TARGET));
        // RFC 3261 §12.2: Record-Route in later messages doesn't "cause the dialog's route set to be modified".
        let routes = (!self.confirmed && is_success(message) && message.method() == Method::Invite)
            .then(|| route_set::reversed(message).ok())
            .flatten();
        let routes = routes.as_deref().unwrap_or(self.part(ROUTES));
        // Nearly every refresh repeats both, and then no new buffer is made.
        if target == self.part(TARGET) && routes == self.part(ROUTES) {
            return;
        }

        let parts = [
            &[self.part(CALL_ID)][..],
            &[self.part(LOCAL)],
            &[self.part(REMOTE)],
            &[target],
            &[routes],
        ];
        // Past 64 KiB the dialog stays as it was.
        if let Some((text, ends)) = join(parts) {
            (self.text, self.ends) = (text, ends);
        }
    }

    /// New remote target from a target refresh, if it differs (RFC 3261 §12.2.1.2).
    pub fn moves_to<'m>(&self, request: &Message<'m>) -> Option<&'m [u8]> {
        contact(request).filter(|target| *target != self.remote_target())
    }

    /// Sets another target, once the request that named it is accepted.
    pub fn move_to(&mut self, target: &[u8]) {
        let [call_id, local, remote, routes] =
            [CALL_ID, LOCAL, REMOTE, ROUTES].map(|part| self.part(part));
        if let Some((text, ends)) = join([&[call_id], &[local], &[remote], &[target], &[routes]]) {
            (self.text, self.ends) = (text, ends);
        }
    }

    /// Confirms the dialog: the INVITE was answered with a 2xx.
    pub const fn confirm(&mut self) {
        self.confirmed = true;
    }

    /// True once confirmed; until then the dialog is early.
    pub const fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    /// Skips CSeq numbers, for a dialog in which this process may not know all requests that were sent. A gap is no error
    /// (RFC 3261 §12.2.2).
    pub const fn skip(&mut self, numbers: u32) {
        self.local_seq += numbers;
    }

    /// Writes the header lines that every request in this dialog begins with: `hops` as Max-Forwards, Route, From, To, Call-ID and a new
    /// CSeq, whose number is returned. Send the request to [`Self::next_hop`] with [`Self::request_uri`].
    pub fn begin(&mut self, method: &str, hops: u8, head: &mut Head<'_>) -> u32 {
        self.local_seq += 1; // from below 2^31, and one a request
        self.lines(self.local_seq, method, hops, head);
        self.local_seq
    }

    /// Writes the same lines for the ACK to a 2xx of the INVITE with that CSeq number.
    pub fn ack_head(&self, cseq: u32, head: &mut Head<'_>) {
        self.lines(cseq, "ACK", 70, head);
    }

    fn lines(&self, cseq: u32, method: &str, hops: u8, head: &mut Head<'_>) {
        head.number("Max-Forwards", u64::from(hops));
        route_set::write(self.part(ROUTES), self.remote_target(), head);
        head.line("From", self.part(LOCAL));
        head.line("To", self.part(REMOTE));
        head.line("Call-ID", self.call_id());
        head.cseq(cseq, method);
    }

    /// The Request-URI of requests in this dialog: the remote target, or the first route if it is a strict one
    /// (RFC 3261 §12.2.1.1).
    pub fn request_uri(&self) -> &[u8] {
        match route_set::first(self.part(ROUTES)) {
            Some(route) if route_set::is_strict(route) => without_headers(route),
            Some(_) | None => without_headers(self.remote_target()),
        }
    }

    /// The URI that requests in this dialog are sent to: the first route, else the remote target.
    pub fn next_hop(&self) -> &[u8] {
        route_set::first(self.part(ROUTES)).unwrap_or(self.remote_target())
    }

    /// Returns true if the route set isn't empty.
    pub fn has_route(&self) -> bool {
        !self.part(ROUTES).is_empty()
    }

    /// The URIs of the route set, in the order that our requests pass them.
    pub fn routes(&self) -> impl Iterator<Item = &[u8]> {
        route_set::uris(self.part(ROUTES))
    }

    /// The peer's Contact.
    pub fn remote_target(&self) -> &[u8] {
        self.part(TARGET)
    }

    /// Returns whether the Call-ID is ours: our INVITE made the dialog.
    pub const fn owns_call_id(&self) -> bool {
        self.owns_call_id
    }

    /// The Call-ID.
    pub fn call_id(&self) -> &[u8] {
        self.part(CALL_ID)
    }

    /// Our tag.
    pub fn local_tag(&self) -> &[u8] {
        last(self.part(LOCAL), self.local_tag)
    }

    /// The peer's tag; empty if it speaks RFC 2543 and has none.
    pub fn remote_tag(&self) -> &[u8] {
        last(self.part(REMOTE), self.remote_tag)
    }

    /// Our address, as the peer knows it: the URI in angle brackets, without the tag.
    pub fn local_address(&self) -> &[u8] {
        let local = self.part(LOCAL);
        // The lexer refuses a tag with an angle bracket, so the last one ends the address.
        let end = memchr::memrchr(b'>', local).map_or(local.len(), |at| at + 1);
        &local[..end]
    }

    /// The peer's address: display name and URI, without the tag.
    pub fn remote_address(&self) -> &[u8] {
        let remote = self.part(REMOTE);
        let end = memchr::memrchr(b'>', remote).map_or(remote.len(), |at| at + 1);
        &remote[..end]
    }

    /// The CSeq number of our last request; 0 before the first.
    pub const fn local_seq(&self) -> u32 {
        self.local_seq
    }

    fn part(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[usize::from(start)..usize::from(self.ends[index])]
    }
}

struct Parts<'a> {
    call_id: &'a [u8],
    local: Address<'a>,
    remote: Address<'a>,
    target: &'a [u8],
    routes: &'a [u8],
}

/// A From or To value without its display name, the tag at its end.
struct Address<'a> {
    /// Pieces of the text up to the tag.
    before: [&'a [u8]; 3],
    /// Empty if there is none.
    tag: &'a [u8],
}

impl<'a> Address<'a> {
    /// `None` without a URI.
    fn new(uri: &'a [u8], tag: Option<&'a [u8]>) -> Option<Self> {
        let tag = tag.unwrap_or_default();
        let behind: &[u8] = if tag.is_empty() { b">" } else { b">;tag=" };
        let before = [b"<", uri, behind];
        (!uri.is_empty()).then_some(Self { before, tag })
    }

    /// Cuts an address that was stored with its tag. Text that doesn't end with it is refused, since `local_tag` and `remote_tag` cut at that place.
    fn stored(text: &'a [u8], tag: &'a [u8]) -> Result<Self, NotADialog> {
        let before = text.strip_suffix(tag).ok_or(NotADialog)?;
        Ok(Self {
            before: [before, b"", b""],
            tag,
        })
    }

    const fn pieces(&self) -> [&'a [u8]; 4] {
        let [open, uri, behind] = self.before;
        [open, uri, behind, self.tag]
    }
}

/// Joins the pieces of all parts in one buffer, and returns the end of each part. `None` past 64 KiB, which no message that we accept reaches by
/// itself.
fn join(parts: [&[&[u8]]; PARTS]) -> Option<(Box<[u8]>, [u16; PARTS])> {
    let mut ends = [0; PARTS];
    let mut end = 0;
    for (index, pieces) in parts.iter().enumerate() {
        end += pieces.iter().map(|piece| piece.len()).sum::<usize>();
        ends[index] = u16::try_from(end).ok()?;
    }

    let mut text = Vec::with_capacity(end);
    for piece in parts.into_iter().flatten() {
        text.extend_from_slice(piece);
    }
    Some((text.into_boxed_slice(), ends))
}

/// The URI of the first Contact, if requests can be sent to it.
fn contact<'m>(message: &Message<'m>) -> Option<&'m [u8]> {
    let uri = NameAddr::parse(message.elements(HeaderName::Contact).next()?)
        .ok()?
        .uri;
    let is_sip = matches!(Uri::parse(uri).ok()?.scheme, Scheme::Sip | Scheme::Sips);
    is_sip.then_some(uri)
}

fn is_success(message: &Message<'_>) -> bool {
    (200..300).contains(&message.status())
}

/// Cuts the headers of a URI off, which a Request-URI may not have (RFC 3261 §19.1.1). The search begins behind the user part, which may hold a
/// question mark.
fn without_headers(uri: &[u8]) -> &[u8] {
    let host_at = memchr::memchr(b'@', uri).unwrap_or(0);
    let end = memchr::memchr(b'?', &uri[host_at..]).map_or(uri.len(), |at| host_at + at);
    &uri[..end]
}

fn last(text: &[u8], length: u16) -> &[u8] {
    &text[text.len() - usize::from(length)..]
}

/// A dialog as it is serialised.
#[derive(Serialize, Deserialize)]
struct Stored {
    call_id: Vec<u8>,
    local: Vec<u8>,
    local_tag: Vec<u8>,
    remote: Vec<u8>,
    remote_tag: Vec<u8>,
    target: Vec<u8>,
    routes: Vec<u8>,
    local_seq: u32,
    remote_seq: Option<u32>,
    confirmed: bool,
    owns_call_id: bool,
}

impl From<Dialog> for Stored {
    fn from(dialog: Dialog) -> Self {
        Self {
            call_id: dialog.call_id().into(),
            local: dialog.part(LOCAL).into(),
            local_tag: dialog.local_tag().into(),
            remote: dialog.part(REMOTE).into(),
            remote_tag: dialog.remote_tag().into(),
            target: dialog.remote_target().into(),
            routes: dialog.part(ROUTES).into(),
            local_seq: dialog.local_seq,
            remote_seq: dialog.remote_seq,
            confirmed: dialog.confirmed,
            owns_call_id: dialog.owns_call_id,
        }
    }
}

/// Serialised text that isn't a dialog.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a dialog")]
struct NotADialog;

impl TryFrom<Stored> for Dialog {
    type Error = NotADialog;

    fn try_from(stored: Stored) -> Result<Self, NotADialog> {
        let parts = Parts {
            call_id: &stored.call_id,
            local: Address::stored(&stored.local, &stored.local_tag)?,
            remote: Address::stored(&stored.remote, &stored.remote_tag)?,
            target: &stored.target,
            routes: &stored.routes,
        };

        let dialog = Self::new(&parts, stored.local_seq, stored.remote_seq).ok_or(NotADialog)?;
        Ok(Self {
            confirmed: stored.confirmed,
            owns_call_id: stored.owns_call_id,
            ..dialog
        })
    }
}

impl fmt::Debug for Dialog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialog")
            .field("call_id", &text::Octets(self.call_id()))
            .field("local_tag", &text::Octets(self.local_tag()))
            .field("remote_tag", &text::Octets(self.remote_tag()))
            .field("target", &text::Octets(self.remote_target()))
            .field("local_seq", &self.local_seq)
            .field("remote_seq", &self.remote_seq)
            .field("confirmed", &self.confirmed)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
