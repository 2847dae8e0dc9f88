-- Calls, as the journal's facts say. Rows are projected in any order and more than once, so no column but the ids is
-- required, and nothing here refers to a row that may have been deleted since.

CREATE TABLE calls (
    id              UUID PRIMARY KEY,
    org_id          UUID NOT NULL,
    -- The process that held the call last.
    node            BIGINT NOT NULL,
    boot            BIGINT NOT NULL,
    session_id      UUID,
    agent_id        UUID,
    contact_id      UUID,
    direction       TEXT,
    status          TEXT NOT NULL,
    from_number     TEXT,
    to_number       TEXT,
    from_e164       TEXT,
    to_e164         TEXT,
    started_at      BIGINT,
    ringing_at      BIGINT,
    answered_at     BIGINT,
    ended_at        BIGINT,
    sip_code        BIGINT,
    reason          TEXT,
    hangup_by       TEXT,
    caller_call_id  TEXT,
    runtime_call_id TEXT,
    metadata        TEXT,
    decision        TEXT
);
CREATE INDEX calls_listed ON calls (org_id, started_at, id);
CREATE INDEX calls_open ON calls (node, boot) WHERE ended_at IS NULL;

CREATE TABLE transfers (
    id             UUID PRIMARY KEY,
    org_id         UUID NOT NULL,
    call_id        UUID NOT NULL,
    destination_id UUID,
    name           TEXT NOT NULL,
    -- 'phone' or 'sip'.
    type           TEXT NOT NULL,
    value          TEXT NOT NULL,
    -- 'requested', 'accepted', 'ringing', 'completed', 'failed' or 'unknown'.
    state          TEXT NOT NULL,
    sip_code       BIGINT,
    reasons        TEXT NOT NULL,
    summary        TEXT NOT NULL,
    explanation    TEXT,
    sentiment      TEXT,
    requested_at   BIGINT NOT NULL,
    accepted_at    BIGINT,
    ringing_at     BIGINT,
    ended_at       BIGINT
);
CREATE INDEX transfers_call ON transfers (org_id, call_id);

-- Log-ins that failed under a user name of the org.
CREATE TABLE auth_failures (
    id       UUID PRIMARY KEY,
    org_id   UUID NOT NULL,
    trunk_id UUID NOT NULL,
    username TEXT NOT NULL,
    source   TEXT NOT NULL,
    -- What of the answer was wrong.
    part     TEXT NOT NULL,
    at       BIGINT NOT NULL
);
CREATE INDEX auth_failures_listed ON auth_failures (org_id, at, id);
