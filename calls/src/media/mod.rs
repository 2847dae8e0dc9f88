//! Media of our own on the agent's side: bots, the built-in agent, and calls that speak a code.

pub mod bot;
pub(crate) mod local_media;
pub mod verification;
