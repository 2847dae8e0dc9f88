//! Challenges to the requests of a call, answered with the credentials of the leg (RFC 3261 §22).

use std::net::IpAddr;

use trunkline_model::auth_realms::KnownRealm;
use trunkline_sip::auth::client::Asking;
use trunkline_sip::wire::Message;

use super::context::Cx;
use super::credentials::{LegCredentials, OwnChallenges, Stage, Unanswerable};
use super::proofs::Proofs;

impl LegCredentials {
    /// Answers the challenge in a 401 or 407 to the request `asking`, which is sent again to `destination` with [`Proofs::lines`]. Returns what to
    /// remember of its realm.
    pub(crate) fn answer(
        &self,
        cx: &mut Cx<'_>,
        proofs: &mut Proofs,
        response: &Message<'_>,
        asking: &Asking<'_>,
        (stage, destination): (Stage<'_>, IpAddr),
    ) -> Result<Option<KnownRealm>, Unanswerable> {
        let own = OwnChallenges {
            realm: &cx.core.config.realm,
            nonces: &cx.core.nonces,
            shares_user: cx.core.is_inbound_user(self.user()),
        };
        let leads_home = match stage {
            Stage::Initial | Stage::Ringing => self.may_begin_at(destination),
            Stage::InDialog(dialog) => self.lead_home(dialog, destination),
        };
        let random = cx.endpoint.entropy().bits128();
        self.answer_by(proofs, response, asking, (stage, leads_home), own, random)
    }
}
