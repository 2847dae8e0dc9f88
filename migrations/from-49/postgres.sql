-- From version 49, the last one before migrations became one, to version 1.

-- The operator vouches for the source of calls from the network: over UDP they prove nothing. Networks that were dedicated before stay so.
ALTER TABLE dedications ADD COLUMN no_proof BOOLEAN NOT NULL DEFAULT FALSE;
UPDATE dedications SET no_proof = TRUE;
-- Seconds without RTP after which an agent's caller is asked whether it is still there; NULL: media.silence_s, 0: never.
ALTER TABLE agents ADD COLUMN media_timeout_s BIGINT;

-- Networks in which an org's PBX or carrier has its media, by the operator's command line: audio goes there before any has come from there.
CREATE TABLE media_addresses (
    org_id     UUID NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    -- A CIDR block.
    network    TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (org_id, network)
);
-- Share of a node, in per cent, that the orgs of a partner have together; NULL: half.
ALTER TABLE partners ADD COLUMN node_share_percent BIGINT;

-- Nothing reads them.
ALTER TABLE orgs DROP COLUMN requests_per_minute;
ALTER TABLE orgs DROP COLUMN streaming_per_minute;
ALTER TABLE orgs DROP COLUMN sessions_emptied_to;

-- The limit of calls at once is one of the limits.
INSERT INTO org_limits (org_id, name, by_operator)
    SELECT id, 'concurrent_calls', max_concurrent_calls FROM orgs WHERE max_concurrent_calls IS NOT NULL;
ALTER TABLE orgs DROP COLUMN max_concurrent_calls;

-- The token with which a website embeds the widget is rotated.
ALTER TABLE orgs ADD COLUMN old_widget_token TEXT;
ALTER TABLE orgs ADD COLUMN old_widget_token_ends_at BIGINT;
CREATE UNIQUE INDEX orgs_old_widget_token ON orgs (old_widget_token) WHERE old_widget_token IS NOT NULL;

-- API keys without the hash of their token, and sessions without an id, end.
DELETE FROM org_keys WHERE token_hash IS NULL OR kid IS NULL;
ALTER TABLE org_keys ALTER COLUMN token_hash SET NOT NULL, ALTER COLUMN kid SET NOT NULL;
DELETE FROM dashboard_sessions WHERE id IS NULL;
ALTER TABLE dashboard_sessions ALTER COLUMN id SET NOT NULL;

-- One account a person and partner, of which the first keeps the id and the name: another partner may have given that.
CREATE TABLE accounts AS
    SELECT user_id, owner_id, nth, CASE WHEN nth = 1 THEN user_id ELSE gen_random_uuid() END AS id FROM (
        SELECT user_id, owner_id, ROW_NUMBER() OVER (PARTITION BY user_id ORDER BY MIN(since), owner_id) AS nth FROM (
            SELECT memberships.user_id AS user_id, memberships.created_at AS since,
                CASE WHEN email = 'operator@localhost.localdomain' THEN '00000000-0000-0000-0000-000000000000'::UUID
                    ELSE COALESCE(partner_id, orgs.id) END AS owner_id
            FROM memberships JOIN orgs ON orgs.id = memberships.org_id JOIN users ON users.id = memberships.user_id
        ) AS each GROUP BY user_id, owner_id
    ) AS numbered;
ALTER TABLE users DROP CONSTRAINT users_email_key, ADD COLUMN owner_id UUID;
DELETE FROM users WHERE NOT EXISTS (SELECT 1 FROM accounts WHERE user_id = users.id);
UPDATE users SET owner_id = accounts.owner_id FROM accounts WHERE accounts.id = users.id;
INSERT INTO users (id, email, name, created_at, owner_id)
    SELECT accounts.id, email, split_part(email, '@', 1), created_at, accounts.owner_id
    FROM accounts JOIN users ON users.id = user_id WHERE nth > 1;
ALTER TABLE users ALTER COLUMN owner_id SET NOT NULL, ADD UNIQUE (owner_id, email);
CREATE TABLE moved AS
    SELECT org_id, memberships.user_id AS old_id, accounts.id AS new_id
    FROM memberships JOIN orgs ON orgs.id = memberships.org_id JOIN accounts ON accounts.user_id = memberships.user_id
        AND accounts.owner_id IN ('00000000-0000-0000-0000-000000000000'::UUID, COALESCE(partner_id, orgs.id))
    WHERE nth > 1;
INSERT INTO memberships (org_id, user_id, created_at)
    SELECT moved.org_id, new_id, created_at FROM memberships JOIN moved ON moved.org_id = memberships.org_id AND old_id = user_id;
