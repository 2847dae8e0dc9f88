//! What the tests drive: a daemon, the peers, the log of what a peer saw.

mod baresip;
pub(crate) mod carrier;
mod daemon;
mod digest;
pub(crate) mod dns;
pub(crate) mod end;
pub(crate) mod http;
pub(crate) mod kamailio;
pub(crate) mod leg;
mod pbx;
pub(crate) mod probe;
pub(crate) mod process;
pub(crate) mod referred;
mod sipp;
pub(crate) mod talker;
pub(crate) mod tls;
mod trace;

pub(crate) use baresip::Baresip;
pub(crate) use daemon::{Credentials, Daemon, House};
pub(crate) use digest::proves;
pub(crate) use pbx::Pbx;
pub(crate) use process::{Deadline, tools};
pub(crate) use sipp::{Caller, Runtime};
pub(crate) use tls::{Authority, SecureRuntime};
pub(crate) use trace::{Message, Trace};
