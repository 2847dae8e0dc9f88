//! Measures against floods on the UDP sockets of calls. While packets of other sources than the peer come too fast, the kernel drops them
//! before they are queued. While the peer itself sends too fast, its socket isn't read: the kernel drops what overflows its buffer.

use std::collections::VecDeque;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use trunkline_sip::moment::Moment;

use super::source_filter::SourceFilter;

/// Pause in reading a socket whose peer sends too many packets.
const PAUSE: Duration = Duration::from_millis(100);

/// Time for which other sources are filtered. A flood fills the socket's buffer, and displaces packets of the peer there, in far less time.
const FILTERED: Duration = Duration::from_secs(1);

/// Measures that are in force.
#[derive(Debug, Default)]
pub(super) struct Floods {
    /// In the order of their ends.
    measures: VecDeque<FloodMeasure>,
}

/// Measure on a socket of a call.
#[derive(Copy, Clone, Debug)]
pub(super) struct FloodMeasure {
    until: Moment,
    /// Key of the call.
    pub(super) key: u64,
    pub(super) token: Token,
    kind: MeasureKind,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum MeasureKind {
    /// The socket isn't watched.
    Paused,
    /// The socket has a filter.
    Filtered,
}

impl Floods {
    /// Returns the time until a measure ends.
    pub(super) fn wait(&self, now: Moment) -> Option<Duration> {
        Some(self.measures.front()?.until.since(now))
    }

    /// Removes a measure whose time is over, and returns it.
    pub(super) fn next_over(&mut self, now: Moment) -> Option<FloodMeasure> {
        let is_over = self.measures.front()?.until <= now;
        is_over.then(|| self.measures.pop_front()).flatten()
    }

    /// Stops watching a socket of a call.
    pub(super) fn pause(
        &mut self,
        registry: &Registry,
        socket: &UdpSocket,
        key: u64,
        token: Token,
        now: Moment,
    ) {
        // If that fails, the socket keeps causing events; each costs one packet.
        let _ = registry.deregister(&mut SourceFd(&socket.as_raw_fd()));
        // The socket may be paused already: it may have been read twice in this turn.
        if !self.has(key, token, MeasureKind::Paused) {
            self.add(key, token, MeasureKind::Paused, now + PAUSE);
        }
    }

    /// Has the kernel drop packets of other sources to a socket of a call.
    ///
    /// # Errors
    /// The kernel refuses filters.
    pub(super) fn filter(
        &mut self,
        socket: &UdpSocket,
        sources: &SourceFilter,
        key: u64,
        token: Token,
        now: Moment,
    ) -> io::Result<()> {
        // Packets that were queued before the filter are still read.
        if self.has(key, token, MeasureKind::Filtered) {
            return Ok(());
        }
        sources.attach(socket)?;
        self.add(key, token, MeasureKind::Filtered, now + FILTERED);
        Ok(())
    }

    /// Removes the filter from a socket of a call before its time, since the peer is expected from other sources now, or the call is over.
    pub(super) fn unfilter(&mut self, socket: &UdpSocket, key: u64, token: Token) {
        if self.has(key, token, MeasureKind::Filtered) {
            self.measures
                .retain(|measure| !measure.is(key, token, MeasureKind::Filtered));
            detach(socket);
        }
    }

    fn has(&self, key: u64, token: Token, kind: MeasureKind) -> bool {
        let mut measures = self.measures.iter();
        measures.any(|measure| measure.is(key, token, kind))
    }

    fn add(&mut self, key: u64, token: Token, kind: MeasureKind, until: Moment) {
        // A pause that begins after a filter may end before it.
        let at = self
            .measures
            .partition_point(|measure| measure.until <= until);
        let measure = FloodMeasure {
            until,
            key,
            token,
            kind,
        };
        self.measures.insert(at, measure);
    }
}

impl FloodMeasure {
    /// Ends the measure on its socket. A socket that is watched again causes an event at once if it has packets.
    pub(super) fn end(&self, registry: &Registry, socket: &UdpSocket) {
        match self.kind {
            MeasureKind::Paused => {
                let fd = &socket.as_raw_fd();
                let watched = registry.register(&mut SourceFd(fd), self.token, Interest::READABLE);
                if let Err(error) = watched {
                    tracing::warn!(%error, "a socket of media cannot be watched again");
                }
            }
            MeasureKind::Filtered => detach(socket),
        }
    }

    fn is(&self, key: u64, token: Token, kind: MeasureKind) -> bool {
        (self.key, self.token, self.kind) == (key, token, kind)
    }
}

fn detach(socket: &UdpSocket) {
    if let Err(error) = SourceFilter::detach(socket) {
        tracing::warn!(%error, "a socket of media keeps its filter");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: Token = Token(3);

    #[test]
    fn a_filter_ends_with_its_time_or_before_it() {
        let bind = || UdpSocket::bind("127.0.0.1:0").unwrap();
        let (ours, other) = (bind(), bind());
        ours.set_nonblocking(true).unwrap();
        let arrives = || {
            other.send_to(&[7], ours.local_addr().unwrap()).unwrap();
            ours.recv(&mut [0]).is_ok()
        };
        let poll = mio::Poll::new().unwrap();
        let sources = SourceFilter::Learnt("192.0.2.1:9".parse().unwrap());
        let at = |milliseconds| Moment::from_secs(1_000) + Duration::from_millis(milliseconds);

        let mut floods = Floods::default();
        floods.filter(&ours, &sources, 1, TOKEN, at(0)).unwrap();
        floods.filter(&ours, &sources, 1, TOKEN, at(500)).unwrap();
        assert!(!arrives());
        assert_eq!(floods.wait(at(0)), Some(FILTERED));
        assert!(floods.next_over(at(999)).is_none());

        let over = floods.next_over(at(1_000)).expect("its time is over");
        over.end(poll.registry(), &ours);
        assert!(arrives(), "after its time");
        assert!(floods.next_over(at(9_000)).is_none(), "one measure");

        floods.filter(&ours, &sources, 1, TOKEN, at(9_000)).unwrap();
        floods.unfilter(&ours, 2, TOKEN);
        assert!(!arrives(), "of another call");
        floods.unfilter(&ours, 1, TOKEN);
        assert!(arrives(), "before its time");
        assert!(floods.next_over(at(99_000)).is_none());
    }

    #[test]
    fn measures_end_in_the_order_of_their_times() {
        let ours = UdpSocket::bind("127.0.0.1:0").unwrap();
        let poll = mio::Poll::new().unwrap();
        let sources = SourceFilter::Learnt("192.0.2.1:9".parse().unwrap());
        let now = Moment::from_secs(1_000);

        let mut floods = Floods::default();
        floods.filter(&ours, &sources, 1, TOKEN, now).unwrap();
        floods.pause(poll.registry(), &ours, 2, TOKEN, now);
        floods.pause(poll.registry(), &ours, 2, TOKEN, now);
        let over = |_| floods.next_over(now + FILTERED).map(|over| over.key);
        assert_eq!([(); 3].map(over), [Some(2), Some(1), None]);
    }
}
