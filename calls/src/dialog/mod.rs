//! Requests inside the dialogs of a call that are no feature's own.

pub(crate) mod challenge;
pub(crate) mod in_dialog;
pub(crate) mod info_body;
pub(crate) mod reoffer;
pub(crate) mod repeat;
pub(crate) mod source_trust;
pub(crate) mod successor;
