//! Telephony API `/phone`.

mod agents;
mod assignments;
mod auth_failures;
mod bot_token;
mod call;
mod call_actor;
mod call_export;
mod call_filters;
mod call_list;
mod call_routing;
mod calls;
mod calls_at_once;
mod command_result;
mod commands;
mod destinations;
mod doctor;
mod events;
mod explain;
mod flow;
mod hold;
mod inbound_trunk;
mod legs;
mod media_reach;
mod media_rows;
mod numbers;
mod old_credentials;
mod outbound_call;
mod outbound_trunks;
pub(crate) mod prompts;
mod remote;
mod route_replay;
mod route_test;
mod runtime;
mod scopes;
mod sessions;
mod sip_uri;
mod trace;
mod transfer_view;
mod transfer_way;
mod transfers;
mod usage;
mod verification;
mod voices;

pub(super) use agents::NO_AGENTS;
#[cfg(test)]
pub(super) use calls::call_that_is_up;
pub(super) use calls::{CallView, from_memory};
pub(super) use calls_at_once::CALLS_AT_ONCE;
pub(super) use events::TYPES as EVENT_TYPES;
pub(super) use numbers::{NumberView, lists_numbers};
pub(super) use remote::{RemoteCommand, serve as serve_others};
pub(super) use transfer_view::TransferView;

use super::audit;
use super::operations::Operations;
use scopes::{OF_CALLS, OF_ORG, READ, WRITE};

pub(super) fn operations(api: &mut Operations<'_>) {
    agents::operations(api);
    assignments::operations(api);
    auth_failures::operations(api);
    bot_token::operations(api);
    call::operations(api);
    call_list::operations(api);
    call_routing::operations(api);
    destinations::operations(api);
    doctor::operations(api);
    events::operations(api);
    explain::operations(api);
    hold::operations(api);
    inbound_trunk::operations(api);
    numbers::operations(api);
    old_credentials::operations(api);
    outbound_call::operations(api);
    outbound_trunks::operations(api);
    prompts::operations(api);
    route_replay::operations(api);
    route_test::operations(api);
    sessions::operations(api);
    trace::operations(api);
    transfers::operations(api);
    usage::operations(api);
    verification::operations(api);
    voices::operations(api);
    audit::of_org_operations(api);
}
