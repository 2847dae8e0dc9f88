-- Partners, orgs, keys and people. Times are microseconds since the epoch; lists are JSON texts.

CREATE TABLE partners (
    id                     UUID PRIMARY KEY,
    name                   TEXT NOT NULL,
    active                 BOOLEAN NOT NULL,
    ai_instructions        TEXT,
    -- NULL: any address; '[]': none.
    allowed_networks       TEXT,
    requests_per_minute    BIGINT,
    login_links_per_minute BIGINT,
    created_at             BIGINT NOT NULL,
    -- Whether the partner may say which numbers are its orgs' own.
    verifies_numbers       BOOLEAN NOT NULL DEFAULT FALSE,
    updated_at             BIGINT NOT NULL DEFAULT 0,
    -- Share of a node, in per cent, that the orgs of a partner have together; NULL: half.
    node_share_percent     BIGINT
);

-- Revocation deletes the row.
CREATE TABLE partner_keys (
    id           UUID PRIMARY KEY,
    partner_id   UUID NOT NULL REFERENCES partners (id) ON DELETE CASCADE,
    name         TEXT NOT NULL,
    -- SHA-256 of the whole key.
    key_hash     BYTEA NOT NULL UNIQUE,
    created_at   BIGINT NOT NULL,
    last_used_at BIGINT
);
CREATE INDEX partner_keys_partner ON partner_keys (partner_id);

-- How much of each a partner may give to any of its orgs.
CREATE TABLE partner_org_limits (
    partner_id UUID NOT NULL REFERENCES partners (id) ON DELETE CASCADE,
    name       TEXT NOT NULL,
    most       BIGINT NOT NULL,
    PRIMARY KEY (partner_id, name)
);

CREATE TABLE orgs (
    id                       UUID PRIMARY KEY,
    partner_id               UUID REFERENCES partners (id),
    external_id              TEXT,
    name                     TEXT NOT NULL,
    widget_token             TEXT NOT NULL UNIQUE,
    website                  TEXT,
    language                 TEXT NOT NULL,
    ai_instructions          TEXT,
    created_at               BIGINT NOT NULL,
    -- Since when an org is suspended, by whom.
    suspended_by_partner_at  BIGINT,
    suspended_by_operator_at BIGINT,
    -- Set for as long as the org's partner is inactive.
    partner_inactive_at      BIGINT,
    deleted_at               BIGINT,
    -- When everything of it is purged. NULL: it isn't deleted.
    purge_at                 BIGINT,
    -- Its external id until it was deleted: another org may have that now.
    deleted_external_id      TEXT,
    -- Days after which an org's data is deleted. NULL: as the operator's configuration says.
    retain_calls_days        BIGINT,
    retain_sessions_days     BIGINT,
    retain_contacts_days     BIGINT,
    retain_handoffs_days     BIGINT,
    -- Version: an edit names the one that it was made for.
    updated_at               BIGINT NOT NULL DEFAULT 0,
    -- The embed token from before the last rotation, and its end.
    old_widget_token         TEXT,
    old_widget_token_ends_at BIGINT,
    UNIQUE (partner_id, external_id)
);
CREATE INDEX orgs_listed ON orgs (partner_id, created_at, id);
CREATE UNIQUE INDEX orgs_old_widget_token ON orgs (old_widget_token) WHERE old_widget_token IS NOT NULL;
CREATE INDEX orgs_purged ON orgs (purge_at) WHERE purge_at IS NOT NULL;
-- The operator's list of all orgs is read by page.
CREATE INDEX orgs_of_all ON orgs (created_at, id) WHERE deleted_at IS NULL;

-- What an org may have and ask for, where the operator or its partner has said so; the defaults aren't stored.
CREATE TABLE org_limits (
    org_id      UUID NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    -- 'concurrent_calls', 'outbound_trunks', 'agents', 'destinations', 'api_keys', 'registrations', 'webhooks', 'requests_per_minute' or
    -- 'streaming_requests_per_minute'.
    name        TEXT NOT NULL,
    by_operator BIGINT,
    by_partner  BIGINT,
    PRIMARY KEY (org_id, name)
);

-- Orgs that were purged. Facts of calls that a node had kept back may still come for them, and are purged too.
CREATE TABLE purged_orgs (
    org_id    UUID NOT NULL PRIMARY KEY,
    purged_at BIGINT NOT NULL
);

-- Usage of calls whose rows are gone: it counts on.
CREATE TABLE usage_kept (
    org_id           UUID NOT NULL,
    -- NULL: an org of the operator's own.
    partner_id       UUID,
    -- Days since 1970-01-01, UTC.
    day              BIGINT NOT NULL,
    -- The nil UUID: calls without an agent.
    agent_id         UUID NOT NULL,
    -- The nil UUID: calls without a trunk.
    trunk_id         UUID NOT NULL,
    direction        TEXT NOT NULL,
    calls            BIGINT NOT NULL,
    answered_calls   BIGINT NOT NULL,
    answered_seconds BIGINT NOT NULL,
    PRIMARY KEY (org_id, day, agent_id, trunk_id, direction)
);
CREATE INDEX usage_kept_of_partner ON usage_kept (partner_id, day) WHERE partner_id IS NOT NULL;

