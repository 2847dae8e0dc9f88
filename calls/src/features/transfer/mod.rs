//! Cold transfer: a caller is moved to one of its agent's destinations. Either the PBX gets REFER on the caller's dialog (RFC 3515), or the daemon
//! calls the destination, which replaces the agent; if one of the two fails, the other may follow (`plan`). `machine` is the transfer's state. It knows
//! no call; the other modules pass it events and carry out its steps: the REFER, the NOTIFYs, the call to the destination.

pub(crate) mod bridge;
pub(crate) mod destination_route;
pub(crate) mod digit;
mod event;
mod last;
mod machine;
pub(crate) mod notify;
mod order;
mod outcome;
mod own;
mod plan;
pub(crate) mod refer;
mod request;
mod route;
pub(crate) mod runtime;
mod sent_refers;
mod sipfrag;
#[cfg(test)]
mod tests;
mod transferee;

pub(crate) use bridge::DestinationAnswer;
pub(crate) use event::{AgentEnd, CallFacts, NewTransfer, Steps, TransferEvent, TransferStep};
pub(crate) use last::LastTransfer;
pub(crate) use own::asked_by_ourselves;
pub use plan::{MethodReason, method_in_force};
pub use request::{DestinationChoice, TransferError, TransferRequest};
pub(crate) use runtime::ReferRequest;
pub(crate) use transferee::Transferee;
