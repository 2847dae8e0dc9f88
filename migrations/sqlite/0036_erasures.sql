-- Erasures of contacts: what was asked for, how far each node has come, and the receipt.

CREATE TABLE erasures (
    id           BLOB NOT NULL PRIMARY KEY,
    org_id       BLOB NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    contact_id   BLOB NOT NULL,
    -- Sealed JSON: numbers and addresses that are looked for. NULL once no node needs them any more.
    subject      BLOB,
    -- JSON: how much was erased, by kind.
    erased       TEXT NOT NULL,
    -- JSON: how much of the org's own configuration names the same number, by kind.
    kept         TEXT NOT NULL,
    requested_at INTEGER NOT NULL,
    completed_at INTEGER,
    UNIQUE (org_id, contact_id)
) STRICT;
CREATE INDEX erasures_open ON erasures (requested_at) WHERE subject IS NOT NULL;

-- Calls that were found, until no node needs them any more.
CREATE TABLE erasure_calls (
    erasure_id BLOB NOT NULL REFERENCES erasures (id) ON DELETE CASCADE,
    call_id    BLOB NOT NULL,
    session_id BLOB,
    -- Sealed JSON: Call-IDs, and the time in which their messages passed.
    legs       BLOB NOT NULL,
    PRIMARY KEY (erasure_id, call_id)
) STRICT;

-- Nodes that have erased what was theirs.
CREATE TABLE erasure_nodes (
    erasure_id BLOB NOT NULL REFERENCES erasures (id) ON DELETE CASCADE,
    node       INTEGER NOT NULL,
    done_at    INTEGER NOT NULL,
    PRIMARY KEY (erasure_id, node)
) STRICT;
