//! Captures and flows, from outside: the result of `capture import` on files, and of `replay` on flows against a daemon.

mod captured;
mod collectors;
mod flows;
mod golden;
mod import;
mod large;
mod planted;
mod traces;
