-- Days after which an org's data is deleted. NULL: as the operator's configuration says.

ALTER TABLE orgs ADD COLUMN retain_calls_days INTEGER;
ALTER TABLE orgs ADD COLUMN retain_sessions_days INTEGER;
ALTER TABLE orgs ADD COLUMN retain_contacts_days INTEGER;
ALTER TABLE orgs ADD COLUMN retain_handoffs_days INTEGER;
-- Start of the last call whose session was emptied; those before it are empty as well.
ALTER TABLE orgs ADD COLUMN sessions_emptied_to INTEGER;
-- Handoffs are found by the session of their call.
CREATE INDEX handoffs_session ON handoffs (org_id, session_id);
