-- What an org may have and ask for, where the operator or its partner has said so; the defaults aren't stored.

CREATE TABLE org_limits (
    org_id      UUID NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    -- 'outbound_trunks', 'agents', 'destinations', 'api_keys', 'registrations', 'webhooks', 'requests_per_minute' or
    -- 'streaming_requests_per_minute'.
    name        TEXT NOT NULL,
    by_operator BIGINT,
    by_partner  BIGINT,
    PRIMARY KEY (org_id, name)
);

-- How much of each a partner may give to any of its orgs.
CREATE TABLE partner_org_limits (
    partner_id UUID NOT NULL REFERENCES partners (id) ON DELETE CASCADE,
    name       TEXT NOT NULL,
    most       BIGINT NOT NULL,
    PRIMARY KEY (partner_id, name)
);

-- Of orgs these columns are read no more.
INSERT INTO org_limits (org_id, name, by_operator)
SELECT id, 'requests_per_minute', requests_per_minute FROM orgs WHERE requests_per_minute IS NOT NULL;

INSERT INTO org_limits (org_id, name, by_operator)
SELECT id, 'streaming_requests_per_minute', streaming_per_minute FROM orgs WHERE streaming_per_minute IS NOT NULL;
