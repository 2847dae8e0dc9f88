//! Consequences of a final refusal: another request with what was missing, a redirection, the next place, or the end (RFC 3261 §8.1.3, §22.2, RFC
//! 4028 §7.3).

use std::collections::VecDeque;

use trunkline_sip::auth::client::Asking;
use trunkline_sip::wire::{HeaderName, Message};

use super::{Attempt, Event, InviteClient, InviteText, Redirects};
use crate::attempts::Came;
use crate::context::Cx;
use crate::credentials::Stage;
use crate::dialled::may_dial;
use crate::large::Datagram;
use crate::proofs::Proofs;
use crate::target::{self, Place, Target};
use crate::unanswered::{failure, refused_with};

/// Redirections that are followed.
const MAX_REDIRECTS: u8 = 3;

impl InviteClient {
    pub(super) fn handle_refused<'m>(
        &mut self,
        cx: &mut Cx<'_>,
        text: &dyn InviteText,
        mut attempt: Box<Attempt>,
        status: u16,
        message: &'m Message<'m>,
    ) -> Event<'m> {
        let is_said_better = match status {
            401 | 407 => self.answers(cx, text, &mut attempt, message),
            422 => self.takes_interval(&mut attempt, message),
            _ => false,
        };
        if is_said_better {
            return self.ask_again(cx, text, attempt);
        }

        self.pass(cx, (&attempt.target).into(), &Came::Status(status));
        self.said = refused_with(message);
        if matches!(status, 300..=399) && self.follows(cx, &attempt.target, message) {
            return self.advance(cx, text);
        }
        let failure = failure(status, message);
        if self
            .plan
            .fails_over
            .follows(status, self.rang, self.has_another())
        {
            self.last = Some(failure);
            return self.advance(cx, text);
        }
        self.fail(failure, Some(message))
    }

    /// Answers a challenge; false if it isn't answered.
    fn answers(
        &mut self,
        cx: &mut Cx<'_>,
        text: &dyn InviteText,
        attempt: &mut Attempt,
        message: &Message<'_>,
    ) -> bool {
        let Attempt { target, proofs, .. } = attempt;
        let asking = Asking {
            method: "INVITE",
            uri: target.uri.as_bytes(),
            body: text.body(),
        };
        let stage = match self.rang {
            true => Stage::Ringing,
            false => Stage::Initial,
        };
        let at = (stage, target.address.ip());
        attempt.requests < self.plan.max_requests
            && self.plan.answer(cx, proofs, message, &asking, at)
    }

    /// Adopts the peer's Min-SE, once.
    fn takes_interval(&mut self, attempt: &mut Attempt, message: &Message<'_>) -> bool {
        let wanted = message.number(HeaderName::MinSe);
        let (Some(min_se), None) = (wanted, self.min_se) else {
            return false;
        };
        self.min_se = Some(min_se);
        // The nonce has been used: a new challenge follows.
        attempt.proofs = Proofs::default();
        true
    }

    /// Sends the INVITE again to the same target with what was missing: the same Call-ID, the next CSeq (RFC 3261 §8.1.3.5).
    pub(super) fn ask_again(
        &mut self,
        cx: &mut Cx<'_>,
        text: &dyn InviteText,
        mut attempt: Box<Attempt>,
    ) -> Event<'static> {
        // The target was reached by this transport.
        self.datagram = Datagram::Excluded;
        match cx.flow_to(&attempt.target) {
            Ok(flow) => {
                attempt.flow = flow;
                self.send(cx, text, attempt);
            }
            Err(why) => self.pass(cx, (&attempt.target).into(), &why.into()),
        }
        self.go_on(cx, text)
    }

    /// Adds the places of a 3xx, which are followed only within the peer's own hosts; false if there are none.
    fn follows(&mut self, cx: &Cx<'_>, from: &Target, message: &Message<'_>) -> bool {
        self.redirects += 1;
        let places = target::redirections(message, &self.plan.hosts, from.transport);
        let mut places: VecDeque<Place> = match (&self.plan.redirects, from.by) {
            (Redirects::NamedBy(namer), _) => {
                let places = places.into_iter();
                places.map(|place| place.of_runtime(namer)).collect()
            }
            (Redirects::ByTheSameWay, Some(by)) => {
                let places = places.into_iter();
                let by_it = places.map(|place| place.by_flow(by).named(from.named));
                by_it.collect()
            }
            (Redirects::Callable, _) | (Redirects::ByTheSameWay, None) => {
                let places = places.into_iter().map(|place| place.named(from.named));
                let caps = &cx.core.caps;
                let callable = places.filter(|place| may_dial(caps, place.uri().as_bytes(), None));
                callable.collect()
            }
        };
        if self.redirects > MAX_REDIRECTS || places.is_empty() {
            return false;
        }

        // They replace the redirecting place, before the places that remain.
        places.extend(self.targets.drain(..).map(Place::Known));
        places.append(&mut self.plan.places);
        self.plan.places = places;
        true
    }
}
