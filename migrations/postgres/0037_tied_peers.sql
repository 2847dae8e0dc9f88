-- Reserved and private peers that the operator's command line has tied to an org: it may name them.

CREATE TABLE tied_peers (
    org_id     UUID NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    -- A host name, an address or a CIDR block.
    peer       TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (org_id, peer)
);
