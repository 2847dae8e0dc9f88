-- Events in the order of their commits, and the queue of what webhooks are owed. Nothing has written these tables so far.

DROP TABLE webhook_deliveries;
DROP TABLE webhooks;
DROP TABLE events;

-- An event may outlive what it tells of, so nothing here refers to other rows.
CREATE TABLE events (
    -- Becomes visible in its order.
    seq        BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id         UUID NOT NULL,
    org_id     UUID NOT NULL,
    type       TEXT NOT NULL,
    -- JSON, as every reader and every webhook gets it; never changed.
    body       TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX events_id ON events (id);
CREATE INDEX events_of_org ON events (org_id, seq);

CREATE TABLE webhooks (
    id          UUID PRIMARY KEY,
    org_id      UUID NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    url         TEXT NOT NULL,
    description TEXT,
    -- A JSON list; [] is every type.
    types       TEXT NOT NULL,
    -- Sealed.
    secret      BYTEA NOT NULL,
    -- Sealed; after a rotation, both sign until it expires.
    old_secret            BYTEA,
    old_secret_expires_at BIGINT,
    enabled     BOOLEAN NOT NULL,
    -- Why it was disabled, if not by the org.
    disabled_reason TEXT,
    created_at  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL
);
CREATE INDEX webhooks_listed ON webhooks (org_id, created_at, id);

CREATE TABLE webhook_deliveries (
    id              UUID PRIMARY KEY,
    org_id          UUID NOT NULL,
    webhook_id      UUID NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
    event_id        UUID NOT NULL REFERENCES events (id) ON DELETE CASCADE,
    event_type      TEXT NOT NULL,
    -- 'pending', 'delivered' or 'failed'.
    state           TEXT NOT NULL,
    -- Attempts since it was last queued, by the org or by the event.
    attempts        BIGINT NOT NULL,
    next_attempt_at BIGINT,
    -- Whoever attempts it holds it until then.
    held_by         TEXT,
    held_until      BIGINT,
    -- The last attempts, a JSON list.
    log             TEXT NOT NULL,
    created_at      BIGINT NOT NULL,
    delivered_at    BIGINT
);
CREATE INDEX webhook_deliveries_listed ON webhook_deliveries (webhook_id, created_at, id);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (webhook_id, next_attempt_at) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_event ON webhook_deliveries (event_id);
