-- For a call that was closed as lost: whether its end was told. NULL for all other calls.
ALTER TABLE calls ADD COLUMN lost_told INTEGER;
CREATE INDEX calls_lost_untold ON calls (node, boot) WHERE lost_told = FALSE;
UPDATE calls SET lost_told = TRUE WHERE status = 'lost';
