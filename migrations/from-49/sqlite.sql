-- From version 49, the last one before migrations became one, to version 1.

-- The operator vouches for the source of calls from the network: over UDP they prove nothing. Networks that were dedicated before stay so.
ALTER TABLE dedications ADD COLUMN no_proof INTEGER NOT NULL DEFAULT 0;
UPDATE dedications SET no_proof = 1;
-- Seconds without RTP after which an agent's caller is asked whether it is still there; NULL: media.silence_s, 0: never.
ALTER TABLE agents ADD COLUMN media_timeout_s INTEGER;

-- Networks in which an org's PBX or carrier has its media, by the operator's command line: audio goes there before any has come from there.
CREATE TABLE media_addresses (
    org_id     BLOB NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    -- A CIDR block.
    network    TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (org_id, network)
) STRICT, WITHOUT ROWID;
-- Share of a node, in per cent, that the orgs of a partner have together; NULL: half.
ALTER TABLE partners ADD COLUMN node_share_percent INTEGER;

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
ALTER TABLE orgs ADD COLUMN old_widget_token_ends_at INTEGER;
CREATE UNIQUE INDEX orgs_old_widget_token ON orgs (old_widget_token) WHERE old_widget_token IS NOT NULL;

-- API keys without the hash of their token, and sessions without an id, end. No table refers to these.
ALTER TABLE org_keys RENAME TO old_org_keys;
CREATE TABLE org_keys (
    id           BLOB NOT NULL PRIMARY KEY,
    org_id       BLOB NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    name         TEXT NOT NULL,
    scopes       TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    last_used_at INTEGER,
    token_hash   BLOB NOT NULL,
    kid          TEXT NOT NULL,
    expires_at   INTEGER
) STRICT;
INSERT INTO org_keys (id, org_id, name, scopes, created_at, last_used_at, token_hash, kid, expires_at)
    SELECT id, org_id, name, scopes, created_at, last_used_at, token_hash, kid, expires_at FROM old_org_keys
    WHERE token_hash IS NOT NULL AND kid IS NOT NULL;
DROP TABLE old_org_keys;
CREATE INDEX org_keys_listed ON org_keys (org_id, created_at, id);

ALTER TABLE dashboard_sessions RENAME TO old_dashboard_sessions;
ALTER TABLE login_links RENAME TO old_login_links;
ALTER TABLE membership_roles RENAME TO old_membership_roles;
ALTER TABLE memberships RENAME TO old_memberships;
ALTER TABLE users RENAME TO old_users;

-- One account a person and partner, of which the first keeps the id and the name: another partner may have given that.
CREATE TABLE accounts AS
    SELECT user_id, owner_id, nth, CASE WHEN nth = 1 THEN user_id ELSE randomblob(16) END AS id FROM (
        SELECT user_id, owner_id, ROW_NUMBER() OVER (PARTITION BY user_id ORDER BY MIN(since), owner_id) AS nth FROM (
            SELECT old_memberships.user_id AS user_id, old_memberships.created_at AS since,
                CASE WHEN email = 'operator@localhost.localdomain' THEN zeroblob(16) ELSE COALESCE(partner_id, orgs.id) END AS owner_id
            FROM old_memberships JOIN orgs ON orgs.id = old_memberships.org_id JOIN old_users ON old_users.id = old_memberships.user_id
        ) GROUP BY user_id, owner_id
    );
