-- Changes to the configuration and to data: by whom, from where, when. No values, which could be secrets: the names of fields alone.

CREATE TABLE audit_log (
    seq         INTEGER NOT NULL PRIMARY KEY,
    at          INTEGER NOT NULL,
    -- NULL: the change is of no org.
    org_id      BLOB,
    -- The partner of the org, or the partner that was changed or made the change.
    partner_id  BLOB,
    -- 'org_key', 'partner_key', 'dashboard', 'session_token' or 'command'.
    actor       TEXT NOT NULL,
    actor_id    BLOB,
    actor_name  TEXT NOT NULL,
    address     TEXT,
    action      TEXT NOT NULL,
    resource    TEXT NOT NULL,
    resource_id BLOB,
    -- A JSON list of names.
    fields      TEXT NOT NULL,
    request_id  TEXT
) STRICT;
CREATE INDEX audit_log_of_org ON audit_log (org_id, seq);
CREATE INDEX audit_log_of_partner ON audit_log (partner_id, seq);
INSERT INTO drawn (list, last) VALUES ('audit', 0);
