//! Peers, daemons, databases and corpora that several test suites share. Of Trunkline's code it uses `sip::wire` alone, to read messages:
//! a fault in the daemon's transactions, dialogs or digest must not be repeated in the code that checks them.

#![expect(
    clippy::new_without_default,
    reason = "a test makes them on purpose: they take ports, folders or keys"
)]

pub mod baresip;
pub mod bot;
pub mod carrier;
pub mod change;
pub mod corpus;
pub mod daemon;
pub mod database;
pub mod dialog;
pub mod digest;
pub mod dns;
pub mod event_schema;
pub mod http;
pub mod kamailio;
pub mod leg;
pub mod link;
pub mod message;
pub mod names;
pub mod not_run;
pub mod on_wire;
pub mod pbx;
pub mod peer;
pub mod postgres;
pub mod probe;
pub mod process;
pub mod referred;
pub mod responder;
pub mod rfc_messages;
pub mod shell;
pub mod sipp;
pub mod talker;
pub mod tls;
pub mod trace;
pub mod web_socket;

pub use baresip::Baresip;
pub use bot::{BotCall, BotServer};
pub use daemon::{Daemon, DaemonSetup, assert_handed_over};
pub use digest::{Credentials, proves};
pub use message::Message;
pub use pbx::Pbx;
pub use peer::Peer;
pub use process::{Deadline, tools};
pub use responder::Responder;
pub use sipp::{Caller, Runtime};
pub use tls::{Authority, SecureRuntime};
pub use trace::Trace;
