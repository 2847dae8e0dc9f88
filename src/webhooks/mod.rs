//! Sends events to the receivers that orgs name, signed as Standard Webhooks has it.
//!
//! The queue is the store's: what is owed was committed with its event. Here it is taken hold of, sent, tried again over days, and
//! given up. Knows nothing of HTTP servers, calls or SIP.

pub mod address;
mod post;
mod schedule;
mod sender;
mod signature;
mod target;

pub use post::trusted;
pub use sender::{Running, WebhookSender};
pub use signature::new_secret;
pub use target::{Target, TargetFault};
