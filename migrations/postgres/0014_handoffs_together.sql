-- The key of a handoff is its place in its org's list, by which SQLite keeps rows together; here they lie as they come.
CREATE TABLE handoffs_together (
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
    PRIMARY KEY (org_id, created_at)
);
INSERT INTO handoffs_together (id, org_id, session_id, call_id, agent_id, contact_id, summary, explanation, reasons, sentiment, position, created_at)
SELECT id, org_id, session_id, call_id, agent_id, contact_id, summary, explanation, reasons, sentiment, position, created_at
FROM handoffs ORDER BY org_id, created_at;

-- To drop a table deletes its rows, and what refers to them with them: so their reasons wait elsewhere.
CREATE TABLE reasons_meanwhile (
    org_id     UUID NOT NULL,
    reason     TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    handoff_id UUID NOT NULL,
    position   BIGINT NOT NULL
);
INSERT INTO reasons_meanwhile (org_id, reason, created_at, handoff_id, position)
SELECT org_id, reason, created_at, handoff_id, position FROM handoff_reasons;
DROP TABLE handoff_reasons;
DROP TABLE handoffs;
ALTER TABLE handoffs_together RENAME TO handoffs;
CREATE UNIQUE INDEX handoffs_id ON handoffs (id);

CREATE TABLE handoff_reasons (
    org_id     UUID NOT NULL,
    reason     TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    handoff_id UUID NOT NULL REFERENCES handoffs (id) ON DELETE CASCADE,
    position   BIGINT NOT NULL,
    PRIMARY KEY (org_id, reason, created_at)
);
INSERT INTO handoff_reasons (org_id, reason, created_at, handoff_id, position)
SELECT org_id, reason, created_at, handoff_id, position FROM reasons_meanwhile ORDER BY org_id, reason, created_at;
CREATE INDEX handoff_reasons_handoff ON handoff_reasons (handoff_id);
DROP TABLE reasons_meanwhile;
