//! Sends events to the receivers of orgs, signed according to Standard Webhooks.
//!
//! The queue is in the store: a delivery is committed with its event. Here it is leased, sent, retried over days, and
//! given up. Must not know HTTP servers, calls or SIP.

mod fetch;
mod lookup;
mod post;
mod schedule;
mod sender;
mod signature;
mod status_callback;
mod target;

pub use fetch::Fetcher;
pub use post::trusted;
pub use sender::{Running, WebhookSender};
pub use signature::new_secret;
pub(crate) use signature::signature;
pub use target::{Target, TargetFault};
