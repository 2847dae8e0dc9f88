-- How a transfer was made, and which of its facts a row shows.

ALTER TABLE transfers ADD COLUMN session_id UUID;
-- 'refer' or 'bridge'.
ALTER TABLE transfers ADD COLUMN way TEXT NOT NULL DEFAULT 'refer';
-- Grows with the state: an older fact never replaces a newer one.
ALTER TABLE transfers ADD COLUMN step BIGINT NOT NULL DEFAULT 0;
