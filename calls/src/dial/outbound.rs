//! Outbound calls as they are ordered, and what is kept of one besides its legs. The call itself is set up by `calling`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use trunkline_model::settings::Runtime;
use trunkline_model::tied::Namer;
use trunkline_routing::E164;
use uuid::Uuid;

use crate::leg::runtime_chain::RuntimeChain;
use crate::leg::uas_invite::ContactState;

/// An outbound call that the API ordered.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NewOutboundCall {
    /// The org.
    pub org: Uuid,
    /// Agent that speaks.
    pub agent: Uuid,
    /// Number that is called.
    pub number: E164,
    /// Ringing time.
    pub ringing_timeout: Duration,
    /// Longest duration, from the answer on.
    pub max_duration: Duration,
    /// The client's own words about the call, as JSON.
    pub metadata: Option<Box<str>>,
}

/// A call that has been begun.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PlacedCall {
    /// The call.
    pub call: Uuid,
    /// Its session.
    pub session: Uuid,
}

/// State of an outbound call besides its legs.
#[derive(Debug)]
pub(crate) struct Outbound {
    /// URIs of both ends: the callee's and ours.
    pub(crate) parties: [Box<str>; 2],
    /// The runtime over SIP that is invited once the callee has answered; `None` while the agent's audio passes through us.
    pub(crate) runtime: Option<Arc<Runtime>>,
    /// Party that named the hosts of the runtime.
    pub(crate) namer: Namer,
    pub(crate) krisp: bool,
    pub(crate) contact: ContactState,
    pub(crate) ringing_timeout: Duration,
    pub(crate) max_duration: Duration,
    /// Our RTP address in the first offer, until other media replace it.
    pub(crate) media: Option<SocketAddr>,
    /// Runtimes left to try if `runtime` can't be reached.
    pub(crate) chain: Option<Box<RuntimeChain>>,
}

/// User parts of both ends: the number that is called, and the caller's.
pub(crate) fn users(parties: &[Box<str>; 2]) -> [&str; 2] {
    parties.each_ref().map(|uri| user_of(uri))
}

/// The user part of a URI of ours.
fn user_of(uri: &str) -> &str {
    let (_, rest) = uri.split_once(':').unwrap_or_default();
    rest.split_once('@').map_or(rest, |(user, _)| user)
}

impl Outbound {
    /// User parts of both ends: the number that is called, and the caller's.
    pub(crate) fn users(&self) -> [&str; 2] {
        users(&self.parties)
    }

    /// Notes that a runtime over SIP follows a bot. Our media at `local` stay open until the callee has the runtime's media.
    pub(crate) fn follow(
        &mut self,
        chain: RuntimeChain,
        runtime: Runtime,
        local: Option<SocketAddr>,
    ) {
        self.media = local;
        self.runtime = Some(Arc::new(runtime));
        self.namer = chain.namer().clone();
        self.chain = Some(Box::new(chain));
    }

    /// Takes the result of the contact lookup; false if it isn't awaited.
    pub(crate) fn end_look_up(&mut self, contact: Option<Uuid>) -> bool {
        let is_awaited = self.contact == ContactState::Pending;
        if is_awaited {
            self.contact = ContactState::Known(contact);
        }
        is_awaited
    }

    /// Returns whether we have open media that nothing else closes.
    pub(crate) const fn has_media(&self) -> bool {
        self.media.is_some()
    }
}
