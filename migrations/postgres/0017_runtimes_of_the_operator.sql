-- A runtime that the operator's command line set isn't judged as a tenant's; NULL: no.
ALTER TABLE agents ADD COLUMN runtime_by_operator BOOLEAN;