CREATE TABLE integrations (
    id                        UUID PRIMARY KEY,
    org_id                    UUID NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    kind                      TEXT NOT NULL,
    name                      TEXT NOT NULL,
    -- Sealed JSON: app_key, user_key.
    credentials               BYTEA NOT NULL,
    default_company_shortname TEXT,
    created_at                BIGINT NOT NULL,
    UNIQUE (org_id, kind, name)
);

-- A token is good as long as its row exists.
CREATE TABLE org_keys (
    id           UUID PRIMARY KEY,
    org_id       UUID NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    name         TEXT NOT NULL,
    scopes       TEXT NOT NULL,
    created_at   BIGINT NOT NULL,
    last_used_at BIGINT,
    -- SHA-256 of the token that was issued for the key, and the id of the key that signed it.
    token_hash   BYTEA NOT NULL,
    kid          TEXT NOT NULL,
    -- When an org's API key ends by itself. NULL: it is good until it is revoked.
    expires_at   BIGINT
);
CREATE INDEX org_keys_listed ON org_keys (org_id, created_at, id);

CREATE TABLE roles (
    id         UUID PRIMARY KEY,
    org_id     UUID NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    name       TEXT NOT NULL,
    -- 'write' or 'read'.
    access     TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    UNIQUE (org_id, name),
    UNIQUE (org_id, id)
);

CREATE TABLE users (
    id         UUID PRIMARY KEY,
    -- In lower case.
    email      TEXT NOT NULL,
    name       TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    -- The partner whose orgs it is for; the org, if that has no partner; zeros for the operator's account.
    owner_id   UUID NOT NULL,
    UNIQUE (owner_id, email)
);

CREATE TABLE memberships (
    org_id     UUID NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    user_id    UUID NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (org_id, user_id)
);
CREATE INDEX memberships_user ON memberships (user_id);

CREATE TABLE membership_roles (
    org_id  UUID NOT NULL,
    user_id UUID NOT NULL,
    role_id UUID NOT NULL,
    PRIMARY KEY (org_id, user_id, role_id),
    FOREIGN KEY (org_id, user_id) REFERENCES memberships (org_id, user_id) ON DELETE CASCADE,
    FOREIGN KEY (org_id, role_id) REFERENCES roles (org_id, id) ON DELETE CASCADE
);

CREATE TABLE login_links (
    token_hash  BYTEA PRIMARY KEY,
    org_id      UUID NOT NULL,
    user_id     UUID NOT NULL,
    expires_at  BIGINT NOT NULL,
    consumed_at BIGINT,
    created_at  BIGINT NOT NULL,
    -- A page with a button stands before the link.
    confirm     BOOLEAN NOT NULL DEFAULT FALSE,
    FOREIGN KEY (org_id, user_id) REFERENCES memberships (org_id, user_id) ON DELETE CASCADE
);
CREATE INDEX login_links_expiry ON login_links (expires_at);
CREATE INDEX login_links_of_org ON login_links (org_id);

CREATE TABLE dashboard_sessions (
    token_hash BYTEA PRIMARY KEY,
    org_id     UUID NOT NULL,
    user_id    UUID NOT NULL,
    expires_at BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    -- Names a session where it is listed.
    id         UUID NOT NULL,
    FOREIGN KEY (org_id, user_id) REFERENCES memberships (org_id, user_id) ON DELETE CASCADE
);
CREATE INDEX dashboard_sessions_expiry ON dashboard_sessions (expires_at);
CREATE INDEX dashboard_sessions_listed ON dashboard_sessions (org_id, created_at, id);

-- Agents, numbers, trunks and transfer destinations. Composite keys keep every reference inside one org.

CREATE TABLE outbound_trunks (
    id                   UUID PRIMARY KEY,
    org_id               UUID NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    name                 TEXT NOT NULL,
    -- NULL where calls go to the org's registered PBX.
    host                 TEXT,
    port                 BIGINT,
    transport            TEXT NOT NULL,
    username             TEXT,
    -- Sealed.
    password             BYTEA,
    caller_number        TEXT NOT NULL,
    to_registered        BOOLEAN NOT NULL,
    from_host            TEXT,
    p_asserted_identity  BOOLEAN NOT NULL,
    register             BOOLEAN NOT NULL,
    max_concurrent_calls BIGINT,
    calls_per_second     BIGINT,
    created_at           BIGINT NOT NULL,
    updated_at           BIGINT NOT NULL,
    -- 'refer', 'bridge' or 'auto'.
    transfer_way         TEXT NOT NULL DEFAULT 'refer',
    refer_kept_caller_at BIGINT,
    -- The only realm that the trunk's credentials are for, where the org has named it.
    auth_realm           TEXT,
    -- The realms that the carrier has challenged with, and whether each has offered qop: a JSON array.
    auth_realms          TEXT NOT NULL DEFAULT '[]',
    -- NULL: no.
    digest_require_qop   BOOLEAN,
    unanswered_challenge TEXT,
    -- INVITEs carry `user=phone`.
    user_phone           BOOLEAN NOT NULL DEFAULT FALSE,
    UNIQUE (org_id, id)
);
CREATE INDEX outbound_trunks_named ON outbound_trunks (org_id, lower(name));