CREATE TABLE users (
    id         BLOB NOT NULL PRIMARY KEY,
    -- In lower case.
    email      TEXT NOT NULL,
    name       TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    -- The partner whose orgs it is for; the org, if that has no partner; zeros for the operator's account.
    owner_id   BLOB NOT NULL,
    UNIQUE (owner_id, email)
) STRICT;
CREATE TABLE memberships (
    org_id     BLOB NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    user_id    BLOB NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (org_id, user_id)
) STRICT;
CREATE TABLE membership_roles (
    org_id  BLOB NOT NULL,
    user_id BLOB NOT NULL,
    role_id BLOB NOT NULL,
    PRIMARY KEY (org_id, user_id, role_id),
    FOREIGN KEY (org_id, user_id) REFERENCES memberships (org_id, user_id) ON DELETE CASCADE,
    FOREIGN KEY (org_id, role_id) REFERENCES roles (org_id, id) ON DELETE CASCADE
) STRICT;
CREATE TABLE login_links (
    token_hash  BLOB NOT NULL PRIMARY KEY,
    org_id      BLOB NOT NULL,
    user_id     BLOB NOT NULL,
    expires_at  INTEGER NOT NULL,
    consumed_at INTEGER,
    created_at  INTEGER NOT NULL,
    -- A page with a button stands before the link.
    confirm     INTEGER NOT NULL DEFAULT FALSE,
    FOREIGN KEY (org_id, user_id) REFERENCES memberships (org_id, user_id) ON DELETE CASCADE
) STRICT;
CREATE TABLE dashboard_sessions (
    token_hash BLOB NOT NULL PRIMARY KEY,
    org_id     BLOB NOT NULL,
    user_id    BLOB NOT NULL,
    expires_at INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    -- Names a session where it is listed.
    id         BLOB NOT NULL,
    FOREIGN KEY (org_id, user_id) REFERENCES memberships (org_id, user_id) ON DELETE CASCADE
) STRICT;
INSERT INTO users (id, email, name, created_at, owner_id)
    SELECT accounts.id, email, CASE WHEN nth = 1 THEN name ELSE substr(email, 1, instr(email, '@') - 1) END, created_at, owner_id
    FROM accounts JOIN old_users ON old_users.id = user_id;
CREATE TABLE moved AS
    SELECT org_id, old_memberships.user_id AS old_id, accounts.id AS new_id
    FROM old_memberships JOIN orgs ON orgs.id = old_memberships.org_id JOIN accounts ON accounts.user_id = old_memberships.user_id
        AND accounts.owner_id IN (zeroblob(16), COALESCE(partner_id, orgs.id));
INSERT INTO memberships (org_id, user_id, created_at)
    SELECT moved.org_id, new_id, created_at FROM old_memberships JOIN moved ON moved.org_id = old_memberships.org_id AND old_id = user_id;
INSERT INTO membership_roles (org_id, user_id, role_id)
    SELECT moved.org_id, new_id, role_id FROM old_membership_roles JOIN moved ON moved.org_id = old_membership_roles.org_id AND old_id = user_id;
INSERT INTO login_links (token_hash, org_id, user_id, expires_at, consumed_at, created_at, confirm)
    SELECT token_hash, moved.org_id, new_id, expires_at, consumed_at, created_at, confirm
    FROM old_login_links JOIN moved ON moved.org_id = old_login_links.org_id AND old_id = user_id;
INSERT INTO dashboard_sessions (token_hash, org_id, user_id, expires_at, created_at, id)
    SELECT token_hash, moved.org_id, new_id, expires_at, created_at, id
    FROM old_dashboard_sessions JOIN moved ON moved.org_id = old_dashboard_sessions.org_id AND old_id = user_id WHERE id IS NOT NULL;
-- Nothing kept the operator's address from being a partner's account before: what it had open ends.
DELETE FROM login_links WHERE user_id IN (SELECT id FROM users WHERE owner_id = zeroblob(16));
DELETE FROM dashboard_sessions WHERE user_id IN (SELECT id FROM users WHERE owner_id = zeroblob(16));
DROP TABLE old_dashboard_sessions;
DROP TABLE old_login_links;
DROP TABLE old_membership_roles;
DROP TABLE old_memberships;
DROP TABLE old_users;
DROP TABLE moved;
DROP TABLE accounts;
CREATE INDEX memberships_user ON memberships (user_id);
CREATE INDEX login_links_expiry ON login_links (expires_at);
CREATE INDEX login_links_of_org ON login_links (org_id);
CREATE INDEX dashboard_sessions_expiry ON dashboard_sessions (expires_at);
CREATE INDEX dashboard_sessions_listed ON dashboard_sessions (org_id, created_at, id);

