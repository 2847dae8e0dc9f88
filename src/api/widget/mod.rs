//! API of the chat widget, `/widget`.

mod authenticate;
mod contacts;
mod erasure;
mod export;
mod me;

use super::operations::{Operations, Whose};
use authenticate::SCOPE;

/// Operations of an org's backend on the people who use its widget.
const OF_ORG: Whose = Whose::Orgs {
    read: SCOPE,
    write: SCOPE,
};

pub(super) fn operations(api: &mut Operations<'_>) {
    authenticate::operations(api);
    contacts::operations(api);
    erasure::operations(api);
    export::operations(api);
    me::operations(api);
}