CREATE TABLE agents (
    id                    UUID PRIMARY KEY,
    org_id                UUID NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    name                  TEXT NOT NULL,
    -- 'inbound' or 'outbound'.
    type                  TEXT NOT NULL,
    language              TEXT NOT NULL,
    first_message         TEXT NOT NULL,
    use_org_knowledgebase BOOLEAN NOT NULL,
    voice_id              TEXT,
    handoff_phone_number  TEXT,
    action_ids            TEXT NOT NULL,
    enabled               BOOLEAN NOT NULL,
    max_concurrent_calls  BIGINT,
    -- JSON; NULL: the configured default.
    runtime               TEXT,
    outbound_trunk_id     UUID,
    created_at            BIGINT NOT NULL,
    updated_at            BIGINT NOT NULL,
    -- A runtime that the operator's command line set isn't judged as a tenant's; NULL: no.
    runtime_by_operator   BOOLEAN,
    -- The password that the agent's runtime is answered with, sealed; the user name stands in runtime.
    runtime_password      BYTEA,
    -- Seconds without RTP after which an agent's caller is asked whether it is still there; NULL: media.silence_s, 0: never.
    media_timeout_s       BIGINT,
    UNIQUE (org_id, id),
    FOREIGN KEY (org_id, outbound_trunk_id) REFERENCES outbound_trunks (org_id, id)
);
CREATE INDEX agents_listed ON agents (org_id, created_at, id);
-- A whole name in any case.
CREATE INDEX agents_named ON agents (org_id, lower(name));
CREATE INDEX agents_trunk ON agents (org_id, outbound_trunk_id) WHERE outbound_trunk_id IS NOT NULL;

CREATE TABLE numbers (
    id                UUID PRIMARY KEY,
    org_id            UUID NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    number            TEXT NOT NULL,
    verified_at       BIGINT,
    -- The agent that answers it.
    agent_id          UUID,
    created_at        BIGINT NOT NULL,
    -- Since when the number was verified when its org was deleted: another org may have verified it since.
    freed_verified_at BIGINT,
    UNIQUE (org_id, number),
    FOREIGN KEY (org_id, agent_id) REFERENCES agents (org_id, id)
);
CREATE UNIQUE INDEX numbers_verified_once ON numbers (number) WHERE verified_at IS NOT NULL;
CREATE INDEX numbers_listed ON numbers (org_id, created_at, id);
CREATE INDEX numbers_agent ON numbers (org_id, agent_id) WHERE agent_id IS NOT NULL;

-- Codes that were spoken to whoever answers a number, so that an org can show that it holds it. A number is called three times a day at
-- most, whichever orgs ask for it: each call takes a place for 24 hours.
CREATE TABLE number_codes (
    number     TEXT NOT NULL,
    -- 0, 1 or 2.
    place      BIGINT NOT NULL,
    id         UUID NOT NULL,
    org_id     UUID NOT NULL,
    -- The row of `numbers` that it verifies, which may be gone.
    number_id  UUID NOT NULL,
    -- HMAC-SHA-256 of the code, under a key that isn't here; NULL once it is used, replaced or guessed wrong too often.
    code_mac   BYTEA,
    tries      BIGINT NOT NULL,
    made_at    BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    -- The org's partner: the call counts for it after the org is purged.
    partner_id UUID,
    PRIMARY KEY (number, place)
);
CREATE INDEX number_codes_of ON number_codes (org_id, number_id);
CREATE INDEX number_codes_made ON number_codes (made_at);

CREATE TABLE inbound_trunks (
    id                      UUID PRIMARY KEY,
    org_id                  UUID NOT NULL UNIQUE REFERENCES orgs (id) ON DELETE CASCADE,
    name                    TEXT NOT NULL,
    username                TEXT NOT NULL UNIQUE,
    -- Sealed.
    password                BYTEA NOT NULL,
    krisp_enabled           BOOLEAN NOT NULL,
    allowed_addresses       TEXT NOT NULL,
    default_country         TEXT,
    -- 'sip' or 'tel'.
    refer_to_format         TEXT NOT NULL,
    refer_host              TEXT,
    refer_headers_in_uri    BOOLEAN NOT NULL,
    bridge_when_refer_fails BOOLEAN NOT NULL,
    max_concurrent_calls    BIGINT,
    created_at              BIGINT NOT NULL,
    updated_at              BIGINT NOT NULL,
    -- Networks of allowed_addresses that the operator's command line entered: bounds for tenants don't hold for them.
    operator_addresses      TEXT NOT NULL DEFAULT '[]',
    -- 'refer', 'bridge' or 'auto'.
    transfer_way            TEXT NOT NULL DEFAULT 'refer',
    -- When the PBX was first seen alive in a call whose accepted REFER had failed.
    refer_kept_caller_at    BIGINT,
    -- The last challenge of the trunk's peer that got no answer, and why: a JSON object.
    unanswered_challenge    TEXT,
    -- Whether RTP may come from another address than that of SDP or signalling, where SDP names a private one; NULL: no.
    rtp_from_any_address    BOOLEAN,
    UNIQUE (org_id, id)
);

