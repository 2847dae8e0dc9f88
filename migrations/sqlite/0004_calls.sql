-- Calls, as the journal's facts say. Rows are projected in any order and more than once, so no column but the ids is
-- required, and nothing here refers to a row that may have been deleted since.

CREATE TABLE calls (
    id              BLOB NOT NULL PRIMARY KEY,
    org_id          BLOB NOT NULL,
    -- The process that held the call last.
    node            INTEGER NOT NULL,
    boot            INTEGER NOT NULL,
    session_id      BLOB,
    agent_id        BLOB,
    contact_id      BLOB,
    direction       TEXT,
    status          TEXT NOT NULL,
    from_number     TEXT,
    to_number       TEXT,
    from_e164       TEXT,
    to_e164         TEXT,
    started_at      INTEGER,
    ringing_at      INTEGER,
    answered_at     INTEGER,
    ended_at        INTEGER,
    sip_code        INTEGER,
    reason          TEXT,
    hangup_by       TEXT,
    caller_call_id  TEXT,
    runtime_call_id TEXT,
    metadata        TEXT,
    decision        TEXT
) STRICT;
CREATE INDEX calls_listed ON calls (org_id, started_at, id);
CREATE INDEX calls_open ON calls (node, boot) WHERE ended_at IS NULL;

CREATE TABLE transfers (
    id             BLOB NOT NULL PRIMARY KEY,
    org_id         BLOB NOT NULL,
    call_id        BLOB NOT NULL,
    destination_id BLOB,
    name           TEXT NOT NULL,
    -- 'phone' or 'sip'.
    type           TEXT NOT NULL,
    value          TEXT NOT NULL,
    -- 'requested', 'accepted', 'ringing', 'completed', 'failed' or 'unknown'.
    state          TEXT NOT NULL,
    sip_code       INTEGER,
    reasons        TEXT NOT NULL,
    summary        TEXT NOT NULL,
    explanation    TEXT,
    sentiment      TEXT,
    requested_at   INTEGER NOT NULL,
    accepted_at    INTEGER,
    ringing_at     INTEGER,
    ended_at       INTEGER
) STRICT;
CREATE INDEX transfers_call ON transfers (org_id, call_id);

-- Log-ins that failed under a user name of the org.
CREATE TABLE auth_failures (
    id       BLOB NOT NULL PRIMARY KEY,
    org_id   BLOB NOT NULL,
    trunk_id BLOB NOT NULL,
    username TEXT NOT NULL,
    source   TEXT NOT NULL,
    -- What of the answer was wrong.
    part     TEXT NOT NULL,
    at       INTEGER NOT NULL
) STRICT;
CREATE INDEX auth_failures_listed ON auth_failures (org_id, at, id);
