//! Connections to bots whose calls are over, kept until the bot has read the end of the call.
//!
//! TCP resets a connection that we close with octets unread, or on which octets come after we closed it (RFC 1122 §4.2.2.13). A bot whose
//! write then fails may never read `stop`. So we read and discard its octets until it closes its side too, for a bounded time.

use std::collections::VecDeque;
use std::time::Duration;

use trunkline_sip::moment::Moment;

use crate::bot::link::Link;

/// Time that a bot has to close its side.
const PATIENCE: Duration = Duration::from_secs(3);

/// Most connections kept; the oldest is dropped first.
const MOST: usize = 256;

/// Connections that wait for their bots to close, in the order of their ends.
#[derive(Debug, Default)]
pub(super) struct ClosingLinks(VecDeque<(Moment, Link)>);

impl ClosingLinks {
    /// Keeps a connection on which we send nothing more.
    pub(super) fn add(&mut self, link: Link, now: Moment) {
        if self.0.len() >= MOST {
            self.0.pop_front();
        }
        self.0.push_back((now + PATIENCE, link));
    }

    /// Discards received octets, and closes the connections that are done.
    pub(super) fn make_round(&mut self, now: Moment) {
        self.0
            .retain_mut(|(until, link)| *until > now && link.drain());
    }
}
