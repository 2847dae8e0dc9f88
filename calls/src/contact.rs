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
        let (counts, begins) = match self.outbound.as_deref_mut() {
            Some(outbound) => (outbound.end_look_up(contact), false),
            None => {
                let incoming = self.bridge.incoming_mut();
                // False if the call was answered first.
                (
                    true,
                    incoming.is_some_and(|incoming| incoming.end_look_up(cx, contact)),
                )
            }
        };

        // No fact may follow the end of the call.
        let is_over = self.bridge.status() == CallStatus::Over;
        if let (Some(contact), None) = (contact.filter(|_| counts && !is_over), self.contact) {
            self.contact = Some(contact);
            cx.core.fact(Fact::Contact {
                call: self.ids.call,
                org: self.ids.org,
                contact,
            });
        }
        if begins {
            self.begin_runtime(cx);
        }
    }
}
