-- Since when a node takes nothing new; NULL while it does.
ALTER TABLE nodes ADD COLUMN drains_since BIGINT;
