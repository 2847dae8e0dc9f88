-- Challenges of peers, and what answers those of runtimes.

-- The last challenge of the trunk's peer that got no answer, and why: a JSON object.
ALTER TABLE inbound_trunks ADD COLUMN unanswered_challenge TEXT;
ALTER TABLE outbound_trunks ADD COLUMN unanswered_challenge TEXT;
-- The password that the agent's runtime is answered with, sealed; the user name stands in runtime.
ALTER TABLE agents ADD COLUMN runtime_password BYTEA;
