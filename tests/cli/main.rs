//! The command line from outside: setting up from the shell, and starts that must fail without leaving a trace.

mod audit;
mod explained;
mod keys;
mod outset;
mod paste;
mod quickstart;
mod resources;
mod setup;
