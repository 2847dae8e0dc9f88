-- What a call's INVITE said, so that it can be explained and routed again; and which call a failed log-in was about.

-- JSON: the facts of routing, how the caller proved who it is, how its phone system speaks.
ALTER TABLE calls ADD COLUMN asked TEXT;
-- Call-ID of the request whose log-in failed, and the number that it asked for.
ALTER TABLE auth_failures ADD COLUMN sip_call_id TEXT;
ALTER TABLE auth_failures ADD COLUMN dialled TEXT;
CREATE INDEX auth_failures_call ON auth_failures (org_id, sip_call_id);
