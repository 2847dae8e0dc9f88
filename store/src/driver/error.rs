//! Errors of the store, in three classes: the caller is wrong, the store refuses, or something broke.

use rusqlite::ErrorCode;
use trunkline_routing::E164;
use uuid::Uuid;

use super::org_limit::OrgLimit;

/// Error of a store function.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller is wrong: repeating the call gives the same error.
    #[error(transparent)]
    Wrong(#[from] Wrong),
    /// The request is valid, but conflicts with stored data.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// The store failed.
    #[error(transparent)]
    Broke(#[from] Broke),
}

/// Error of the caller. Data of another org counts as absent.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Wrong {
    /// The requested row doesn't exist.
    #[error("there is no such {0}")]
    Absent(Kind),
    /// An id inside the request names nothing of this org.
    #[error("{id} is not {} of this org", .kind.with_article())]
    Unknown {
        /// Kind of row that the id should name.
        kind: Kind,
        /// The id as given.
        id: Uuid,
    },
    /// A number inside the request isn't a verified number of this org.
    #[error("{0} is not a verified number of this org")]
    NotVerified(E164),
    /// Faulty entries of a list, by index.
    #[error("{}", together(.0))]
    Entries(Vec<(usize, Wrong)>),
    /// A trunk was to be created without naming numbers, and the org has no verified one.
    #[error(
        "the org has no verified number: add one (POST /phone/numbers), and have your partner \
         (POST /partner/v1/orgs/{{orgId}}/phone-numbers/{{phoneNumberId}}/verify) or the operator (trunkline number verify) verify it"
    )]
    NoVerifiedNumber,
    /// A text holds a character that PostgreSQL doesn't store.
    #[error("a text must not hold the character NUL")]
    Text,
}

/// Conflict of a request with stored data.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Conflict {
    /// The partner has an org of this external id.
    #[error("an org with the external id {0:?} exists")]
    ExternalIdTaken(String),
    /// The partner was deactivated, so that it gets no further org.
    #[error("the partner account is inactive")]
    PartnerInactive,
    /// The partner has as many orgs as it may have.
    #[error("the partner may have {most} orgs, and has them already: the operator can allow more")]
    TooManyOrgs {
        /// The most that it may have.
        most: u32,
    },
    /// The claim on an `Idempotency-Key` has ended before the answer was stored: another request may have the key by now.
    #[error(
        "the request took so long that its Idempotency-Key was free again, and has changed nothing"
    )]
    ClaimEnded,
    /// The org lists the number already.
    #[error("{0} is one of this org's numbers already")]
    NumberExists(E164),
    /// Another org has verified the number.
    #[error("{0} can't be verified: another org has verified it")]
    NumberVerifiedElsewhere(E164),
    /// Another agent of the org holds the number.
    #[error("{number} is assigned to the agent {agent_name:?} ({agent})")]
    NumberHeld {
        /// The number.
        number: E164,
        /// Its agent.
        agent: Uuid,
        /// The agent's name.
        agent_name: String,
    },
    /// An org has one inbound trunk.
    #[error("the org has an inbound trunk already")]
    TrunkExists,
    /// Agents dial through the outbound trunk.
    #[error("the trunk is used by {}", listed(.agents))]
    TrunkInUse {
        /// Ids and names of the agents.
        agents: Vec<(Uuid, String)>,
    },
    /// The network is dedicated to another org.
    #[error("{network} is dedicated to the org {org} already")]
    NetworkDedicated {
        /// The network.
        network: ipnet::IpNet,
        /// The org.
        org: Uuid,
    },
    /// The org has a destination of this name, ignoring case.
    #[error("the org has a destination called {0:?} already")]
    NameTaken(String),
    /// The operator gives an org the name of another.
    #[error("an org called {0:?} exists already: commands find orgs by their names")]
    OrgNameTaken(String),
    /// The operator gives a partner the name of another.
    #[error("a partner called {0:?} exists already: commands find partners by their names")]
    PartnerNameTaken(String),
    /// The object was changed since the version that the edit was made for.
    #[error("it was changed meanwhile: its version is {version}")]
    Outdated {
        /// Version of the object now.
        version: String,
    },
    /// The org would be left without a member who may change things.
    #[error("the org's last administrator is {email}: make another member one first")]
    LastAdministrator {
        /// The member's address.
        email: String,
    },
    /// No next token of the org's bots was made.
    #[error("there is no next token: make one first (POST /phone/bot-token)")]
    NoNextToken,
    /// The org has as many prompts as it may have.
    #[error("the org may have {most} prompts, and has them already")]
    TooManyPrompts {
        /// The bound.
        most: u32,
    },
    /// An agent plays the prompt.
    #[error("agent {agent:?} plays the prompt: change its runtime first")]
    PromptInUse {
        /// Name of an agent that plays it.
        agent: String,
    },
    /// A flow plays a prompt that the org doesn't have, or no longer.
    #[error("there is no prompt {0}: it may just have been deleted")]
    PromptAbsent(Uuid),
    /// A call of the contact is up.
    #[error("the contact is in a call: end it, or try again once it has ended")]
    ContactOnCall,
    /// The org has reached a limit.
    #[error("{}", .limit.reached(*.most))]
    AtLimit {
        /// The limit.
        limit: OrgLimit,
        /// The most that the org may have.
        most: u32,
    },
    /// A partner sets a limit above what the operator allows.
    #[error("{}: the operator allows {allowed} at most", .limit.as_str())]
    AboveAllowed {
        /// The limit.
        limit: OrgLimit,
        /// The most that the partner may set.
        allowed: u32,
    },
    /// Another process serves as this node.
    #[error(
        "node {node} is served by {host}: give this one another number with sip.node, or stop that one"
    )]
    NodeServed {
        /// The node.
        node: u8,
        /// Host of the other process.
        host: String,
    },
}