UPDATE membership_roles SET user_id = new_id FROM moved WHERE moved.org_id = membership_roles.org_id AND old_id = user_id;
UPDATE login_links SET user_id = new_id FROM moved WHERE moved.org_id = login_links.org_id AND old_id = user_id;
UPDATE dashboard_sessions SET user_id = new_id FROM moved WHERE moved.org_id = dashboard_sessions.org_id AND old_id = user_id;
DELETE FROM memberships USING moved WHERE moved.org_id = memberships.org_id AND old_id = user_id;
-- Nothing kept the operator's address from being a partner's account before: what it had open ends.
DELETE FROM login_links WHERE user_id IN (SELECT id FROM users WHERE owner_id = '00000000-0000-0000-0000-000000000000'::UUID);
DELETE FROM dashboard_sessions WHERE user_id IN (SELECT id FROM users WHERE owner_id = '00000000-0000-0000-0000-000000000000'::UUID);
DROP TABLE moved;
DROP TABLE accounts;

-- Every transfer says whether its caller may be gone.
UPDATE transfers SET caller_may_be_gone = FALSE WHERE caller_may_be_gone IS NULL;
ALTER TABLE transfers ALTER COLUMN caller_may_be_gone SET NOT NULL, ALTER COLUMN way DROP DEFAULT, ALTER COLUMN step DROP DEFAULT;

-- Names that came from tables which were renamed.
ALTER TABLE handoffs RENAME CONSTRAINT handoffs_together_pkey TO handoffs_pkey;
ALTER TABLE handoffs RENAME CONSTRAINT handoffs_together_org_id_fkey TO handoffs_org_id_fkey;
ALTER TABLE usage_kept RENAME CONSTRAINT usage_kept_by_trunk_pkey TO usage_kept_pkey;

-- Handoffs say whether the destination is known to have answered, and can be listed by that.
ALTER TABLE handoffs ADD COLUMN confirmed BOOLEAN NOT NULL DEFAULT FALSE;
UPDATE handoffs SET confirmed = TRUE WHERE call_id IS NULL
    OR EXISTS (SELECT 1 FROM transfers WHERE transfers.id = handoffs.id AND answer_confirmed = TRUE);
CREATE TABLE handoff_lists (
    org_id     UUID NOT NULL,
    list       TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    handoff_id UUID NOT NULL REFERENCES handoffs (id) ON DELETE CASCADE,
    position   BIGINT NOT NULL,
    PRIMARY KEY (org_id, list, created_at)
);
INSERT INTO handoff_lists (org_id, list, created_at, handoff_id, position)
    SELECT org_id, reason, created_at, handoff_id, position FROM handoff_reasons;
INSERT INTO handoff_lists (org_id, list, created_at, handoff_id, position)
    SELECT org_id, CASE WHEN confirmed THEN 'confirmed' ELSE 'unconfirmed' END, created_at, id,
        ROW_NUMBER() OVER (PARTITION BY org_id, confirmed ORDER BY created_at) FROM handoffs;
INSERT INTO handoff_lists (org_id, list, created_at, handoff_id, position)
    SELECT by_reason.org_id, reason || CASE WHEN confirmed THEN ' confirmed' ELSE ' unconfirmed' END, by_reason.created_at, handoff_id,
        ROW_NUMBER() OVER (PARTITION BY by_reason.org_id, reason, confirmed ORDER BY by_reason.created_at)
    FROM handoff_reasons AS by_reason
    JOIN handoffs ON handoffs.org_id = by_reason.org_id AND handoffs.created_at = by_reason.created_at;
DROP TABLE handoff_reasons;
CREATE INDEX handoff_lists_handoff ON handoff_lists (handoff_id);

-- Handoffs are found by their contact, that of their call where they have one, and can be deleted.
UPDATE handoffs SET contact_id = (SELECT contacts.id FROM calls JOIN contacts ON contacts.id = calls.contact_id
    WHERE calls.id = handoffs.call_id AND calls.org_id = handoffs.org_id) WHERE call_id IS NOT NULL AND contact_id IS NULL;
CREATE INDEX handoffs_contact ON handoffs (org_id, contact_id, created_at) WHERE contact_id IS NOT NULL;
CREATE TABLE handoff_gaps (
    org_id     UUID NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    list       TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (org_id, list, created_at)
);

-- A node registers a trunk before the one that had it withdraws, which must know whether their Contacts are the same.
ALTER TABLE nodes ADD COLUMN sip_hosts TEXT;

