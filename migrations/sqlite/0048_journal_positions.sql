-- The last fact of each node's journal that is stored, written with the facts: a restart goes on behind it.
CREATE TABLE journal_positions (
    node    INTEGER PRIMARY KEY,
    boot    INTEGER NOT NULL,
    segment INTEGER NOT NULL,
    fact    INTEGER NOT NULL
) STRICT;
-- Lists of contacts, and searches for them, in their order.
CREATE INDEX contacts_created ON contacts (org_id, created_at, id);
CREATE INDEX contacts_by_email ON contacts (org_id, email_folded, created_at, id) WHERE email_folded IS NOT NULL;
CREATE INDEX contacts_by_phone ON contacts (org_id, phone_key, created_at, id) WHERE phone_key IS NOT NULL;
-- The attempt that holds the claim.
ALTER TABLE idempotency_keys ADD COLUMN attempt BLOB;
-- The org whose data the answer holds.
ALTER TABLE idempotency_keys ADD COLUMN org_id BLOB;
UPDATE idempotency_keys SET org_id = (SELECT org_id FROM org_keys WHERE org_keys.id = credential_id);
CREATE INDEX idempotency_keys_of_org ON idempotency_keys (org_id, credential_id, method, path, key) WHERE org_id IS NOT NULL;
-- State of a transfer before its call was closed as lost, which made it 'unknown'.
ALTER TABLE transfers ADD COLUMN lost_from TEXT;
CREATE INDEX transfers_lost ON transfers (call_id) WHERE lost_from IS NOT NULL;
