-- Share of a node, in per cent, that the orgs of a partner have together; NULL: half.
ALTER TABLE partners ADD COLUMN node_share_percent INTEGER;
