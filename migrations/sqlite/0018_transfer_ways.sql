-- How callers are handed over, what came of it, and which legs of transfers count as outbound calls.

-- 'refer', 'bridge' or 'auto'.
ALTER TABLE inbound_trunks ADD COLUMN transfer_way TEXT NOT NULL DEFAULT 'refer';
ALTER TABLE outbound_trunks ADD COLUMN transfer_way TEXT NOT NULL DEFAULT 'refer';
-- When the PBX was first seen alive in a call whose accepted REFER had failed.
ALTER TABLE inbound_trunks ADD COLUMN refer_kept_caller_at INTEGER;
ALTER TABLE outbound_trunks ADD COLUMN refer_kept_caller_at INTEGER;
-- 'pbx' or 'trunk'.
ALTER TABLE destinations ADD COLUMN via TEXT NOT NULL DEFAULT 'pbx';
ALTER TABLE transfers ADD COLUMN answer_confirmed INTEGER;
ALTER TABLE transfers ADD COLUMN caller_may_be_gone INTEGER;
ALTER TABLE transfers ADD COLUMN counted_at INTEGER;
-- What counts against a day's bound is read once, when the daemon starts.
CREATE INDEX transfers_counted ON transfers (counted_at) WHERE counted_at IS NOT NULL;
CREATE INDEX calls_outbound ON calls (started_at) WHERE direction = 'outbound';
