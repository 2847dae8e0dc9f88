//! Challenges to the requests of a call, answered with the credentials of the leg (RFC 3261 §22).

use std::net::IpAddr;

use trunkline_model::auth_realms::KnownRealm;
use trunkline_sip::auth::client::ChallengedMessage;
use trunkline_sip::wire::Message;

use super::context::Cx;
use super::credentials::{ChallengedRequest, LegCredentials, OwnChallenges, Unanswerable};
use super::digest_answers::DigestAnswers;

impl LegCredentials {
    /// Answers the challenge in a 401 or 407 to the request `challenged`, which is sent again to `destination` with [`DigestAnswers::lines`]. Returns what to
    /// remember of its realm.
    pub(crate) fn answer(
        &self,
        cx: &mut Cx<'_>,
        digest_answers: &mut DigestAnswers,
        response: &Message<'_>,
        challenged: &ChallengedMessage<'_>,
        (stage, destination): (ChallengedRequest<'_>, IpAddr),
    ) -> Result<Option<KnownRealm>, Unanswerable> {
        let own = OwnChallenges {
            realm: &cx.core.config.realm,
            nonces: &cx.core.nonces,
            shares_user: cx.core.is_inbound_user(self.user()),
        };
        let in_scope = match stage {
            ChallengedRequest::Initial | ChallengedRequest::Ringing => {
                self.may_begin_at(destination)
            }
            ChallengedRequest::InDialog(dialog) => self.may_answer_in(dialog, destination),
        };
        let random = cx.endpoint.entropy().bits128();
        self.answer_by(
            digest_answers,
            response,
            challenged,
            (stage, in_scope),
            own,
            random,
        )
    }
}
