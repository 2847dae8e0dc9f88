-- The last transfer of a call is found without its others.
CREATE INDEX transfers_newest ON transfers (org_id, call_id, requested_at, id);
DROP INDEX transfers_call;
