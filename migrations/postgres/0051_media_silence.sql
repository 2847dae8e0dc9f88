-- Seconds without RTP after which an agent's caller is asked whether it is still there; NULL: media.silence_s, 0: never.
ALTER TABLE agents ADD COLUMN media_timeout_s BIGINT;

-- Networks in which an org's PBX or carrier has its media, by the operator's command line: audio goes there before any has come from there.
CREATE TABLE media_addresses (
    org_id     UUID NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    -- A CIDR block.
    network    TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (org_id, network)
);
