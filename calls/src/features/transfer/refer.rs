//! The REFER to the PBX, and its answer (RFC 3515 §2.4, RFC 3892, RFC 4488).

use std::time::Duration;

use trunkline_sip::auth::client::ChallengedMessage;
use trunkline_sip::wire::print::Head;
use trunkline_sip::wire::{HeaderName, Message, Method};
use uuid::Uuid;

use super::event::{ReferAnswer, TransferEvent};
use super::last::LastTransfer;
use super::transferee::write_context;
use crate::core::context::Cx;
use crate::invite::challenge_answer;
use crate::leg::NewRequest;
use crate::leg::bridge::Bridge;
use crate::leg::own_request::{Pending, Purpose};
use crate::parts::ids::CallRef;
use crate::parts::reply::PAUSE;
use crate::trust::challenge_report::{ChallengeOutcome, Challenger};
use crate::trust::credentials::{ChallengedRequest, Unanswerable};

impl LastTransfer {
    /// Sends the REFER, with answers to the PBX's challenges if there are any, and the context of the call. Returns its CSeq.
    pub(crate) fn send_refer(
        &self,
        bridge: &mut Bridge,
        cx: &mut Cx<'_>,
        ids: &CallRef,
        contact: Option<Uuid>,
    ) -> Option<u32> {
        let fork = bridge.fork()?;
        let id = bridge.trunk_id();
        // The peer's address may have changed.
        let leg = bridge.legs.get(id);
        let destination = leg.and_then(|leg| leg.next_hop(cx, fork));
        let (refer, trunk) = (self.refer()?, bridge.trunk()?);
        let dialog = trunk.first_dialog()?;
        let credentials = trunk.credentials.as_ref().zip(destination);
        // Judged again for each REFER: a digest answer goes to no host but the one that the pair is proven for.
        let proves = credentials.is_some_and(|(credentials, destination)| {
            credentials.may_answer_in(dialog, destination)
        });

        let mut lines = Vec::new();
        let mut head = Head::new(&mut lines);
        head.line("Refer-To", refer.to.as_bytes());
        head.line("Referred-By", dialog.local_address());
        write_context(&mut head, ids, contact, &cx.core.config.header_prefix);
        if proves {
            refer.digest_answers.lines(&mut head);
        }

        let request = NewRequest::bare(fork, Method::Refer, Purpose::Transfer);
        let sent = bridge.send(cx, id, &request, |head| head.raw(&lines))?;
        Some(sent.cseq)
    }

    /// Handles the PBX's final answer to the REFER. `challenger`: the PBX, if its unanswered challenges are reported.
    pub(crate) fn on_refer_answer(
        &mut self,
        bridge: &Bridge,
        cx: &mut Cx<'_>,
        challenger: Option<Challenger>,
        pending: &Pending,
        message: &Message<'_>,
    ) -> TransferEvent {
        let cseq = pending.cseq;
        let answer = match message.status() {
            // RFC 3515 accepts with 202, RFC 6665 with 200: PBXs send either.
            200..=299 if is_without_news(message) => ReferAnswer::AcceptedSilently,
            200..=299 => ReferAnswer::Accepted,
            // A challenge that can't be answered counts as a refusal, after which the bridge may follow.
            401 | 407 if self.answers(bridge, cx, challenger, pending, message) => {
                ReferAnswer::Challenged
            }
            status => ReferAnswer::Refused(status),
        };
        TransferEvent::ReferAnswered { cseq, answer }
    }

    /// Returns whether a challenge is answered, by the credentials of the leg.
    fn answers(
        &mut self,
        bridge: &Bridge,
        cx: &mut Cx<'_>,
        challenger: Option<Challenger>,
        pending: &Pending,
        message: &Message<'_>,
    ) -> bool {
        let Some(digest_answers) = self.digest_answers_for(pending.cseq) else {
            return false;
        };
        let trunk = bridge.trunk();
        let dialog = trunk.and_then(|trunk| trunk.dialog_ref(pending.fork));
        let (Some(trunk), Some(dialog)) = (trunk, dialog) else {
            return false;
        };

        let destination = cx.next_flow(dialog, trunk.flow).peer.ip();
        let challenged = ChallengedMessage {
            method: "REFER",
            uri: dialog.request_uri(),
            body: b"",
        };
        let stage = ChallengedRequest::InDialog(dialog);
        let answered = match &trunk.credentials {
            Some(held) => challenge_answer::answer(
                held,
                cx,
                digest_answers,
                message,
                &challenged,
                stage,
                destination,
            ),
            None => Err(Unanswerable::NoPair),
        };
        if let Err(why) = answered {
            cx.report(challenger, || {
                ChallengeOutcome::unanswered(why, message, destination)
            });
        }
        answered.is_ok()
    }
}

/// Returns the wait before a REFER that has met the PBX's own request is sent again.
pub(crate) fn refer_wait(bridge: &Bridge, cx: &mut Cx<'_>) -> Duration {
    let fork = bridge.fork().unwrap_or_default();
    let trunk = bridge.legs.get(bridge.trunk_id());
    trunk.map_or(PAUSE, |trunk| trunk.glare_wait(cx, fork))
}

fn is_without_news(message: &Message<'_>) -> bool {
    let refer_sub = message.first(HeaderName::ReferSub);
    refer_sub.is_some_and(|refer_sub| refer_sub.trim_ascii().eq_ignore_ascii_case(b"false"))
}
