-- Contacts and handoffs.

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

CREATE TABLE handoffs (
    id          UUID PRIMARY KEY,
    org_id      UUID NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    session_id  TEXT NOT NULL,
    call_id     UUID,
    agent_id    UUID,
    contact_id  UUID,
    summary     TEXT NOT NULL,
    explanation TEXT,
    reasons     TEXT NOT NULL,
    -- One bit a reason, for the filter.
    reason_bits BIGINT NOT NULL,
    sentiment   TEXT,
    created_at  BIGINT NOT NULL
);
CREATE INDEX handoffs_listed ON handoffs (org_id, created_at, id);
