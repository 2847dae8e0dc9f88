-- Partners, orgs, keys and people. Times are microseconds since the epoch; lists are JSON texts.

CREATE TABLE partners (
    id                     UUID PRIMARY KEY,
    name                   TEXT NOT NULL,
    active                 BOOLEAN NOT NULL,
    ai_instructions        TEXT,
    -- NULL: any address; '[]': none.
    allowed_networks       TEXT,
    requests_per_minute    BIGINT,
    login_links_per_minute BIGINT,
    created_at             BIGINT NOT NULL
);

-- Revocation deletes the row.
CREATE TABLE partner_keys (
    id         UUID PRIMARY KEY,
    partner_id UUID NOT NULL REFERENCES partners (id) ON DELETE CASCADE,
    name       TEXT NOT NULL,
    -- SHA-256 of the whole key.
    key_hash   BYTEA NOT NULL UNIQUE,
    created_at BIGINT NOT NULL
);
CREATE INDEX partner_keys_partner ON partner_keys (partner_id);

CREATE TABLE orgs (
    id                    UUID PRIMARY KEY,
    partner_id            UUID REFERENCES partners (id),
    external_id           TEXT,
    name                  TEXT NOT NULL,
    widget_token          TEXT NOT NULL UNIQUE,
    website               TEXT,
    language              TEXT NOT NULL,
    ai_instructions       TEXT,
    requests_per_minute   BIGINT,
    streaming_per_minute  BIGINT,
    max_concurrent_calls  BIGINT,
    created_at            BIGINT NOT NULL,
    UNIQUE (partner_id, external_id)
);
CREATE INDEX orgs_listed ON orgs (partner_id, created_at, id);

CREATE TABLE integrations (
    id                        UUID PRIMARY KEY,
    org_id                    UUID NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    kind                      TEXT NOT NULL,
    name                      TEXT NOT NULL,
    -- Sealed JSON: app_key, user_key.
    credentials               BYTEA NOT NULL,
    default_company_shortname TEXT,
    created_at                BIGINT NOT NULL,
    UNIQUE (org_id, kind, name)
);

-- A token is good as long as its row exists.
CREATE TABLE org_keys (
    id         UUID PRIMARY KEY,
    org_id     UUID NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    name       TEXT NOT NULL,
    scopes     TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX org_keys_listed ON org_keys (org_id, created_at, id);

CREATE TABLE roles (
    id         UUID PRIMARY KEY,
    org_id     UUID NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    name       TEXT NOT NULL,
    -- 'write' or 'read'.
    access     TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    UNIQUE (org_id, name),
    UNIQUE (org_id, id)
);

CREATE TABLE users (
    id         UUID PRIMARY KEY,
    -- In lower case.
    email      TEXT NOT NULL UNIQUE,
    name       TEXT NOT NULL,
    created_at BIGINT NOT NULL
);

CREATE TABLE memberships (
    org_id     UUID NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    user_id    UUID NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (org_id, user_id)
);
CREATE INDEX memberships_user ON memberships (user_id);

CREATE TABLE membership_roles (
    org_id  UUID NOT NULL,
    user_id UUID NOT NULL,
    role_id UUID NOT NULL,
    PRIMARY KEY (org_id, user_id, role_id),
    FOREIGN KEY (org_id, user_id) REFERENCES memberships (org_id, user_id) ON DELETE CASCADE,
    FOREIGN KEY (org_id, role_id) REFERENCES roles (org_id, id) ON DELETE CASCADE
);

CREATE TABLE login_links (
    token_hash  BYTEA PRIMARY KEY,
    org_id      UUID NOT NULL,
    user_id     UUID NOT NULL,
    expires_at  BIGINT NOT NULL,
    consumed_at BIGINT,
    created_at  BIGINT NOT NULL,
    FOREIGN KEY (org_id, user_id) REFERENCES memberships (org_id, user_id) ON DELETE CASCADE
);
CREATE INDEX login_links_expiry ON login_links (expires_at);

CREATE TABLE dashboard_sessions (
    token_hash BYTEA PRIMARY KEY,
    org_id     UUID NOT NULL,
    user_id    UUID NOT NULL,
    expires_at BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    FOREIGN KEY (org_id, user_id) REFERENCES memberships (org_id, user_id) ON DELETE CASCADE
);
CREATE INDEX dashboard_sessions_expiry ON dashboard_sessions (expires_at);
