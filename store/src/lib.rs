//! Persistence: all SQL, one file for each aggregate, for SQLite and PostgreSQL alike, and the [`journal`] of calls.
//!
//! A function of an aggregate takes the org first, so that a query across tenants can't be written by accident; data that belongs to no org
//! (partners, nodes, the change feed) has a type of its own. Knows nothing of HTTP, SIP messages or sockets.
//!
//! Such a function is synchronous and takes a transaction ([`Tx`]). [`Store::read`] and [`Store::write`] run it on a thread that has a connection of
//! its own (`threads`); [`Store::read_inline`] makes short reads of SQLite on the calling thread. What a transaction changes for the directory
//! ([`feed`]), its events ([`events`]) and its entry in the audit log ([`audit`], on whose behalf: [`Acting`]) are written with its commit.
//!
//! The folders are rooms, from top to bottom; an import only goes down, but for those of [`Store`] itself (`tests/invariants/rooms.rs`):
//!
//! - `access`: opening and migrating a database, the pool, and a transaction from its beginning to its commit.
//! - [`erasing`]: what an erasure of a contact changes. `jobs`: deliveries of webhooks, deletion of what is old or removed.
//! - [`calls`]: calls and what happens in them: rows and their projection from facts, lists, contacts, transfers, handoffs, events, usage.
//! - `telephony`: what routes calls, and the rows that the directory is made of. `tenants`: orgs, partners, and what they own beside telephony.
//! - `driver`: both databases behind one [`Tx`], errors, and the parts that every aggregate uses.
//! - [`journal`]: facts of calls on disk until they are rows.
//! - `files`: private files, files written whole, and the priority of the threads that write.
//!
//! Outside of this crate a module has no room in its path.

mod access;
pub mod calls;
mod driver;
pub mod erasing;
mod files;
mod jobs;
pub mod journal;
mod telephony;
mod tenants;

pub use access::disk_fault::DiskFault;
pub use access::effects::Effects;
pub use access::in_force::Follower;
pub use access::open::{DatabaseAtStartup, Options};
pub use access::signal::Signal;
pub use access::store::Store;
pub use calls::anonymous::ANONYMOUS;
pub use calls::call_ends::{CallEnd, CallEnds};
pub use calls::call_search::CallFilter;
pub use calls::contacts::{Contact, Contacts};
pub use calls::explained::{Explained, Recorded};
pub use calls::handoffs::{Handoff, HandoffFilter, NewHandoff, Reason, Sentiment, SessionHandoff};
pub use calls::identify::ContactDetails;
pub use calls::of_contact::{ContactCall, ContactSearch};
pub use calls::projection::project;
pub use calls::transfers::CallTransfer;
pub use calls::usage::{CallSeconds, UsageParts, UsageRow, UsageWindow, whole_seconds};
pub use calls::{
    Call, attempts, call_ends, call_figures, calls_up, events, explained, handoffs, lost,
    of_contact, transfers, usage,
};
pub use driver::acting::{Acting, Actor, ActorKind, AuditedAction};
pub use driver::change::Change;
pub use driver::column::written;
pub use driver::error::{Broke, Conflict, Error, Kind, Wrong};
pub use driver::event::{Event, EventType, NewEvent, RegisteredPbx};
pub use driver::keyring::{Keyring, RetiredKey, SigningPair, TokenKind};
pub use driver::open_fault::OpenFault;
pub use driver::org_limit::{DefaultLimits, OrgLimit, StoredLimit};
pub use driver::page::{Narrow, Page, Position};
pub use driver::tx::Tx;
pub use driver::{clock, feed};
pub use erasing::erasures::{
    Erased, ErasedLegs, Erasure, ErasureNode, KeptConfiguration, OpenErasure,
};
pub use erasing::subject::Subject;
pub use erasing::{RowsErased, erasures};
pub use files::{priority, private, whole_file};
pub use jobs::deliveries::{
    Attempt, Delivery, DeliveryState, DueWebhook, LeasedDelivery, Outcome, PartnerOfOrg,
};
pub use jobs::{aged, deliveries, purge};
pub use telephony::agent_config::AgentConfig;
pub use telephony::agents::{Agent, AgentChange, AgentKind, NewAgent};
pub use telephony::auth_failures::{AuthFailure, FailingSource, NewAuthFailure};
pub use telephony::bot_tokens::BotToken;
pub use telephony::challenges::{UnansweredChallenge, UnansweredOf};
pub use telephony::dedications::Dedication;
pub use telephony::destinations::{Destination, DestinationChange, NewDestination};
pub use telephony::inbound_trunks::{InboundTrunk, InboundTrunkChange, Synced};
pub use telephony::media_addresses::MediaAddress;
pub use telephony::number_codes::{CodeLimit, MadeCode, TRIES, TriedCode};
pub use telephony::numbers::Number;
pub use telephony::old_pairs::OldPair;
pub use telephony::outbound_trunks::{NewOutboundTrunk, OutboundTrunk, OutboundTrunkChange};
pub use telephony::prompts::Prompt;
pub use telephony::snapshot::{OldCredentials, OrgRows, rows_of};
pub use telephony::tied_peers::TiedPeer;
pub use telephony::{
    agent_config, agents, auth_failures, bot_tokens, challenges, dedications, destinations,
    inbound_trunks, media_addresses, names, number_codes, numbers, old_pairs, outbound_trunks,
    prompts, registrations, tied_peers,
};
pub use tenants::audit::{AuditEntry, AuditFilter, AuditScope};
pub use tenants::deleted_orgs::{DeletedOrg, Purge};
pub use tenants::idempotency::{Claim, RequestKey, StoredAnswer};
pub use tenants::integrations::{Integration, NewBooking};
pub use tenants::logins::{
    Access, LoginLink, Member, NewLogin, OPERATOR_EMAIL, Role, is_operators_address,
};
pub use tenants::node_commands::{CommandState, NodeCommand};
pub use tenants::nodes::{NodeState, NodeStatus, Renewal, Serving, SilentNode};
pub use tenants::org_keys::{Issued, IssuedBy, NewOrgKey, OrgKey, SignedKeys};
pub use tenants::org_limits::{LimitChanges, LimitedBy, StoredLimits};
pub use tenants::orgs::{NewOrg, Org, OrgChange, SuspendedBy, Suspender};
pub use tenants::partners::{NewPartner, Partner, PartnerKey};
pub use tenants::password::Password;
pub use tenants::retention::{Retained, RetentionChange, RetentionDays};
pub use tenants::sessions::{ListedSession, Session, TokenHash};
pub use tenants::versions::Versioned;
pub use tenants::webhooks::{NewWebhook, Webhook, WebhookChange};
pub use tenants::{
    audit, deleted_orgs, idempotency, integrations, logins, node_commands, nodes, org_keys,
    org_limits, orgs, partners, realm, sessions, versions, webhooks,
};
