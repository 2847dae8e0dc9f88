//! Nouns and verbs that are made of the API's operations, with what the document can't say: their names here and the
//! columns of lists.

use serde_json::Value;

use super::adaptation::{self, Adaptation};
use super::answer_rows;
use super::columns::{HANDOFF, LIMIT, NETWORK, ORG, OTHER_LIMITS, PEER, SESSION_HANDOFF};
pub(super) use super::named::{list_of, noun_of};

/// Fields of `updatePartner` that the verbs for one of them don't take.
const PARTNER_SETTINGS: &[&str] = &["active", "verifies_numbers", "allowed_networks"];

/// Noun of the command line.
#[derive(Debug)]
pub(super) struct Noun {
    pub(super) name: &'static str,
    /// Noun that precedes it, as in `partner key`.
    pub(super) parent: Option<&'static str>,
    /// Help text. Empty if the noun has handwritten commands as well, which bring theirs.
    pub(super) about: &'static str,
    pub(super) scope: Scope,
    pub(super) verbs: &'static [Verb],
}

/// Owner of the objects of a noun.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Scope {
    /// An org, which an option names.
    Org,
    /// The operator: the org that a verb works on is an argument.
    Installation,
}

/// Confirmation that a verb asks for before it runs.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Danger {
    None,
    /// It asks for confirmation; without a terminal it needs `--yes`.
    Asks,
}

/// Verb, which is one operation.
#[derive(Copy, Clone, Debug)]
pub(super) struct Verb {
    pub(super) name: &'static str,
    /// Help text; if empty, the operation's summary.
    pub(super) about: &'static str,
    /// Other names.
    pub(super) aliases: &'static [&'static str],
    /// `operationId` in the document.
    pub(super) operation: &'static str,
    /// Operation that is run instead if no option is given.
    pub(super) shows: Option<&'static str>,
    /// Properties of the body that are positional.
    pub(super) positional: &'static [&'static str],
    /// Properties of the body that the command doesn't take.
    pub(super) hidden: &'static [&'static str],
    /// Values, as JSON, of properties that aren't given.
    pub(super) defaults: &'static [(&'static str, &'static str)],
    /// Parameters of the path that are options.
    pub(super) options: &'static [&'static str],
    /// List of the objects in the path's last parameter, if it isn't the usual one.
    pub(super) among: Option<&'static str>,
    pub(super) adaptation: Option<Adaptation>,
    /// Keys that a list shows.
    pub(super) columns: &'static [&'static str],
    /// Makes rows of the answer, if it is a list in one piece or is shown as one.
    pub(super) rows: Option<fn(Value) -> Value>,
    pub(super) danger: Danger,
    /// True if it may create the first object of an installation.
    pub(super) begins: bool,
    /// Message printed if the answer only reports success.
    pub(super) says: &'static str,
    pub(super) example: &'static str,
}

const fn verb(name: &'static str, operation: &'static str) -> Verb {
    Verb {
        name,
        about: "",
        aliases: &[],
        operation,
        shows: None,
        positional: &[],
        hidden: &[],
        defaults: &[],
        options: &[],
        among: None,
        adaptation: None,
        columns: &[],
        rows: None,
        danger: Danger::None,
        begins: false,
        says: "Done.",
        example: "",
    }
}

impl Verb {
    const fn about(self, about: &'static str) -> Self {
        Self { about, ..self }
    }

    const fn showing(self, columns: &'static [&'static str]) -> Self {
        Self { columns, ..self }
    }

    const fn as_rows(self, columns: &'static [&'static str]) -> Self {
        Self {
            columns,
            rows: Some(answer_rows::items),
            ..self
        }
    }

    const fn as_rows_by(self, rows: fn(Value) -> Value, columns: &'static [&'static str]) -> Self {
        Self {
            columns,
            rows: Some(rows),
            ..self
        }
    }

    const fn or_showing(self, shows: &'static str) -> Self {
        Self {
            shows: Some(shows),
            ..self
        }
    }

    const fn taking(self, positional: &'static [&'static str]) -> Self {
        Self { positional, ..self }
    }

    const fn without(self, hidden: &'static [&'static str]) -> Self {
        Self { hidden, ..self }
    }

    const fn assuming(self, defaults: &'static [(&'static str, &'static str)]) -> Self {
        Self { defaults, ..self }
    }

    const fn by_option(self, options: &'static [&'static str]) -> Self {
        Self { options, ..self }
    }

    const fn among(self, list: &'static str) -> Self {
        Self {
            among: Some(list),
            ..self
        }
    }

    const fn adapted(self, adaptation: Adaptation) -> Self {
        Self {
            adaptation: Some(adaptation),
            ..self
        }
    }

    const fn also(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    const fn asking(self, danger: Danger) -> Self {
        Self { danger, ..self }
    }

    const fn beginning(self) -> Self {
        Self {
            begins: true,
            ..self
        }
    }

    const fn saying(self, says: &'static str) -> Self {
        Self { says, ..self }
    }

    const fn like(self, example: &'static str) -> Self {
        Self { example, ..self }
    }
}

