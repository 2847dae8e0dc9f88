//! The built daemon from outside, subject by subject. One binary, so that the tests, which mostly wait, share one pool of threads.

mod calls;
mod cli;
mod e2e;
mod kill;
mod replay;
mod torture;
mod web;
