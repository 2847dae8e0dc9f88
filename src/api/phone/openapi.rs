//! OpenAPI description of the operations of `/phone`.

use serde_json::json;
use trunkline_model::record::{Direction, Status};
use trunkline_routing::E164;

use super::agents::{self, AgentView};
use super::auth_failures::AuthFailureView;
use super::calls::CallView;
use super::commands::outbound::PlacedView;
use super::destinations::{self, DestinationView};
use super::inbound_trunk::{self, InboundTrunkView, SyncedView};
use super::numbers::{self, NumberView};
use super::old_credentials::OldPairView;
use super::openapi_assignments::narrowed_destinations;
use super::outbound_call;
use super::outbound_trunks::{self, OutboundTrunkView};
use super::route_test;
use super::sessions::SessionView;
use super::trace::TraceView;
use super::transfer_view::TransferView;
use super::transfers;
use super::verification::{self, VerificationView};
use super::{READ, WRITE};
use crate::api::openapi::{OpenApiBuilder, Operation, read_by};
use crate::api::query::{date_schema, text_schema};
use crate::config::{Config, Voice};
use crate::explain::DecisionView;

pub(super) fn describe(builder: &mut OpenApiBuilder, config: &Config) {
    agents(builder, config);
    numbers(builder);
    inbound_trunk(builder);
    outbound_trunks(builder);
    transfer_destinations(builder);
    super::openapi_assignments::describe(builder);
    calls(builder);
    super::openapi_explained::describe(builder);
}

fn agents(builder: &mut OpenApiBuilder, config: &Config) {
    let mut of = builder.area("Phone agents", READ, WRITE);
    let voices = &config.phone.voices;

    of.get(
        "/phone",
        "listAgents",
        "The org's agents, newest first",
        |op| {
            op.query(
                "type",
                json!({"type": "string", "enum": ["inbound", "outbound"]}),
                "Only agents of this type.",
            )
            .query(
                "enabled",
                json!({"type": "boolean"}),
                "Only agents that are enabled, or that are not.",
            )
            .lists::<AgentView>()
        },
    );

    of.post("/phone", "createAgent", "Creates an agent", |op| {
        let body = read_by(|fields| agents::new_agent(fields, voices));
        op.versioned().makes::<AgentView>(body)
    });

    of.get("/phone/{agent_id}", "showAgent", "One agent", |op| {
        op.gives_versioned::<AgentView>()
    });

    of.patch(
        "/phone/{agent_id}",
        "updateAgent",
        "Updates an agent: absent fields are unchanged, `null` clears a field",
        |op| {
            let body = read_by(|fields| agents::change(fields, voices));
            op.of_version().body(body).gives_versioned::<AgentView>()
        },
    );

    of.delete(
        "/phone/{agent_id}",
        "deleteAgent",
        "Deletes an agent and frees its numbers; calls that are up continue",
        |op| op.of_version().deletes(),
    );

    of.get(
        "/phone/voices",
        "listVoices",
        "The voices that agents may have",
        |op| {
            op.query(
                "language",
                text_schema(),
                "Only voices of this language code.",
            )
            .lists::<Voice>()
        },
    );
}