/// Defaults of a noun.
const NOUN: Noun = Noun {
    name: "",
    parent: None,
    about: "",
    scope: Scope::Org,
    verbs: &[],
};

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
                "answered_s",
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
        ..NOUN
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
        ..NOUN
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
        ..NOUN
    },
    Noun {
        name: "prompt",
        about: "Audio that built-in agents play",
        verbs: &[
            verb("create", "createPrompt")
                .without(&["audio"])
                .adapted(adaptation::PROMPT)
                .like("trunkline prompt create --name Welcome --file welcome.wav"),
            verb("list", "listPrompts").showing(&["id", "name", "duration_ms", "created_at"]),
            verb("show", "showPrompt"),
            verb("delete", "deletePrompt"),
        ],
        ..NOUN
    },
    Noun {
        name: "voice",
        about: "Voices that agents can speak with",
        verbs: &[verb("list", "listVoices").showing(&["id", "name", "language", "gender"])],
        ..NOUN
    },
    Noun {
        name: "handoff",
        about: "Hand-offs that agents report",
        verbs: &[
            verb("list", "listHandoffEvents").showing(HANDOFF),
            verb("session", "listHandoffsOfSession").showing(SESSION_HANDOFF),
            verb("report", "reportHandoff"),
            verb("delete", "deleteHandoff"),
        ],
        ..NOUN
    },
    Noun {
        name: "contact",
        about: "Contacts of an org",
        verbs: &[
            verb("list", "listContacts")
                .also(&["find"])
                .showing(&["id", "external_id", "name", "email", "phone", "updated_at"])
                .like("trunkline contact list\n  trunkline contact find --phone +442071838750\n  trunkline contact find --email ann@example.com --json"),
            verb("show", "showContact"),
            verb("update", "updateContact"),
            verb("create", "authenticateUserByExternalId"),
        ],
        ..NOUN
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
            verb("rotate-secret", "rotateWebhookSecret").asking(Danger::Asks),
            verb("deliveries", "listDeliveries").showing(&[
                "id",
                "event_type",
                "status",
                "attempts",
                "created_at",
                "delivered_at",
            ]),
            verb("delivery", "showDelivery"),
            verb("redeliver", "redeliver"),
        ],
        ..NOUN
    },
    Noun {
        name: "usage",
        about: "Calls and minutes of an org",
        verbs: &[verb("show", "showUsage")],
        ..NOUN
    },
    Noun {
        name: "login-link",
        about: "Links that log a person into the dashboard, once",
        verbs: &[verb("create", "createLoginLink").taking(&["email"])],
        ..NOUN
    },
    Noun {
        name: "bot-token",
        about: "The secret that an org shares with its bots",
        verbs: &[
            verb("show", "showBotToken"),
            verb("create", "createBotToken"),
            verb("promote", "promoteBotToken").asking(Danger::Asks),
            verb("delete", "deleteBotToken"),
        ],
        ..NOUN
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
        ..NOUN
    },
    Noun {
        name: "org",
        about: "Orgs: the tenants",
        scope: Scope::Installation,
        verbs: &[
            verb("create", "createOrg")
                .beginning()
                .like("trunkline org create --name \"Acme Ltd\" --language de"),
            verb("list", "listOrgs").showing(ORG),
            verb("show", "showOrg"),
            verb("update", "updateOrg")
                .like("trunkline org update Acme --name \"Acme Ltd\" --language de"),
            verb("limit", "updateOrgLimits")
                .about("Limits the org's calls at once; without a number they have no limit")
                .without(OTHER_LIMITS)
                .taking(&["concurrent_calls"])
                .assuming(&[("concurrent_calls", "null")])
                .as_rows_by(answer_rows::limits, LIMIT)
                .like("trunkline org limit Acme 50\n  trunkline org limit Acme"),
            verb("suspend", "suspendOrg").asking(Danger::Asks),
            verb("resume", "resumeOrg"),
            verb("rotate-widget-token", "rotateWidgetToken").asking(Danger::Asks),
            verb("delete", "deleteOrg")
                .like("trunkline org delete Acme\n  trunkline org delete Acme --now --yes"),
            verb("restore", "restoreOrg").among("/operator/deleted-orgs"),
            verb("deleted", "listDeletedOrgs").as_rows(&[
                "id",
                "name",
                "partner_id",
                "deleted_at",
                "purge_at",
            ]),
            verb("limits", "updateOrgLimits")
                .or_showing("showOrgLimits")
                .as_rows_by(answer_rows::limits, LIMIT)
                .like("trunkline org limits Acme\n  trunkline org limits Acme --agents 5000 --requests-per-minute default"),
            verb("retention", "updateOrg")
                .or_showing("showOrg")
                .about("Shows for how many days an org's data is kept, and sets those that are given")
                .without(&["name", "external_id", "website", "language", "ai_instructions", "integrations", "retention"])
                .adapted(adaptation::RETENTION)
                .as_rows_by(answer_rows::retention, &["data", "days", "days_in_force"])
                .like("trunkline org retention Acme\n  trunkline org retention Acme --calls-days 90 --sessions-days default"),
            verb("tie", "tiePeer")
                .taking(&["peer"])
                .as_rows(PEER)
                .like("trunkline org tie Acme carrier.example.com\n  trunkline org tie Acme 10.20.0.0/16"),
            verb("untie", "untiePeer")
                .as_rows(PEER),
            verb("tied", "listTiedPeers").as_rows(PEER),
        ],
        ..NOUN
    },
    Noun {
        name: "node",
        about: "Nodes of the installation, and sources whose log-ins fail",
        scope: Scope::Installation,
        verbs: &[
            verb("list", "listNodes").as_rows(&["node", "host", "status", "calls", "started_at"]),
            verb("health", "showNodeHealth"),
            verb("sources", "listFailingSources").as_rows(&["source", "failures", "org_name", "last_at"]),
        ],
        ..NOUN
    },
    Noun {
        name: "agent",
        about: "Phone agents, and the runtimes that speak for them",
        verbs: &[
            verb("create", "createAgent")
                .without(&["runtime"])
                .assuming(&[
                    ("type", "\"inbound\""),
                    ("language", "\"en\""),
                    ("first_message", "\"\""),
                    ("use_org_knowledgebase", "false"),
                ])
                .adapted(adaptation::AGENT)
                .like("trunkline agent create --name Sales --runtime echo\n  trunkline agent create --name Sales --runtime 'sip:{agent_id}@runtime.example.com' --fallback sip:b.example.com"),
            verb("list", "listAgents").showing(&[
                "id",
                "name",
                "type",
                "enabled",
                "max_concurrent_calls",
                "runtime",
                "created_at",
            ]),
            verb("show", "showAgent"),
            verb("update", "updateAgent")
                .without(&["runtime"])
                .adapted(adaptation::AGENT)
                .like("trunkline agent update Sales --disabled\n  trunkline agent update Sales --runtime sip:a.example.com --fallback sip:b.example.com\n  trunkline agent update Sales --runtime-username acme --runtime-password-file runtime.secret"),
            verb("delete", "deleteAgent")
                .saying("The agent is deleted and its numbers are free."),
            verb("config", "showAgentConfig"),
        ],
        ..NOUN
    },
    Noun {
        name: "number",
        verbs: &[
            verb("list", "listNumbers").showing(&[
                "id",
                "phone_number",
                "verified",
                "agent_id",
                "created_at",
            ]),
            verb("show", "showNumber"),
            verb("verify", "verifyOrgNumber"),
            verb("unverify", "unverifyOrgNumber").asking(Danger::Asks),
            verb("call-code", "verifyNumber"),
            verb("confirm-code", "confirmNumber").taking(&["code"]),
            verb("delete", "deleteNumber")
                .also(&["remove"])
                .saying("The number is removed."),
        ],
        ..NOUN
    },
    Noun {
        name: "trunk",
        verbs: &[
            verb("create", "createInboundTrunk")
                .adapted(adaptation::TRUNK)
                .like("trunkline trunk create\n  trunkline trunk create --number +442071838750 --country GB --allow 198.51.100.7"),
            verb("show", "showInboundTrunk"),
            verb("update", "updateInboundTrunk")
                .adapted(adaptation::TRUNK)
                .like("trunkline trunk update --allow 198.51.100.0/24 --allow 203.0.113.9"),
            verb("delete", "deleteInboundTrunk")
                .saying("The trunk is deleted; its credentials no longer work."),
            verb("add-number", "addTrunkNumbers").taking(&["phone_numbers"]),
            verb("remove-number", "removeTrunkNumber"),
            verb("sync", "syncTrunkNumbers"),
            verb("rotate", "rotateTrunkCredentials"),
            verb("old-credentials", "listOldCredentials"),
            verb("end-old-credentials", "endOldCredentials"),
            verb("dedicate", "dedicateNetwork")
                .taking(&["network"])
                .like("trunkline trunk dedicate 198.51.100.0/24 --org Acme"),
            verb("undedicate", "undedicateNetwork")
                .saying("The network is no longer dedicated to an org."),
            verb("dedicated", "listDedicatedNetworks").as_rows(&["network", "org_id", "no_proof", "created_at"]),
            verb("media-address", "addMediaAddress")
                .taking(&["network"])
                .as_rows(NETWORK)
                .like("trunkline trunk media-address 203.0.113.0/24 --org Acme"),
            verb("remove-media-address", "removeMediaAddress")
                .as_rows(NETWORK),
            verb("media-addresses", "listMediaAddresses").as_rows(NETWORK),
        ],
        ..NOUN
    },
    Noun {
        name: "key",
        verbs: &[
            verb("create", "createKey").like("trunkline key create --scopes calls:read,phone:read --expires-at 2036-01-31T00:00:00Z"),
            verb("list", "listKeys").showing(&[
                "api_key_id",
                "name",
                "scopes",
                "created_at",
                "expires_at",
            ]),
            verb("delete", "revokeKey")
                .also(&["revoke"])
                .saying("The key is revoked; a running daemon refuses it within a second."),
        ],
        ..NOUN
    },
    Noun {
        name: "partner",
        about: "Partners: resellers that create orgs",
        scope: Scope::Installation,
        verbs: &[
            verb("create", "createPartner")
                .beginning()
                .like("trunkline partner create --name Reseller --allow 198.51.100.0/24"),
            verb("list", "listPartners").as_rows(&[
                "id",
                "name",
                "active",
                "allowed_networks",
                "created_at",
            ]),
            verb("show", "showPartner"),
            verb("update", "updatePartner"),
            verb("activate", "updatePartner")
                .without(PARTNER_SETTINGS)
                .assuming(&[("active", "true")]),
            verb("deactivate", "updatePartner")
                .without(PARTNER_SETTINGS)
                .assuming(&[("active", "false")])
                .asking(Danger::Asks),
            verb("let-verify", "updatePartner")
                .without(PARTNER_SETTINGS)
                .adapted(adaptation::LET_VERIFY)
                .like("trunkline partner let-verify Reseller\n  trunkline partner let-verify Reseller --no"),
            verb("allow", "updatePartner")
                .about("Sets the networks that the partner's requests may come from")
                .without(&["name", "active", "verifies_numbers"])
                .taking(&["allowed_networks"])
                .adapted(adaptation::ALLOW)
                .like("trunkline partner allow Reseller 198.51.100.0/24 203.0.113.9\n  trunkline partner allow Reseller --anywhere"),
            verb("limits", "updateLimitsOfPartner")
                .or_showing("showLimitsOfPartner")
                .as_rows(&["limit", "value", "of"])
                .like("trunkline partner limits Reseller\n  trunkline partner limits Reseller --agents 5000 --login-links-per-minute default\n  trunkline partner limits Reseller --node-share-percent 70"),
        ],
        ..NOUN
    },
    Noun {
        name: "key",
        parent: Some("partner"),
        about: "Keys of a partner",
        scope: Scope::Installation,
        verbs: &[
            verb("create", "createPartnerKey")
                .by_option(&["partnerId"])
                .like("trunkline partner key create --partner Reseller"),
            verb("list", "listPartnerKeys")
                .by_option(&["partnerId"])
                .as_rows(&["id", "name", "created_at"]),
            verb("revoke", "revokePartnerKey")
                .by_option(&["partnerId"])
                .saying("The key is revoked."),
        ],
    },
];