-- Every transfer says whether its caller may be gone.
ALTER TABLE transfers RENAME TO old_transfers;
CREATE TABLE transfers (
    id                 BLOB NOT NULL PRIMARY KEY,
    org_id             BLOB NOT NULL,
    call_id            BLOB NOT NULL,
    destination_id     BLOB,
    name               TEXT NOT NULL,
    type               TEXT NOT NULL,
    value              TEXT NOT NULL,
    state              TEXT NOT NULL,
    sip_code           INTEGER,
    reasons            TEXT NOT NULL,
    summary            TEXT NOT NULL,
    explanation        TEXT,
    sentiment          TEXT,
    requested_at       INTEGER NOT NULL,
    accepted_at        INTEGER,
    ringing_at         INTEGER,
    ended_at           INTEGER,
    session_id         BLOB,
    way                TEXT NOT NULL,
    step               INTEGER NOT NULL,
    answer_confirmed   INTEGER,
    caller_may_be_gone INTEGER NOT NULL,
    counted_at         INTEGER,
    lost_from          TEXT
) STRICT;
INSERT INTO transfers (id, org_id, call_id, destination_id, name, type, value, state, sip_code, reasons, summary, explanation, sentiment,
    requested_at, accepted_at, ringing_at, ended_at, session_id, way, step, answer_confirmed, caller_may_be_gone,
    counted_at, lost_from)
    SELECT id, org_id, call_id, destination_id, name, type, value, state, sip_code, reasons, summary, explanation, sentiment,
        requested_at, accepted_at, ringing_at, ended_at, session_id, way, step, answer_confirmed,
        COALESCE(caller_may_be_gone, FALSE), counted_at, lost_from FROM old_transfers;
DROP TABLE old_transfers;
CREATE INDEX transfers_counted ON transfers (counted_at) WHERE counted_at IS NOT NULL;
CREATE INDEX transfers_newest ON transfers (org_id, call_id, requested_at, id);
CREATE INDEX transfers_lost ON transfers (call_id) WHERE lost_from IS NOT NULL;

-- Handoffs say whether the destination is known to have answered, and can be listed by that.
ALTER TABLE handoffs ADD COLUMN confirmed INTEGER NOT NULL DEFAULT FALSE;
UPDATE handoffs SET confirmed = TRUE WHERE call_id IS NULL
    OR EXISTS (SELECT 1 FROM transfers WHERE transfers.id = handoffs.id AND answer_confirmed = TRUE);
CREATE TABLE handoff_lists (
    org_id     BLOB NOT NULL,
    list       TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    handoff_id BLOB NOT NULL REFERENCES handoffs (id) ON DELETE CASCADE,
    position   INTEGER NOT NULL,
    PRIMARY KEY (org_id, list, created_at)
) STRICT, WITHOUT ROWID;
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
    org_id     BLOB NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    list       TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (org_id, list, created_at)
) STRICT, WITHOUT ROWID;

-- A node registers a trunk before the one that had it withdraws, which must know whether their Contacts are the same.
ALTER TABLE nodes ADD COLUMN sip_hosts TEXT;

-- A call that died with its node ends at the node's last sign of life, by the clock of timers.
ALTER TABLE nodes ADD COLUMN alive_boot INTEGER;
ALTER TABLE nodes ADD COLUMN alive_at INTEGER;
ALTER TABLE calls ADD COLUMN clock_offset INTEGER;

-- Records say why a call got its 488.
ALTER TABLE calls ADD COLUMN reason_detail TEXT;

-- A request that has begun to dial isn't made again.
ALTER TABLE idempotency_keys ADD COLUMN begun_at INTEGER;

-- PBXs behind a proxy register with the path to themselves.
ALTER TABLE registrations ADD COLUMN path TEXT;

-- INVITEs through the trunk carry `user=phone`.
ALTER TABLE outbound_trunks ADD COLUMN user_phone INTEGER NOT NULL DEFAULT 0;

-- Filters of calls are answered from indexes. Lists and blocks of calls that exist have numbers that no later ones have.
ALTER TABLE calls ADD COLUMN list INTEGER;
ALTER TABLE calls ADD COLUMN block INTEGER;
CREATE TABLE call_lists (
    list      INTEGER NOT NULL PRIMARY KEY,
    org_id    BLOB NOT NULL,
    agent_id  BLOB,
    trunk_id  BLOB,
    direction TEXT NOT NULL,
    outcome   TEXT NOT NULL
) STRICT;
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
    block  INTEGER NOT NULL PRIMARY KEY,
    org_id BLOB NOT NULL
) STRICT;
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
