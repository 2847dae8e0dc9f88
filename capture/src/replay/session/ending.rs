//! The end of a call that took another course, or whose capture ends first: no call is left open at the daemon.

use std::time::Duration;

use super::super::closing::{acknowledging, answering, cancelling, in_dialog};
use super::{Message, Role, Session, WINDING_UP};

impl Session<'_> {
    /// Ends the call: acknowledges, hangs up or cancels, and answers late messages.
    pub(super) fn wind_up(&mut self) {
        let has_failed = self.is_over || self.is_beyond || !self.differences.is_empty();
        let is_refused = self
            .answer
            .as_ref()
            .is_some_and(|answer| answer.status().is_some_and(|status| status >= 300));
        self.waiting = None;
        let is_open = self.is_over || self.is_beyond || !is_refused || self.dialog.is_some();
        let has_call = self.invite.is_some() && is_open;
        if has_call {
            self.hang_up();
        }
        if has_failed || has_call {
            self.answer_late_messages(WINDING_UP);
        }
    }

    /// Notes a 2xx to an INVITE of the caller's. One that renews its dialog changes the target, but not the route set (RFC 3261 §12.2.1.2).
    pub(super) fn accepted(&mut self, mut message: Message) {
        let before = self.dialog.as_ref();
        if let Some(before) = before.filter(|before| before.tag("To") == message.tag("To")) {
            message.replace_all("Record-Route", &before.all("Record-Route"));
        }
        self.dialog = Some(message);
    }

    fn hang_up(&mut self) {
        let Some(invite) = self.invite.clone() else {
            return;
        };
        let mut closing = Vec::new();
        match &self.answer {
            Some(answer) if answer.status().is_some_and(|status| status < 300) => {
                let number = invite.cseq().map_or(1, |(number, _)| number);
                let accepted = self.dialog.as_ref().unwrap_or(answer);
                closing.push(in_dialog(&invite, accepted, "ACK", number));
            }
            Some(answer) => closing.push(acknowledging(&invite, answer)),
            None => closing.push(cancelling(&invite)),
        }

        // A re-INVITE that was refused, or that nobody has answered, ends no dialog.
        if let Some(accepted) = &self.dialog {
            // Above INFO and UPDATE too: a lower number is answered 500 (RFC 3261 §12.2.2).
            self.cseq += 1;
            closing.push(in_dialog(&invite, accepted, "BYE", self.cseq));
        }
        for message in closing {
            self.send_extra(Role::Caller, &message.to_octets());
        }
    }

    fn answer_late_messages(&mut self, time: Duration) {
        let until = self.now() + time;
        while self.now() < until {
            let Ok(Some(incoming)) = self.wire.receive(until) else {
                return;
            };

            let message = Message::parse(&incoming.octets);
            match message.status() {
                None if message.method() == "ACK" => {}
                None => {
                    let reply = answering(&message, 200, "OK").to_octets();
                    self.send_extra(incoming.party, &reply);
                }
                Some(status) if status >= 300 && message.method() == "INVITE" => {
                    if let Some(invite) = &self.invite {
                        let octets = acknowledging(invite, &message).to_octets();
                        self.send_extra(Role::Caller, &octets);
                    }
                }
                Some(status) if status >= 200 && message.method() == "INVITE" => {
                    // The answer crossed the CANCEL.
                    self.accepted(message.clone());
                    self.answer = Some(message);
                    self.hang_up();
                }
                Some(_) => {}
            }
        }
    }
}
