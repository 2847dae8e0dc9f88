-- The runs of nodes that this one counts in when work is shared out; NULL before it has looked.
ALTER TABLE nodes ADD COLUMN sees TEXT;
-- Whether both sides of a call that is up are held.
ALTER TABLE calls ADD COLUMN held BOOLEAN;

-- What one node asks another to do with a call that is up there.
CREATE TABLE asks (
    id       UUID PRIMARY KEY,
    node     BIGINT NOT NULL,
    org_id   UUID NOT NULL,
    call_id  UUID NOT NULL,
    what     TEXT NOT NULL,
    asked_at BIGINT NOT NULL,
    taken_at BIGINT,
    status   BIGINT,
    answer   TEXT
);
CREATE INDEX asks_open ON asks (node, asked_at) WHERE taken_at IS NULL;
