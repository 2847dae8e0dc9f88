-- Attempts of calls at their targets, where one has failed.

CREATE TABLE call_attempts (
    call_id BLOB NOT NULL,
    number INTEGER NOT NULL,
    org_id BLOB NOT NULL,
    -- 'runtime', 'callee' or 'destination'.
    leg TEXT NOT NULL,
    target TEXT NOT NULL,
    address TEXT,
    transport TEXT,
    began_at INTEGER NOT NULL,
    ended_at INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    sip_code INTEGER,
    detail TEXT,
    PRIMARY KEY (call_id, number)
) STRICT;
