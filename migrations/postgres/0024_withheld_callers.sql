-- The caller of an inbound call asked not to be named; NULL: no.
ALTER TABLE calls ADD COLUMN caller_withheld BOOLEAN;
