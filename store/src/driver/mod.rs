//! SQLite and PostgreSQL behind one transaction: connections, threads, values and columns, errors, and the parts that every aggregate uses.

pub(crate) mod acting;
pub(crate) mod caller;
pub(crate) mod change;
pub mod clock;
pub(crate) mod column;
pub(crate) mod edit;
pub(crate) mod error;
pub(crate) mod event;
pub mod feed;
pub(crate) mod ids;
pub(crate) mod keyring;
pub(crate) mod latency;
pub(crate) mod open_fault;
pub(crate) mod org_limit;
pub(crate) mod org_turns;
pub(crate) mod page;
pub(crate) mod postgres;
pub(crate) mod rows;
pub(crate) mod server;
pub(crate) mod sqlite;
pub(crate) mod threads;
pub(crate) mod tx;
pub(crate) mod value;
