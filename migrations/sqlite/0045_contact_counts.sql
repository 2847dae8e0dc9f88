-- Number of contacts of an org, changed in the transaction that adds or deletes them: counting them takes as long as there are many.
CREATE TABLE contact_counts (
    org_id   BLOB NOT NULL PRIMARY KEY REFERENCES orgs (id) ON DELETE CASCADE,
    contacts INTEGER NOT NULL
) STRICT;
INSERT INTO contact_counts (org_id, contacts) SELECT org_id, COUNT(*) FROM contacts GROUP BY org_id;
