//! Routing of an inbound call to an agent: numbers, the view of one org, the four steps, and the decision with its trail.
//!
//! Pure: no clock, no socket, no database. The decision depends on [`Facts`], [`Org`] and the answer to whether an agent is at its limit,
//! and on nothing else: the same inputs give the same [`Decision`] in a live call, a route test and a replay.
//!
//! # Example
//!
//! The agent that holds the dialled number takes the call:
//!
//! ```
//! use std::collections::{HashMap, HashSet};
//!
//! use trunkline_routing::{Agent, E164, Facts, Org, Outcome, Step, decide};
//! use uuid::Uuid;
//!
//! let agent = Agent {
//!     id: Uuid::from_u128(1),
//!     name: "Support".into(),
//!     inbound: true,
//!     enabled: true,
//!     max_concurrent_calls: None,
//!     created: 0,
//! };
//! let number = E164::parse("+442071838750").unwrap();
//! let org = Org {
//!     id: Uuid::from_u128(2),
//!     agents: vec![agent.clone()],
//!     held: HashMap::from([(number, agent.id)]),
//!     numbers: HashSet::from([number]),
//!     trunk: None,
//!     max_concurrent_calls: None,
//! };
//!
//! let facts = Facts {
//!     request_user: Some("+442071838750".to_owned()),
//!     ..Facts::default()
//! };
//! let decision = decide(&facts, &org, &|_| false);
//! assert_eq!(
//!     decision.outcome,
//!     Outcome::Agent { id: agent.id, step: Step::AssignedNumber }
//! );
//! ```

#![warn(missing_docs)]

pub mod country;
pub mod decide;
pub mod decision;
pub mod directory;
pub mod e164;
pub mod facts;
mod near_miss;
pub mod numbers;
mod pattern;
mod sentences;
pub mod tariff;

pub use country::Country;
pub use decide::decide;
pub use decision::{
    AgentState, Decision, NearMiss, NumberDifference, Outcome, Step, StepFinding, StepPlace,
    TrailEntry,
};
pub use directory::{Agent, Org, Trunk};
pub use e164::E164;
pub use facts::{Caller, Dialled, Facts};