-- A number stays listed when it stops being verified, until the trunk is synced.
CREATE TABLE inbound_trunk_numbers (
    org_id   UUID NOT NULL,
    trunk_id UUID NOT NULL,
    number   TEXT NOT NULL,
    position BIGINT NOT NULL,
    PRIMARY KEY (org_id, trunk_id, number),
    FOREIGN KEY (org_id, trunk_id) REFERENCES inbound_trunks (org_id, id) ON DELETE CASCADE
);

-- Pairs from before a rotation.
CREATE TABLE old_credentials (
    username   TEXT PRIMARY KEY,
    org_id     UUID NOT NULL,
    trunk_id   UUID NOT NULL,
    -- Sealed.
    password   BYTEA NOT NULL,
    expires_at BIGINT NOT NULL,
    FOREIGN KEY (org_id, trunk_id) REFERENCES inbound_trunks (org_id, id) ON DELETE CASCADE
);
CREATE INDEX old_credentials_trunk ON old_credentials (org_id, trunk_id);

-- Where PBXs have registered: kept over a restart, and followed by the other nodes. One row for each contact of an inbound trunk; a contact
-- that was removed stays for a while with an end in the past, so that others learn of it.
CREATE TABLE registrations (
    trunk_id      UUID NOT NULL REFERENCES inbound_trunks (id) ON DELETE CASCADE,
    contact       TEXT NOT NULL,
    org_id        UUID NOT NULL,
    -- The node that heard of it last, and has its flow.
    node          BIGINT NOT NULL,
    instance      TEXT,
    q             BIGINT,
    transport     TEXT NOT NULL,
    source        TEXT NOT NULL,
    behind_nat    BOOLEAN NOT NULL,
    -- The digest user name of the REGISTER.
    username      TEXT NOT NULL,
    user_agent    TEXT,
    sip_call_id   BYTEA NOT NULL,
    cseq          BIGINT NOT NULL,
    registered_at BIGINT NOT NULL,
    refreshed_at  BIGINT NOT NULL,
    expires_at    BIGINT NOT NULL,
    saved_at      BIGINT NOT NULL,
    -- Route of requests to the contact (RFC 3327), as the value of a Route header.
    path          TEXT,
    PRIMARY KEY (trunk_id, contact)
);
CREATE INDEX registrations_saved ON registrations (saved_at);
CREATE INDEX registrations_ended ON registrations (expires_at);

CREATE TABLE destinations (
    id          UUID PRIMARY KEY,
    org_id      UUID NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    name        TEXT NOT NULL,
    -- The name without its case.
    name_folded TEXT NOT NULL,
    -- 'phone' or 'sip'.
    type        TEXT NOT NULL,
    value       TEXT NOT NULL,
    created_at  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL,
    -- 'pbx' or 'trunk'.
    via         TEXT NOT NULL DEFAULT 'pbx',
    UNIQUE (org_id, name_folded),
    UNIQUE (org_id, id)
);
CREATE INDEX destinations_listed ON destinations (org_id, created_at, id);

CREATE TABLE agent_destinations (
    org_id         UUID NOT NULL,
    agent_id       UUID NOT NULL,
    destination_id UUID NOT NULL,
    created_at     BIGINT NOT NULL,
    PRIMARY KEY (org_id, agent_id, destination_id),
    FOREIGN KEY (org_id, agent_id) REFERENCES agents (org_id, id) ON DELETE CASCADE,
    FOREIGN KEY (org_id, destination_id) REFERENCES destinations (org_id, id) ON DELETE CASCADE
);
CREATE INDEX agent_destinations_destination ON agent_destinations (org_id, destination_id);

-- Prompts that an org has uploaded for its built-in agents, as telephones play them.
CREATE TABLE prompts (
    org_id      UUID NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    id          UUID NOT NULL,
    name        TEXT NOT NULL,
    name_folded TEXT NOT NULL,
    -- µ-law, 8 kHz.
    audio       BYTEA NOT NULL,
    -- Octets of the audio, one for each sample.
    samples     BIGINT NOT NULL,
    created_at  BIGINT NOT NULL,
    PRIMARY KEY (org_id, id),
    UNIQUE (org_id, name_folded)
);
CREATE INDEX prompts_newest ON prompts (org_id, created_at, id);