/// Describes a list of numbers with its filters; the org's list and the partner's are alike.
pub(in crate::api) fn lists_numbers(op: Operation<'_>) -> Operation<'_> {
    op.query(
        "verified",
        json!({"type": "boolean"}),
        "Only numbers that are verified, or that are not.",
    )
    .query(
        "phone_number",
        json!({"type": "string", "pattern": E164::PATTERN}),
        "Only this number.",
    )
    .lists::<NumberView>()
}

fn numbers(builder: &mut OpenApiBuilder) {
    let mut of = builder.area("Numbers", READ, WRITE);

    of.get(
        "/phone/numbers",
        "listNumbers",
        "The org's numbers, verified or not, newest first",
        lists_numbers,
    );

    of.post(
        "/phone/numbers",
        "createNumber",
        "Adds a number, unverified until the operator, the partner or a spoken code verifies it",
        |op| op.makes::<NumberView>(read_by(numbers::named)),
    );

    of.get(
        "/phone/numbers/{number_id}",
        "showNumber",
        "A phone number of the org",
        |op| op.gives::<NumberView>(200),
    );

    of.post(
        "/phone/numbers/{number_id}/verify",
        "verifyNumber",
        "Calls the number and speaks a code: 202; 200 if the number is already verified",
        |op| {
            op.note("Three calls to a number in 24 hours. 409 `no_verification_route` where the operator has no route for such calls.")
                .once()
                .may_refuse(&[403, 409])
                .body(read_by(|fields| fields.done(|| Some(()))))
                .gives::<VerificationView>(202)
                .gives::<NumberView>(200)
        },
    );

    of.post(
        "/phone/numbers/{number_id}/verify/confirm",
        "confirmNumber",
        "Verifies a number by the code from the call",
        |op| {
            op.note("A code is valid for ten minutes and five tries: 400 `wrong_code`, then 409 `no_code`.")
                .may_refuse(&[409])
                .body(read_by(verification::code))
                .gives::<NumberView>(200)
        },
    );

    of.delete(
        "/phone/numbers/{number_id}",
        "deleteNumber",
        "Deletes a number and ends its assignment",
        |op| op.deletes(),
    );
}

fn inbound_trunk(builder: &mut OpenApiBuilder) {
    const AT: &str = "/phone/sip/inbound-trunk";
    let mut of = builder.area("Inbound trunk", READ, WRITE);
    let beneath = |rest: &str| format!("{AT}/{rest}");

    of.get(AT, "showInboundTrunk", "The org's trunk", |op| {
        op.may_refuse(&[404])
            .note("`auth_password` is `null` for keys without `phone:write`.")
            .gives_versioned::<InboundTrunkView>()
    });

    of.post(
        AT,
        "createInboundTrunk",
        "Creates the org's trunk; without `phone_numbers` it lists every verified number",
        |op| {
            op.versioned()
                .makes::<InboundTrunkView>(read_by(inbound_trunk::new_trunk))
        },
    );

    of.patch(
        AT,
        "updateInboundTrunk",
        "Updates the trunk; `phone_numbers` replaces the list",
        |op| {
            op.may_refuse(&[404])
                .of_version()
                .body(read_by(inbound_trunk::change))
                .gives_versioned::<InboundTrunkView>()
        },
    );

    of.delete(
        AT,
        "deleteInboundTrunk",
        "Deletes the trunk: its credentials stop working",
        |op| op.may_refuse(&[404]).of_version().deletes(),
    );

    of.post(
        &beneath("phone-numbers"),
        "addTrunkNumbers",
        "Adds numbers to the list; listed ones change nothing",
        |op| {
            op.may_refuse(&[404])
                .of_version()
                .body(read_by(inbound_trunk::more_numbers))
                .gives_versioned::<InboundTrunkView>()
        },
    );

    of.delete(
        &beneath("phone-numbers/{phone_number}"),
        "removeTrunkNumber",
        "Removes a number from the list",
        |op| {
            op.may_refuse(&[404])
                .of_version()
                .gives_versioned::<InboundTrunkView>()
        },
    );

    of.post(
        &beneath("sync"),
        "syncTrunkNumbers",
        "Lists every verified number and removes those that are no longer verified",
        |op| {
            op.may_refuse(&[404])
                .of_version()
                .body(read_by(|fields| fields.done(|| Some(()))))
                .gives_versioned::<SyncedView>()
        },
    );

    of.post(
        &beneath("rotate-credentials"),
        "rotateTrunkCredentials",
        "Creates new credentials; the last ten old ones work for another 24 hours",
        |op| {
            op.may_refuse(&[404])
                .of_version()
                .once()
                .body(read_by(|fields| fields.done(|| Some(()))))
                .gives_versioned::<InboundTrunkView>()
        },
    );

    of.get(
        &beneath("old-credentials"),
        "listOldCredentials",
        "Old user names that still work after a rotation, with their expiry",
        |op| op.may_refuse(&[404]).lists::<OldPairView>(),
    );

    of.delete(
        &beneath("old-credentials"),
        "endOldCredentials",
        "Ends the credentials from before a rotation at once",
        |op| op.may_refuse(&[404]).of_version().deletes(),
    );

    of.get(
        &beneath("auth-failures"),
        "listAuthFailures",
        "Failed log-ins at the org's trunk, newest first",
        |op| {
            op.may_refuse(&[404])
                .query(
                    "username",
                    text_schema(),
                    "Only log-ins under this user name.",
                )
                .query(
                    "source",
                    json!({"type": "string", "anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]}),
                    "Only log-ins from this IP address.",
                )
                .lists::<AuthFailureView>()
        },
    );

    of.post(
        "/phone/sip/route-test",
        "testRoute",
        "Tells which agent would take a call, and why; places no call",
        |op| {
            op.org(READ)
                .body(read_by(route_test::read_request))
                .gives::<DecisionView>(200)
        },
    );
}

fn outbound_trunks(builder: &mut OpenApiBuilder) {
    const AT: &str = "/phone/sip/outbound-trunks";
    const ONE: &str = "/phone/sip/outbound-trunks/{trunk_id}";
    let mut of = builder.area("Outbound trunks", READ, WRITE);

    of.get(
        AT,
        "listOutboundTrunks",
        "The org's outbound trunks, newest first",
        |op| {
            op.query("name", text_schema(), "Only trunks of this name.")
                .query(
                    "transport",
                    json!({"type": "string", "enum": ["udp", "tcp", "tls"]}),
                    "Only trunks of this transport.",
                )
                .lists::<OutboundTrunkView>()
        },
    );

    of.post(
        AT,
        "createOutboundTrunk",
        "Creates an outbound trunk; its password is never returned",
        |op| {
            op.versioned()
                .makes::<OutboundTrunkView>(read_by(outbound_trunks::new_trunk))
        },
    );

    of.get(ONE, "showOutboundTrunk", "One outbound trunk", |op| {
        op.gives_versioned::<OutboundTrunkView>()
    });

    of.patch(
        ONE,
        "renameOutboundTrunk",
        "Updates the name, the transfer method or the digest settings of an outbound trunk",
        |op| {
            let op = op.of_version().body(read_by(outbound_trunks::change));
            op.gives_versioned::<OutboundTrunkView>()
        },
    );

    of.delete(
        ONE,
        "deleteOutboundTrunk",
        "Deletes an outbound trunk that no agent uses",
        |op| op.may_refuse(&[409]).of_version().deletes(),
    );
}

fn transfer_destinations(builder: &mut OpenApiBuilder) {
    const AT: &str = "/phone/sip/transfer-destinations";
    const ONE: &str = "/phone/sip/transfer-destinations/{destination_id}";
    let mut of = builder.area("Transfer destinations", READ, WRITE);

    of.get(
        AT,
        "listDestinations",
        "The org's transfer destinations, newest first",
        |op| narrowed_destinations(op).lists::<DestinationView>(),
    );

    of.post(
        AT,
        "createDestination",
        "Creates a destination; names are unique in the org, ignoring case",
        |op| {
            op.versioned()
                .makes::<DestinationView>(read_by(destinations::described))
        },
    );

    of.get(ONE, "showDestination", "One destination", |op| {
        op.gives_versioned::<DestinationView>()
    });

    of.patch(
        ONE,
        "updateDestination",
        "Changes a destination; another `type` needs its `value`",
        |op| {
            let body = read_by(|fields| destinations::change(fields, &destinations::ANY));
            let op = op.may_refuse(&[409]).of_version();
            op.body(body).gives_versioned::<DestinationView>()
        },
    );

    of.delete(
        ONE,
        "deleteDestination",
        "Deletes a destination and its assignments",
        |op| op.of_version().deletes(),
    );
}

/// Note on the list of calls.
const EXPORT: &str = "As `text/csv` and `application/x-ndjson` the answer has every call that is over, or `limit` of them, in the order in which \
                      their ends were recorded. Each line has a `cursor`; the lines after it are those of calls whose ends were recorded later. \
                      None is ever skipped.";

fn calls(builder: &mut OpenApiBuilder) {
    let mut of = builder.area("Calls", "calls:read", "calls:write");

    of.get(
        "/phone/calls",
        "listCalls",
        "Calls, live ones included, newest first; by `Accept`, ended calls as CSV or JSON lines",
        |op| {
            op.note(EXPORT).query(
                "agent_id",
                json!({"type": "string", "format": "uuid"}),
                "Only calls of this agent.",
            )
            .query(
                "trunk_id",
                json!({"type": "string", "format": "uuid"}),
                "Only calls through this inbound or outbound trunk.",
            )
            .query_of::<Direction>("direction", "Only calls of this direction.")
            .query_of::<Status>("status", "Only calls in this state.")
            .query(
                "phone_number",
                // One blank is refused: an unescaped `+` without a number is decoded to that.
                json!({
                    "type": "string",
                    "minLength": 1,
                    "pattern": r"^([^ \u0000-\u001F\u007F-\u009F]| [^\u0000-\u001F\u007F-\u009F])[^\u0000-\u001F\u007F-\u009F]*$",
                }),
                "Only calls from or to this number, as sent or as E.164.",
            )
            .query(
                "start_date",
                date_schema(),
                "The earliest start; a date without a time is its beginning, UTC.",
            )
            .query(
                "end_date",
                date_schema(),
                "The latest start, inclusive; a date without a time is its end, UTC.",
            )
            .lists::<CallView>()
            .also_as("text/csv")
            .also_as("application/x-ndjson")
        },
    );

    for (path, id) in [("/usage", "showUsage"), ("/phone/usage", "showPhoneUsage")] {
        let title = "The org's calls and answered seconds; as JSON, or by `Accept` as CSV";
        of.get(path, id, title, crate::api::usage::describe);
    }

    of.get("/phone/calls/{call_id}", "showCall", "One call", |op| {
        op.gives::<CallView>(200)
    });

    of.get(
        "/phone/calls/{call_id}/trace",
        "showTrace",
        "The SIP messages of all legs, fetched from the node that had the call; 503 while that node does not answer; as JSON, or by `Accept` as a ladder, a picture of it or a pcap",
        |op| {
            op.may_refuse(&[409, 503])
                .gives::<TraceView>(200)
                .also_as("text/plain")
                .also_as("image/svg+xml")
                .also_as("application/vnd.tcpdump.pcap")
        },
    );

    of.post(
        "/phone/outbound-call",
        "placeCall",
        "Calls a number through the agent's trunk; the call shows its progress",
        |op| {
            let body = read_by(outbound_call::read_request);
            let op = op.makes::<PlacedView>(body);
            op.may_refuse(&[404, 503])
        },
    );

    of.post(
        "/phone/calls/{call_id}/transfer",
        "transferCall",
        "Transfers the caller to a destination of the agent; the call shows the outcome",
        |op| {
            let body = read_by(transfers::read_request);
            let op = op.org_or_session("calls:write");
            op.once()
                .body(body)
                .may_refuse(&[503])
                .gives::<TransferView>(202)
        },
    );

    of.post(
        "/phone/calls/{call_id}/hangup",
        "hangUpCall",
        "Ends a call on both sides: 202 while its end is not recorded yet",
        |op| {
            let op = op.org_or_session("calls:write");
            let op = op.may_refuse(&[409, 503]);
            op.body(read_by(|fields| fields.done(|| Some(()))))
                .gives::<CallView>(200)
                .gives::<CallView>(202)
        },
    );

    for (path, id, title) in [
        (
            "/phone/calls/{call_id}/hold",
            "holdCall",
            "Holds both sides of a call: 202 while they haven't agreed yet, 409 if one refuses",
        ),
        (
            "/phone/calls/{call_id}/resume",
            "resumeCall",
            "Ends a hold: 202 while both sides haven't agreed yet, 409 if one refuses",
        ),
    ] {
        of.post(path, id, title, |op| {
            let op = op.may_refuse(&[409, 503]);
            op.body(read_by(|fields| fields.done(|| Some(()))))
                .gives::<CallView>(200)
                .gives::<CallView>(202)
        });
    }

    of.get(
        "/phone/sessions/{session_id}",
        "showSession",
        "Context of a call for its agent's runtime",
        |op| op.org_or_session("calls:read").gives::<SessionView>(200),
    );

    for (path, id) in [
        ("/events", "streamEvents"),
        ("/phone/events", "streamPhoneEvents"),
    ] {
        of.get(path, id, "Events as they happen, as server-sent events", |op| {
            op.note("Without `types`, a stream has all types that the key's scopes allow. It begins after `Last-Event-ID`, or now.")
                .query("types", json!({"type": "string"}), "Event types, separated by commas.")
                .query("last_event_id", json!({"type": "string"}), "For clients that can't set `Last-Event-ID`; `0` is the oldest event kept.")
                .may_refuse(&[503])
                .gives_text(200, "text/event-stream")
        });
    }
}
