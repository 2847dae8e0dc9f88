-- Figures of a call's media that ended here, and its steps, which name addresses; both JSON. NULL: the call had no media here.
ALTER TABLE calls ADD COLUMN media TEXT;
ALTER TABLE calls ADD COLUMN media_steps TEXT;
