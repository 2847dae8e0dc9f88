-- The operator's list of all orgs is read by page.
CREATE INDEX orgs_of_all ON orgs (created_at, id) WHERE deleted_at IS NULL;