-- A call that died with its node ends at the node's last sign of life, by the clock of timers.
ALTER TABLE nodes ADD COLUMN alive_boot BIGINT;
ALTER TABLE nodes ADD COLUMN alive_at BIGINT;
ALTER TABLE calls ADD COLUMN clock_offset BIGINT;

-- Records say why a call got its 488.
ALTER TABLE calls ADD COLUMN reason_detail TEXT;

-- A request that has begun to dial isn't made again.
ALTER TABLE idempotency_keys ADD COLUMN begun_at BIGINT;

-- PBXs behind a proxy register with the path to themselves.
ALTER TABLE registrations ADD COLUMN path TEXT;

-- INVITEs through the trunk carry `user=phone`.
ALTER TABLE outbound_trunks ADD COLUMN user_phone BOOLEAN NOT NULL DEFAULT FALSE;

-- Filters of calls are answered from indexes. Lists and blocks of calls that exist have numbers that no later ones have.
ALTER TABLE calls ADD COLUMN list BIGINT;
ALTER TABLE calls ADD COLUMN block BIGINT;
CREATE TABLE call_lists (
    list      BIGINT NOT NULL PRIMARY KEY,
    org_id    UUID NOT NULL,
    agent_id  UUID,
    trunk_id  UUID,
    direction TEXT NOT NULL,
    outcome   TEXT NOT NULL
);
INSERT INTO call_lists (list, org_id, agent_id, trunk_id, direction, outcome)
    SELECT 16 * DENSE_RANK() OVER (ORDER BY org_id, agent_id, trunk_id, direction)
        + CASE outcome WHEN 'completed' THEN 1 WHEN 'busy' THEN 2 WHEN 'no_answer' THEN 3 WHEN 'failed' THEN 4 WHEN 'canceled' THEN 5
            WHEN 'refused' THEN 6 WHEN 'transferred' THEN 7 WHEN 'lost' THEN 8 ELSE 0 END,
        org_id, agent_id, trunk_id, direction, outcome
    FROM (
        SELECT DISTINCT org_id, agent_id, trunk_id, direction, CASE WHEN ended_at IS NULL THEN 'up' ELSE status END AS outcome
        FROM calls WHERE started_at IS NOT NULL AND direction IS NOT NULL
    ) AS found;
CREATE INDEX call_lists_of_org ON call_lists (org_id);
CREATE TABLE call_blocks (
    block  BIGINT NOT NULL PRIMARY KEY,
    org_id UUID NOT NULL
);
INSERT INTO call_blocks (block, org_id)
    SELECT ROW_NUMBER() OVER (ORDER BY org_id), org_id FROM (SELECT DISTINCT org_id FROM calls WHERE started_at IS NOT NULL) AS found;
CREATE INDEX call_blocks_of_org ON call_blocks (org_id, block);
UPDATE calls SET block = (SELECT block FROM call_blocks WHERE call_blocks.org_id = calls.org_id),
    list = (SELECT list FROM call_lists WHERE call_lists.org_id = calls.org_id AND call_lists.agent_id IS NOT DISTINCT FROM calls.agent_id
        AND call_lists.trunk_id IS NOT DISTINCT FROM calls.trunk_id AND call_lists.direction = calls.direction
        AND call_lists.outcome = CASE WHEN calls.ended_at IS NULL THEN 'up' ELSE calls.status END)
    WHERE started_at IS NOT NULL;
CREATE INDEX calls_of_list ON calls (list, started_at);
CREATE INDEX calls_from ON calls (block, from_e164, started_at);
CREATE INDEX calls_to ON calls (block, to_e164, started_at) WHERE from_e164 IS NULL OR to_e164 <> from_e164;
CREATE INDEX calls_from_as_sent ON calls (block, from_number, started_at)
    WHERE (from_e164 IS NULL OR from_number <> from_e164) AND (to_e164 IS NULL OR from_number <> to_e164);
CREATE INDEX calls_to_as_sent ON calls (block, to_number, started_at)
    WHERE (from_e164 IS NULL OR to_number <> from_e164) AND (to_e164 IS NULL OR to_number <> to_e164)
    AND (from_number IS NULL OR to_number <> from_number);
DROP INDEX calls_session;
CREATE INDEX calls_session ON calls (session_id);
CREATE INDEX webhook_deliveries_of_state ON webhook_deliveries (webhook_id, state, created_at, id);
CREATE INDEX agents_named ON agents (org_id, lower(name));
CREATE INDEX outbound_trunks_named ON outbound_trunks (org_id, lower(name));

DROP TABLE schema_migrations;
