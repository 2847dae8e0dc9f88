//! The API on the control socket: every route, and those that the operator alone has. See `caller` for what a request
//! may do.
//!
//! The operator manages all orgs as a partner manages its own, by the same handlers (`tenants`), with `/operator` in place of `/partner/v1`.

mod addresses;
mod console_links;
mod installation;
mod limits;
mod listed;
mod media_addresses;
mod networks;
mod partner_keys;
mod partners;
mod server;
mod tied_peers;

use axum::routing::{get, post};

use super::operations::{Audience, Operations};
use super::tenants;

pub(crate) use installation::{HealthView, NodeView, SourceView};
pub(crate) use limits::PartnerLimitRow;
pub(crate) use listed::Listed;
pub(crate) use networks::NetworkView;
pub(crate) use partner_keys::create_partner_key;
pub(crate) use partner_keys::{NewPartnerKeyView, PartnerKeyView};
pub(crate) use partners::PartnerView;
pub use server::{ControlServer, SOCKET};
pub(crate) use tied_peers::TiedView;

/// Declares the operator's operations. They aren't part of the published document: the command line alone reads them.
pub(super) fn operations(api: &mut Operations<'_>) {
    tenants::operations(api, Audience::Operator);
    installation::operations(api);
    limits::operations(api);
    media_addresses::operations(api);
    networks::operations(api);
    partner_keys::operations(api);
    partners::operations(api);
    tied_peers::operations(api);
    // Commands that aren't made from the document.
    api.undescribed("/operator/addresses", get(addresses::show));
    api.undescribed("/operator/console-links", post(console_links::create));
}
