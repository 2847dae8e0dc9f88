-- Partners, orgs, keys and people. Times are microseconds since the epoch; lists are JSON texts.

CREATE TABLE partners (
    id                     BLOB NOT NULL PRIMARY KEY,
    name                   TEXT NOT NULL,
    active                 INTEGER NOT NULL,
    ai_instructions        TEXT,
    -- NULL: any address; '[]': none.
    allowed_networks       TEXT,
    requests_per_minute    INTEGER,
    login_links_per_minute INTEGER,
    created_at             INTEGER NOT NULL
) STRICT;

-- Revocation deletes the row.
CREATE TABLE partner_keys (
    id         BLOB NOT NULL PRIMARY KEY,
    partner_id BLOB NOT NULL REFERENCES partners (id) ON DELETE CASCADE,
    name       TEXT NOT NULL,
    -- SHA-256 of the whole key.
    key_hash   BLOB NOT NULL UNIQUE,
    created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX partner_keys_partner ON partner_keys (partner_id);

CREATE TABLE orgs (
    id                    BLOB NOT NULL PRIMARY KEY,
    partner_id            BLOB REFERENCES partners (id),
    external_id           TEXT,
    name                  TEXT NOT NULL,
    widget_token          TEXT NOT NULL UNIQUE,
    website               TEXT,
    language              TEXT NOT NULL,
    ai_instructions       TEXT,
    requests_per_minute   INTEGER,
    streaming_per_minute  INTEGER,
    max_concurrent_calls  INTEGER,
    created_at            INTEGER NOT NULL,
    UNIQUE (partner_id, external_id)
) STRICT;
CREATE INDEX orgs_listed ON orgs (partner_id, created_at, id);

CREATE TABLE integrations (
    id                        BLOB NOT NULL PRIMARY KEY,
    org_id                    BLOB NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    kind                      TEXT NOT NULL,
    name                      TEXT NOT NULL,
    -- Sealed JSON: app_key, user_key.
    credentials               BLOB NOT NULL,
    default_company_shortname TEXT,
    created_at                INTEGER NOT NULL,
    UNIQUE (org_id, kind, name)
) STRICT;

-- A token is good as long as its row exists.
CREATE TABLE org_keys (
    id         BLOB NOT NULL PRIMARY KEY,
    org_id     BLOB NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    name       TEXT NOT NULL,
    scopes     TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX org_keys_listed ON org_keys (org_id, created_at, id);

CREATE TABLE roles (
    id         BLOB NOT NULL PRIMARY KEY,
    org_id     BLOB NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    name       TEXT NOT NULL,
    -- 'write' or 'read'.
    access     TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    UNIQUE (org_id, name),
    UNIQUE (org_id, id)
) STRICT;

CREATE TABLE users (
    id         BLOB NOT NULL PRIMARY KEY,
    -- In lower case.
    email      TEXT NOT NULL UNIQUE,
    name       TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE memberships (
    org_id     BLOB NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    user_id    BLOB NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (org_id, user_id)
) STRICT;
CREATE INDEX memberships_user ON memberships (user_id);

CREATE TABLE membership_roles (
    org_id  BLOB NOT NULL,
    user_id BLOB NOT NULL,
    role_id BLOB NOT NULL,
    PRIMARY KEY (org_id, user_id, role_id),
    FOREIGN KEY (org_id, user_id) REFERENCES memberships (org_id, user_id) ON DELETE CASCADE,
    FOREIGN KEY (org_id, role_id) REFERENCES roles (org_id, id) ON DELETE CASCADE
) STRICT;

CREATE TABLE login_links (
    token_hash  BLOB NOT NULL PRIMARY KEY,
    org_id      BLOB NOT NULL,
    user_id     BLOB NOT NULL,
    expires_at  INTEGER NOT NULL,
    consumed_at INTEGER,
    created_at  INTEGER NOT NULL,
    FOREIGN KEY (org_id, user_id) REFERENCES memberships (org_id, user_id) ON DELETE CASCADE
) STRICT;
CREATE INDEX login_links_expiry ON login_links (expires_at);

CREATE TABLE dashboard_sessions (
    token_hash BLOB NOT NULL PRIMARY KEY,
    org_id     BLOB NOT NULL,
    user_id    BLOB NOT NULL,
    expires_at INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    FOREIGN KEY (org_id, user_id) REFERENCES memberships (org_id, user_id) ON DELETE CASCADE
) STRICT;
CREATE INDEX dashboard_sessions_expiry ON dashboard_sessions (expires_at);
