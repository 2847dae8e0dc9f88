//! A load generator for Trunkline: a caller (UAC with digest) and an agent's runtime (UAS) in one process and one thread,
//! over UDP. It reads messages and answers challenges with the library that the daemon has, and prints from templates, which is what makes it
//! fast. Transactions and dialogs are its own, so that a fault of the daemon's there isn't hidden by the same fault here.
//!
//! Read from [`exchange`] down: it owns the calls, without sockets or clocks; [`engine`] gives it both.
//! [`pace`] decides when calls begin, [`modes`] what is loaded and reported; [`daemon`] starts the measured daemon.
//! [`seed`] fills databases. Calls of bots have their own load: [`dial`] makes them, [`voice`] speaks in them, [`web_socket`] is the bots'
//! side.

pub mod awake;
pub mod calls;
pub mod clock;
pub mod daemon;
pub mod dial;
pub mod digest;
pub mod due;
pub mod engine;
pub mod exchange;
pub mod histogram;
pub mod http;
pub mod kamailio;
pub mod kernel;
pub mod message;
pub mod modes;
pub mod outbox;
pub mod pace;
pub mod process;
pub mod report;
pub mod seed;
pub mod syncs;
pub mod tally;
pub mod template;
pub mod voice;
pub mod web_socket;