-- Token of an org's bots: it signs the handshakes of their WebSockets and opens the endpoint by which they end and transfer calls.
CREATE TABLE bot_tokens (
    org_id          UUID NOT NULL PRIMARY KEY REFERENCES orgs (id) ON DELETE CASCADE,
    -- Sealed. Signs handshakes.
    token           BYTEA NOT NULL,
    created_at      BIGINT NOT NULL,
    -- Sealed. Made by a rotation: opens the endpoint already and signs nothing yet; NULL: none.
    next_token      BYTEA,
    next_created_at BIGINT,
    -- Sealed. Signed handshakes before, and opens the endpoint until it expires; NULL: none.
    old_token       BYTEA,
    old_expires_at  BIGINT
);

-- Networks and peers that the operator's command line has given to an org.

-- Source networks that belong to one org alone.
CREATE TABLE dedications (
    network    TEXT PRIMARY KEY,
    org_id     UUID NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    created_at BIGINT NOT NULL,
    -- The operator vouches for the source of calls from the network: over UDP they prove nothing.
    no_proof   BOOLEAN NOT NULL DEFAULT FALSE
);
CREATE INDEX dedications_org ON dedications (org_id);

-- Reserved and private peers that an org may name.
CREATE TABLE tied_peers (
    org_id     UUID NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    -- A host name, an address or a CIDR block.
    peer       TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (org_id, peer)
);

-- Networks in which an org's PBX or carrier has its media: audio goes there before any has come from there.
CREATE TABLE media_addresses (
    org_id     UUID NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    -- A CIDR block.
    network    TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (org_id, network)
);

-- Contacts, their handoffs and erasures.

CREATE TABLE contacts (
    id                    UUID PRIMARY KEY,
    org_id                UUID NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
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
    created_at            BIGINT NOT NULL,
    updated_at            BIGINT NOT NULL
);
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
    org_id   UUID NOT NULL PRIMARY KEY REFERENCES orgs (id) ON DELETE CASCADE,
    contacts BIGINT NOT NULL
);

-- The key of a handoff is its place in its org's list, by which SQLite keeps rows together; here they lie as they come.
CREATE TABLE handoffs (
    id          UUID NOT NULL,
    org_id      UUID NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    session_id  TEXT NOT NULL,
    call_id     UUID,
    agent_id    UUID,
    contact_id  UUID,
    summary     TEXT NOT NULL,
    explanation TEXT,
    reasons     TEXT NOT NULL,
    sentiment   TEXT,
    -- 1 for the org's first.
    position    BIGINT NOT NULL,
    created_at  BIGINT NOT NULL,
    -- The destination is known to have answered, or a client has reported the handoff.
    confirmed   BOOLEAN NOT NULL DEFAULT FALSE,
    PRIMARY KEY (org_id, created_at)
);
CREATE UNIQUE INDEX handoffs_id ON handoffs (id);
-- Handoffs are found by the session of their call.
CREATE INDEX handoffs_session ON handoffs (org_id, session_id);
-- The handoffs of a contact, newest first.
CREATE INDEX handoffs_contact ON handoffs (org_id, contact_id, created_at) WHERE contact_id IS NOT NULL;

-- Lists that a handoff is in, with positions of their own: one for each of its reasons, one for confirmed or unconfirmed handoffs, and one for each
-- reason among these.
CREATE TABLE handoff_lists (
    org_id     UUID NOT NULL,
    -- '<reason>', 'confirmed', 'unconfirmed', '<reason> confirmed' or '<reason> unconfirmed'.
    list       TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    handoff_id UUID NOT NULL REFERENCES handoffs (id) ON DELETE CASCADE,
    -- 1 for the first in the list.
    position   BIGINT NOT NULL,
    PRIMARY KEY (org_id, list, created_at)
);
CREATE INDEX handoff_lists_handoff ON handoff_lists (handoff_id);

-- Handoffs that were deleted, in each list that they were in while it has a newer one: its positions still count them.
CREATE TABLE handoff_gaps (
    org_id     UUID NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    -- As in handoff_lists; empty for all handoffs.
    list       TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (org_id, list, created_at)
);

-- Erasures of contacts: what was asked for, how far each node has come, and the receipt.
CREATE TABLE erasures (
    id           UUID NOT NULL PRIMARY KEY,
    org_id       UUID NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    contact_id   UUID NOT NULL,
    -- Sealed JSON: numbers and addresses that are looked for. NULL once no node needs them any more.
    subject      BYTEA,
    -- JSON: how much was erased, by kind.
    erased       TEXT NOT NULL,
    -- JSON: how much of the org's own configuration names the same number, by kind.
    kept         TEXT NOT NULL,
    requested_at BIGINT NOT NULL,
    completed_at BIGINT,
    UNIQUE (org_id, contact_id)
);
CREATE INDEX erasures_open ON erasures (requested_at) WHERE subject IS NOT NULL;

-- Calls that were found, until no node needs them any more.
CREATE TABLE erasure_calls (
    erasure_id UUID NOT NULL REFERENCES erasures (id) ON DELETE CASCADE,
    call_id    UUID NOT NULL,
    session_id UUID,
    -- Sealed JSON: Call-IDs, and the time in which their messages passed.
    legs       BYTEA NOT NULL,
    PRIMARY KEY (erasure_id, call_id)
);

