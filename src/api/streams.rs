//! Event streams that are open on this node: their number, its limits, and wake-ups.
//!
//! One task follows the events of all orgs and wakes the streams of orgs with new ones; a stream then reads from the
//! store. So an open stream costs nothing while its org is quiet, and buffers nothing while its client is slow.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::watch;
use uuid::Uuid;

/// Maximum number of streams on one node: three quarters of the default `http.max_connections`.
const MAX_STREAMS: usize = 768;

/// Streams of this node; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Streams(Arc<Mutex<OpenStreams>>);

#[derive(Debug, Default)]
struct OpenStreams {
    orgs: HashMap<Uuid, OrgStreams>,
    /// Streams of each partner, in all of its orgs.
    partners: HashMap<Uuid, usize>,
    /// Streams of this node, those of the operator and the console included.
    seats: usize,
    /// True once the server stops.
    ended: bool,
}

/// Streams of one org.
#[derive(Debug, Default)]
struct OrgStreams {
    news: watch::Sender<u64>,
    /// Streams of each key.
    keys: HashMap<Uuid, usize>,
    /// Streams of all keys, which count against the org's limit.
    seats: usize,
    /// Streams of the operator and the console, which don't count against it.
    operators: usize,
    /// Streams of the org's partner, which don't count against it either.
    partners: usize,
}

/// Places that a stream takes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Seat {
    /// The org's, for this key.
    Key(Uuid),
    /// Those of the partner in all of its orgs.
    Partner(Uuid),
    /// The operator's in the org, or the console's.
    Operator,
}

/// Limits on open streams.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct StreamLimits {
    pub(super) of_org: usize,
    pub(super) of_key: usize,
}

/// Limit that forbids another stream.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Full {
    /// Limit of the key.
    Key(usize),
    /// Limit of the org.
    Org(usize),
    /// Limit of the partner in all of its orgs.
    Partner(usize),
    /// Limit of the operator in one org.
    Operator(usize),
    /// Limit of the node.
    Node,
}

/// Place of one stream, released when dropped.
#[derive(Debug)]
pub(crate) struct StreamPermit {
    streams: Streams,
    org: Uuid,
    seat: Seat,
    news: watch::Receiver<u64>,
}

impl Streams {
    /// Takes a place for a stream that this key of the org opens.
    pub(super) fn enter(
        &self,
        org: Uuid,
        key: Uuid,
        most: StreamLimits,
    ) -> Result<StreamPermit, Full> {
        let mut open = self.open();
        // Refused while the server stops, too: nothing would end a stream that is opened after `end`.
        if open.seats >= MAX_STREAMS || open.ended {
            return Err(Full::Node);
        }

        let audience = open.orgs.entry(org).or_default();
        let of_key = audience.keys.get(&key).copied().unwrap_or_default();
        if of_key >= most.of_key {
            return Err(Full::Key(of_key));
        }
        if audience.seats >= most.of_org {
            return Err(Full::Org(audience.seats));
        }

        audience.seats += 1;
        audience.keys.insert(key, of_key + 1);
        let news = audience.news.subscribe();
        open.seats += 1;

        Ok(StreamPermit {
            streams: self.clone(),
            org,
            seat: Seat::Key(key),
            news,
        })
    }

    /// Takes a place for a stream of the operator, apart from the org's own streams.
    pub(super) fn enter_operator(&self, org: Uuid, most: usize) -> Result<StreamPermit, Full> {
        let mut open = self.open();
        if open.seats >= MAX_STREAMS || open.ended {
            return Err(Full::Node);
        }

        let audience = open.orgs.entry(org).or_default();
        if audience.operators >= most {
            return Err(Full::Operator(most));
        }

        audience.operators += 1;
        let news = audience.news.subscribe();
        open.seats += 1;

        Ok(StreamPermit {
            streams: self.clone(),
            org,
            seat: Seat::Operator,
            news,
        })
    }

    /// Takes a place for a stream of the org's partner, apart from the org's own streams.
    pub(super) fn enter_partner(
        &self,
        org: Uuid,
        partner: Uuid,
        most: usize,
    ) -> Result<StreamPermit, Full> {
        let mut open = self.open();
        if open.seats >= MAX_STREAMS || open.ended {
            return Err(Full::Node);
        }
        let of_partner = open.partners.entry(partner).or_default();
        if *of_partner >= most {
            return Err(Full::Partner(most));
        }
        *of_partner += 1;

        let audience = open.orgs.entry(org).or_default();
        audience.partners += 1;
        let news = audience.news.subscribe();
        open.seats += 1;

        Ok(StreamPermit {
            streams: self.clone(),
            org,
            seat: Seat::Partner(partner),
            news,
        })
    }

    /// Takes a place for the console, apart from the org's own streams. The console follows each org once, for all of its open pages.
    pub(crate) fn enter_console(&self, org: Uuid) -> Result<StreamPermit, Full> {
        self.enter_operator(org, usize::MAX)
    }

