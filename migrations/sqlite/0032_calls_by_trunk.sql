-- The trunk that a call came in or went out by. NULL: none, or the call is from before this was recorded.

ALTER TABLE calls ADD COLUMN trunk_id BLOB;

-- A primary key can't be altered: the same rows, with their trunk.
CREATE TABLE usage_kept_by_trunk (
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
INSERT INTO usage_kept_by_trunk
SELECT org_id, partner_id, day, agent_id, zeroblob(16), direction, calls, answered_calls, answered_seconds FROM usage_kept;
DROP TABLE usage_kept;
ALTER TABLE usage_kept_by_trunk RENAME TO usage_kept;
CREATE INDEX usage_kept_of_partner ON usage_kept (partner_id, day) WHERE partner_id IS NOT NULL;
