-- Networks of allowed_addresses that the operator's command line entered: bounds for tenants don't hold for them.
ALTER TABLE inbound_trunks ADD COLUMN operator_addresses TEXT NOT NULL DEFAULT '[]';
