-- The last fact of each node's journal that is stored, written with the facts: a restart goes on behind it.
CREATE TABLE journal_positions (
    node    BIGINT PRIMARY KEY,
    boot    BIGINT NOT NULL,
    segment BIGINT NOT NULL,
    fact    BIGINT NOT NULL
);
