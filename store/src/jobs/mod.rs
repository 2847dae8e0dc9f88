//! What a node does for all orgs in the background: deliveries of webhooks, and deletion of what is old or removed.

pub mod aged;
pub mod deliveries;
pub mod purge;
