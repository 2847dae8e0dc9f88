//! Answers to a carrier's challenges of our REGISTERs (RFC 3261 §22).

use std::sync::Arc;

use trunkline_sip::auth::client::ChallengedMessage;
use trunkline_sip::endpoint::Endpoint;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::{PeerReply, Peers, PeersEffect};
use crate::trust::challenge_report::{ChallengeOutcome, ChallengeReport, Challenger};
use crate::trust::credentials::{ChallengedRequest, LegCredentials, OwnChallenges, Unanswerable};

impl Peers {
    /// Prepares the answer to a challenge; false if it can't be answered, or was answered before.
    pub(super) fn answers(
        &mut self,
        endpoint: &mut Endpoint,
        trunk: Uuid,
        reply: PeerReply<'_>,
        now: Moment,
    ) -> bool {
        let random = endpoint.entropy().bits128();
        let (PeerReply::Message(message), Some(registration)) =
            (reply, self.carriers.get_mut(&trunk))
        else {
            return false;
        };

        let registering = &registration.registering;
        let (Some(current), Some(mut credentials)) = (
            &registration.current,
            LegCredentials::of_trunk(&registering.way),
        ) else {
            return false;
        };

        let challenged = ChallengedMessage {
            method: "REGISTER",
            uri: current.target.uri.as_bytes(),
            body: b"",
        };

        let own = OwnChallenges {
            realm: &self.config.realm,
            nonces: &self.config.nonces,
            shares_user: registering.shares_user,
        };

        let answered = match registration.may_ask_again() {
            true => {
                let digest_answers = &mut registration.digest_answers;
                // REGISTER goes to the trunk's own host.
                let stage = (ChallengedRequest::Initial, true);
                credentials.answer_by(digest_answers, message, &challenged, stage, own, random)
            }
            false => Err(Unanswerable::Refused),
        };

        let is_answered = answered.is_ok();
        let news = match answered {
            Ok(None) => return true,
            Ok(Some(seen)) => {
                credentials.learn(&seen);
                ChallengeOutcome::Seen(seen)
            }
            Err(why) => ChallengeOutcome::unanswered(why, message, current.flow.peer.ip()),
        };

        // Until the directory has the realms, the next REGISTER uses those learned here.
        if let Some(realms) = credentials.realms() {
            Arc::make_mut(&mut registration.registering.way).realms = realms;
        }

        let challenged = Box::new(ChallengeReport {
            challenger: Challenger::of_trunk(&registration.registering.way),
            at: now,
            news,
        });
        self.effects.push(PeersEffect::Challenged(challenged));
        is_answered
    }
}
