//! Bounds on what the tenants of a node take of it. Pure: no clock, no sockets, no executor.

mod shares;

pub use shares::{Holder, NoShare, PartnerShare, Share, Shares};
