-- The trunk that a call came in or went out by. NULL: none, or the call is from before this was recorded.

ALTER TABLE calls ADD COLUMN trunk_id UUID;

-- A primary key can't be altered: the same rows, with their trunk.
CREATE TABLE usage_kept_by_trunk (
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
INSERT INTO usage_kept_by_trunk
SELECT org_id, partner_id, day, agent_id, '00000000-0000-0000-0000-000000000000'::uuid, direction, calls, answered_calls, answered_seconds FROM usage_kept;
DROP TABLE usage_kept;
ALTER TABLE usage_kept_by_trunk RENAME TO usage_kept;
CREATE INDEX usage_kept_of_partner ON usage_kept (partner_id, day) WHERE partner_id IS NOT NULL;
