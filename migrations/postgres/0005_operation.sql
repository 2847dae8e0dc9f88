-- What the daemon itself needs: the change feed, keys, nodes, idempotency, events and webhooks.

-- Rows are numbered under an advisory lock held until the commit, so that they become visible in their order.
CREATE TABLE changes (
    seq       BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- NULL: what isn't of one org.
    org_id    UUID,
    kind      TEXT NOT NULL,
    entity_id UUID,
    at        BIGINT NOT NULL
);
CREATE INDEX changes_age ON changes (at);

-- The highest number that was pruned: whoever has read less starts anew.
CREATE TABLE changes_pruned (
    id  BIGINT PRIMARY KEY CHECK (id = 1),
    seq BIGINT NOT NULL
);
INSERT INTO changes_pruned (id, seq) VALUES (1, 0);

-- 'keyring': the installation's keys, sealed under the master key (PostgreSQL). 'check': a known text, sealed with the keys
-- of the data directory (SQLite), to tell whether they are this database's.
CREATE TABLE secrets (
    id         TEXT PRIMARY KEY,
    value      BYTEA NOT NULL,
    created_at BIGINT NOT NULL
);

-- One row a node; a start takes the next boot number, and whoever outlives another's lease closes its calls.
CREATE TABLE nodes (
    node             BIGINT PRIMARY KEY,
    boot             BIGINT NOT NULL,
    host             TEXT NOT NULL,
    started_at       BIGINT NOT NULL,
    lease_expires_at BIGINT NOT NULL
);

CREATE TABLE idempotency_keys (
    credential_id UUID NOT NULL,
    method        TEXT NOT NULL,
    path          TEXT NOT NULL,
    key           TEXT NOT NULL,
    -- SHA-256 of the body.
    body_hash     BYTEA NOT NULL,
    -- NULL while the first request runs.
    status        BIGINT,
    -- Sealed.
    answer        BYTEA,
    expires_at    BIGINT NOT NULL,
    PRIMARY KEY (credential_id, method, path, key)
);
CREATE INDEX idempotency_keys_expiry ON idempotency_keys (expires_at);

CREATE TABLE events (
    id         UUID PRIMARY KEY,
    org_id     UUID NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    type       TEXT NOT NULL,
    payload    TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX events_listed ON events (org_id, created_at, id);

CREATE TABLE webhooks (
    id         UUID PRIMARY KEY,
    org_id     UUID NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    url        TEXT NOT NULL,
    types      TEXT NOT NULL,
    -- Sealed.
    secret     BYTEA NOT NULL,
    -- Sealed; after a rotation, both sign until it expires.
    old_secret            BYTEA,
    old_secret_expires_at BIGINT,
    enabled    BOOLEAN NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    UNIQUE (org_id, id)
);

CREATE TABLE webhook_deliveries (
    id              UUID PRIMARY KEY,
    org_id          UUID NOT NULL,
    webhook_id      UUID NOT NULL,
    event_id        UUID NOT NULL REFERENCES events (id) ON DELETE CASCADE,
    -- 'pending', 'delivered' or 'failed'.
    state           TEXT NOT NULL,
    attempts        BIGINT NOT NULL,
    next_attempt_at BIGINT,
    http_status     BIGINT,
    fault           TEXT,
    created_at      BIGINT NOT NULL,
    delivered_at    BIGINT,
    FOREIGN KEY (org_id, webhook_id) REFERENCES webhooks (org_id, id) ON DELETE CASCADE
);
CREATE INDEX webhook_deliveries_listed ON webhook_deliveries (org_id, webhook_id, created_at, id);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (next_attempt_at) WHERE state = 'pending';
