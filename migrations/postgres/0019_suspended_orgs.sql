-- Since when an org is suspended, by whom.
ALTER TABLE orgs ADD COLUMN suspended_by_partner_at BIGINT;
ALTER TABLE orgs ADD COLUMN suspended_by_operator_at BIGINT;
-- Set for as long as the org's partner is inactive.
ALTER TABLE orgs ADD COLUMN partner_inactive_at BIGINT;
UPDATE orgs SET partner_inactive_at = created_at WHERE partner_id IN (SELECT id FROM partners WHERE NOT active);
-- Whether the partner may say which numbers are its orgs' own.
ALTER TABLE partners ADD COLUMN verifies_numbers BOOLEAN NOT NULL DEFAULT FALSE;
