//! The API on the control socket: every route, and those that the operator alone has. See `operator` for what a request
//! may do.
//!
//! A route that the partner API has too has the same path here, with `/operator` in place of `/partner/v1`.

mod addresses;
mod audit;
mod console_links;
mod installation;
mod limits;
mod listed;
mod login_links;
mod media_addresses;
mod named_org;
mod networks;
mod numbers;
mod orgs;
mod partner_keys;
mod partners;
mod retention;
mod server;
mod tied_peers;

use axum::routing::{get, post};

use super::operations::Operations;

pub(crate) use login_links::operators_login_link;
pub(crate) use partner_keys::create_partner_key;
pub use server::{ControlServer, SOCKET};

/// Declares what only the operator has. It isn't part of the published document: the command line alone reads it.
pub(super) fn operations(api: &mut Operations<'_>) {
    audit::operations(api);
    installation::operations(api);
    limits::operations(api);
    login_links::operations(api);
    media_addresses::operations(api);
    networks::operations(api);
    numbers::operations(api);
    orgs::operations(api);
    partner_keys::operations(api);
    partners::operations(api);
    retention::operations(api);
    tied_peers::operations(api);
    // Commands that aren't made from the document.
    api.undescribed("/operator/addresses", get(addresses::show));
    api.undescribed("/operator/console-links", post(console_links::create));
}
