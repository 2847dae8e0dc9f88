//! The built daemon as a whole: two of them on one database, what it lets out, and its document's examples.

mod examples;
#[path = "../calls/harness/mod.rs"]
#[expect(
    dead_code,
    unused_imports,
    reason = "shared with the tests of calls, which use all of it"
)]
mod harness;
mod node;
mod nodes;
mod secrets;
#[path = "../kill/server.rs"]
mod server;
