-- Handoffs that are counted by position, and when a key was used last.

-- Nothing has written handoffs so far. Those of an org have a time of their own each, and their positions grow with it: how many
-- lie in a window is the difference of two positions, however many there are.
DROP TABLE handoffs;
CREATE TABLE handoffs (
    id          BLOB NOT NULL PRIMARY KEY,
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
    created_at  INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX handoffs_listed ON handoffs (org_id, created_at);

-- The handoffs of each reason, with positions of their own.
CREATE TABLE handoff_reasons (
    org_id     BLOB NOT NULL,
    reason     TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    handoff_id BLOB NOT NULL REFERENCES handoffs (id) ON DELETE CASCADE,
    position   INTEGER NOT NULL,
    PRIMARY KEY (org_id, reason, created_at)
) STRICT, WITHOUT ROWID;
CREATE INDEX handoff_reasons_handoff ON handoff_reasons (handoff_id);

ALTER TABLE org_keys ADD COLUMN last_used_at INTEGER;
ALTER TABLE partner_keys ADD COLUMN last_used_at INTEGER;
