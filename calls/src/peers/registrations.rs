//! Status of our registrations with carriers, for the API and metrics: one table for the process, by outbound trunk.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;

use dashmap::DashMap;
use serde::{Deserialize, Serialize};
use trunkline_sip::flow::Transport;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

/// State of a trunk's registration.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The carrier has not answered yet.
    Registering,
    /// Registered.
    Registered,
    /// Failed, will retry.
    Failed,
    /// Another node of the installation registers this trunk.
    #[serde(rename = "elsewhere")]
    OtherNode,
}

impl State {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Registering => "registering",
            Self::Registered => "registered",
            Self::Failed => "failed",
            Self::OtherNode => "elsewhere",
        }
    }
}

/// Status of one registration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegistrationStatus {
    /// Its state.
    pub state: State,
    /// Start of the uninterrupted registration.
    pub registered_at: Option<Moment>,
    /// Expiry, unless it is refreshed.
    pub expires_at: Option<Moment>,
    /// Status of the last final answer; `None` if there was none.
    pub sip_code: Option<u16>,
    /// Time of the next REGISTER.
    pub next_at: Option<Moment>,
    /// Route of calls by this registration, as the carrier's last 200 has it: the value of a Route header (RFC 3608).
    pub service_route: Option<Arc<str>>,
}

impl RegistrationStatus {
    /// Status of which only the state is known.
    pub const fn bare(state: State) -> Self {
        Self {
            state,
            registered_at: None,
            expires_at: None,
            sip_code: None,
            next_at: None,
            service_route: None,
        }
    }
}

/// A trunk whose registration was granted or has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegistrationChange {
    /// The org.
    pub org: Uuid,
    /// Its outbound trunk.
    pub trunk: Uuid,
    /// The change.
    pub what: RegistrationChangeKind,
}

/// Change of a trunk's registration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RegistrationChangeKind {
    /// The carrier has registered us.
    Registered {
        /// The URI in our Contact.
        contact: String,
        /// Address of the registrar.
        registrar: SocketAddr,
        /// Transport of the REGISTER.
        transport: Transport,
        /// Time of the 200.
        registered_at: Moment,
        /// Time at which the carrier drops the registration unless it is refreshed.
        expires_at: Moment,
    },
    /// It has expired without a renewal.
    Expired,
    /// We have removed it.
    Removed,
}

/// Result of one attempt.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum RegisterOutcome {
    /// It was accepted.
    Accepted,
    /// It was refused.
    Refused,
    /// Nothing came back.
    Unanswered,
}

impl RegisterOutcome {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Refused => "refused",
            Self::Unanswered => "unanswered",
        }
    }
}

/// Every registration of ours.
#[derive(Debug, Default)]
pub struct Registrations(DashMap<Uuid, RegistrationStatus>);

impl Registrations {
    /// None yet.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Returns the status of a trunk's registration; `None` if it has none.
    pub fn of(&self, trunk: Uuid) -> Option<RegistrationStatus> {
        self.0.get(&trunk).map(|status| status.clone())
    }

    /// Returns the route that the carrier of a trunk has given for calls by its registration; `None` if it has given none.
    pub fn service_route(&self, trunk: Uuid) -> Option<Arc<str>> {
        self.0.get(&trunk)?.service_route.clone()
    }

    /// Sets the status of a trunk's registration.
    pub fn set(&self, trunk: Uuid, status: RegistrationStatus) {
        self.0.insert(trunk, status);
    }

    /// Removes a trunk that isn't registered any more.
    pub fn forget(&self, trunk: Uuid) {
        self.0.remove(&trunk);
    }

    /// Sets the trunks that other nodes register.
    pub fn set_remote(&self, trunks: &HashSet<Uuid>) {
        self.0
            .retain(|trunk, status| status.state != State::OtherNode || trunks.contains(trunk));
        for trunk in trunks {
            // One that was ours until now is being removed first.
            self.0
                .entry(*trunk)
                .or_insert(RegistrationStatus::bare(State::OtherNode));
        }
    }

    /// Counts the registrations in each state: registering, registered, failed.
    pub fn counts(&self) -> [(State, usize); 3] {
        [State::Registering, State::Registered, State::Failed].map(|state| {
            let of_state = self.0.iter().filter(|status| status.state == state);
            (state, of_state.count())
        })
    }

    /// Returns the number of registrations that this node may have with carriers.
    pub fn held(&self) -> usize {
        let set_remote = |status: &RegistrationStatus| status.state == State::OtherNode;
        self.0.iter().filter(|entry| !set_remote(entry)).count()
    }
}
