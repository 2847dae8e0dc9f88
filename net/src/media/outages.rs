//! Networks that fail: while more than half of the calls of one peer are silent at once, the peer isn't to blame, and no clock of a silence runs.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Silence after which a call counts as silent here.
pub(super) const SILENT: Duration = Duration::from_secs(5);

/// Fewest calls of a peer that show an outage: of one or two, both may be muted.
const FEWEST: u32 = 4;

/// Calls of one peer.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
struct PeerCalls {
    up: u32,
    silent: u32,
}

/// Calls that one thread serves, by the IP address that signals.
#[derive(Debug, Default)]
pub(super) struct ThreadCalls(HashMap<IpAddr, PeerCalls>);

impl ThreadCalls {
    /// Counts a call.
    pub(super) fn add(&mut self, peer: IpAddr, silence: Duration) {
        let calls = self.0.entry(peer.to_canonical()).or_default();
        calls.up += 1;
        calls.silent += u32::from(silence >= SILENT);
    }
}

/// Calls of all threads, as each has counted them last.
#[derive(Debug)]
pub(super) struct Outages(Mutex<Vec<ThreadCalls>>);

impl Outages {
    pub(super) fn new(threads: usize) -> Self {
        let none = (0..threads).map(|_| ThreadCalls::default());
        Self(Mutex::new(none.collect()))
    }

    /// Takes a thread's count. Returns the peers of its calls whose network has failed.
    pub(super) fn share(&self, thread: usize, calls: ThreadCalls) -> Vec<IpAddr> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = all.get_mut(thread) {
            *before = calls;
        }
        let own = all.get(thread).into_iter().flat_map(|calls| calls.0.keys());
        let has_failed = |peer: &&IpAddr| {
            let of_peer = all.iter().filter_map(|calls| calls.0.get(*peer));
            let (up, silent) = of_peer.fold((0, 0), |(up, silent), calls| {
                (up + calls.up, silent + calls.silent)
            });
            up >= FEWEST && 2 * silent > up
        };
        own.filter(has_failed).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_failed_if_more_than_half_of_a_peers_calls_are_silent() {
        let (peer, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let calls = |silent: u32, speaking: u32| {
            let mut calls = ThreadCalls::default();
            for _ in 0..silent {
                calls.add(peer, SILENT);
            }
            for _ in 0..speaking {
                calls.add(peer, Duration::ZERO);
            }
            calls.add(other, SILENT);
            calls
        };

        for (case, [first, second], expected) in [
            ("one call, and it is muted", [(1, 0), (0, 0)], false),
            ("three of three", [(2, 0), (1, 0)], false),
            ("half of four", [(1, 1), (1, 1)], false),
            ("three of four, over two threads", [(2, 1), (1, 0)], true),
            ("all", [(50, 0), (50, 0)], true),
            ("one of a hundred", [(1, 49), (0, 50)], false),
        ] {
            let outages = Outages::new(2);
            let _ = outages.share(1, calls(second.0, second.1));
            let failed = outages.share(0, calls(first.0, first.1));
            let expected: &[IpAddr] = if expected { &[peer] } else { &[] };
            assert_eq!(failed, expected, "{case}");
        }
    }
}
