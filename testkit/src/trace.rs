//! Messages that a peer sent and received, read back from sipp's message log.

use std::path::Path;

use crate::Message;

/// The messages of one peer, in order, each with whether it was received.
#[derive(Debug)]
pub struct Trace(Vec<(bool, Message)>);

impl Trace {
    /// sipp separates messages by a line of dashes and the time, then says `UDP message sent (n bytes):` or
    /// `UDP message received [n] bytes :`.
    pub fn read(path: &Path) -> Self {
        let log = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let log = String::from_utf8_lossy(&log);
        let blocks = log.split("-----------------------------------------------");
        Self(blocks.filter_map(read).collect())
    }

    pub fn received(&self) -> impl Iterator<Item = &Message> {
        self.that(true)
    }

    pub fn sent(&self) -> impl Iterator<Item = &Message> {
        self.that(false)
    }

    fn that(&self, came: bool) -> impl Iterator<Item = &Message> {
        let found = self.0.iter().filter(move |(is_in, _)| *is_in == came);
        found.map(|(_, message)| message)
    }

    /// The first request of this method received.
    pub fn request(&self, method: &str) -> &Message {
        self.requests(method)
            .first()
            .copied()
            .unwrap_or_else(|| panic!("no {method} came:\n{self}"))
    }

    pub fn requests(&self, method: &str) -> Vec<&Message> {
        self.received()
            .filter(|message| message.is_request(method))
            .collect()
    }

    /// The first response with this status to this method received.
    pub fn response(&self, status: u16, method: &str) -> &Message {
        let found = self
            .received()
            .find(|message| message.status() == Some(status) && message.answers(method));
        found.unwrap_or_else(|| panic!("no {status} to {method} came:\n{self}"))
    }

    /// The statuses of all responses to this method received, in order.
    pub fn statuses(&self, method: &str) -> Vec<u16> {
        self.received()
            .filter(|message| message.answers(method))
            .filter_map(Message::status)
            .collect()
    }

    /// The final response to the last INVITE.
    pub fn outcome(&self) -> &Message {
        let answers = self.received().filter(|message| message.answers("INVITE"));
        let last = answers.filter(|message| message.is_final()).last();
        last.unwrap_or_else(|| panic!("no final response came:\n{self}"))
    }
}

impl std::fmt::Display for Trace {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (came, message) in &self.0 {
            let direction = if *came { "received" } else { "sent" };
            writeln!(out, "---- {direction}\n{message}")?;
        }
        Ok(())
    }
}

/// Returns a message, and whether it was received.
fn read(block: &str) -> Option<(bool, Message)> {
    let (_, block) = block.split_once(" message ")?;
    let (direction, text) = block.split_once('\n')?;
    let text = text.trim_start_matches(['\r', '\n']);
    Some((direction.starts_with("received"), Message::of(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "----------------------------------------------- 2026-11-21 09:36:10.1\nUDP message sent (120 bytes):\n\n\
        INVITE sip:a@b SIP/2.0\r\nCSeq: 2 INVITE\r\nX-A: 1\r\nX-A: 2\r\n\r\nv=0\r\n\n\
        ----------------------------------------------- 2026-11-21 09:36:10.2\nUDP message received [80] bytes :\n\n\
        SIP/2.0 100 Trying\r\nCSeq: 2 INVITE\r\n\r\n\n\
        ----------------------------------------------- 2026-11-21 09:36:10.3\nTCP message received [80] bytes :\n\n\
        SIP/2.0 486 Busy Here\r\nCSeq: 2 INVITE\r\n\r\n\n";

    #[test]
    fn a_log_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("messages");
        std::fs::write(&path, LOG).unwrap();
        let trace = Trace::read(&path);
        let invite = trace.sent().next().unwrap();
        assert!(invite.is_request("INVITE") && invite.status().is_none());
        assert_eq!(
            (invite.headers("x-a"), invite.body()),
            (vec!["1", "2"], "v=0")
        );
        assert_eq!(trace.statuses("INVITE"), [100, 486]);
        assert_eq!(trace.outcome().status(), Some(486));
        assert!(trace.requests("INVITE").is_empty() && trace.statuses("BYE").is_empty());
    }
}
