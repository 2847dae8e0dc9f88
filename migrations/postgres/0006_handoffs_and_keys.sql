-- Handoffs that are counted by position, and when a key was used last.

-- Nothing has written handoffs so far. Those of an org have a time of their own each, and their positions grow with it: how many
-- lie in a window is the difference of two positions, however many there are.
DROP TABLE handoffs;
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
    sentiment   TEXT,
    -- 1 for the org's first.
    position    BIGINT NOT NULL,
    created_at  BIGINT NOT NULL
);
CREATE UNIQUE INDEX handoffs_listed ON handoffs (org_id, created_at);

-- The handoffs of each reason, with positions of their own.
CREATE TABLE handoff_reasons (
    org_id     UUID NOT NULL,
    reason     TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    handoff_id UUID NOT NULL REFERENCES handoffs (id) ON DELETE CASCADE,
    position   BIGINT NOT NULL,
    PRIMARY KEY (org_id, reason, created_at)
);
CREATE INDEX handoff_reasons_handoff ON handoff_reasons (handoff_id);

ALTER TABLE org_keys ADD COLUMN last_used_at BIGINT;
ALTER TABLE partner_keys ADD COLUMN last_used_at BIGINT;