/// Failure of the store.
#[derive(Debug, thiserror::Error)]
pub enum Broke {
    /// PostgreSQL answered with an error or not at all.
    #[error("database: {0}")]
    Postgres(#[from] sqlx::Error),
    /// The database can't be reached.
    #[error("the database is away")]
    Away,
    /// All transaction threads are busy for longer than a request can wait.
    #[error("the database is busy")]
    Busy,
    /// The store is closed.
    #[error("the database is closed")]
    Closed,
    /// A transaction was left open for too long, and has been rolled back.
    #[error("the transaction was left open for too long")]
    Late,
    /// SQLite answered with an error.
    #[error("database: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// A transaction thread can't be started.
    #[error("database threads: {0}")]
    Thread(std::io::Error),
    /// A query that always returns a row returned none.
    #[error("a query has no row")]
    NoRow,
    /// A column isn't of the expected type.
    #[error("the column {column} can't be read: {source}")]
    Column {
        /// The column.
        column: String,
        /// The fault.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A sealed value can't be opened with the known keys.
    #[error("a sealed value can't be opened: it was sealed with another key or altered")]
    Seal,
    /// A stored value isn't one that this version writes.
    #[error("the column {column} holds what this version doesn't understand")]
    Stored {
        /// The column.
        column: &'static str,
    },
    /// The key file could not be written.
    #[error("keys: {0}")]
    Keys(#[from] std::io::Error),
}

impl Broke {
    /// Returns whether the failure may pass by itself: the database is unreachable, refuses connections for now, or is locked by another
    /// program.
    pub fn is_away(&self) -> bool {
        match self {
            Self::Away | Self::Busy | Self::Closed | Self::Late => true,
            Self::Postgres(error) => passes(error),
            Self::Sqlite(error) => matches!(
                error.sqlite_error_code(),
                Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
            ),
            Self::Thread(_)
            | Self::NoRow
            | Self::Column { .. }
            | Self::Seal
            | Self::Stored { .. }
            | Self::Keys(_) => false,
        }
    }
}

impl Error {
    /// Returns whether a unique constraint was violated.
    pub(crate) fn is_taken(&self) -> bool {
        match self {
            Self::Broke(Broke::Postgres(fault)) => fault
                .as_database_error()
                .is_some_and(|fault| fault.is_unique_violation()),
            Self::Broke(Broke::Sqlite(fault)) => fault
                .sqlite_error()
                .is_some_and(|fault| [UNIQUE, PRIMARY_KEY].contains(&fault.extended_code)),
            Self::Broke(_) | Self::Wrong(_) | Self::Conflict(_) => false,
        }
    }
}

/// `SQLITE_CONSTRAINT_UNIQUE` and `SQLITE_CONSTRAINT_PRIMARYKEY`.
const UNIQUE: i32 = 2067;
const PRIMARY_KEY: i32 = 1555;

/// Returns whether an error of the driver means that the server is away.
fn passes(error: &sqlx::Error) -> bool {
    /// `connection_exception`, and the codes of a server that has no room, goes down or comes up: `too_many_connections`, `admin_shutdown`,
    /// `crash_shutdown`, `cannot_connect_now`.
    const AWAY: [&str; 5] = ["08", "53300", "57P01", "57P02", "57P03"];
    match error.as_database_error() {
        Some(fault) => {
            let code = fault.code().unwrap_or_default();
            AWAY.iter().any(|away| code.starts_with(away))
        }
        None => matches!(error, sqlx::Error::Io(_)),
    }
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        Self::Broke(Broke::Sqlite(error))
    }
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        /// `character_not_in_repertoire`.
        const NUL: &str = "22021";
        // A client's text with a NUL, which PostgreSQL can't store, is a fault of the request and not of the database.
        let code = error.as_database_error().and_then(|fault| fault.code());
        if code.as_deref() == Some(NUL) {
            Self::Wrong(Wrong::Text)
        } else {
            Self::Broke(Broke::Postgres(error))
        }
    }
}

/// Kinds of rows that callers name.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Phone agent.
    Agent,
    /// Org.
    Org,
    /// Org API key.
    OrgKey,
    /// Partner.
    Partner,
    /// Partner key.
    PartnerKey,
    /// Phone number.
    Number,
    /// Inbound trunk.
    InboundTrunk,
    /// Outbound trunk.
    OutboundTrunk,
    /// Transfer destination.
    Destination,
    /// Dedicated network.
    Dedication,
    /// Tied peer.
    TiedPeer,
    /// Network of media.
    MediaAddress,
    /// Call.
    Call,
    /// Contact.
    Contact,
    /// Member of an org.
    Member,
    /// Role of an org's members.
    Role,
    /// A call's session.
    Session,
    /// Session of the dashboard.
    DashboardSession,
    /// Webhook.
    Webhook,
    /// Delivery to a webhook.
    Delivery,
    /// Erasure of a contact.
    Erasure,
    /// Token of the org's bots.
    BotToken,
    /// Prompt of built-in agents.
    Prompt,
    /// Handoff.
    Handoff,
}

