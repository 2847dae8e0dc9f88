//! Limits of HTTP connections: a total, a limit per source, an order of eviction, and a reserve for health checks.
//!
//! A peer that has never authenticated keeps its connection only while nobody else needs the place. A connection with
//! an authenticated request in progress is never evicted.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::request::Parts;
use ipnet::IpNet;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use trunkline_sip::flow::source;

use super::client::within;

/// Connections beyond the total, on which only health checks are answered.
const RESERVE: usize = 16;
/// Requests that run at once on a connection that never authenticated; further ones wait. HTTP/2 lets a client begin many and read no answer, so that
/// each holds its answer in memory.
const UNPROVEN_REQUESTS: usize = 4;

/// Bounds of one listener's connections.
#[derive(Clone, Debug)]
pub(super) struct ConnectionBounds {
    /// Maximum number of connections, without the reserve.
    pub(super) total: usize,
    /// Maximum number of connections from one source, unless it is a trusted proxy.
    pub(super) per_source: usize,
    /// Proxies in front of the API, through which many clients come.
    pub(super) trusted_proxies: Vec<IpNet>,
}

/// Limiter of one listener; clones share it.
#[derive(Clone, Debug)]
pub(super) struct ConnectionLimiter(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    bounds: ConnectionBounds,
    table: Mutex<ConnectionTable>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct ConnectionTable {
    last: u64,
    held: HashMap<u64, HeldConnection>,
    sources: HashMap<IpAddr, usize>,
    reserved: usize,
}

#[derive(Debug)]
struct HeldConnection {
    source: IpAddr,
    is_reserve: bool,
    signs: Arc<Signs>,
}

/// State of a connection that decides whether it may be evicted, and how many requests it may run.
#[derive(Debug)]
struct Signs {
    authenticated: AtomicBool,
    /// Wakes the requests that wait for their turn, once one of the connection's requests was authenticated.
    proven: Notify,
    /// Permits for the requests that it may run before it has authenticated.
    unproven: Arc<Semaphore>,
    /// Requests in progress, those that wait for their turn included.
    under_way: AtomicU32,
    evicted: Notify,
}

impl Default for Signs {
    fn default() -> Self {
        Self {
            authenticated: AtomicBool::default(),
            proven: Notify::default(),
            unproven: Arc::new(Semaphore::new(UNPROVEN_REQUESTS)),
            under_way: AtomicU32::default(),
            evicted: Notify::default(),
        }
    }
}

impl Signs {
    fn note_proof(&self) {
        self.authenticated.store(true, Ordering::Relaxed);
        self.proven.notify_waiters();
    }
}

/// Permit of one connection, released when dropped.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    limiter: ConnectionLimiter,
    number: u64,
    is_reserve: bool,
    signs: Arc<Signs>,
}

/// Marks a request in progress; dropped with the last octet of its answer.
#[derive(Debug)]
pub(super) struct RequestInProgress {
    signs: Arc<Signs>,
    /// Permit of [`Signs::unproven`]; `None` before the request runs, and on a connection that has authenticated.
    turn: Option<OwnedSemaphorePermit>,
}

impl RequestInProgress {
    /// Waits until the request may run. On a connection that has authenticated it runs at once, on another once one of
    /// [`UNPROVEN_REQUESTS`] ends, or authenticates.
    pub(super) async fn turn(&mut self) {
        // Begun before the check, so that a proof in between isn't missed.
        let proven = self.signs.proven.notified();
        if self.signs.authenticated.load(Ordering::Relaxed) {
            return;
        }

        self.turn = tokio::select! {
            turn = Arc::clone(&self.signs.unproven).acquire_owned() => turn.ok(),
            () = proven => None,
        };
    }
}

/// Records that a request on this connection was authenticated. Travels in the request's extensions.
#[derive(Clone, Debug)]
pub(crate) struct Proof(Arc<Signs>);

impl Proof {
    /// Records for the request's connection that the request was authenticated.
    pub(super) fn note(parts: &Parts) {
        // Requests that tests make without a connection have no limiter.
        if let Some(Self(signs)) = parts.extensions.get() {
            signs.note_proof();
        }
    }
}

impl ConnectionLimiter {
    pub(super) fn new(bounds: ConnectionBounds) -> Self {
        Self(Arc::new(Inner {
            bounds,
            table: Mutex::default(),
            freed: Notify::new(),
        }))
    }

    /// Returns a permit for a connection from this address, evicting another connection if needed. If none can be
    /// evicted the permit is from the reserve; `None` means that the reserve is used up too.
    pub(super) fn enter(&self, peer: IpAddr) -> Option<ConnectionPermit> {
        let bounds = &self.0.bounds;
        let peer = peer.to_canonical();
        let source = source(peer);
        // All clients of a proxy have its address. `bounds.total` still bounds them.
        let of_source = if within(&bounds.trusted_proxies, peer) {
            usize::MAX
        } else {
            bounds.per_source
        };

        // Locked until the entry is made: of two connections that arrive at once, only one gets the last place.
        let mut table = self.table();

        // A source at its limit replaces only a connection of its own that never authenticated.
        let mut is_reserve = false;
        if table.sources.get(&source).copied().unwrap_or_default() >= of_source {
            is_reserve =
                !table.give_way(|entry| entry.source == source && entry.rank() == Rank::Unproven);
        // At the total, any connection without an authenticated request in progress may go.
        } else if table.held.len() - table.reserved >= bounds.total {
            is_reserve = !table.give_way(|entry| entry.rank() < Rank::Busy);
        }

        if is_reserve && table.reserved >= RESERVE && !table.give_way_in_reserve() {
            return None;
        }

        Some(table.enter(self, source, is_reserve))
    }

