//! The built daemon as a whole: two of them on one database, what it lets out, and its document's examples.

mod away;
mod clocks;
mod control;
mod deleted;
mod doctor;
mod ending;
mod enrolment;
mod examples;
#[path = "../calls/harness/mod.rs"]
#[expect(
    dead_code,
    unused_imports,
    reason = "shared with the tests of calls, which use all of it"
)]
mod harness;
mod kinds;
mod node;
mod nodes;
#[path = "../store/postgres.rs"]
mod postgres;
mod probing;
mod proxy;
mod registered;
mod seconds;
mod secrets;
#[path = "../kill/server.rs"]
mod server;
mod talk;
