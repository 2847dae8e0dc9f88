-- SHA-256 of the token that was issued for the key, and the id of the key that signed it. NULL: made by an earlier version, and not used since.
ALTER TABLE org_keys ADD COLUMN token_hash BYTEA;
ALTER TABLE org_keys ADD COLUMN kid TEXT;
-- A page with a button stands before the link.
ALTER TABLE login_links ADD COLUMN confirm BOOLEAN NOT NULL DEFAULT FALSE;
-- Names a session where it is listed. NULL: opened by a node of an earlier version.
ALTER TABLE dashboard_sessions ADD COLUMN id UUID;
CREATE INDEX dashboard_sessions_listed ON dashboard_sessions (org_id, created_at, id);
