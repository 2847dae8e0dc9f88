-- Partners, orgs, keys and people. Times are microseconds since the epoch; lists are JSON texts.

CREATE TABLE partners (
    id                     BLOB NOT NULL PRIMARY KEY,
    name                   TEXT NOT NULL,
    active                 INTEGER NOT NULL,
    ai_instructions        TEXT,
    -- NULL: any address; '[]': none.
    allowed_networks       TEXT,
    requests_per_minute    INTEGER,
    login_links_per_minute INTEGER,
    created_at             INTEGER NOT NULL,
    -- Whether the partner may say which numbers are its orgs' own.
    verifies_numbers       INTEGER NOT NULL DEFAULT FALSE,
    -- Version: an edit names the one that it was made for.
    updated_at             INTEGER NOT NULL DEFAULT 0,
    -- Share of a node, in per cent, that the orgs of a partner have together; NULL: half.
    node_share_percent     INTEGER
) STRICT;

-- Revocation deletes the row.
CREATE TABLE partner_keys (
    id           BLOB NOT NULL PRIMARY KEY,
    partner_id   BLOB NOT NULL REFERENCES partners (id) ON DELETE CASCADE,
    name         TEXT NOT NULL,
    -- SHA-256 of the whole key.
    key_hash     BLOB NOT NULL UNIQUE,
    created_at   INTEGER NOT NULL,
    last_used_at INTEGER
) STRICT;
CREATE INDEX partner_keys_partner ON partner_keys (partner_id);

-- How much of each a partner may give to any of its orgs.
CREATE TABLE partner_org_limits (
    partner_id BLOB NOT NULL REFERENCES partners (id) ON DELETE CASCADE,
    name       TEXT NOT NULL,
    most       INTEGER NOT NULL,
    PRIMARY KEY (partner_id, name)
) STRICT;

CREATE TABLE orgs (
    id                       BLOB NOT NULL PRIMARY KEY,
    partner_id               BLOB REFERENCES partners (id),
    external_id              TEXT,
    name                     TEXT NOT NULL,
    widget_token             TEXT NOT NULL UNIQUE,
    website                  TEXT,
    language                 TEXT NOT NULL,
    ai_instructions          TEXT,
    created_at               INTEGER NOT NULL,
    -- Since when an org is suspended, by whom.
    suspended_by_partner_at  INTEGER,
    suspended_by_operator_at INTEGER,
    -- Set for as long as the org's partner is inactive.
    partner_inactive_at      INTEGER,
    -- An org that was deleted stays until it is purged, and can be restored until then.
    deleted_at               INTEGER,
    -- When everything of it is purged. NULL: it isn't deleted.
    purge_at                 INTEGER,
    -- Its external id until it was deleted: another org may have that now.
    deleted_external_id      TEXT,
    -- Days after which an org's data is deleted. NULL: as the operator's configuration says.
    retain_calls_days        INTEGER,
    retain_sessions_days     INTEGER,
    retain_contacts_days     INTEGER,
    retain_handoffs_days     INTEGER,
    -- Version: an edit names the one that it was made for.
    updated_at               INTEGER NOT NULL DEFAULT 0,
    -- The embed token from before the last rotation, and its end.
    old_widget_token         TEXT,
    old_widget_token_ends_at INTEGER,
    UNIQUE (partner_id, external_id)
) STRICT;
CREATE INDEX orgs_listed ON orgs (partner_id, created_at, id);
CREATE UNIQUE INDEX orgs_old_widget_token ON orgs (old_widget_token) WHERE old_widget_token IS NOT NULL;
CREATE INDEX orgs_purged ON orgs (purge_at) WHERE purge_at IS NOT NULL;
-- The operator's list of all orgs is read by page.
CREATE INDEX orgs_of_all ON orgs (created_at, id) WHERE deleted_at IS NULL;

-- What an org may have and ask for, where the operator or its partner has said so; the defaults aren't stored.
CREATE TABLE org_limits (
    org_id      BLOB NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    -- 'concurrent_calls', 'outbound_trunks', 'agents', 'destinations', 'api_keys', 'registrations', 'webhooks', 'requests_per_minute' or
    -- 'streaming_requests_per_minute'.
    name        TEXT NOT NULL,
    by_operator INTEGER,
    by_partner  INTEGER,
    PRIMARY KEY (org_id, name)
) STRICT;

-- Orgs that were purged. Facts of calls that a node had kept back may still come for them, and are purged too.
CREATE TABLE purged_orgs (
    org_id    BLOB NOT NULL PRIMARY KEY,
    purged_at INTEGER NOT NULL
) STRICT;

-- Usage of calls whose rows are gone: it counts on.
CREATE TABLE usage_kept (
    org_id           BLOB NOT NULL,
    -- NULL: an org of the operator's own.
    partner_id       BLOB,
    -- Days since 1970-01-01, UTC.
    day              INTEGER NOT NULL,
    -- The nil UUID: calls without an agent.
    agent_id         BLOB NOT NULL,
    -- The nil UUID: calls without a trunk.
    trunk_id         BLOB NOT NULL,
    direction        TEXT NOT NULL,
    calls            INTEGER NOT NULL,
    answered_calls   INTEGER NOT NULL,
    answered_seconds INTEGER NOT NULL,
    PRIMARY KEY (org_id, day, agent_id, trunk_id, direction)
) STRICT;
CREATE INDEX usage_kept_of_partner ON usage_kept (partner_id, day) WHERE partner_id IS NOT NULL;

