//! Bounds on what the tenants of a node take of it. Pure: no clock, no sockets, no executor.

mod descriptors;
mod shares;

pub use descriptors::{Descriptor, Descriptors};
pub use shares::{Holder, NoShare, PartnerShare, Share, Shares};
