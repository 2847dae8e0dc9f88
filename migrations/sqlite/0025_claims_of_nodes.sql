-- The node that does the request, while it isn't answered: its next start frees what it has left open. NULL for the command line.
ALTER TABLE idempotency_keys ADD COLUMN node INTEGER;