CREATE TABLE integrations (
    id                        BLOB NOT NULL PRIMARY KEY,
    org_id                    BLOB NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    kind                      TEXT NOT NULL,
    name                      TEXT NOT NULL,
    -- Sealed JSON: app_key, user_key.
    credentials               BLOB NOT NULL,
    default_company_shortname TEXT,
    created_at                INTEGER NOT NULL,
    UNIQUE (org_id, kind, name)
) STRICT;

-- A token is good as long as its row exists.
CREATE TABLE org_keys (
    id           BLOB NOT NULL PRIMARY KEY,
    org_id       BLOB NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    name         TEXT NOT NULL,
    scopes       TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    last_used_at INTEGER,
    -- SHA-256 of the token that was issued for the key, and the id of the key that signed it.
    token_hash   BLOB NOT NULL,
    kid          TEXT NOT NULL,
    -- When an org's API key ends by itself. NULL: it is good until it is revoked.
    expires_at   INTEGER
) STRICT;
CREATE INDEX org_keys_listed ON org_keys (org_id, created_at, id);

CREATE TABLE roles (
    id         BLOB NOT NULL PRIMARY KEY,
    org_id     BLOB NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    name       TEXT NOT NULL,
    -- 'write' or 'read'.
    access     TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    UNIQUE (org_id, name),
    UNIQUE (org_id, id)
) STRICT;

CREATE TABLE users (
    id         BLOB NOT NULL PRIMARY KEY,
    -- In lower case.
    email      TEXT NOT NULL,
    name       TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    -- The partner whose orgs it is for; the org, if that has no partner; zeros for the operator's account.
    owner_id   BLOB NOT NULL,
    UNIQUE (owner_id, email)
) STRICT;

CREATE TABLE memberships (
    org_id     BLOB NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    user_id    BLOB NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (org_id, user_id)
) STRICT;
CREATE INDEX memberships_user ON memberships (user_id);

CREATE TABLE membership_roles (
    org_id  BLOB NOT NULL,
    user_id BLOB NOT NULL,
    role_id BLOB NOT NULL,
    PRIMARY KEY (org_id, user_id, role_id),
    FOREIGN KEY (org_id, user_id) REFERENCES memberships (org_id, user_id) ON DELETE CASCADE,
    FOREIGN KEY (org_id, role_id) REFERENCES roles (org_id, id) ON DELETE CASCADE
) STRICT;

CREATE TABLE login_links (
    token_hash  BLOB NOT NULL PRIMARY KEY,
    org_id      BLOB NOT NULL,
    user_id     BLOB NOT NULL,
    expires_at  INTEGER NOT NULL,
    consumed_at INTEGER,
    created_at  INTEGER NOT NULL,
    -- A page with a button stands before the link.
    confirm     INTEGER NOT NULL DEFAULT FALSE,
    FOREIGN KEY (org_id, user_id) REFERENCES memberships (org_id, user_id) ON DELETE CASCADE
) STRICT;
CREATE INDEX login_links_expiry ON login_links (expires_at);
CREATE INDEX login_links_of_org ON login_links (org_id);

CREATE TABLE dashboard_sessions (
    token_hash BLOB NOT NULL PRIMARY KEY,
    org_id     BLOB NOT NULL,
    user_id    BLOB NOT NULL,
    expires_at INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    -- Names a session where it is listed.
    id         BLOB NOT NULL,
    FOREIGN KEY (org_id, user_id) REFERENCES memberships (org_id, user_id) ON DELETE CASCADE
) STRICT;
CREATE INDEX dashboard_sessions_expiry ON dashboard_sessions (expires_at);
CREATE INDEX dashboard_sessions_listed ON dashboard_sessions (org_id, created_at, id);

-- Agents, numbers, trunks and transfer destinations. Composite keys keep every reference inside one org.

CREATE TABLE outbound_trunks (
    id                   BLOB NOT NULL PRIMARY KEY,
    org_id               BLOB NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    name                 TEXT NOT NULL,
    -- NULL where calls go to the org's registered PBX.
    host                 TEXT,
    port                 INTEGER,
    transport            TEXT NOT NULL,
    username             TEXT,
    -- Sealed.
    password             BLOB,
    caller_number        TEXT NOT NULL,
    to_registered        INTEGER NOT NULL,
    from_host            TEXT,
    p_asserted_identity  INTEGER NOT NULL,
    register             INTEGER NOT NULL,
    max_concurrent_calls INTEGER,
    calls_per_second     INTEGER,
    created_at           INTEGER NOT NULL,
    updated_at           INTEGER NOT NULL,
    -- 'refer', 'bridge' or 'auto'.
    transfer_way         TEXT NOT NULL DEFAULT 'refer',
    refer_kept_caller_at INTEGER,
    -- The only realm that the trunk's credentials are for, where the org has named it.
    auth_realm           TEXT,
    -- The realms that the carrier has challenged with, and whether each has offered qop: a JSON array.
    auth_realms          TEXT NOT NULL DEFAULT '[]',
    -- NULL: no.
    digest_require_qop   INTEGER,
    unanswered_challenge TEXT,
    -- INVITEs carry `user=phone`.
    user_phone           INTEGER NOT NULL DEFAULT 0,
    UNIQUE (org_id, id)
) STRICT;
CREATE INDEX outbound_trunks_named ON outbound_trunks (org_id, lower(name));

