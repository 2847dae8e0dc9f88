//! Captures and flows, from outside: what `capture import` makes of files, what `replay` makes of flows against a daemon.

mod captured;
mod flows;
mod golden;
mod import;
mod large;
mod planted;
mod traces;
