-- An org that was deleted stays until it is purged, and can be restored until then.

ALTER TABLE orgs ADD COLUMN deleted_at BIGINT;
-- When everything of it is purged. NULL: it isn't deleted.
ALTER TABLE orgs ADD COLUMN purge_at BIGINT;
-- Its external id until it was deleted: another org may have that now.
ALTER TABLE orgs ADD COLUMN deleted_external_id TEXT;
CREATE INDEX orgs_purged ON orgs (purge_at) WHERE purge_at IS NOT NULL;
-- Since when the number was verified when its org was deleted: another org may have verified it since.
ALTER TABLE numbers ADD COLUMN freed_verified_at BIGINT;
CREATE INDEX login_links_of_org ON login_links (org_id);
CREATE INDEX contacts_listed ON contacts (org_id, updated_at, id);

-- Usage of calls whose rows are gone: it counts on.
CREATE TABLE usage_kept (
    org_id           UUID NOT NULL,
    -- NULL: an org of the operator's own.
    partner_id       UUID,
    -- Days since 1970-01-01, UTC.
    day              BIGINT NOT NULL,
    -- The nil UUID: calls without an agent.
    agent_id         UUID NOT NULL,
    direction        TEXT NOT NULL,
    calls            BIGINT NOT NULL,
    answered_calls   BIGINT NOT NULL,
    answered_seconds BIGINT NOT NULL,
    PRIMARY KEY (org_id, day, agent_id, direction)
);
CREATE INDEX usage_kept_of_partner ON usage_kept (partner_id, day) WHERE partner_id IS NOT NULL;

-- Orgs that were purged. Facts of calls that a node had kept back may still come for them, and are purged too.
CREATE TABLE purged_orgs (
    org_id    UUID NOT NULL PRIMARY KEY,
    purged_at BIGINT NOT NULL
);