CREATE TABLE agents (
    id                    BLOB NOT NULL PRIMARY KEY,
    org_id                BLOB NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    name                  TEXT NOT NULL,
    -- 'inbound' or 'outbound'.
    type                  TEXT NOT NULL,
    language              TEXT NOT NULL,
    first_message         TEXT NOT NULL,
    use_org_knowledgebase INTEGER NOT NULL,
    voice_id              TEXT,
    handoff_phone_number  TEXT,
    action_ids            TEXT NOT NULL,
    enabled               INTEGER NOT NULL,
    max_concurrent_calls  INTEGER,
    -- JSON; NULL: the configured default.
    runtime               TEXT,
    outbound_trunk_id     BLOB,
    created_at            INTEGER NOT NULL,
    updated_at            INTEGER NOT NULL,
    -- A runtime that the operator's command line set isn't judged as a tenant's; NULL: no.
    runtime_by_operator   INTEGER,
    -- The password that the agent's runtime is answered with, sealed; the user name stands in runtime.
    runtime_password      BLOB,
    -- Seconds without RTP after which an agent's caller is asked whether it is still there; NULL: media.silence_s, 0: never.
    media_timeout_s       INTEGER,
    UNIQUE (org_id, id),
    FOREIGN KEY (org_id, outbound_trunk_id) REFERENCES outbound_trunks (org_id, id)
) STRICT;
CREATE INDEX agents_listed ON agents (org_id, created_at, id);
-- A whole name in any case.
CREATE INDEX agents_named ON agents (org_id, lower(name));
CREATE INDEX agents_trunk ON agents (org_id, outbound_trunk_id) WHERE outbound_trunk_id IS NOT NULL;

CREATE TABLE numbers (
    id                BLOB NOT NULL PRIMARY KEY,
    org_id            BLOB NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    number            TEXT NOT NULL,
    verified_at       INTEGER,
    -- The agent that answers it.
    agent_id          BLOB,
    created_at        INTEGER NOT NULL,
    -- Since when the number was verified when its org was deleted: another org may have verified it since.
    freed_verified_at INTEGER,
    UNIQUE (org_id, number),
    FOREIGN KEY (org_id, agent_id) REFERENCES agents (org_id, id)
) STRICT;
CREATE UNIQUE INDEX numbers_verified_once ON numbers (number) WHERE verified_at IS NOT NULL;
CREATE INDEX numbers_listed ON numbers (org_id, created_at, id);
CREATE INDEX numbers_agent ON numbers (org_id, agent_id) WHERE agent_id IS NOT NULL;

-- Codes that were spoken to whoever answers a number, so that an org can show that it holds it. A number is called three times a day at
-- most, whichever orgs ask for it: each call takes a place for 24 hours.
CREATE TABLE number_codes (
    number     TEXT NOT NULL,
    -- 0, 1 or 2.
    place      INTEGER NOT NULL,
    id         BLOB NOT NULL,
    org_id     BLOB NOT NULL,
    -- The row of `numbers` that it verifies, which may be gone.
    number_id  BLOB NOT NULL,
    -- HMAC-SHA-256 of the code, under a key that isn't here; NULL once it is used, replaced or guessed wrong too often.
    code_mac   BLOB,
    tries      INTEGER NOT NULL,
    made_at    INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    -- The org's partner: the call counts for it after the org is purged.
    partner_id BLOB,
    PRIMARY KEY (number, place)
) STRICT;
CREATE INDEX number_codes_of ON number_codes (org_id, number_id);
CREATE INDEX number_codes_made ON number_codes (made_at);

CREATE TABLE inbound_trunks (
    id                      BLOB NOT NULL PRIMARY KEY,
    org_id                  BLOB NOT NULL UNIQUE REFERENCES orgs (id) ON DELETE CASCADE,
    name                    TEXT NOT NULL,
    username                TEXT NOT NULL UNIQUE,
    -- Sealed.
    password                BLOB NOT NULL,
    krisp_enabled           INTEGER NOT NULL,
    allowed_addresses       TEXT NOT NULL,
    default_country         TEXT,
    -- 'sip' or 'tel'.
    refer_to_format         TEXT NOT NULL,
    refer_host              TEXT,
    refer_headers_in_uri    INTEGER NOT NULL,
    bridge_when_refer_fails INTEGER NOT NULL,
    max_concurrent_calls    INTEGER,
    created_at              INTEGER NOT NULL,
    updated_at              INTEGER NOT NULL,
    -- Networks of allowed_addresses that the operator's command line entered: bounds for tenants don't hold for them.
    operator_addresses      TEXT NOT NULL DEFAULT '[]',
    -- 'refer', 'bridge' or 'auto'.
    transfer_way            TEXT NOT NULL DEFAULT 'refer',
    -- When the PBX was first seen alive in a call whose accepted REFER had failed.
    refer_kept_caller_at    INTEGER,
    -- The last challenge of the trunk's peer that got no answer, and why: a JSON object.
    unanswered_challenge    TEXT,
    -- Whether RTP may come from another address than that of SDP or signalling, where SDP names a private one; NULL: no.
    rtp_from_any_address    INTEGER,
    UNIQUE (org_id, id)
) STRICT;

-- A number stays listed when it stops being verified, until the trunk is synced.
CREATE TABLE inbound_trunk_numbers (
    org_id   BLOB NOT NULL,
    trunk_id BLOB NOT NULL,
    number   TEXT NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY (org_id, trunk_id, number),
    FOREIGN KEY (org_id, trunk_id) REFERENCES inbound_trunks (org_id, id) ON DELETE CASCADE
) STRICT;

