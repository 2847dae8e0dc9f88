//! The caller's INVITE until it has its final answer: the message, the look-up of the contact that the runtime's INVITE waits for, and the way
//! of provisional answers back.

use trunkline_model::record::Fact;
use trunkline_sip::dialog::Dialog;
use trunkline_sip::dialog::session_timer::SessionTimer;
use trunkline_sip::endpoint::ServerTx;
use trunkline_sip::slot::Tag;
use trunkline_sip::wheel::TimerId;
use trunkline_sip::wire::{Kept, Message};
use uuid::Uuid;

use super::call::{Call, CallStatus, ContactState};
use super::context::Cx;
use super::leg::Session;
use super::provisional_relay::ProvisionalRelay;

/// The caller's INVITE, which has no final answer yet.
#[derive(Debug)]
pub(crate) struct UasInvite {
    /// As received.
    invite: Kept,
    server: ServerTx,
    new: NewDialog,
    contact: ContactState,
    contact_timer: Option<TimerId>,
    pub(crate) relay: ProvisionalRelay,
}

/// Dialog and session that an INVITE begins, as it was read when it was admitted.
#[derive(Debug)]
pub(crate) struct NewDialog {
    /// Without a tag of ours.
    pub(crate) dialog: Dialog,
    /// Session timer of the caller's leg, if there is one (RFC 4028 §9).
    pub(crate) session: Option<SessionTimer>,
}

impl UasInvite {
    /// `contact_timer` runs while the contact is being looked up.
    pub(crate) fn new(
        (server, invite): (ServerTx, &Message<'_>),
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

    /// The dialog that an answer under this tag of ours makes.
    pub(crate) fn dialog(&self, tag: &Tag) -> Option<Dialog> {
        self.new.dialog.with_local_tag(tag.as_bytes())
    }

    /// Makes the session that our 200 begins.
    pub(crate) fn accepted(&self) -> Session {
        let mut session = Session::begun_by(self.server);
        session.timer = self.new.session;
        session
    }

    /// The timers that run for it alone.
    pub(crate) fn timers(&self) -> impl Iterator<Item = TimerId> + '_ {
        self.contact_timer.into_iter().chain(self.relay.timers())
    }
}

impl Cx<'_> {
    /// Cancels the timers of an INVITE that has its final answer.
    pub(crate) fn release_incoming(&mut self, incoming: &UasInvite) {
        for timer in incoming.timers() {
            self.core.timers.cancel(timer);
        }
    }
}

impl Call {
    /// Calls the runtime, unless it waits for the contact.
    pub(crate) fn begin_runtime(&mut self, cx: &mut Cx<'_>) {
        let incoming = self.incoming();
        if incoming.is_some_and(|incoming| incoming.contact != ContactState::Pending) {
            self.with_dialing(cx, |client, cx, text| client.begin(cx, text));
            self.dial_bot(cx);
        }
    }

    /// The contact is known, or its look-up took too long.
    pub(crate) fn on_contact(&mut self, cx: &mut Cx<'_>, contact: Option<Uuid>) {
        if self.note_callee(cx, contact) {
            return;
        }
        let Some(incoming) = self
            .incoming_mut()
            .filter(|incoming| incoming.contact == ContactState::Pending)
        else {
            // The call was answered first.
            return self.note_contact(cx, contact);
        };
        incoming.contact = ContactState::Known(contact);
        cx.cancel_timer(&mut incoming.contact_timer);
        self.note_contact(cx, contact);
        self.begin_runtime(cx);
    }

    /// Records the contact, unless the call is over: nothing comes after its end.
    pub(crate) fn note_contact(&mut self, cx: &mut Cx<'_>, contact: Option<Uuid>) {
        let (Some(contact), None) = (contact, self.contact) else {
            return;
        };
        if self.status() == CallStatus::Over {
            return;
        }
        self.contact = Some(contact);
        cx.core.fact(Fact::Contact {
            call: self.id,
            org: self.org,
            contact,
        });
    }
}
