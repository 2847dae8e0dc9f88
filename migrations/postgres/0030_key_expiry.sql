-- When an org's API key ends by itself. NULL: it is good until it is revoked.
ALTER TABLE org_keys ADD COLUMN expires_at BIGINT;