-- Nodes that have erased what was theirs.
CREATE TABLE erasure_nodes (
    erasure_id UUID NOT NULL REFERENCES erasures (id) ON DELETE CASCADE,
    node       BIGINT NOT NULL,
    done_at    BIGINT NOT NULL,
    PRIMARY KEY (erasure_id, node)
);

-- Calls, as the journal's facts say. Rows are projected in any order and more than once, so no column but the ids is
-- required, and nothing here refers to a row that may have been deleted since.

CREATE TABLE calls (
    id              UUID PRIMARY KEY,
    org_id          UUID NOT NULL,
    -- The process that held the call last.
    node            BIGINT NOT NULL,
    boot            BIGINT NOT NULL,
    session_id      UUID,
    agent_id        UUID,
    contact_id      UUID,
    direction       TEXT,
    status          TEXT NOT NULL,
    from_number     TEXT,
    to_number       TEXT,
    from_e164       TEXT,
    to_e164         TEXT,
    started_at      BIGINT,
    ringing_at      BIGINT,
    answered_at     BIGINT,
    ended_at        BIGINT,
    sip_code        BIGINT,
    reason          TEXT,
    hangup_by       TEXT,
    caller_call_id  TEXT,
    runtime_call_id TEXT,
    metadata        TEXT,
    decision        TEXT,
    -- JSON: the caller's own headers.
    headers         TEXT,
    -- Why a call wasn't answered, as a gateway named it (Q.850).
    q850_cause      BIGINT,
    -- JSON: the facts of routing, how the caller proved who it is, how its phone system speaks.
    asked           TEXT,
    -- Whether both sides of a call that is up are held.
    held            BOOLEAN,
    -- For a call that was closed as lost: whether its end was told. NULL for all other calls.
    lost_told       BOOLEAN,
    -- The caller of an inbound call asked not to be named; NULL: no.
    caller_withheld BOOLEAN,
    trunk_id        UUID,
    -- Figures of a call's media that ended here, and its steps, which name addresses; both JSON. NULL: the call had no media here.
    media           TEXT,
    media_steps     TEXT,
    -- The wall clock minus the node's clock of timers, in microseconds, as the call began: all its times are on it. NULL: the beginning isn't known.
    clock_offset    BIGINT,
    -- Details of the reason, for people.
    reason_detail   TEXT,
    -- The row of call_lists. NULL: the beginning isn't known.
    list            BIGINT,
    -- The row of call_blocks, which may be gone. NULL: the beginning isn't known.
    block           BIGINT
);
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
    list      BIGINT NOT NULL PRIMARY KEY,
    org_id    UUID NOT NULL,
    agent_id  UUID,
    trunk_id  UUID,
    direction TEXT NOT NULL,
    -- 'up', or the status of calls that are over.
    outcome   TEXT NOT NULL
);
-- An org's lists.
CREATE INDEX call_lists_of_org ON call_lists (org_id);

-- Blocks of some thousand calls of an org, which began one after the other.
CREATE TABLE call_blocks (
    block  BIGINT NOT NULL PRIMARY KEY,
    org_id UUID NOT NULL
);
-- An org's blocks, and the newest of these.
CREATE INDEX call_blocks_of_org ON call_blocks (org_id, block);

-- Attempts of calls at their targets, where one has failed.
CREATE TABLE call_attempts (
    call_id   UUID NOT NULL,
    number    BIGINT NOT NULL,
    org_id    UUID NOT NULL,
    -- 'runtime', 'callee' or 'destination'.
    leg       TEXT NOT NULL,
    target    TEXT NOT NULL,
    address   TEXT,
    transport TEXT,
    began_at  BIGINT NOT NULL,
    ended_at  BIGINT NOT NULL,
    outcome   TEXT NOT NULL,
    sip_code  BIGINT,
    detail    TEXT,
    PRIMARY KEY (call_id, number)
);

-- Ends of calls in the order in which they were recorded: a reader of all calls goes on from a number. A call is here again when something
-- of it was recorded after its end.
CREATE TABLE call_ends (
    org_id  UUID NOT NULL,
    seq     BIGINT NOT NULL,
    call_id UUID NOT NULL,
    PRIMARY KEY (org_id, seq)
);