    /// Waits until all permits are released.
    pub(super) async fn emptied(&self) {
        loop {
            // Made before the check: it is woken by a permit that is dropped in between.
            let freed = self.0.freed.notified();
            if self.table().held.is_empty() {
                return;
            }
            freed.await;
        }
    }

    fn table(&self) -> MutexGuard<'_, ConnectionTable> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Order of eviction, lowest first.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Rank {
    /// No request on the connection was authenticated.
    Unproven,
    /// Authenticated, no request in progress.
    Idle,
    /// Authenticated, with a request or a stream in progress.
    Busy,
}

impl HeldConnection {
    fn rank(&self) -> Rank {
        if !self.signs.authenticated.load(Ordering::Relaxed) {
            Rank::Unproven
        } else if self.signs.under_way.load(Ordering::Relaxed) == 0 {
            Rank::Idle
        } else {
            Rank::Busy
        }
    }
}

impl ConnectionTable {
    fn enter(
        &mut self,
        limiter: &ConnectionLimiter,
        source: IpAddr,
        is_reserve: bool,
    ) -> ConnectionPermit {
        self.last += 1;
        let signs = Arc::new(Signs::default());
        let entry = HeldConnection {
            source,
            is_reserve,
            signs: Arc::clone(&signs),
        };
        self.held.insert(self.last, entry);

        if is_reserve {
            self.reserved += 1;
        } else {
            *self.sources.entry(source).or_default() += 1;
        }

        ConnectionPermit {
            limiter: limiter.clone(),
            number: self.last,
            is_reserve,
            signs,
        }
    }

    /// Evicts one of the connections that `among` admits, and returns false if there is none. The lowest rank goes first, then the source
    /// with the most connections, then the oldest connection. So a client that fills all places mostly evicts itself.
    fn give_way(&mut self, among: impl Fn(&HeldConnection) -> bool) -> bool {
        let candidates = self
            .held
            .iter()
            .filter(|(_, entry)| !entry.is_reserve && among(entry));
        let first = candidates.min_by_key(|(number, entry)| {
            let of_source = self.sources.get(&entry.source).copied().unwrap_or_default();
            // Rank first: a customer with many connections loses no authenticated one while an unproven one is left.
            (entry.rank(), usize::MAX - of_source, **number)
        });

        let Some(number) = first.map(|(number, _)| *number) else {
            return false;
        };
        self.evict(number);
        true
    }

    /// Evicts the reserve's oldest connection without a request in progress. Returns false if there is none.
    fn give_way_in_reserve(&mut self) -> bool {
        // A health check in progress is answered: else a flood of connections would make the node look dead.
        let idle = |entry: &HeldConnection| entry.signs.under_way.load(Ordering::Relaxed) == 0;
        let reserve = self
            .held
            .iter()
            .filter(|(_, entry)| entry.is_reserve && idle(entry));
        let Some(number) = reserve.map(|(number, _)| *number).min() else {
            return false;
        };
        self.evict(number);
        true
    }

    fn evict(&mut self, number: u64) {
        if let Some(entry) = self.remove(number) {
            // `notify_one` keeps the wake-up for a connection whose task hasn't begun to wait.
            entry.signs.evicted.notify_one();
        }
    }

    fn remove(&mut self, number: u64) -> Option<HeldConnection> {
        let entry = self.held.remove(&number)?;
        if entry.is_reserve {
            self.reserved -= 1;
        } else if let Some(count) = self.sources.get_mut(&entry.source) {
            *count -= 1;
            if *count == 0 {
                self.sources.remove(&entry.source);
            }
        }
        Some(entry)
    }
}

impl ConnectionPermit {
    /// Returns true if only health checks are answered on this connection.
    pub(super) const fn is_reserve(&self) -> bool {
        self.is_reserve
    }

    /// Counts a request as in progress.
    pub(super) fn begin(&self) -> RequestInProgress {
        self.signs.under_way.fetch_add(1, Ordering::Relaxed);
        RequestInProgress {
            signs: Arc::clone(&self.signs),
            turn: None,
        }
    }

    /// Returns true if a request is in progress.
    pub(super) fn is_busy(&self) -> bool {
        self.signs.under_way.load(Ordering::Relaxed) > 0
    }

    /// Handle by which an extractor records that the credential is valid.
    pub(super) fn proof(&self) -> Proof {
        Proof(Arc::clone(&self.signs))
    }

