//! OpenAPI description of an agent's assignments.

use serde_json::json;

use super::assignments::{self, ConfigView};
use super::destinations::{self, DestinationView};
use super::{READ, WRITE};
use crate::api::openapi::{OpenApiBuilder, Operation, read_by};
use crate::api::query::text_schema;

pub(super) fn describe(builder: &mut OpenApiBuilder) {
    let at = |rest: &str| format!("/phone/sip/agents/{{agent_id}}/{rest}");
    let mut of = builder.area("Assignments", READ, WRITE);
    of.get(
        &at("config"),
        "showAgentConfig",
        "Assignments of an agent",
        |op| op.gives_versioned::<ConfigView>(),
    );

    of.put(
        &at("inbound-numbers"),
        "setInboundNumbers",
        "Replaces the numbers that the agent answers",
        |op| {
            op.may_refuse(&[409])
                .of_version()
                .body(read_by(assignments::numbers))
                .gives_versioned::<ConfigView>()
        },
    );

    of.post(
        &at("inbound-numbers"),
        "addInboundNumber",
        "Adds a number to those that the agent answers",
        |op| {
            op.may_refuse(&[409])
                .of_version()
                .body(read_by(assignments::number))
                .gives_versioned::<ConfigView>()
        },
    );

    of.delete(
        &at("inbound-numbers/{number_id}"),
        "removeInboundNumber",
        "Takes a number from the agent; its others stay",
        |op| op.of_version().deletes(),
    );

    of.put(
        &at("outbound-trunk"),
        "setOutboundTrunk",
        "Sets the trunk that the agent dials through; `null` for none",
        |op| {
            op.of_version()
                .body(read_by(assignments::trunk))
                .gives_versioned::<ConfigView>()
        },
    );

    of.get(
        &at("transfer-destinations"),
        "listAgentDestinations",
        "The agent's destinations, newest first",
        |op| narrowed_destinations(op).lists::<DestinationView>(),
    );

    of.post(
        &at("transfer-destinations"),
        "assignDestination",
        "Assigns a destination: 200 for an existing one, 201 for a new one",
        |op| {
            let op = op
                .of_version()
                .versioned()
                .makes::<DestinationView>(read_by(destinations::assigned));
            op.gives::<DestinationView>(200)
        },
    );

    of.delete(
        &at("transfer-destinations/{destination_id}"),
        "unassignDestination",
        "Ends the assignment of a destination",
        |op| op.of_version().deletes(),
    );
}

/// Filters of a list of destinations.
pub(super) fn narrowed_destinations(op: Operation<'_>) -> Operation<'_> {
    op.query(
        "type",
        json!({"type": "string", "enum": ["phone", "sip"]}),
        "Only destinations of this type.",
    )
    .query("name", text_schema(), "Only destinations of this name.")
}