CREATE TABLE transfers (
    id                 UUID PRIMARY KEY,
    org_id             UUID NOT NULL,
    call_id            UUID NOT NULL,
    destination_id     UUID,
    name               TEXT NOT NULL,
    -- 'phone' or 'sip'.
    type               TEXT NOT NULL,
    value              TEXT NOT NULL,
    -- 'requested', 'accepted', 'ringing', 'completed', 'failed' or 'unknown'.
    state              TEXT NOT NULL,
    sip_code           BIGINT,
    reasons            TEXT NOT NULL,
    summary            TEXT NOT NULL,
    explanation        TEXT,
    sentiment          TEXT,
    requested_at       BIGINT NOT NULL,
    accepted_at        BIGINT,
    ringing_at         BIGINT,
    ended_at           BIGINT,
    session_id         UUID,
    -- 'refer' or 'bridge'.
    way                TEXT NOT NULL,
    -- Grows with the state: an older fact never replaces a newer one.
    step               BIGINT NOT NULL,
    answer_confirmed   BOOLEAN,
    caller_may_be_gone BOOLEAN NOT NULL,
    counted_at         BIGINT,
    -- State of a transfer before its call was closed as lost, which made it 'unknown'.
    lost_from          TEXT
);
-- What counts against a day's bound is read once, when the daemon starts.
CREATE INDEX transfers_counted ON transfers (counted_at) WHERE counted_at IS NOT NULL;
-- The last transfer of a call is found without its others.
CREATE INDEX transfers_newest ON transfers (org_id, call_id, requested_at, id);
CREATE INDEX transfers_lost ON transfers (call_id) WHERE lost_from IS NOT NULL;

-- Log-ins that failed under a user name of the org.
CREATE TABLE auth_failures (
    id          UUID PRIMARY KEY,
    org_id      UUID NOT NULL,
    trunk_id    UUID NOT NULL,
    username    TEXT NOT NULL,
    source      TEXT NOT NULL,
    -- What of the answer was wrong.
    part        TEXT NOT NULL,
    at          BIGINT NOT NULL,
    -- Call-ID of the request whose log-in failed, and the number that it asked for.
    sip_call_id TEXT,
    dialled     TEXT
);
CREATE INDEX auth_failures_listed ON auth_failures (org_id, at, id);
CREATE INDEX auth_failures_call ON auth_failures (org_id, sip_call_id);
-- The operator looks at failed log-ins of all orgs, the latest.
CREATE INDEX auth_failures_at ON auth_failures (at);

-- Events in the order of their commits, and what webhooks are owed.

-- An event may outlive what it tells of, so nothing here refers to other rows.
CREATE TABLE events (
    -- Becomes visible in its order.
    seq        BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id         UUID NOT NULL,
    org_id     UUID NOT NULL,
    type       TEXT NOT NULL,
    -- JSON, as every reader and every webhook gets it; never changed.
    body       TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    call_id    UUID,
    -- The call's contact as it stood then; a row may learn it later.
    contact_id UUID
);
-- An event that is recorded again, the one that a reader has seen last, and the body of a delivery.
CREATE UNIQUE INDEX events_id ON events (id);
-- An org's events behind a position.
CREATE INDEX events_of_org ON events (org_id, seq);

CREATE TABLE webhooks (
    id                    UUID PRIMARY KEY,
    org_id                UUID NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    url                   TEXT NOT NULL,
    description           TEXT,
    -- A JSON list; [] is every type.
    types                 TEXT NOT NULL,
    -- Sealed.
    secret                BYTEA NOT NULL,
    -- Sealed; after a rotation, both sign until it expires.
    old_secret            BYTEA,
    old_secret_expires_at BIGINT,
    enabled               BOOLEAN NOT NULL,
    -- Why it was disabled, if not by the org.
    disabled_reason       TEXT,
    created_at            BIGINT NOT NULL,
    updated_at            BIGINT NOT NULL,
    -- The agent whose calls' progress this webhook is sent, in Twilio's form; NULL: a webhook of the org, as the API lists them.
    agent_id              UUID
);
CREATE INDEX webhooks_listed ON webhooks (org_id, created_at, id);
CREATE UNIQUE INDEX webhooks_of_agents ON webhooks (agent_id) WHERE agent_id IS NOT NULL;

CREATE TABLE webhook_deliveries (
    id              UUID PRIMARY KEY,
    org_id          UUID NOT NULL,
    webhook_id      UUID NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
    event_id        UUID NOT NULL REFERENCES events (id) ON DELETE CASCADE,
    event_type      TEXT NOT NULL,
    -- 'pending', 'delivered' or 'failed'.
    state           TEXT NOT NULL,
    -- Attempts since it was last queued, by the org or by the event.
    attempts        BIGINT NOT NULL,
    next_attempt_at BIGINT,
    -- Whoever attempts it holds it until then.
    held_by         TEXT,
    held_until      BIGINT,
    -- The last attempts, a JSON list.
    log             TEXT NOT NULL,
    created_at      BIGINT NOT NULL,
    delivered_at    BIGINT
);
-- Pages and counts of a webhook's deliveries, of all states or of one.
CREATE INDEX webhook_deliveries_listed ON webhook_deliveries (webhook_id, created_at, id);
CREATE INDEX webhook_deliveries_of_state ON webhook_deliveries (webhook_id, state, created_at, id);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (webhook_id, next_attempt_at) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_event ON webhook_deliveries (event_id);

-- What the daemon itself needs: the change feed, keys, nodes, idempotency, the audit log.

-- Rows are numbered under an advisory lock held until the commit, so that they become visible in their order.
CREATE TABLE changes (
    seq       BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- NULL: what isn't of one org.
    org_id    UUID,
    kind      TEXT NOT NULL,
    entity_id UUID,
    at        BIGINT NOT NULL
);
CREATE INDEX changes_age ON changes (at);