-- Pairs from before a rotation.
CREATE TABLE old_credentials (
    username   TEXT NOT NULL PRIMARY KEY,
    org_id     BLOB NOT NULL,
    trunk_id   BLOB NOT NULL,
    -- Sealed.
    password   BLOB NOT NULL,
    expires_at INTEGER NOT NULL,
    FOREIGN KEY (org_id, trunk_id) REFERENCES inbound_trunks (org_id, id) ON DELETE CASCADE
) STRICT;
CREATE INDEX old_credentials_trunk ON old_credentials (org_id, trunk_id);

-- Where PBXs have registered: kept over a restart, and followed by the other nodes. One row for each contact of an inbound trunk; a contact
-- that was removed stays for a while with an end in the past, so that others learn of it.
CREATE TABLE registrations (
    trunk_id      BLOB NOT NULL REFERENCES inbound_trunks (id) ON DELETE CASCADE,
    contact       TEXT NOT NULL,
    org_id        BLOB NOT NULL,
    -- The node that heard of it last, and has its flow.
    node          INTEGER NOT NULL,
    instance      TEXT,
    q             INTEGER,
    transport     TEXT NOT NULL,
    source        TEXT NOT NULL,
    behind_nat    INTEGER NOT NULL,
    -- The digest user name of the REGISTER.
    username      TEXT NOT NULL,
    user_agent    TEXT,
    sip_call_id   BLOB NOT NULL,
    cseq          INTEGER NOT NULL,
    registered_at INTEGER NOT NULL,
    refreshed_at  INTEGER NOT NULL,
    expires_at    INTEGER NOT NULL,
    saved_at      INTEGER NOT NULL,
    -- Route of requests to the contact (RFC 3327), as the value of a Route header.
    path          TEXT,
    PRIMARY KEY (trunk_id, contact)
) STRICT;
CREATE INDEX registrations_saved ON registrations (saved_at);
CREATE INDEX registrations_ended ON registrations (expires_at);

CREATE TABLE destinations (
    id          BLOB NOT NULL PRIMARY KEY,
    org_id      BLOB NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    name        TEXT NOT NULL,
    -- The name without its case.
    name_folded TEXT NOT NULL,
    -- 'phone' or 'sip'.
    type        TEXT NOT NULL,
    value       TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    -- 'pbx' or 'trunk'.
    via         TEXT NOT NULL DEFAULT 'pbx',
    UNIQUE (org_id, name_folded),
    UNIQUE (org_id, id)
) STRICT;
CREATE INDEX destinations_listed ON destinations (org_id, created_at, id);

CREATE TABLE agent_destinations (
    org_id         BLOB NOT NULL,
    agent_id       BLOB NOT NULL,
    destination_id BLOB NOT NULL,
    created_at     INTEGER NOT NULL,
    PRIMARY KEY (org_id, agent_id, destination_id),
    FOREIGN KEY (org_id, agent_id) REFERENCES agents (org_id, id) ON DELETE CASCADE,
    FOREIGN KEY (org_id, destination_id) REFERENCES destinations (org_id, id) ON DELETE CASCADE
) STRICT;
CREATE INDEX agent_destinations_destination ON agent_destinations (org_id, destination_id);

-- Prompts that an org has uploaded for its built-in agents, as telephones play them.
CREATE TABLE prompts (
    org_id      BLOB NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    id          BLOB NOT NULL,
    name        TEXT NOT NULL,
    name_folded TEXT NOT NULL,
    -- µ-law, 8 kHz.
    audio       BLOB NOT NULL,
    -- Octets of the audio, one for each sample.
    samples     INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    PRIMARY KEY (org_id, id),
    UNIQUE (org_id, name_folded)
) STRICT;
CREATE INDEX prompts_newest ON prompts (org_id, created_at, id);

-- Token of an org's bots: it signs the handshakes of their WebSockets and opens the endpoint by which they end and transfer calls.
CREATE TABLE bot_tokens (
    org_id          BLOB NOT NULL PRIMARY KEY REFERENCES orgs (id) ON DELETE CASCADE,
    -- Sealed. Signs handshakes.
    token           BLOB NOT NULL,
    created_at      INTEGER NOT NULL,
    -- Sealed. Made by a rotation: opens the endpoint already and signs nothing yet; NULL: none.
    next_token      BLOB,
    next_created_at INTEGER,
    -- Sealed. Signed handshakes before, and opens the endpoint until it expires; NULL: none.
    old_token       BLOB,
    old_expires_at  INTEGER
) STRICT, WITHOUT ROWID;

-- Networks and peers that the operator's command line has given to an org.

