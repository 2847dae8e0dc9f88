-- The handoffs of an org lie together in the order of their list, so that a page of it is a few pages of the file and not one a row.
CREATE TABLE handoffs_together (
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
    PRIMARY KEY (org_id, created_at)
) STRICT, WITHOUT ROWID;
INSERT INTO handoffs_together (id, org_id, session_id, call_id, agent_id, contact_id, summary, explanation, reasons, sentiment, position, created_at)
SELECT id, org_id, session_id, call_id, agent_id, contact_id, summary, explanation, reasons, sentiment, position, created_at
FROM handoffs ORDER BY org_id, created_at;

-- To drop a table deletes its rows, and what refers to them with them: so their reasons wait elsewhere.
CREATE TABLE reasons_meanwhile (
    org_id     BLOB NOT NULL,
    reason     TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    handoff_id BLOB NOT NULL,
    position   INTEGER NOT NULL
) STRICT;
INSERT INTO reasons_meanwhile (org_id, reason, created_at, handoff_id, position)
SELECT org_id, reason, created_at, handoff_id, position FROM handoff_reasons;
DROP TABLE handoff_reasons;
DROP TABLE handoffs;
ALTER TABLE handoffs_together RENAME TO handoffs;
CREATE UNIQUE INDEX handoffs_id ON handoffs (id);

CREATE TABLE handoff_reasons (
    org_id     BLOB NOT NULL,
    reason     TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    handoff_id BLOB NOT NULL REFERENCES handoffs (id) ON DELETE CASCADE,
    position   INTEGER NOT NULL,
    PRIMARY KEY (org_id, reason, created_at)
) STRICT, WITHOUT ROWID;
INSERT INTO handoff_reasons (org_id, reason, created_at, handoff_id, position)
SELECT org_id, reason, created_at, handoff_id, position FROM reasons_meanwhile ORDER BY org_id, reason, created_at;
CREATE INDEX handoff_reasons_handoff ON handoff_reasons (handoff_id);
DROP TABLE reasons_meanwhile;
