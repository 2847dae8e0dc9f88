//! Captures and flows, from outside: what `capture import` makes of files, what `replay` makes of flows against a daemon.

mod captured;
mod flows;
mod golden;
#[path = "../calls/harness/mod.rs"]
#[expect(
    dead_code,
    unused_imports,
    reason = "shared with the tests of calls, which use all of it"
)]
mod harness;
mod import;
mod large;
#[path = "../simulation/names.rs"]
mod names;
mod planted;
#[path = "../cli/shell.rs"]
#[expect(
    dead_code,
    reason = "shared with the tests of the command line, which use all of it"
)]
mod shell;
mod traces;
