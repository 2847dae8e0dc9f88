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
mod openapi;
mod openapi_assignments;
mod openapi_explained;
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

use axum::routing::{delete, get, post, put};

pub(super) use agents::NO_AGENTS;
#[cfg(test)]
pub(super) use calls::call_that_is_up;
pub(super) use calls::{CallView, from_memory};
pub(super) use calls_at_once::CALLS_AT_ONCE;
pub(super) use events::TYPES as EVENT_TYPES;
pub(super) use numbers::NumberView;
pub(super) use openapi::lists_numbers;
pub(super) use remote::{RemoteCommand, serve as serve_others};
pub(super) use transfer_view::TransferView;

use super::audit;
use super::idempotency::{call_once, call_once_for, once};
use super::openapi::OpenApiBuilder;
use super::routes::Routes;
use crate::config::Config;
use call_actor::CallActor;
use scopes::{READ, WRITE};

pub(super) fn openapi(builder: &mut OpenApiBuilder, config: &Config) {
    openapi::describe(builder, config);
    bot_token::describe(builder);
    prompts::describe(builder);
    let mut of = builder.area("Audit log", audit::SCOPE, audit::SCOPE);
    for (path, id) in [("/audit", "listAudit"), ("/phone/audit", "listPhoneAudit")] {
        let title = "Changes to the org, newest first; by `Accept` as CSV or JSON lines";
        of.get(path, id, title, audit::describe);
    }
}

pub(super) fn router() -> Routes {
    Routes::new()
        .route("/", get(agents::list).post(once(agents::create)))
        .route(
            "/{agent_id}",
            get(agents::one)
                .patch(agents::update)
                .delete(agents::delete),
        )
        .route(
            "/bot-token",
            get(bot_token::show)
                .post(once(bot_token::create))
                .delete(bot_token::delete),
        )
        .route("/bot-token/promote", post(bot_token::promote))
        .route("/prompts", get(prompts::list).post(once(prompts::create)))
        .route(
            "/prompts/{prompt_id}",
            get(prompts::one).delete(prompts::delete),
        )
        .route("/prompts/{prompt_id}/audio", get(prompts::audio))
        .route("/voices", get(voices::list))
        .route("/numbers", get(numbers::list).post(once(numbers::create)))
        .route(
            "/numbers/{number_id}",
            get(numbers::one).delete(numbers::delete),
        )
        .route(
            "/numbers/{number_id}/verify",
            post(call_once(verification::verify)),
        )
        .route(
            "/numbers/{number_id}/verify/confirm",
            post(verification::confirm),
        )
        .nest("/sip", sip())
        .merge(of_org())
        .route("/outbound-call", post(call_once(outbound_call::place)))
        .route("/calls", get(call_list::list))
        .route("/calls/{call_id}", get(call::one))
        .route("/calls/{call_id}/routing", get(call_routing::routing))
        .route("/calls/{call_id}/trace", get(trace::show))
        .route("/calls/{call_id}/hangup", post(call::hang_up))
        .route("/calls/{call_id}/hold", post(hold::hold))
        .route("/calls/{call_id}/resume", post(hold::resume))
        .route("/sessions/{session_id}", get(sessions::show))
        .route(
            "/calls/{call_id}/transfer",
            post(call_once_for::<CallActor, _>(transfers::create)),
        )
}

/// Routes that are about the whole org. They stand at the top and, as in earlier clients, under `/phone`.
pub(super) fn of_org() -> Routes {
    Routes::new()
        .route("/events", get(events::stream))
        .route("/usage", get(usage::show))
        .route("/audit", get(audit::of_org))
}

fn sip() -> Routes {
    Routes::new()
        .route(
            "/inbound-trunk",
            get(inbound_trunk::show)
                .post(once(inbound_trunk::create))
                .patch(inbound_trunk::update)
                .delete(inbound_trunk::delete),
        )
        .route(
            "/inbound-trunk/phone-numbers",
            post(inbound_trunk::add_numbers),
        )
        .route(
            "/inbound-trunk/phone-numbers/{phone_number}",
            delete(inbound_trunk::remove_number),
        )
        .route("/inbound-trunk/sync", post(inbound_trunk::sync))
        .route(
            "/inbound-trunk/rotate-credentials",
            post(once(inbound_trunk::rotate_credentials)),
        )
        .route(
            "/inbound-trunk/old-credentials",
            get(old_credentials::list).delete(old_credentials::end),
        )
        .route("/inbound-trunk/auth-failures", get(auth_failures::list))
        .route("/inbound-trunk/doctor", get(doctor::show))
        .route("/route-test", post(route_test::decide))
        .route("/route-replay", post(route_replay::decide))
        .route("/explain", post(explain::explain))
        .route(
            "/outbound-trunks",
            get(outbound_trunks::list).post(once(outbound_trunks::create)),
        )
        .route(
            "/outbound-trunks/{trunk_id}",
            get(outbound_trunks::one)
                .patch(outbound_trunks::update)
                .delete(outbound_trunks::delete),
        )
        .route(
            "/transfer-destinations",
            get(destinations::list).post(once(destinations::create)),
        )
        .route(
            "/transfer-destinations/{destination_id}",
            get(destinations::one)
                .patch(destinations::update)
                .delete(destinations::delete),
        )
        .nest("/agents/{agent_id}", of_agent())
}

fn of_agent() -> Routes {
    Routes::new()
        .route("/config", get(assignments::config))
        .route(
            "/inbound-numbers",
            put(assignments::set_inbound_numbers).post(assignments::add_inbound_number),
        )
        .route(
            "/inbound-numbers/{number_id}",
            delete(assignments::remove_inbound_number),
        )
        .route("/outbound-trunk", put(assignments::set_outbound_trunk))
        .route(
            "/transfer-destinations",
            get(destinations::of_agent).post(once(destinations::assign)),
        )
        .route(
            "/transfer-destinations/{destination_id}",
            delete(destinations::unassign),
        )
}
