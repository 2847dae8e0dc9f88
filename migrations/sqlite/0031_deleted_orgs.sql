-- An org that was deleted stays until it is purged, and can be restored until then.

ALTER TABLE orgs ADD COLUMN deleted_at INTEGER;
-- When everything of it is purged. NULL: it isn't deleted.
ALTER TABLE orgs ADD COLUMN purge_at INTEGER;
-- Its external id until it was deleted: another org may have that now.
ALTER TABLE orgs ADD COLUMN deleted_external_id TEXT;
CREATE INDEX orgs_purged ON orgs (purge_at) WHERE purge_at IS NOT NULL;
-- Since when the number was verified when its org was deleted: another org may have verified it since.
ALTER TABLE numbers ADD COLUMN freed_verified_at INTEGER;
CREATE INDEX login_links_of_org ON login_links (org_id);
CREATE INDEX contacts_listed ON contacts (org_id, updated_at, id);

-- Usage of calls whose rows are gone: it counts on.
CREATE TABLE usage_kept (
    org_id           BLOB NOT NULL,
    -- NULL: an org of the operator's own.
    partner_id       BLOB,
    -- Days since 1970-01-01, UTC.
    day              INTEGER NOT NULL,
    -- The nil UUID: calls without an agent.
    agent_id         BLOB NOT NULL,
    direction        TEXT NOT NULL,
    calls            INTEGER NOT NULL,
    answered_calls   INTEGER NOT NULL,
    answered_seconds INTEGER NOT NULL,
    PRIMARY KEY (org_id, day, agent_id, direction)
) STRICT;
CREATE INDEX usage_kept_of_partner ON usage_kept (partner_id, day) WHERE partner_id IS NOT NULL;

-- Orgs that were purged. Facts of calls that a node had kept back may still come for them, and are purged too.
CREATE TABLE purged_orgs (
    org_id    BLOB NOT NULL PRIMARY KEY,
    purged_at INTEGER NOT NULL
) STRICT;