    /// Ends every stream and refuses new ones.
    pub(super) fn end(&self) {
        let mut open = self.open();
        open.ended = true;
        // Dropping the senders ends the streams.
        open.orgs.clear();
        open.partners.clear();
        open.seats = 0;
    }

    pub(super) fn wake(&self, org: Uuid) {
        if let Some(audience) = self.open().orgs.get(&org) {
            audience.wake();
        }
    }

    pub(super) fn wake_all(&self) {
        self.open().orgs.values().for_each(OrgStreams::wake);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open().orgs.is_empty()
    }

    fn open(&self) -> MutexGuard<'_, OpenStreams> {
        self.0.lock().expect("nothing panics while it is held")
    }
}

impl OrgStreams {
    pub(super) fn wake(&self) {
        // Only the change counts: the number is never read.
        self.news.send_modify(|news| *news = news.wrapping_add(1));
    }
}

impl StreamPermit {
    /// Marks everything up to now as seen.
    pub(crate) fn seen(&mut self) {
        self.news.mark_unchanged();
    }

    /// Waits for events that haven't been seen; returns false when the server stops.
    pub(crate) async fn news(&mut self) -> bool {
        self.news.changed().await.is_ok()
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        let mut open = self.streams.open();
        // After `end` the table is empty, and no place is counted any more.
        let Some(audience) = open.orgs.get_mut(&self.org) else {
            return;
        };

        match self.seat {
            Seat::Operator => audience.operators -= 1,
            Seat::Partner(_) => audience.partners -= 1,
            Seat::Key(key) => {
                audience.seats -= 1;
                if let Some(seats) = audience.keys.get_mut(&key) {
                    *seats -= 1;
                    if *seats == 0 {
                        audience.keys.remove(&key);
                    }
                }
            }
        }

        if audience.seats + audience.operators + audience.partners == 0 {
            open.orgs.remove(&self.org);
        }
        if let Seat::Partner(partner) = self.seat
            && let Some(seats) = open.partners.get_mut(&partner)
        {
            *seats -= 1;
            if *seats == 0 {
                open.partners.remove(&partner);
            }
        }
        open.seats -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST_HERE: StreamLimits = StreamLimits {
        of_org: 3,
        of_key: 2,
    };

    fn id(id: u128) -> Uuid {
        Uuid::from_u128(id)
    }

    #[test]
    fn a_partner_has_places_of_its_own_in_all_of_its_orgs_together() {
        let streams = Streams::default();
        let [partner, first, second] = [1, 2, 3].map(Uuid::from_u128);
        let open = [first, second].map(|org| streams.enter_partner(org, partner, 2));
        assert!(open.iter().all(Result::is_ok));
        let full = streams.enter_partner(first, partner, 2).err();
        assert_eq!(full, Some(Full::Partner(2)));
        let other = streams.enter_partner(first, Uuid::from_u128(4), 2);
        assert!(other.is_ok() && streams.enter(first, first, MOST_HERE).is_ok());

        drop((open, other));
        assert!(streams.is_empty() && streams.open().partners.is_empty());
    }

    #[test]
    fn places_are_counted_by_key_and_by_org() {
        let streams = Streams::default();
        let enter = |org, key| streams.enter(id(org), id(key), MOST_HERE);
        let first = enter(1, 10).unwrap();
        let _second = enter(1, 10).unwrap();
        assert_eq!(enter(1, 10).unwrap_err(), Full::Key(2));
        let _third = enter(1, 11).unwrap();
        assert_eq!(enter(1, 12).unwrap_err(), Full::Org(3));
        let _other = enter(2, 20).unwrap();
        drop(first);
        assert!(enter(1, 10).is_ok());
        assert!(enter(1, 12).is_ok(), "what was dropped is free");
    }

    #[test]
    fn the_operators_places_are_beside_the_orgs() {
        let streams = Streams::default();
        let enter = |key| streams.enter(id(1), id(key), MOST_HERE);
        let held: Vec<_> = [10, 11, 12].map(|key| enter(key).unwrap()).into();
        let operator = streams.enter_operator(id(1), 1).unwrap();
        assert_eq!(
            streams.enter_operator(id(1), 1).unwrap_err(),
            Full::Operator(1)
        );
        drop(held);
        let again = [10, 11, 12].map(|key| enter(key).is_ok());
        assert_eq!(again, [true; 3]);
        drop(operator);
        assert!(streams.is_empty());
    }

    #[tokio::test]
    async fn only_the_org_with_news_is_woken_and_the_end_wakes_all() {
        let streams = Streams::default();
        let mut first = streams.enter(id(1), id(10), MOST_HERE).unwrap();
        let mut second = streams.enter(id(2), id(20), MOST_HERE).unwrap();
        streams.wake(id(1));
        assert!(first.news().await);
        assert!(!second.news.has_changed().unwrap());
        streams.end();
        assert!(!first.news().await);
        assert!(!second.news().await);
        assert_eq!(
            streams.enter(id(1), id(10), MOST_HERE).unwrap_err(),
            Full::Node
        );
        drop(first);
        drop(second);
    }
}
