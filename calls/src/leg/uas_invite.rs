//! The caller's INVITE until its final answer: the message, the contact lookup that the runtime's INVITE waits for, and the relay of provisional
//! responses.

use std::time::Duration;

use trunkline_sip::dialog::Dialog;
use trunkline_sip::dialog::session_timer::SessionTimer;
use trunkline_sip::endpoint::ServerTx;
use trunkline_sip::header::text;
use trunkline_sip::slot::Tag;
use trunkline_sip::wheel::TimerId;
use trunkline_sip::wire::{HeaderName, Message, OwnedMessage};
use uuid::Uuid;

use super::provisional_relay::ProvisionalRelay;
use crate::core::context::Cx;
use crate::parts::refusal::Reason;

/// The contact lookup.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum ContactState {
    /// The lookup runs. The runtime of an inbound call is invited after it, or after 500 ms; an outbound call doesn't wait for it.
    Pending,
    /// Its result: the contact, or `None`.
    Known(Option<Uuid>),
}

/// The caller's INVITE, which has no final answer yet.
#[derive(Debug)]
pub(crate) struct UasInvite {
    /// As received.
    invite: OwnedMessage,
    server: ServerTx,
    new: NewDialog,
    contact: ContactState,
    contact_timer: Option<TimerId>,
    /// CSeq of the runtime's INVITE, which our PRACKs repeat.
    pub(crate) runtime_cseq: u32,
    pub(crate) relay: ProvisionalRelay,
}

/// Dialog and session of an INVITE, as read at admission.
#[derive(Debug)]
pub(crate) struct NewDialog {
    /// Dialog without our tag.
    pub(crate) dialog: Dialog,
    /// Session timer of the caller's leg, if there is one (RFC 4028 §9).
    pub(crate) session: Option<SessionTimer>,
}

impl UasInvite {
    /// `contact_timer` runs while the contact is being looked up.
    pub(crate) fn new(
        server: ServerTx,
        invite: &Message<'_>,
        new: NewDialog,
        contact: ContactState,
        contact_timer: Option<TimerId>,
    ) -> Self {
        Self {
            invite: invite.into(),
            server,
            new,
            contact,
            contact_timer,
            runtime_cseq: 1,
            relay: ProvisionalRelay::new(invite),
        }
    }

    /// The INVITE.
    pub(crate) fn invite(&self) -> &Message<'_> {
        self.invite.message()
    }

    /// Its transaction.
    pub(crate) const fn server(&self) -> ServerTx {
        self.server
    }

    /// Returns the dialog that a response with this tag of ours makes.
    pub(crate) fn dialog(&self, tag: &Tag) -> Option<Dialog> {
        self.new.dialog.with_local_tag(tag.as_bytes())
    }

    /// Session timer of the caller's leg, if there is one.
    pub(crate) const fn session_timer(&self) -> Option<SessionTimer> {
        self.new.session
    }

    pub(crate) fn is_looking_up(&self) -> bool {
        self.contact == ContactState::Pending
    }

    /// Ends the contact lookup. Returns false if it has ended before.
    pub(crate) fn end_look_up(&mut self, cx: &mut Cx<'_>, contact: Option<Uuid>) -> bool {
        if !self.is_looking_up() {
            return false;
        }
        self.contact = ContactState::Known(contact);
        cx.cancel_timer(&mut self.contact_timer);
        true
    }

    /// The timers that run for it alone.
    pub(crate) fn timers(&self) -> impl Iterator<Item = TimerId> + '_ {
        self.contact_timer.into_iter().chain(self.relay.timers())
    }
}

/// Cancels the timers of an INVITE that has its final answer.
pub(crate) fn release_incoming(cx: &mut Cx<'_>, incoming: &UasInvite) {
    for timer in incoming.timers() {
        cx.core.timers.cancel(timer);
    }
}

/// Returns how long an INVITE may lack a final answer, at most its Expires, and the reason of the refusal then (RFC 3261 §13.3.1).
pub(crate) fn patience(invite: &Message<'_>, longest: Duration) -> (Duration, Reason) {
    let expires = invite.first(HeaderName::Expires);
    let expires = expires.and_then(text::delta_seconds);
    match expires.map(|seconds| Duration::from_secs(seconds.into())) {
        Some(own) if own < longest => (own, Reason::InviteExpired),
        Some(_) | None => (longest, Reason::SetupTimeout),
    }
}
