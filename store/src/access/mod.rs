//! The way to the database: opening and migrating it, the pool, and a transaction from its beginning to the commit that writes its changes, events and audit entry.

pub(crate) mod commit;
pub(crate) mod disk_fault;
pub(crate) mod effects;
pub(crate) mod in_force;
pub(crate) mod migrate;
pub(crate) mod open;
pub(crate) mod pool;
pub(crate) mod reseal;
pub(crate) mod secrets;
pub(crate) mod signal;
pub(crate) mod store;
