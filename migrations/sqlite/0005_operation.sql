-- What the daemon itself needs: the change feed, keys, nodes, idempotency, events and webhooks.

-- Writers take turns, so rows become visible in their order.
CREATE TABLE changes (
    seq       INTEGER PRIMARY KEY AUTOINCREMENT,
    -- NULL: what isn't of one org.
    org_id    BLOB,
    kind      TEXT NOT NULL,
    entity_id BLOB,
    at        INTEGER NOT NULL
) STRICT;
CREATE INDEX changes_age ON changes (at);

-- The highest number that was pruned: whoever has read less starts anew.
CREATE TABLE changes_pruned (
    id  INTEGER PRIMARY KEY CHECK (id = 1),
    seq INTEGER NOT NULL
) STRICT;
INSERT INTO changes_pruned (id, seq) VALUES (1, 0);

-- 'keyring': the installation's keys, sealed under the master key (PostgreSQL). 'check': a known text, sealed with the keys
-- of the data directory (SQLite), to tell whether they are this database's.
CREATE TABLE secrets (
    id         TEXT NOT NULL PRIMARY KEY,
    value      BLOB NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

-- One row a node; a start takes the next boot number, and whoever outlives another's lease closes its calls.
CREATE TABLE nodes (
    node             INTEGER PRIMARY KEY,
    boot             INTEGER NOT NULL,
    host             TEXT NOT NULL,
    started_at       INTEGER NOT NULL,
    lease_expires_at INTEGER NOT NULL
) STRICT;

CREATE TABLE idempotency_keys (
    credential_id BLOB NOT NULL,
    method        TEXT NOT NULL,
    path          TEXT NOT NULL,
    key           TEXT NOT NULL,
    -- SHA-256 of the body.
    body_hash     BLOB NOT NULL,
    -- NULL while the first request runs.
    status        INTEGER,
    -- Sealed.
    answer        BLOB,
    expires_at    INTEGER NOT NULL,
    PRIMARY KEY (credential_id, method, path, key)
) STRICT;
CREATE INDEX idempotency_keys_expiry ON idempotency_keys (expires_at);

CREATE TABLE events (
    id         BLOB NOT NULL PRIMARY KEY,
    org_id     BLOB NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    type       TEXT NOT NULL,
    payload    TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX events_listed ON events (org_id, created_at, id);

CREATE TABLE webhooks (
    id         BLOB NOT NULL PRIMARY KEY,
    org_id     BLOB NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    url        TEXT NOT NULL,
    types      TEXT NOT NULL,
    -- Sealed.
    secret     BLOB NOT NULL,
    -- Sealed; after a rotation, both sign until it expires.
    old_secret            BLOB,
    old_secret_expires_at INTEGER,
    enabled    INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    UNIQUE (org_id, id)
) STRICT;

CREATE TABLE webhook_deliveries (
    id              BLOB NOT NULL PRIMARY KEY,
    org_id          BLOB NOT NULL,
    webhook_id      BLOB NOT NULL,
    event_id        BLOB NOT NULL REFERENCES events (id) ON DELETE CASCADE,
    -- 'pending', 'delivered' or 'failed'.
    state           TEXT NOT NULL,
    attempts        INTEGER NOT NULL,
    next_attempt_at INTEGER,
    http_status     INTEGER,
    fault           TEXT,
    created_at      INTEGER NOT NULL,
    delivered_at    INTEGER,
    FOREIGN KEY (org_id, webhook_id) REFERENCES webhooks (org_id, id) ON DELETE CASCADE
) STRICT;
CREATE INDEX webhook_deliveries_listed ON webhook_deliveries (org_id, webhook_id, created_at, id);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (next_attempt_at) WHERE state = 'pending';
