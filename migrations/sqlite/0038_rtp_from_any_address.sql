-- Whether RTP may come from another address than that of SDP or signalling, where SDP names a private one; NULL: no.
ALTER TABLE inbound_trunks ADD COLUMN rtp_from_any_address INTEGER;
