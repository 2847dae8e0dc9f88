-- Prompts that an org has uploaded for its built-in agents, as telephones play them.

CREATE TABLE prompts (
    org_id      UUID NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    id          UUID NOT NULL,
    name        TEXT NOT NULL,
    name_folded TEXT NOT NULL,
    -- µ-law, 8 kHz.
    audio       BYTEA NOT NULL,
    -- Octets of the audio, one for each sample.
    samples     BIGINT NOT NULL,
    created_at  BIGINT NOT NULL,
    PRIMARY KEY (org_id, id),
    UNIQUE (org_id, name_folded)
);

CREATE INDEX prompts_newest ON prompts (org_id, created_at, id);
