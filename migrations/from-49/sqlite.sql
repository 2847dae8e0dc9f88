-- From version 49, the last one before migrations became one, to version 1.

-- The operator vouches for the source of calls from the network: over UDP they prove nothing. Networks that were dedicated before stay so.
ALTER TABLE dedications ADD COLUMN no_proof INTEGER NOT NULL DEFAULT 0;
UPDATE dedications SET no_proof = 1;
-- Seconds without RTP after which an agent's caller is asked whether it is still there; NULL: media.silence_s, 0: never.
ALTER TABLE agents ADD COLUMN media_timeout_s INTEGER;

-- Networks in which an org's PBX or carrier has its media, by the operator's command line: audio goes there before any has come from there.
CREATE TABLE media_addresses (
    org_id     BLOB NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    -- A CIDR block.
    network    TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (org_id, network)
) STRICT, WITHOUT ROWID;
-- Share of a node, in per cent, that the orgs of a partner have together; NULL: half.
ALTER TABLE partners ADD COLUMN node_share_percent INTEGER;

-- Nothing reads them.
ALTER TABLE orgs DROP COLUMN requests_per_minute;
ALTER TABLE orgs DROP COLUMN streaming_per_minute;
ALTER TABLE orgs DROP COLUMN sessions_emptied_to;

DROP TABLE schema_migrations;
