-- Version of an org and of a partner, in microseconds: an edit names the one that it was made for.
ALTER TABLE orgs ADD COLUMN updated_at INTEGER NOT NULL DEFAULT 0;
UPDATE orgs SET updated_at = created_at;
ALTER TABLE partners ADD COLUMN updated_at INTEGER NOT NULL DEFAULT 0;
UPDATE partners SET updated_at = created_at;
