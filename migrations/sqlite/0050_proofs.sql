-- The operator vouches for the source of calls from the network: over UDP they prove nothing. Networks that were dedicated before stay so.
ALTER TABLE dedications ADD COLUMN no_proof INTEGER NOT NULL DEFAULT 0;
UPDATE dedications SET no_proof = 1;