-- Source networks that belong to one org alone.
CREATE TABLE dedications (
    network    TEXT NOT NULL PRIMARY KEY,
    org_id     BLOB NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    created_at INTEGER NOT NULL,
    -- The operator vouches for the source of calls from the network: over UDP they prove nothing.
    no_proof   INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX dedications_org ON dedications (org_id);

-- Reserved and private peers that an org may name.
CREATE TABLE tied_peers (
    org_id     BLOB NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    -- A host name, an address or a CIDR block.
    peer       TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (org_id, peer)
) STRICT, WITHOUT ROWID;

-- Networks in which an org's PBX or carrier has its media: audio goes there before any has come from there.
CREATE TABLE media_addresses (
    org_id     BLOB NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    -- A CIDR block.
    network    TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (org_id, network)
) STRICT, WITHOUT ROWID;

-- Contacts, their handoffs and erasures.

CREATE TABLE contacts (
    id                    BLOB NOT NULL PRIMARY KEY,
    org_id                BLOB NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    external_id           TEXT,
    email                 TEXT,
    -- The address without its case.
    email_folded          TEXT,
    phone                 TEXT,
    -- The phone as E.164 where it is a number, else as it was given.
    phone_key             TEXT,
    name                  TEXT,
    avatar_url            TEXT,
    language              TEXT,
    chat_context          TEXT,
    custom_data           TEXT,
    mcp_access            TEXT,
    http_action_overrides TEXT,
    created_at            INTEGER NOT NULL,
    updated_at            INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX contacts_external ON contacts (org_id, external_id) WHERE external_id IS NOT NULL;
-- The other ways in never see a contact that has an external id.
CREATE INDEX contacts_email ON contacts (org_id, email_folded) WHERE external_id IS NULL AND email_folded IS NOT NULL;
CREATE INDEX contacts_phone ON contacts (org_id, phone_key) WHERE external_id IS NULL AND phone_key IS NOT NULL;
CREATE INDEX contacts_listed ON contacts (org_id, updated_at, id);
-- Lists of contacts, and searches for them, in their order.
CREATE INDEX contacts_created ON contacts (org_id, created_at, id);
CREATE INDEX contacts_by_email ON contacts (org_id, email_folded, created_at, id) WHERE email_folded IS NOT NULL;
CREATE INDEX contacts_by_phone ON contacts (org_id, phone_key, created_at, id) WHERE phone_key IS NOT NULL;

-- Number of contacts of an org, changed in the transaction that adds or deletes them: counting them takes as long as there are many.
CREATE TABLE contact_counts (
    org_id   BLOB NOT NULL PRIMARY KEY REFERENCES orgs (id) ON DELETE CASCADE,
    contacts INTEGER NOT NULL
) STRICT;

-- The handoffs of an org lie together in the order of their list, so that a page of it is a few pages of the file and not one a row.
CREATE TABLE handoffs (
    id          BLOB NOT NULL,
    org_id      BLOB NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    session_id  TEXT NOT NULL,
    call_id     BLOB,
    agent_id    BLOB,
    contact_id  BLOB,
    summary     TEXT NOT NULL,
    explanation TEXT,
    reasons     TEXT NOT NULL,
    sentiment   TEXT,
    -- 1 for the org's first.
    position    INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    -- The destination is known to have answered, or a client has reported the handoff.
    confirmed   INTEGER NOT NULL DEFAULT FALSE,
    PRIMARY KEY (org_id, created_at)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX handoffs_id ON handoffs (id);
-- Handoffs are found by the session of their call.
CREATE INDEX handoffs_session ON handoffs (org_id, session_id);
-- The handoffs of a contact, newest first.
CREATE INDEX handoffs_contact ON handoffs (org_id, contact_id, created_at) WHERE contact_id IS NOT NULL;

-- Lists that a handoff is in, with positions of their own: one for each of its reasons, one for confirmed or unconfirmed handoffs, and one for each
-- reason among these.
CREATE TABLE handoff_lists (
    org_id     BLOB NOT NULL,
    -- '<reason>', 'confirmed', 'unconfirmed', '<reason> confirmed' or '<reason> unconfirmed'.
    list       TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    handoff_id BLOB NOT NULL REFERENCES handoffs (id) ON DELETE CASCADE,
    -- 1 for the first in the list.
    position   INTEGER NOT NULL,
    PRIMARY KEY (org_id, list, created_at)
) STRICT, WITHOUT ROWID;
CREATE INDEX handoff_lists_handoff ON handoff_lists (handoff_id);

-- Handoffs that were deleted, in each list that they were in while it has a newer one: its positions still count them.
CREATE TABLE handoff_gaps (
    org_id     BLOB NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    -- As in handoff_lists; empty for all handoffs.
    list       TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (org_id, list, created_at)
) STRICT, WITHOUT ROWID;

-- Erasures of contacts: what was asked for, how far each node has come, and the receipt.
CREATE TABLE erasures (
    id           BLOB NOT NULL PRIMARY KEY,
    org_id       BLOB NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    contact_id   BLOB NOT NULL,
    -- Sealed JSON: numbers and addresses that are looked for. NULL once no node needs them any more.
    subject      BLOB,
    -- JSON: how much was erased, by kind.
    erased       TEXT NOT NULL,
    -- JSON: how much of the org's own configuration names the same number, by kind.
    kept         TEXT NOT NULL,
    requested_at INTEGER NOT NULL,
    completed_at INTEGER,
    UNIQUE (org_id, contact_id)
) STRICT;
CREATE INDEX erasures_open ON erasures (requested_at) WHERE subject IS NOT NULL;

-- Calls that were found, until no node needs them any more.
CREATE TABLE erasure_calls (
    erasure_id BLOB NOT NULL REFERENCES erasures (id) ON DELETE CASCADE,
    call_id    BLOB NOT NULL,
    session_id BLOB,
    -- Sealed JSON: Call-IDs, and the time in which their messages passed.
    legs       BLOB NOT NULL,
    PRIMARY KEY (erasure_id, call_id)
) STRICT;

-- Nodes that have erased what was theirs.
CREATE TABLE erasure_nodes (
    erasure_id BLOB NOT NULL REFERENCES erasures (id) ON DELETE CASCADE,
    node       INTEGER NOT NULL,
    done_at    INTEGER NOT NULL,
    PRIMARY KEY (erasure_id, node)
) STRICT;

-- Calls, as the journal's facts say. Rows are projected in any order and more than once, so no column but the ids is
-- required, and nothing here refers to a row that may have been deleted since.

CREATE TABLE calls (
    id              BLOB NOT NULL PRIMARY KEY,
    org_id          BLOB NOT NULL,
    -- The process that held the call last.
    node            INTEGER NOT NULL,
    boot            INTEGER NOT NULL,
    session_id      BLOB,
    agent_id        BLOB,
    contact_id      BLOB,
    direction       TEXT,
    status          TEXT NOT NULL,
    from_number     TEXT,
    to_number       TEXT,
    from_e164       TEXT,
    to_e164         TEXT,
    started_at      INTEGER,
    ringing_at      INTEGER,
    answered_at     INTEGER,
    ended_at        INTEGER,
    sip_code        INTEGER,
    reason          TEXT,
    hangup_by       TEXT,
    caller_call_id  TEXT,
    runtime_call_id TEXT,
    metadata        TEXT,
    decision        TEXT,
    -- JSON: the caller's own headers.
    headers         TEXT,
    -- Why a call wasn't answered, as a gateway named it (Q.850).
    q850_cause      INTEGER,
    -- JSON: the facts of routing, how the caller proved who it is, how its phone system speaks.
    asked           TEXT,
    -- Whether both sides of a call that is up are held.
    held            INTEGER,
    -- For a call that was closed as lost: whether its end was told. NULL for all other calls.
    lost_told       INTEGER,
    -- The caller of an inbound call asked not to be named; NULL: no.
    caller_withheld INTEGER,
    trunk_id        BLOB,
    -- Figures of a call's media that ended here, and its steps, which name addresses; both JSON. NULL: the call had no media here.
    media           TEXT,
    media_steps     TEXT,
    -- The wall clock minus the node's clock of timers, in microseconds, as the call began: all its times are on it. NULL: the beginning isn't known.
    clock_offset    INTEGER,
    -- Details of the reason, for people.
    reason_detail   TEXT,
    -- The row of call_lists. NULL: the beginning isn't known.
    list            INTEGER,
    -- The row of call_blocks, which may be gone. NULL: the beginning isn't known.
    block           INTEGER
) STRICT;
-- Pages of an org's calls, their figures and usage, and calls past retention, by their start.
CREATE INDEX calls_listed ON calls (org_id, started_at, id);
-- Pages and counts of calls of an agent, a trunk, a direction, a status, or several of these: a range for each list that agrees.
CREATE INDEX calls_of_list ON calls (list, started_at);
-- Pages and counts of calls from or to a number: a range in each block for each of these. A call agrees with one of them at most.
CREATE INDEX calls_from ON calls (block, from_e164, started_at);
CREATE INDEX calls_to ON calls (block, to_e164, started_at) WHERE from_e164 IS NULL OR to_e164 <> from_e164;
CREATE INDEX calls_from_as_sent ON calls (block, from_number, started_at)
    WHERE (from_e164 IS NULL OR from_number <> from_e164) AND (to_e164 IS NULL OR from_number <> to_e164);
CREATE INDEX calls_to_as_sent ON calls (block, to_number, started_at)
    WHERE (from_e164 IS NULL OR to_number <> from_e164) AND (to_e164 IS NULL OR to_number <> to_e164)
    AND (from_number IS NULL OR to_number <> from_number);
-- Calls that are up, of all nodes or of one, and those that a node left open.
CREATE INDEX calls_open ON calls (node, boot) WHERE ended_at IS NULL;
-- The call of a session.
CREATE INDEX calls_session ON calls (session_id);
-- Outbound calls of the last day, which a node counts as it starts.
CREATE INDEX calls_outbound ON calls (started_at) WHERE direction = 'outbound';
-- Calls that were closed as lost and whose ends have no events yet.
CREATE INDEX calls_lost_untold ON calls (node, boot) WHERE lost_told = FALSE;
-- Ended calls that still hold what came with their sessions, by which retention finds them.
CREATE INDEX calls_with_session ON calls (org_id, started_at)
    WHERE ended_at IS NOT NULL AND (headers IS NOT NULL OR metadata IS NOT NULL OR asked IS NOT NULL);

-- Lists of calls of an org with the same agent, trunk, direction and outcome. The number of a list follows from these: its last four bits are
-- the outcome.
CREATE TABLE call_lists (
    list      INTEGER NOT NULL PRIMARY KEY,
    org_id    BLOB NOT NULL,
    agent_id  BLOB,
    trunk_id  BLOB,
    direction TEXT NOT NULL,
    -- 'up', or the status of calls that are over.
    outcome   TEXT NOT NULL
) STRICT;
-- An org's lists.
CREATE INDEX call_lists_of_org ON call_lists (org_id);

-- Blocks of some thousand calls of an org, which began one after the other.
CREATE TABLE call_blocks (
    block  INTEGER NOT NULL PRIMARY KEY,
    org_id BLOB NOT NULL
) STRICT;
-- An org's blocks, and the newest of these.
CREATE INDEX call_blocks_of_org ON call_blocks (org_id, block);

-- Attempts of calls at their targets, where one has failed.
CREATE TABLE call_attempts (
    call_id   BLOB NOT NULL,
    number    INTEGER NOT NULL,
    org_id    BLOB NOT NULL,
    -- 'runtime', 'callee' or 'destination'.
    leg       TEXT NOT NULL,
    target    TEXT NOT NULL,
    address   TEXT,
    transport TEXT,
    began_at  INTEGER NOT NULL,
    ended_at  INTEGER NOT NULL,
    outcome   TEXT NOT NULL,
    sip_code  INTEGER,
    detail    TEXT,
    PRIMARY KEY (call_id, number)
) STRICT;

-- Ends of calls in the order in which they were recorded: a reader of all calls goes on from a number. A call is here again when something
-- of it was recorded after its end.
CREATE TABLE call_ends (
    org_id  BLOB NOT NULL,
    seq     INTEGER NOT NULL,
    call_id BLOB NOT NULL,
    PRIMARY KEY (org_id, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE transfers (
    id                 BLOB NOT NULL PRIMARY KEY,
    org_id             BLOB NOT NULL,
    call_id            BLOB NOT NULL,
    destination_id     BLOB,
    name               TEXT NOT NULL,
    -- 'phone' or 'sip'.
    type               TEXT NOT NULL,
    value              TEXT NOT NULL,
    -- 'requested', 'accepted', 'ringing', 'completed', 'failed' or 'unknown'.
    state              TEXT NOT NULL,
    sip_code           INTEGER,
    reasons            TEXT NOT NULL,
    summary            TEXT NOT NULL,
    explanation        TEXT,
    sentiment          TEXT,
    requested_at       INTEGER NOT NULL,
    accepted_at        INTEGER,
    ringing_at         INTEGER,
    ended_at           INTEGER,
    session_id         BLOB,
    -- 'refer' or 'bridge'.
    way                TEXT NOT NULL,
    -- Grows with the state: an older fact never replaces a newer one.
    step               INTEGER NOT NULL,
    answer_confirmed   INTEGER,
    caller_may_be_gone INTEGER NOT NULL,
    counted_at         INTEGER,
    -- State of a transfer before its call was closed as lost, which made it 'unknown'.
    lost_from          TEXT
) STRICT;
-- What counts against a day's bound is read once, when the daemon starts.
CREATE INDEX transfers_counted ON transfers (counted_at) WHERE counted_at IS NOT NULL;
-- The last transfer of a call is found without its others.
CREATE INDEX transfers_newest ON transfers (org_id, call_id, requested_at, id);
CREATE INDEX transfers_lost ON transfers (call_id) WHERE lost_from IS NOT NULL;

-- Log-ins that failed under a user name of the org.
CREATE TABLE auth_failures (
    id          BLOB NOT NULL PRIMARY KEY,
    org_id      BLOB NOT NULL,
    trunk_id    BLOB NOT NULL,
    username    TEXT NOT NULL,
    source      TEXT NOT NULL,
    -- What of the answer was wrong.
    part        TEXT NOT NULL,
    at          INTEGER NOT NULL,
    -- Call-ID of the request whose log-in failed, and the number that it asked for.
    sip_call_id TEXT,
    dialled     TEXT
) STRICT;
CREATE INDEX auth_failures_listed ON auth_failures (org_id, at, id);
CREATE INDEX auth_failures_call ON auth_failures (org_id, sip_call_id);
-- The operator looks at failed log-ins of all orgs, the latest.
CREATE INDEX auth_failures_at ON auth_failures (at);

-- Events in the order of their commits, and what webhooks are owed.

-- An event may outlive what it tells of, so nothing here refers to other rows.
CREATE TABLE events (
    -- Becomes visible in its order.
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    id         BLOB NOT NULL,
    org_id     BLOB NOT NULL,
    type       TEXT NOT NULL,
    -- JSON, as every reader and every webhook gets it; never changed.
    body       TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    call_id    BLOB,
    -- The call's contact as it stood then; a row may learn it later.
    contact_id BLOB
) STRICT;
-- An event that is recorded again, the one that a reader has seen last, and the body of a delivery.
CREATE UNIQUE INDEX events_id ON events (id);
-- An org's events behind a position.
CREATE INDEX events_of_org ON events (org_id, seq);

CREATE TABLE webhooks (
    id                    BLOB NOT NULL PRIMARY KEY,
    org_id                BLOB NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    url                   TEXT NOT NULL,
    description           TEXT,
    -- A JSON list; [] is every type.
    types                 TEXT NOT NULL,
    -- Sealed.
    secret                BLOB NOT NULL,
    -- Sealed; after a rotation, both sign until it expires.
    old_secret            BLOB,
    old_secret_expires_at INTEGER,
    enabled               INTEGER NOT NULL,
    -- Why it was disabled, if not by the org.
    disabled_reason       TEXT,
    created_at            INTEGER NOT NULL,
    updated_at            INTEGER NOT NULL,
    -- The agent whose calls' progress this webhook is sent, in Twilio's form; NULL: a webhook of the org, as the API lists them.
    agent_id              BLOB
) STRICT;
CREATE INDEX webhooks_listed ON webhooks (org_id, created_at, id);
CREATE UNIQUE INDEX webhooks_of_agents ON webhooks (agent_id) WHERE agent_id IS NOT NULL;

CREATE TABLE webhook_deliveries (
    id              BLOB NOT NULL PRIMARY KEY,
    org_id          BLOB NOT NULL,
    webhook_id      BLOB NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
    event_id        BLOB NOT NULL REFERENCES events (id) ON DELETE CASCADE,
    event_type      TEXT NOT NULL,
    -- 'pending', 'delivered' or 'failed'.
    state           TEXT NOT NULL,
    -- Attempts since it was last queued, by the org or by the event.
    attempts        INTEGER NOT NULL,
    next_attempt_at INTEGER,
    -- Whoever attempts it holds it until then.
    held_by         TEXT,
    held_until      INTEGER,
    -- The last attempts, a JSON list.
    log             TEXT NOT NULL,
    created_at      INTEGER NOT NULL,
    delivered_at    INTEGER
) STRICT;
-- Pages and counts of a webhook's deliveries, of all states or of one.
CREATE INDEX webhook_deliveries_listed ON webhook_deliveries (webhook_id, created_at, id);
CREATE INDEX webhook_deliveries_of_state ON webhook_deliveries (webhook_id, state, created_at, id);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (webhook_id, next_attempt_at) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_event ON webhook_deliveries (event_id);

-- What the daemon itself needs: the change feed, keys, nodes, idempotency, the audit log.

-- Writers take turns, so rows become visible in their order.
CREATE TABLE changes (
    seq       INTEGER PRIMARY KEY AUTOINCREMENT,
    -- NULL: what isn't of one org.
    org_id    BLOB,
    kind      TEXT NOT NULL,
    entity_id BLOB,
    at        INTEGER NOT NULL
) STRICT;
CREATE INDEX changes_age ON changes (at);

-- The highest number that was pruned: whoever has read less starts anew.
CREATE TABLE changes_pruned (
    id  INTEGER PRIMARY KEY CHECK (id = 1),
    seq INTEGER NOT NULL
) STRICT;

-- The last number that a list has given out. The transaction that draws one holds the row until it commits, so that numbers become visible in
-- their order.
CREATE TABLE drawn (
    list TEXT NOT NULL PRIMARY KEY,
    last INTEGER NOT NULL
) STRICT;

-- 'keyring': the installation's keys, sealed under the master key (PostgreSQL). 'check': a known text, sealed with the keys
-- of the data directory (SQLite), to tell whether they are this database's.
CREATE TABLE secrets (
    id         TEXT NOT NULL PRIMARY KEY,
    value      BLOB NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

-- What is true of the installation as a whole. 'realm': the realm that its challenges have named.
CREATE TABLE installation (
    id    TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;

-- One row a node; a start takes the next boot number, and whoever outlives another's lease closes its calls.
CREATE TABLE nodes (
    node             INTEGER PRIMARY KEY,
    boot             INTEGER NOT NULL,
    host             TEXT NOT NULL,
    started_at       INTEGER NOT NULL,
    lease_expires_at INTEGER NOT NULL,
    -- Since when a node takes nothing new; NULL while it does.
    drains_since     INTEGER,
    -- The runs of nodes that this one counts in when work is shared out: it has registered its share of the outbound trunks. NULL before.
    sees             TEXT,
    -- Host and port of each of its SIP listeners, as its Contacts name them.
    sip_hosts        TEXT,
    -- The last run that has renewed the lease, and the time of its clock of timers then: its calls ended no earlier.
    alive_boot       INTEGER,
    alive_at         INTEGER
) STRICT;

-- The last fact of each node's journal that is stored, written with the facts: a restart goes on behind it.
CREATE TABLE journal_positions (
    node    INTEGER PRIMARY KEY,
    boot    INTEGER NOT NULL,
    segment INTEGER NOT NULL,
    fact    INTEGER NOT NULL
) STRICT;

-- What one node asks another to do with a call that is up there.
CREATE TABLE asks (
    id       BLOB NOT NULL PRIMARY KEY,
    node     INTEGER NOT NULL,
    org_id   BLOB NOT NULL,
    call_id  BLOB NOT NULL,
    what     TEXT NOT NULL,
    asked_at INTEGER NOT NULL,
    taken_at INTEGER,
    status   INTEGER,
    answer   TEXT
) STRICT;
CREATE INDEX asks_open ON asks (node, asked_at) WHERE taken_at IS NULL;

CREATE TABLE idempotency_keys (
    credential_id BLOB NOT NULL,
    method        TEXT NOT NULL,
    path          TEXT NOT NULL,
    key           TEXT NOT NULL,
    -- SHA-256 of the body.
    body_hash     BLOB NOT NULL,
    -- NULL while the first request runs.
    status        INTEGER,
    -- Sealed.
    answer        BLOB,
    expires_at    INTEGER NOT NULL,
    -- The node that does the request, while it isn't answered: its next start frees what it has left open. NULL for the command line.
    node          INTEGER,
    -- The attempt that holds the claim.
    attempt       BLOB,
    -- The org whose data the answer holds.
    org_id        BLOB,
    -- Since when what the request does can't be undone: a call is being dialled. NULL before. Such a claim is never freed.
    begun_at      INTEGER,
    PRIMARY KEY (credential_id, method, path, key)
) STRICT;
CREATE INDEX idempotency_keys_expiry ON idempotency_keys (expires_at);
CREATE INDEX idempotency_keys_of_org ON idempotency_keys (org_id, credential_id, method, path, key) WHERE org_id IS NOT NULL;

-- Changes to the configuration and to data: by whom, from where, when. No values, which could be secrets: the names of fields alone.
CREATE TABLE audit_log (
    seq         INTEGER NOT NULL PRIMARY KEY,
    at          INTEGER NOT NULL,
    -- NULL: the change is of no org.
    org_id      BLOB,
    -- The partner of the org, or the partner that was changed or made the change.
    partner_id  BLOB,
    -- 'org_key', 'partner_key', 'dashboard', 'operator', 'session_token' or 'command'.
    actor       TEXT NOT NULL,
    actor_id    BLOB,
    actor_name  TEXT NOT NULL,
    address     TEXT,
    action      TEXT NOT NULL,
    resource    TEXT NOT NULL,
    resource_id BLOB,
    -- A JSON list of names.
    fields      TEXT NOT NULL,
    request_id  TEXT
) STRICT;
CREATE INDEX audit_log_of_org ON audit_log (org_id, seq);
CREATE INDEX audit_log_of_partner ON audit_log (partner_id, seq);

INSERT INTO changes_pruned (id, seq) VALUES (1, 0);
INSERT INTO drawn (list, last) VALUES ('audit', 0), ('call_ends', 0);
