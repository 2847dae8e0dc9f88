-- Attempts of calls at their targets, where one has failed.

CREATE TABLE call_attempts (
    call_id UUID NOT NULL,
    number BIGINT NOT NULL,
    org_id UUID NOT NULL,
    -- 'runtime', 'callee' or 'destination'.
    leg TEXT NOT NULL,
    target TEXT NOT NULL,
    address TEXT,
    transport TEXT,
    began_at BIGINT NOT NULL,
    ended_at BIGINT NOT NULL,
    outcome TEXT NOT NULL,
    sip_code BIGINT,
    detail TEXT,
    PRIMARY KEY (call_id, number)
);
