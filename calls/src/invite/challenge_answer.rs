//! Answers to challenges, by the credentials of the leg that is challenged (RFC 3261 §22).

use std::net::IpAddr;

use trunkline_model::auth_realms::KnownRealm;
use trunkline_sip::auth::client::ChallengedMessage;
use trunkline_sip::wire::Message;

use crate::core::context::Cx;
use crate::trust::credentials::{ChallengedRequest, LegCredentials, OwnChallenges, Unanswerable};
use crate::trust::digest_answers::DigestAnswers;

/// Answers the challenge in a 401 or 407 to the request `challenged`, which is sent again to `destination` with [`DigestAnswers::lines`]. Returns what to
/// remember of its realm.
pub(crate) fn answer(
    credentials: &LegCredentials,
    cx: &mut Cx<'_>,
    digest_answers: &mut DigestAnswers,
    response: &Message<'_>,
    challenged: &ChallengedMessage<'_>,
    stage: ChallengedRequest<'_>,
    destination: IpAddr,
) -> Result<Option<KnownRealm>, Unanswerable> {
    let own = OwnChallenges {
        realm: &cx.core.config.realm,
        nonces: &cx.core.nonces,
        shares_user: cx.core.is_inbound_user(credentials.user()),
    };

    let in_scope = match stage {
        ChallengedRequest::Initial | ChallengedRequest::Ringing => {
            credentials.may_begin_at(destination)
        }
        ChallengedRequest::InDialog(dialog) => credentials.may_answer_in(dialog, destination),
    };

    let random = cx.endpoint.entropy().bits128();
    credentials.answer_by(
        digest_answers,
        response,
        challenged,
        (stage, in_scope),
        own,
        random,
    )
}
