-- Verification calls count for their day after their org is deleted, and for its partner after the org is purged.
ALTER TABLE number_codes ADD COLUMN partner_id BLOB;
UPDATE number_codes SET partner_id = (SELECT partner_id FROM orgs WHERE orgs.id = number_codes.org_id);
