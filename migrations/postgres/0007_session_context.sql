-- A call is found by its session as well, and keeps what its caller sent along.

-- JSON: the caller's own headers.
ALTER TABLE calls ADD COLUMN headers TEXT;
CREATE INDEX calls_session ON calls (org_id, session_id);
