-- The runs of nodes that this one counts in when work is shared out; NULL before it has looked.
ALTER TABLE nodes ADD COLUMN sees TEXT;
-- Whether both sides of a call that is up are held.
ALTER TABLE calls ADD COLUMN held INTEGER;

-- What one node asks another to do with a call that is up there.
CREATE TABLE asks (
    id       BLOB NOT NULL PRIMARY KEY,
    node     INTEGER NOT NULL,
    org_id   BLOB NOT NULL,
    call_id  BLOB NOT NULL,
    what     TEXT NOT NULL,
    asked_at INTEGER NOT NULL,
    taken_at INTEGER,
    status   INTEGER,
    answer   TEXT
) STRICT;
CREATE INDEX asks_open ON asks (node, asked_at) WHERE taken_at IS NULL;
