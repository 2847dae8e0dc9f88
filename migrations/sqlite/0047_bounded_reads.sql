-- The last transfer of a call is found without its others.
CREATE INDEX transfers_newest ON transfers (org_id, call_id, requested_at, id);
DROP INDEX transfers_call;
-- Ended calls that still hold what came with their sessions, by which retention finds them. `orgs.sessions_emptied_to` isn't used any more.
CREATE INDEX calls_with_session ON calls (org_id, started_at)
    WHERE ended_at IS NOT NULL AND (headers IS NOT NULL OR metadata IS NOT NULL OR asked IS NOT NULL);
