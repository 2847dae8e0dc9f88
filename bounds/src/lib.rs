//! Bounds on what the tenants of a node take of it, and tables by ids. Pure: no clock, no sockets, no executor.

mod descriptors;
mod ids;
mod shares;

pub use descriptors::{Descriptor, Descriptors};
pub use ids::{FoldedId, IdTable, SharedIdTable};
pub use shares::{Holder, NoShare, PartnerShare, Share, Shares};
