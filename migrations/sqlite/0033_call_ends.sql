-- Ends of calls in the order in which they were recorded: a reader of all calls goes on from a number. A call is here again when something
-- of it was recorded after its end.

CREATE TABLE call_ends (
    org_id  BLOB NOT NULL,
    seq     INTEGER NOT NULL,
    call_id BLOB NOT NULL,
    PRIMARY KEY (org_id, seq)
) STRICT, WITHOUT ROWID;
-- The last number that a list has given out. The transaction that draws one holds the row until it commits, so that numbers become visible in
-- their order.
CREATE TABLE drawn (
    list TEXT NOT NULL PRIMARY KEY,
    last INTEGER NOT NULL
) STRICT;
INSERT INTO call_ends (org_id, seq, call_id)
SELECT org_id, ROW_NUMBER() OVER (ORDER BY ended_at, id), id FROM calls WHERE started_at IS NOT NULL AND ended_at IS NOT NULL AND (lost_told IS NULL OR lost_told = TRUE);
INSERT INTO drawn (list, last) SELECT 'call_ends', COALESCE(MAX(seq), 0) FROM call_ends;
