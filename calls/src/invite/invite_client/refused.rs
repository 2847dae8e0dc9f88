//! Consequences of a final refusal: another request with what was missing, a redirection, the next target, or the end (RFC 3261 §8.1.3, §22.2, RFC
//! 4028 §7.3).

use std::collections::VecDeque;

use trunkline_sip::auth::client::ChallengedMessage;
use trunkline_sip::wire::{HeaderName, Message};

use super::{Attempt, InviteClient, InviteEvent, InviteText, RedirectRule};
use crate::core::context::Cx;
use crate::invite::attempts::AttemptResult;
use crate::invite::dial_policy::may_dial;
use crate::invite::large_invite::UdpFallback;
use crate::parts::dial_failure::{failure, refused_with};
use crate::parts::target;
use crate::parts::target::{DialTarget, Target};
use crate::trust::credentials::ChallengedRequest;
use crate::trust::digest_answers::DigestAnswers;

/// Redirections that are followed. A further one counts as a refusal.
const MAX_REDIRECTS: u8 = 3;

impl InviteClient {
    /// Handles a final refusal: sends the INVITE again with what was missing, tries the next target, or ends.
    pub(super) fn handle_refused<'m>(
        &mut self,
        cx: &mut Cx<'_>,
        text: &dyn InviteText,
        mut attempt: Box<Attempt>,
        status: u16,
        message: &'m Message<'m>,
    ) -> InviteEvent<'m> {
        let is_said_better = match status {
            401 | 407 => self.answers(cx, text, &mut attempt, message),
            422 => self.takes_interval(&mut attempt, message),
            _ => false,
        };
        if is_said_better {
            return self.ask_again(cx, text, attempt);
        }

        self.pass(cx, (&attempt.target).into(), &AttemptResult::Status(status));
        self.said = refused_with(message);
        // Recorded before it is followed: the record shows each place that was asked.
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
        let Attempt {
            target,
            digest_answers,
            ..
        } = attempt;

        let challenged = ChallengedMessage {
            method: "INVITE",
            uri: target.uri.as_bytes(),
            body: text.body(),
        };
        let stage = match self.rang {
            true => ChallengedRequest::Ringing,
            false => ChallengedRequest::Initial,
        };
        let destination = target.address.ip();

        attempt.requests < self.plan.max_requests
            && self
                .plan
                .answer(cx, digest_answers, message, &challenged, stage, destination)
    }

    /// Adopts a longer Min-SE: each proxy on the path may ask for more than the one before it (RFC 4028 §7.3).
    fn takes_interval(&mut self, attempt: &mut Attempt, message: &Message<'_>) -> bool {
        let Some(min_se) = message.number(HeaderName::MinSe) else {
            return false;
        };
        // A 422 that asks for nothing longer can't be met, and would come again.
        let is_longer = self.min_se.is_none_or(|known| min_se > known);
        if !is_longer || attempt.requests >= self.plan.max_requests {
            return false;
        }

        self.min_se = Some(min_se);
        // The nonce has been used: a new challenge follows.
        attempt.digest_answers = DigestAnswers::default();
        true
    }

    /// Sends the INVITE again to the same target with what was missing: the same Call-ID, the next CSeq (RFC 3261 §8.1.3.5).
    pub(super) fn ask_again(
        &mut self,
        cx: &mut Cx<'_>,
        text: &dyn InviteText,
        mut attempt: Box<Attempt>,
    ) -> InviteEvent<'static> {
        // The target has answered by this transport, so its datagram isn't tried any more.
        self.datagram = UdpFallback::Excluded;
        // Looked for again: probes may have found the target down meanwhile.
        match cx.flow_to(&attempt.target) {
            Ok(flow) => {
                attempt.flow = flow;
                self.send(cx, text, attempt);
            }
            Err(why) => self.pass(cx, (&attempt.target).into(), &why.into()),
        }
        self.go_on(cx, text)
    }

    /// Adds the targets of a 3xx that are the peer's own hosts; false if there are none, or after too many redirections.
    fn follows(&mut self, cx: &Cx<'_>, from: &Target, message: &Message<'_>) -> bool {
        self.redirects += 1;
        let dial_targets = target::redirections(message, &self.plan.hosts, from.transport);
        let mut dial_targets: VecDeque<DialTarget> = match (&self.plan.redirects, from.by) {
            (RedirectRule::NamedBy(namer), _) => {
                let dial_targets = dial_targets.into_iter();
                dial_targets
                    .map(|dial_target| dial_target.of_runtime(namer))
                    .collect()
            }

            (RedirectRule::ByTheSameWay, Some(by)) => {
                let dial_targets = dial_targets.into_iter();
                let by_it =
                    dial_targets.map(|dial_target| dial_target.by_flow(by).named(from.named));
                by_it.collect()
            }

            (RedirectRule::Callable, _) | (RedirectRule::ByTheSameWay, None) => {
                let dial_targets = dial_targets
                    .into_iter()
                    .map(|dial_target| match from.route {
                        // The route leads to whatever address of this peer, so its first hop stays the next one.
                        Some(_) => DialTarget::Resolved(Target {
                            uri: dial_target.uri().into(),
                            ..from.clone()
                        }),
                        None => dial_target.named(from.named),
                    });
                let outbound_limits = &cx.core.outbound_limits;
                let callable = dial_targets.filter(|dial_target| {
                    may_dial(outbound_limits, dial_target.uri().as_bytes(), None)
                });
                callable.collect()
            }
        };

        if self.redirects > MAX_REDIRECTS || dial_targets.is_empty() {
            return false;
        }

        // They replace the redirecting target, before the targets that remain.
        dial_targets.extend(self.targets.drain(..).map(DialTarget::Resolved));
        dial_targets.append(&mut self.plan.dial_targets);
        self.plan.dial_targets = dial_targets;
        true
    }
}
