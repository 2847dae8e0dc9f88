//! How our registrations stand, for whoever asks from outside: one table for the process, by outbound trunk.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;

use dashmap::DashMap;
use trunkline_sip::flow::Transport;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

/// How far a trunk's registration has come.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum State {
    /// The carrier has not answered yet.
    Registering,
    /// It stands.
    Registered,
    /// It doesn't; another attempt follows.
    Failed,
    /// Another node of the installation registers this trunk.
    Elsewhere,
}

impl State {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Registering => "registering",
            Self::Registered => "registered",
            Self::Failed => "failed",
            Self::Elsewhere => "elsewhere",
        }
    }
}

/// What is known of one registration.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Standing {
    /// How far it has come.
    pub state: State,
    /// Since when it stands without a break.
    pub registered_at: Option<Moment>,
    /// When it ends unless it is refreshed.
    pub expires_at: Option<Moment>,
    /// The status of the last final answer; `None` if none came.
    pub sip_code: Option<u16>,
    /// When the next REGISTER goes out.
    pub next_at: Option<Moment>,
}

impl Standing {
    /// Nothing but a state.
    pub const fn bare(state: State) -> Self {
        Self {
            state,
            registered_at: None,
            expires_at: None,
            sip_code: None,
            next_at: None,
        }
    }
}

/// A trunk whose registration has come or gone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// The org.
    pub org: Uuid,
    /// Its outbound trunk.
    pub trunk: Uuid,
    /// What has happened.
    pub what: What,
}

/// What has happened to a trunk's registration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// The carrier has us.
    Registered {
        /// The URI that it was told to call.
        contact: String,
        /// Where it answered.
        registrar: SocketAddr,
        /// Transport of the REGISTER.
        transport: Transport,
        /// Time of the 200.
        registered_at: Moment,
        /// Time at which the carrier drops the registration unless it is refreshed.
        expires_at: Moment,
    },
    /// It has run out, and wasn't renewed.
    Expired,
    /// We have taken it back.
    Removed,
}

/// What came of one attempt.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Tried {
    /// It was accepted.
    Accepted,
    /// It was refused.
    Refused,
    /// Nothing came back.
    Unanswered,
}

impl Tried {
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
pub struct Standings(DashMap<Uuid, Standing>);

impl Standings {
    /// None yet.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// How the trunk's registration stands; `None` if it has none.
    pub fn of(&self, trunk: Uuid) -> Option<Standing> {
        self.0.get(&trunk).map(|standing| *standing)
    }

    /// Says how it stands.
    pub fn set(&self, trunk: Uuid, standing: Standing) {
        self.0.insert(trunk, standing);
    }

    /// It has none any more.
    pub fn forget(&self, trunk: Uuid) {
        self.0.remove(&trunk);
    }

    /// Other nodes register these trunks, and no further ones.
    pub fn elsewhere(&self, trunks: &HashSet<Uuid>) {
        self.0
            .retain(|trunk, standing| standing.state != State::Elsewhere || trunks.contains(trunk));
        for trunk in trunks {
            // One that was ours a moment ago is being taken back first.
            self.0
                .entry(*trunk)
                .or_insert(Standing::bare(State::Elsewhere));
        }
    }

    /// How many there are in each state: registering, registered, failed.
    pub fn counts(&self) -> [(State, usize); 3] {
        [State::Registering, State::Registered, State::Failed].map(|state| {
            let of_state = self.0.iter().filter(|standing| standing.state == state);
            (state, of_state.count())
        })
    }

    /// How many this node may have at carriers.
    pub fn held(&self) -> usize {
        let elsewhere = |standing: &Standing| standing.state == State::Elsewhere;
        self.0.iter().filter(|entry| !elsewhere(entry)).count()
    }
}