    /// Waits until this connection is evicted.
    pub(super) async fn evicted(&self) {
        self.signs.evicted.notified().await;
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        // Removes nothing after an eviction: the place was freed then, and may be another connection's by now.
        self.limiter.table().remove(self.number);
        self.limiter.0.freed.notify_waiters();
    }
}

impl Drop for RequestInProgress {
    fn drop(&mut self) {
        self.signs.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn limiter(total: usize, per_source: usize) -> ConnectionLimiter {
        ConnectionLimiter::new(ConnectionBounds {
            total,
            per_source,
            trusted_proxies: vec!["127.0.0.1/32".parse().unwrap()],
        })
    }

    fn enter(limiter: &ConnectionLimiter, peer: &str) -> ConnectionPermit {
        limiter.enter(peer.parse().unwrap()).expect("a place")
    }

    fn is_held(place: &ConnectionPermit) -> bool {
        place.limiter.table().held.contains_key(&place.number)
    }

    fn authenticate(place: &ConnectionPermit) {
        place.signs.note_proof();
    }

    #[test]
    fn a_source_has_so_many_and_its_own_unproven_give_way() {
        let limiter = limiter(100, 2);
        for [first, second, third, other] in [
            ["192.0.2.1", "192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2"],
            [
                "2001:db8::1",
                "2001:db8::2",
                "2001:db8::3:4",
                "2001:db8:0:1::1",
            ],
        ] {
            let (a, b, other) = (
                enter(&limiter, first),
                enter(&limiter, second),
                enter(&limiter, other),
            );
            authenticate(&b);
            let c = enter(&limiter, third);
            assert_eq!([&a, &b, &c, &other].map(is_held), [false, true, true, true]);
            authenticate(&c);
            assert!(enter(&limiter, third).is_reserve(), "{third}");
        }

        let proxied: Vec<_> = (0..10).map(|_| enter(&limiter, "127.0.0.1")).collect();
        assert!(
            proxied
                .iter()
                .all(|place| is_held(place) && !place.is_reserve())
        );
    }

    #[test]
    fn those_that_proved_nothing_give_way_first_and_requests_under_way_never() {
        let limiter = limiter(4, 100);
        let crowd = [enter(&limiter, "192.0.2.1"), enter(&limiter, "192.0.2.1")];
        let (single, proven) = (enter(&limiter, "192.0.2.2"), enter(&limiter, "192.0.2.3"));
        authenticate(&proven);

        let first = enter(&limiter, "192.0.2.4");
        assert_eq!(
            crowd.each_ref().map(is_held),
            [false, true],
            "the oldest of the largest crowd"
        );
        authenticate(&first);
        let under_way = first.begin();
        let second = enter(&limiter, "192.0.2.5");
        let third = enter(&limiter, "192.0.2.6");
        assert!(!is_held(&crowd[1]) && !is_held(&single));
        authenticate(&second);
        authenticate(&third);
        let fourth = enter(&limiter, "192.0.2.7");
        assert!(
            !is_held(&proven) && is_held(&first),
            "idle ones give way next, the oldest first"
        );
        authenticate(&fourth);
        let busy = [second.begin(), third.begin(), fourth.begin()];
        let fifth = enter(&limiter, "192.0.2.8");
        assert!(fifth.is_reserve(), "nothing gives way");
        drop(busy);
        assert!(!enter(&limiter, "192.0.2.8").is_reserve());
        drop(under_way);
    }

    #[test]
    fn a_connection_that_never_authenticated_runs_few_requests_at_once() {
        let limiter = limiter(1, 1);
        let place = enter(&limiter, "192.0.2.1");
        let begin = || {
            let mut request = place.begin();
            Box::pin(async move {
                request.turn().await;
                request
            })
        };

        let mut running: Vec<_> = (0..UNPROVEN_REQUESTS)
            .map(|_| begin().now_or_never().expect("it runs"))
            .collect();
        let (mut next, mut last) = (begin(), begin());
        assert!(next.as_mut().now_or_never().is_none());

        running.pop();
        let ran = next.as_mut().now_or_never();
        assert!(ran.is_some(), "another one has ended");
        assert!(last.as_mut().now_or_never().is_none());

        authenticate(&place);
        assert!(last.as_mut().now_or_never().is_some());
        let more: Vec<_> = (0..100).map(|_| begin().now_or_never()).collect();
        assert!(more.iter().all(Option::is_some));
    }

    #[test]
    fn the_reserve_is_bounded_and_its_oldest_gives_way() {
        let limiter = limiter(1, 100);
        let held = enter(&limiter, "192.0.2.1");
        authenticate(&held);

        let under_way = held.begin();
        let reserve: Vec<_> = (0..=RESERVE)
            .map(|_| enter(&limiter, "192.0.2.2"))
            .collect();
        assert!(reserve.iter().all(ConnectionPermit::is_reserve));
        assert!(!is_held(&reserve[0]) && is_held(&reserve[1]));

        let busy: Vec<_> = reserve
            .iter()
            .skip(1)
            .map(ConnectionPermit::begin)
            .collect();
        assert!(limiter.enter("192.0.2.3".parse().unwrap()).is_none());
        drop((busy, under_way, reserve));

        assert!(is_held(&held), "the reserve takes nobody's place");
    }
}
