//! Captures and flows, from outside: what `capture import` makes of files.

mod import;
#[path = "../cli/shell.rs"]
#[expect(
    dead_code,
    reason = "shared with the tests of the command line, which use all of it"
)]
mod shell;
