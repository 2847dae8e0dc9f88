-- The agent whose calls' progress this webhook is sent, in Twilio's form; NULL: a webhook of the org, as the API lists them.
ALTER TABLE webhooks ADD COLUMN agent_id BLOB;
CREATE UNIQUE INDEX webhooks_of_agents ON webhooks (agent_id) WHERE agent_id IS NOT NULL;
