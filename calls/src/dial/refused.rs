//! What a final refusal of a place leads to: another try with what was missing, a redirection, the next place, or the end (RFC 3261
//! §8.1.3, §22.2, RFC 4028 §7.3).

use std::collections::VecDeque;

use trunkline_sip::auth::client::Asking;
use trunkline_sip::flow::Transport;
use trunkline_sip::wire::{HeaderName, Message};

use super::{Dial, MAX_REDIRECTS, MAX_REQUESTS, Progress};
use crate::attempts::Came;
use crate::context::Cx;
use crate::credentials::Stage;
use crate::dialled::may_dial;
use crate::proofs::Proofs;
use crate::target::{self, Place};
use crate::unanswered::failure;

impl Dial {
    pub(super) fn on_refused(
        &mut self,
        cx: &mut Cx<'_>,
        status: u16,
        message: &Message<'_>,
    ) -> Progress {
        match status {
            401 | 407 if self.answers(cx, message) => return self.again(cx),
            422 if self.min_se.is_none() => {
                if let Some(min_se) = message.number(HeaderName::MinSe) {
                    self.min_se = Some(min_se);
                    // A nonce that was answered is used up: the challenge comes again.
                    self.proofs = Proofs::default();
                    return self.again(cx);
                }
            }
            _ => {}
        }
        self.note(cx, &Came::Status(status));
        match status {
            300..=399 => self.on_redirect(cx, status, message),
            // Once it rang, a person may have been asked.
            408 | 500 | 502..=504 if !self.rang => {
                self.last = Some(failure(status, message));
                self.advance(cx)
            }
            _ => self.fail(cx, failure(status, message)),
        }
    }

    fn answers(&mut self, cx: &mut Cx<'_>, message: &Message<'_>) -> bool {
        let Some(target) = &self.current else {
            return false;
        };
        let asking = Asking {
            method: "INVITE",
            uri: target.uri.as_bytes(),
            body: &self.offer,
        };
        let stage = match self.rang {
            true => Stage::Ringing,
            false => Stage::Initial,
        };
        let at = (stage, target.address.ip());
        let (callee, proofs) = (&mut self.callee, &mut self.proofs);
        self.cseq < MAX_REQUESTS && callee.answer(cx, proofs, message, &asking, at)
    }

    /// The same INVITE to the same place, with what was missing.
    fn again(&mut self, cx: &mut Cx<'_>) -> Progress {
        self.send(cx);
        self.advance(cx)
    }

    /// A 3xx is followed only within the peer's own hosts.
    fn on_redirect(&mut self, cx: &mut Cx<'_>, status: u16, message: &Message<'_>) -> Progress {
        self.redirects += 1;
        let current = self.current.as_ref();
        let came_by = current.map_or(Transport::Udp, |target| target.transport);
        let mut places = target::redirections(message, &self.callee.hosts, came_by);
        let by = current.and_then(|target| target.by);
        let named = current.map(|target| target.named).unwrap_or_default();
        match by.filter(|_| self.callee.leads_back) {
            // Back to the PBX that called, by the way that it has proven.
            Some(by) => {
                for place in &mut places {
                    *place = place.by_flow(by);
                }
            }
            // Nobody redirects us to a number that we may not call.
            None => places.retain(|place| may_dial(&cx.core.caps, place.uri().as_bytes(), None)),
        }
        // Within the peer's own hosts it is still the word of who has named the peer.
        let mut places: VecDeque<Place> =
            places.into_iter().map(|place| place.named(named)).collect();
        if self.redirects > MAX_REDIRECTS || places.is_empty() {
            return self.fail(cx, failure(status, message));
        }
        places.extend(self.targets.drain(..).map(Place::Known));
        places.append(&mut self.callee.places);
        self.callee.places = places;
        self.advance(cx)
    }
}
