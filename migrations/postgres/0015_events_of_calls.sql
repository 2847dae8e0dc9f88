-- An event of a call is told by the call's row, which says what it said then: its own body is empty, and made when it is read. Calls
-- stay as long as their events.

ALTER TABLE events ADD COLUMN call_id UUID;
-- The call's contact as it stood then; a row may learn it later.
ALTER TABLE events ADD COLUMN contact_id UUID;
