//! State that all calls of a shard share, and the effects that they ask of the engine.

pub(crate) mod acknowledge;
pub(crate) mod context;
pub(crate) mod effect;
pub mod live;
pub(crate) mod next_hop;
pub(crate) mod resolver_cache;
pub(crate) mod traced;
pub(crate) mod uncertain_acks;
