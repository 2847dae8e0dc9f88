-- Why a call wasn't answered, as a gateway named it (Q.850).
ALTER TABLE calls ADD COLUMN q850_cause INTEGER;
