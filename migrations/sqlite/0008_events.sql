-- Events in the order of their commits, and the queue of what webhooks are owed. Nothing has written these tables so far.

DROP TABLE webhook_deliveries;
DROP TABLE webhooks;
DROP TABLE events;

-- An event may outlive what it tells of, so nothing here refers to other rows.
CREATE TABLE events (
    -- Becomes visible in its order.
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    id         BLOB NOT NULL,
    org_id     BLOB NOT NULL,
    type       TEXT NOT NULL,
    -- JSON, as every reader and every webhook gets it; never changed.
    body       TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX events_id ON events (id);
CREATE INDEX events_of_org ON events (org_id, seq);

CREATE TABLE webhooks (
    id          BLOB NOT NULL PRIMARY KEY,
    org_id      BLOB NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    url         TEXT NOT NULL,
    description TEXT,
    -- A JSON list; [] is every type.
    types       TEXT NOT NULL,
    -- Sealed.
    secret      BLOB NOT NULL,
    -- Sealed; after a rotation, both sign until it expires.
    old_secret            BLOB,
    old_secret_expires_at INTEGER,
    enabled     INTEGER NOT NULL,
    -- Why it was disabled, if not by the org.
    disabled_reason TEXT,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL
) STRICT;
CREATE INDEX webhooks_listed ON webhooks (org_id, created_at, id);

CREATE TABLE webhook_deliveries (
    id              BLOB NOT NULL PRIMARY KEY,
    org_id          BLOB NOT NULL,
    webhook_id      BLOB NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
    event_id        BLOB NOT NULL REFERENCES events (id) ON DELETE CASCADE,
    event_type      TEXT NOT NULL,
    -- 'pending', 'delivered' or 'failed'.
    state           TEXT NOT NULL,
    -- Attempts since it was last queued, by the org or by the event.
    attempts        INTEGER NOT NULL,
    next_attempt_at INTEGER,
    -- Whoever attempts it holds it until then.
    held_by         TEXT,
    held_until      INTEGER,
    -- The last attempts, a JSON list.
    log             TEXT NOT NULL,
    created_at      INTEGER NOT NULL,
    delivered_at    INTEGER
) STRICT;
CREATE INDEX webhook_deliveries_listed ON webhook_deliveries (webhook_id, created_at, id);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (webhook_id, next_attempt_at) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_event ON webhook_deliveries (event_id);
