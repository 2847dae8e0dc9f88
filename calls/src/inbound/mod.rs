//! A caller's INVITE from its arrival to its final answer: who sends it, where it goes, what the caller hears meanwhile.

pub(crate) mod address_change;
pub mod admission;
pub(crate) mod answer;
pub(crate) mod dialog_proof;
pub(crate) mod generation;
pub(crate) mod invite_facts;
pub(crate) mod lifetime;
pub(crate) mod provisional;
pub(crate) mod source_probe;
