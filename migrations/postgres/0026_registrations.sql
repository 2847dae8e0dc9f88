-- Where PBXs have registered: kept over a restart, and followed by the other nodes. One row for each contact of an inbound trunk; a contact
-- that was removed stays for a while with an end in the past, so that others learn of it.

CREATE TABLE registrations (
    trunk_id      UUID NOT NULL REFERENCES inbound_trunks (id) ON DELETE CASCADE,
    contact       TEXT NOT NULL,
    org_id        UUID NOT NULL,
    -- The node that heard of it last, and has its flow.
    node          BIGINT NOT NULL,
    instance      TEXT,
    q             BIGINT,
    transport     TEXT NOT NULL,
    source        TEXT NOT NULL,
    behind_nat    BOOLEAN NOT NULL,
    -- The digest user name of the REGISTER.
    username      TEXT NOT NULL,
    user_agent    TEXT,
    sip_call_id   BYTEA NOT NULL,
    cseq          BIGINT NOT NULL,
    registered_at BIGINT NOT NULL,
    refreshed_at  BIGINT NOT NULL,
    expires_at    BIGINT NOT NULL,
    saved_at      BIGINT NOT NULL,
    PRIMARY KEY (trunk_id, contact)
);
CREATE INDEX registrations_saved ON registrations (saved_at);
CREATE INDEX registrations_ended ON registrations (expires_at);
