-- Token of an org's bots: it signs the handshakes of their WebSockets and opens the endpoint by which they end and transfer calls.

CREATE TABLE bot_tokens (
    org_id          BLOB NOT NULL PRIMARY KEY REFERENCES orgs (id) ON DELETE CASCADE,
    -- Sealed. Signs handshakes.
    token           BLOB NOT NULL,
    created_at      INTEGER NOT NULL,
    -- Sealed. Made by a rotation: opens the endpoint already and signs nothing yet; NULL: none.
    next_token      BLOB,
    next_created_at INTEGER,
    -- Sealed. Signed handshakes before, and opens the endpoint until it expires; NULL: none.
    old_token       BLOB,
    old_expires_at  INTEGER
) STRICT, WITHOUT ROWID;
