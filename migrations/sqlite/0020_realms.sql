-- Realms of digest challenges: our own, and those of the carriers that outbound trunks lead to.

-- What is true of the installation as a whole. 'realm': the realm that its challenges have named.
CREATE TABLE installation (
    id    TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;
-- Until now the realm was this one wherever the operator had set none.
INSERT INTO installation (id, value) SELECT 'realm', 'trunkline' WHERE EXISTS (SELECT 1 FROM secrets);

-- The only realm that the trunk's credentials are for, where the org has named it.
ALTER TABLE outbound_trunks ADD COLUMN auth_realm TEXT;
-- The realms that the carrier has challenged with, and whether each has offered qop: a JSON array.
ALTER TABLE outbound_trunks ADD COLUMN auth_realms TEXT NOT NULL DEFAULT '[]';
-- NULL: no.
ALTER TABLE outbound_trunks ADD COLUMN digest_require_qop INTEGER;