impl Kind {
    fn with_article(self) -> String {
        match self {
            Self::Agent
            | Self::Erasure
            | Self::Org
            | Self::OrgKey
            | Self::InboundTrunk
            | Self::OutboundTrunk => {
                format!("an {self}")
            }
            Self::Partner
            | Self::PartnerKey
            | Self::Number
            | Self::Destination
            | Self::Dedication
            | Self::TiedPeer
            | Self::MediaAddress
            | Self::Call
            | Self::Contact
            | Self::Member
            | Self::Role
            | Self::Session
            | Self::DashboardSession
            | Self::Webhook
            | Self::BotToken
            | Self::Prompt
            | Self::Handoff
            | Self::Delivery => format!("a {self}"),
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Agent => "agent",
            Self::Org => "org",
            Self::OrgKey => "API key",
            Self::Partner => "partner",
            Self::PartnerKey => "partner key",
            Self::Number => "phone number",
            Self::InboundTrunk => "inbound trunk",
            Self::OutboundTrunk => "outbound trunk",
            Self::Destination => "transfer destination",
            Self::Dedication => "dedicated network",
            Self::TiedPeer => "tied peer",
            Self::MediaAddress => "media address",
            Self::Call => "call",
            Self::Contact => "contact",
            Self::Member => "member",
            Self::Role => "role",
            Self::BotToken => "bot token",
            Self::Prompt => "prompt",
            Self::Handoff => "handoff",
            Self::Webhook => "webhook",
            Self::Delivery => "delivery",
            Self::Session => "session",
            Self::DashboardSession => "session of the dashboard",
            Self::Erasure => "erasure",
        })
    }
}

fn together(entries: &[(usize, Wrong)]) -> String {
    let faults: Vec<_> = entries.iter().map(|(_, fault)| fault.to_string()).collect();
    faults.join("; ")
}

fn listed(agents: &[(Uuid, String)]) -> String {
    let names: Vec<_> = agents
        .iter()
        .map(|(id, name)| format!("the agent {name:?} ({id})"))
        .collect();
    names.join(", ")
}
