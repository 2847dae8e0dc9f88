-- Where PBXs have registered: kept over a restart, and followed by the other nodes. One row for each contact of an inbound trunk; a contact
-- that was removed stays for a while with an end in the past, so that others learn of it.

CREATE TABLE registrations (
    trunk_id      BLOB NOT NULL REFERENCES inbound_trunks (id) ON DELETE CASCADE,
    contact       TEXT NOT NULL,
    org_id        BLOB NOT NULL,
    -- The node that heard of it last, and has its flow.
    node          INTEGER NOT NULL,
    instance      TEXT,
    q             INTEGER,
    transport     TEXT NOT NULL,
    source        TEXT NOT NULL,
    behind_nat    INTEGER NOT NULL,
    -- The digest user name of the REGISTER.
    username      TEXT NOT NULL,
    user_agent    TEXT,
    sip_call_id   BLOB NOT NULL,
    cseq          INTEGER NOT NULL,
    registered_at INTEGER NOT NULL,
    refreshed_at  INTEGER NOT NULL,
    expires_at    INTEGER NOT NULL,
    saved_at      INTEGER NOT NULL,
    PRIMARY KEY (trunk_id, contact)
) STRICT;
CREATE INDEX registrations_saved ON registrations (saved_at);
CREATE INDEX registrations_ended ON registrations (expires_at);