-- The highest number that was pruned: whoever has read less starts anew.
CREATE TABLE changes_pruned (
    id  BIGINT PRIMARY KEY CHECK (id = 1),
    seq BIGINT NOT NULL
);

-- The last number that a list has given out. The transaction that draws one holds the row until it commits, so that numbers become visible in
-- their order.
CREATE TABLE drawn (
    list TEXT NOT NULL PRIMARY KEY,
    last BIGINT NOT NULL
);

-- 'keyring': the installation's keys, sealed under the master key (PostgreSQL). 'check': a known text, sealed with the keys
-- of the data directory (SQLite), to tell whether they are this database's.
CREATE TABLE secrets (
    id         TEXT PRIMARY KEY,
    value      BYTEA NOT NULL,
    created_at BIGINT NOT NULL
);

-- What is true of the installation as a whole. 'realm': the realm that its challenges have named.
CREATE TABLE installation (
    id    TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
);

-- One row a node; a start takes the next boot number, and whoever outlives another's lease closes its calls.
CREATE TABLE nodes (
    node             BIGINT PRIMARY KEY,
    boot             BIGINT NOT NULL,
    host             TEXT NOT NULL,
    started_at       BIGINT NOT NULL,
    lease_expires_at BIGINT NOT NULL,
    -- Since when a node takes nothing new; NULL while it does.
    drains_since     BIGINT,
    -- The runs of nodes that this one counts in when work is shared out: it has registered its share of the outbound trunks. NULL before.
    sees             TEXT,
    -- Host and port of each of its SIP listeners, as its Contacts name them.
    sip_hosts        TEXT,
    -- The last run that has renewed the lease, and the time of its clock of timers then: its calls ended no earlier.
    alive_boot       BIGINT,
    alive_at         BIGINT
);

-- The last fact of each node's journal that is stored, written with the facts: a restart goes on behind it.
CREATE TABLE journal_positions (
    node    BIGINT PRIMARY KEY,
    boot    BIGINT NOT NULL,
    segment BIGINT NOT NULL,
    fact    BIGINT NOT NULL
);

-- What one node asks another to do with a call that is up there.
CREATE TABLE asks (
    id       UUID PRIMARY KEY,
    node     BIGINT NOT NULL,
    org_id   UUID NOT NULL,
    call_id  UUID NOT NULL,
    what     TEXT NOT NULL,
    asked_at BIGINT NOT NULL,
    taken_at BIGINT,
    status   BIGINT,
    answer   TEXT
);
CREATE INDEX asks_open ON asks (node, asked_at) WHERE taken_at IS NULL;

CREATE TABLE idempotency_keys (
    credential_id UUID NOT NULL,
    method        TEXT NOT NULL,
    path          TEXT NOT NULL,
    key           TEXT NOT NULL,
    -- SHA-256 of the body.
    body_hash     BYTEA NOT NULL,
    -- NULL while the first request runs.
    status        BIGINT,
    -- Sealed.
    answer        BYTEA,
    expires_at    BIGINT NOT NULL,
    -- The node that does the request, while it isn't answered: its next start frees what it has left open. NULL for the command line.
    node          BIGINT,
    -- The attempt that holds the claim.
    attempt       UUID,
    -- The org whose data the answer holds.
    org_id        UUID,
    -- Since when what the request does can't be undone: a call is being dialled. NULL before. Such a claim is never freed.
    begun_at      BIGINT,
    PRIMARY KEY (credential_id, method, path, key)
);
CREATE INDEX idempotency_keys_expiry ON idempotency_keys (expires_at);
CREATE INDEX idempotency_keys_of_org ON idempotency_keys (org_id, credential_id, method, path, key) WHERE org_id IS NOT NULL;

-- Changes to the configuration and to data: by whom, from where, when. No values, which could be secrets: the names of fields alone.
CREATE TABLE audit_log (
    seq         BIGINT NOT NULL PRIMARY KEY,
    at          BIGINT NOT NULL,
    -- NULL: the change is of no org.
    org_id      UUID,
    -- The partner of the org, or the partner that was changed or made the change.
    partner_id  UUID,
    -- 'org_key', 'partner_key', 'dashboard', 'operator', 'session_token' or 'command'.
    actor       TEXT NOT NULL,
    actor_id    UUID,
    actor_name  TEXT NOT NULL,
    address     TEXT,
    action      TEXT NOT NULL,
    resource    TEXT NOT NULL,
    resource_id UUID,
    -- A JSON list of names.
    fields      TEXT NOT NULL,
    request_id  TEXT
);
CREATE INDEX audit_log_of_org ON audit_log (org_id, seq);
CREATE INDEX audit_log_of_partner ON audit_log (partner_id, seq);

INSERT INTO changes_pruned (id, seq) VALUES (1, 0);
INSERT INTO drawn (list, last) VALUES ('audit', 0), ('call_ends', 0);
