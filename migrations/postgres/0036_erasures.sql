-- Erasures of contacts: what was asked for, how far each node has come, and the receipt.

CREATE TABLE erasures (
    id           UUID NOT NULL PRIMARY KEY,
    org_id       UUID NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    contact_id   UUID NOT NULL,
    -- Sealed JSON: numbers and addresses that are looked for. NULL once no node needs them any more.
    subject      BYTEA,
    -- JSON: how much was erased, by kind.
    erased       TEXT NOT NULL,
    -- JSON: how much of the org's own configuration names the same number, by kind.
    kept         TEXT NOT NULL,
    requested_at BIGINT NOT NULL,
    completed_at BIGINT,
    UNIQUE (org_id, contact_id)
);
CREATE INDEX erasures_open ON erasures (requested_at) WHERE subject IS NOT NULL;

-- Calls that were found, until no node needs them any more.
CREATE TABLE erasure_calls (
    erasure_id UUID NOT NULL REFERENCES erasures (id) ON DELETE CASCADE,
    call_id    UUID NOT NULL,
    session_id UUID,
    -- Sealed JSON: Call-IDs, and the time in which their messages passed.
    legs       BYTEA NOT NULL,
    PRIMARY KEY (erasure_id, call_id)
);

-- Nodes that have erased what was theirs.
CREATE TABLE erasure_nodes (
    erasure_id UUID NOT NULL REFERENCES erasures (id) ON DELETE CASCADE,
    node       BIGINT NOT NULL,
    done_at    BIGINT NOT NULL,
    PRIMARY KEY (erasure_id, node)
);
