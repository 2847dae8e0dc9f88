-- The last fact of each node's journal that is stored, written with the facts: a restart goes on behind it.
CREATE TABLE journal_positions (
    node    INTEGER PRIMARY KEY,
    boot    INTEGER NOT NULL,
    segment INTEGER NOT NULL,
    fact    INTEGER NOT NULL
) STRICT;
