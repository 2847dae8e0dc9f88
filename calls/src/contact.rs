//! Contact of a call's far end: once it is known, or has taken too long, the runtime is called.

use trunkline_model::record::Fact;
use uuid::Uuid;

use super::call::{Call, CallStatus};
use super::context::Cx;

impl Call {
    /// Calls the runtime, unless it waits for the contact.
    pub(crate) fn begin_runtime(&mut self, cx: &mut Cx<'_>) {
        let incoming = self.incoming();
        if incoming.is_some_and(|incoming| !incoming.is_looking_up()) {
            self.with_dialing(cx, |client, cx, text| client.begin(cx, text));
            self.dial_bot(cx);
        }
    }

    /// The contact is known, or its look-up took too long.
    pub(crate) fn on_contact(&mut self, cx: &mut Cx<'_>, contact: Option<Uuid>) {
        if self.note_callee(cx, contact) {
            return;
        }
        let incoming = self.incoming_mut();
        // False where the call was answered first.
        let is_awaited = incoming.is_some_and(|incoming| incoming.end_look_up(cx, contact));
        self.note_contact(cx, contact);
        if is_awaited {
            self.begin_runtime(cx);
        }
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
