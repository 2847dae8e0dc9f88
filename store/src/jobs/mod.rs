//! Background work of a node for all orgs: deliveries of webhooks, and deletion of old and removed rows.

pub mod aged;
pub mod deliveries;
pub mod purge;
