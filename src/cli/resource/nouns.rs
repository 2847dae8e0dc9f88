//! Nouns and verbs that are made of the API's operations, with what the document can't say: their names here and the
//! columns of lists.

/// Noun of the command line.
#[derive(Debug)]
pub(super) struct Noun {
    pub(super) name: &'static str,
    /// Sentence for a noun that has no other commands.
    pub(super) about: &'static str,
    pub(super) verbs: &'static [Verb],
}

/// Verb, which is one operation.
#[derive(Debug)]
pub(super) struct Verb {
    pub(super) name: &'static str,
    /// `operationId` in the document.
    pub(super) operation: &'static str,
    /// Properties of the body that are positional.
    pub(super) positional: &'static [&'static str],
    /// Properties of the body that the command doesn't take.
    pub(super) hidden: &'static [&'static str],
    /// Keys that a list shows.
    pub(super) columns: &'static [&'static str],
    /// The operation destroys something, though it is no DELETE.
    pub(super) destroys: bool,
}

const fn verb(name: &'static str, operation: &'static str) -> Verb {
    Verb {
        name,
        operation,
        positional: &[],
        hidden: &[],
        columns: &[],
        destroys: false,
    }
}

impl Verb {
    const fn showing(self, columns: &'static [&'static str]) -> Self {
        Self { columns, ..self }
    }

    const fn taking(self, positional: &'static [&'static str]) -> Self {
        Self { positional, ..self }
    }

    const fn without(self, hidden: &'static [&'static str]) -> Self {
        Self { hidden, ..self }
    }

    const fn destroying(self) -> Self {
        Self {
            destroys: true,
            ..self
        }
    }
}

pub(super) const NOUNS: &[Noun] = &[
    Noun {
        name: "call",
        about: "Calls of an org",
        verbs: &[
            verb("list", "listCalls").showing(&[
                "id",
                "started_at",
                "direction",
                "status",
                "from_number",
                "to_number",
                "answered_seconds",
                "sip_code",
                "reason",
            ]),
            verb("show", "showCall"),
            verb("explain", "showRouting"),
            verb("dial", "placeCall").taking(&["phone_number"]),
            verb("transfer", "transferCall").without(&["destination"]),
            verb("hold", "holdCall"),
            verb("resume", "resumeCall"),
            verb("hangup", "hangUpCall"),
        ],
    },
    Noun {
        name: "outbound-trunk",
        about: "Outbound trunks, through which agents dial",
        verbs: &[
            verb("list", "listOutboundTrunks").showing(&[
                "id",
                "name",
                "host",
                "port",
                "transport",
                "caller_number",
                "reachable",
            ]),
            verb("show", "showOutboundTrunk"),
            verb("create", "createOutboundTrunk"),
            verb("update", "renameOutboundTrunk"),
            verb("delete", "deleteOutboundTrunk"),
            verb("assign", "setOutboundTrunk"),
        ],
    },
    Noun {
        name: "destination",
        about: "Destinations that agents transfer calls to",
        verbs: &[
            verb("list", "listDestinations").showing(&["id", "name", "type", "value", "via"]),
            verb("show", "showDestination"),
            verb("create", "createDestination"),
            verb("update", "updateDestination"),
            verb("delete", "deleteDestination"),
            verb("assign", "assignDestination")
                .taking(&["destination_id"])
                .without(&["create"]),
            verb("unassign", "unassignDestination"),
        ],
    },
    Noun {
        name: "voice",
        about: "Voices that agents can speak with",
        verbs: &[verb("list", "listVoices").showing(&["id", "name", "language", "gender"])],
    },
    Noun {
        name: "handoff",
        about: "Hand-offs that agents report",
        verbs: &[
            verb("list", "listHandoffEvents").showing(&["id", "timestamp", "type"]),
            verb("report", "reportHandoff"),
        ],
    },
    Noun {
        name: "contact",
        about: "Contacts of an org",
        verbs: &[
            verb("show", "showContact"),
            verb("update", "updateContact"),
            verb("create", "authenticateUserByExternalId"),
        ],
    },
    Noun {
        name: "webhook",
        about: "Receivers of an org's events",
        verbs: &[
            verb("list", "listWebhooks").showing(&[
                "id",
                "url",
                "types",
                "enabled",
                "disabled_reason",
            ]),
            verb("show", "showWebhook"),
            verb("create", "createWebhook").taking(&["url"]),
            verb("update", "updateWebhook"),
            verb("delete", "deleteWebhook"),
            verb("rotate-secret", "rotateWebhookSecret").destroying(),
            verb("deliveries", "listDeliveries").showing(&[
                "id",
                "event_type",
                "state",
                "attempts",
                "created_at",
                "delivered_at",
            ]),
            verb("delivery", "showDelivery"),
            verb("redeliver", "redeliver"),
        ],
    },
    Noun {
        name: "usage",
        about: "Calls and minutes of an org",
        verbs: &[verb("show", "showUsage")],
    },
    Noun {
        name: "login-link",
        about: "Links that log a person into the dashboard, once",
        verbs: &[verb("create", "createLoginLink").taking(&["email"])],
    },
    Noun {
        name: "auth-failure",
        about: "Log-ins of PBXs that failed",
        verbs: &[verb("list", "listAuthFailures").showing(&[
            "at",
            "username",
            "source",
            "dialled",
            "explanation",
        ])],
    },
];

/// Path of the list in which a property names an item.
pub(super) fn list_of(property: &str) -> Option<&'static str> {
    match property {
        "agent_id" | "phone_agent_id" => Some("/phone"),
        "trunk_id" => Some("/phone/sip/outbound-trunks"),
        "destination_id" => Some("/phone/sip/transfer-destinations"),
        _ => None,
    }
}
