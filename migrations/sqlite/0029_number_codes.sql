-- Codes that were spoken to whoever answers a number, so that an org can show that it holds it. A number is called three times a day at
-- most, whichever orgs ask for it: each call takes a place for 24 hours.

CREATE TABLE number_codes (
    number     TEXT NOT NULL,
    -- 0, 1 or 2.
    place      INTEGER NOT NULL,
    id         BLOB NOT NULL,
    org_id     BLOB NOT NULL,
    -- The row of `numbers` that it verifies, which may be gone.
    number_id  BLOB NOT NULL,
    -- HMAC-SHA-256 of the code, under a key that isn't here; NULL once it is used, replaced or guessed wrong too often.
    code_mac   BLOB,
    tries      INTEGER NOT NULL,
    made_at    INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (number, place)
) STRICT;
CREATE INDEX number_codes_of ON number_codes (org_id, number_id);
CREATE INDEX number_codes_made ON number_codes (made_at);
