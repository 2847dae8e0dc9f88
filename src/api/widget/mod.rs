//! API of the chat widget, `/widget`.

mod authenticate;
mod config;
mod contacts;
mod cors;
mod erasure;
mod export;
mod me;

use super::operations::Operations;
use authenticate::OF_ORG;

pub(super) fn operations(api: &mut Operations<'_>) {
    authenticate::operations(api);
    config::operations(api);
    contacts::operations(api);
    erasure::operations(api);
    export::operations(api);
    me::operations(api);
}
