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
    UNIQUE (org_id, id)
);

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
    UNIQUE (org_id, id),
    FOREIGN KEY (org_id, outbound_trunk_id) REFERENCES outbound_trunks (org_id, id)
);
CREATE INDEX agents_listed ON agents (org_id, created_at, id);
CREATE INDEX agents_trunk ON agents (org_id, outbound_trunk_id) WHERE outbound_trunk_id IS NOT NULL;

CREATE TABLE numbers (
    id          UUID PRIMARY KEY,
    org_id      UUID NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    number      TEXT NOT NULL,
    verified_at BIGINT,
    -- The agent that answers it.
    agent_id    UUID,
    created_at  BIGINT NOT NULL,
    UNIQUE (org_id, number),
    FOREIGN KEY (org_id, agent_id) REFERENCES agents (org_id, id)
);
CREATE UNIQUE INDEX numbers_verified_once ON numbers (number) WHERE verified_at IS NOT NULL;
CREATE INDEX numbers_listed ON numbers (org_id, created_at, id);
CREATE INDEX numbers_agent ON numbers (org_id, agent_id) WHERE agent_id IS NOT NULL;

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

-- The pair from before a rotation.
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

-- Source networks that the operator has given to one org.
CREATE TABLE dedications (
    network    TEXT PRIMARY KEY,
    org_id     UUID NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    created_at BIGINT NOT NULL
);
CREATE INDEX dedications_org ON dedications (org_id);

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
