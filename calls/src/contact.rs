//! Contact of a call's far end: the runtime is called once the contact is known or its lookup has timed out.

use trunkline_model::record::Fact;
use uuid::Uuid;

use super::bot_state::Bot;
use super::call::Call;
use super::call_status::CallStatus;
use super::context::Cx;

impl Call {
    /// Calls the runtime, unless it waits for the contact.
    pub(crate) fn begin_runtime(&mut self, cx: &mut Cx<'_>) {
        let incoming = self.bridge.incoming();
        if incoming.is_some_and(|incoming| !incoming.is_looking_up()) {
            self.with_dialing(cx, |client, cx, text| client.begin(cx, text));
            self.with_bot(cx, Bot::dial);
        }
    }

    /// Handles the result of the contact lookup, or its timeout.
    pub(crate) fn on_contact(&mut self, cx: &mut Cx<'_>, contact: Option<Uuid>) {
        if let Some(outbound) = self.outbound.as_deref_mut() {
            if outbound.end_look_up(contact) {
                self.note_contact(cx, contact);
            }
            return;
        }
        let incoming = self.bridge.incoming_mut();
        // False if the call was answered first.
        let is_awaited = incoming.is_some_and(|incoming| incoming.end_look_up(cx, contact));
        self.note_contact(cx, contact);
        if is_awaited {
            self.begin_runtime(cx);
        }
    }

    /// Records the contact, unless the call is over: no fact may follow its end.
    fn note_contact(&mut self, cx: &mut Cx<'_>, contact: Option<Uuid>) {
        let (Some(contact), None) = (contact, self.contact) else {
            return;
        };
        if self.bridge.status() == CallStatus::Over {
            return;
        }
        self.contact = Some(contact);
        cx.core.fact(Fact::Contact {
            call: self.ids.call,
            org: self.ids.org,
            contact,
        });
    }
}
