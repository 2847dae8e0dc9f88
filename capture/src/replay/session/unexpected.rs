//! Unexpected messages: challenges and OPTIONS are answered, all others end the replay.

use super::super::Outcome;
use super::super::closing::{acknowledging, answering, renewed};
use super::super::script::label;
use super::{MAX_CHALLENGES, MAX_STRANGE, Message, Role, Session, State, same_transaction};

impl Session<'_> {
    pub(super) fn handle_unexpected(&mut self, party: Role, message: &Message) {
        let status = message.status();
        // RFC 3261 §17.2.1: whether a 100 is sent depends on how fast the next response comes.
        if status == Some(100) {
            return;
        }

        // The daemon monitors its peers at times that no capture can foresee.
        if status.is_none() && message.method() == "OPTIONS" {
            self.answer_ok(party, message);
            return;
        }

        if matches!(status, Some(401 | 407)) && party == Role::Caller && self.log_in(message) {
            return;
        }

        let behind = self.done_so_far();

        // Where another response to this method was expected, that one differs. Otherwise nothing was expected in its place.
        let instead = (0..self.items.len()).find(|at| {
            let item = &self.items[*at];
            self.states[*at] == State::Pending
                && item.party == party
                && !item.sends
                && !item.is_optional
                && status.is_some()
                && same_transaction(&item.message, message)
        });

        match instead {
            Some(at) if status.is_some_and(|status| status >= 200) => {
                self.finish(at, Outcome::Differs, Some(label(message)));
                let expected = label(&self.items[at].message);
                self.differ(Some(at), "start line", expected, label(message));
            }
            _ => {
                let now = self.now();
                self.extra
                    .push((behind, now, party, label(message), Outcome::Unexpected));
                self.differ(
                    None,
                    "message",
                    "nothing of the kind".to_owned(),
                    label(message),
                );
            }
        }

        let goes_on = status.is_some_and(|status| status < 200) && self.extra.len() < MAX_STRANGE;
        self.is_over |= !goes_on;

        // Also where the replay ends here: the daemon would wait 32 s (64·T1) for an answer.
        if status.is_none() {
            self.answer_ok(party, message);
        }
    }

    /// Returns the number of items up to the last one that is done.
    fn done_so_far(&self) -> usize {
        (0..self.items.len())
            .rfind(|at| matches!(self.states[*at], State::Done(..)))
            .map_or(0, |at| at + 1)
    }

    /// Answers a challenge that wasn't captured, by sending the request again with credentials.
    pub(super) fn log_in(&mut self, message: &Message) -> bool {
        let Some((user, password)) = self.options.credentials.clone() else {
            return false;
        };

        let Some(octets) = self.last_request(message) else {
            return false;
        };

        let mut request = Message::parse(&octets);
        // A challenge to an earlier request is a late one; wrong credentials are challenged again and again.
        if self.caller.shift >= MAX_CHALLENGES || request.cseq() != message.cseq() {
            return false;
        }

        if request.method() == "INVITE" {
            // RFC 3261 §17.1.1.2: on a status from 300 to 699 a client "MUST generate an ACK request".
            let acknowledgement = acknowledging(&request, message).to_octets();
            self.send_extra(Role::Caller, &acknowledgement);
        }

        let map = &mut self.caller;
        map.challenged(message);
        map.shift += 1;

        let Some((number, method)) = request.cseq() else {
            return false;
        };

        request.set("CSeq", &format!("{} {method}", number + 1));
        renewed(&mut request);

        if !map.authorise(&mut request, &user, &password) {
            return false;
        }

        let (now, shown) = (self.now(), label(message));
        let behind = self.done_so_far();

        self.extra.push((
            behind,
            now,
            Role::Caller,
            format!("{shown}, answered with credentials"),
            Outcome::Adapted,
        ));

        let octets = request.to_octets();
        self.send_extra(Role::Caller, &octets);
        self.note_sent(Role::Caller, &request, octets);

        true
    }

    pub(super) fn last_request(&self, response: &Message) -> Option<Vec<u8>> {
        let last = if response.method() == "INVITE" {
            self.invite.as_ref()
        } else {
            self.request.as_ref()
        };
        last.map(Message::to_octets)
    }

    pub(super) fn answer_ok(&mut self, party: Role, request: &Message) {
        let reply = answering(request, 200, "OK");
        let octets = reply.to_octets();
        self.send_extra(party, &octets);
        self.note_sent(party, &reply, octets);
    }
}
