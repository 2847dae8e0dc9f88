//! The command line from outside: setting up from the shell, and starts that must fail without leaving a trace.

mod as_key;
mod audit;
mod calls;
mod explained;
mod keys;
mod operators;
mod outset;
mod paste;
mod printed;
mod prompts;
mod quickstart;
mod removed_keys;
mod resources;
mod setup;
mod trace;
