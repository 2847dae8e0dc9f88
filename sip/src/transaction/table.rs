//! The table that holds the transactions of one side: bounded, found by handle, by key, and by the flow they use.
//!
//! Handles carry a stamp, so that a handle that outlives its transaction refers to nothing. The machines hold the behaviour; a table
//! only keeps them.

use std::hash::{Hash, Hasher};
use std::net::SocketAddr;
use std::num::NonZeroU32;

use hashbrown::HashTable;
use slab::Slab;

use crate::flow::{Flow, Transport};
use crate::slot::Minter;

use super::timer::RunningTimers;

pub(crate) use super::handle::Handle;
pub use super::handle::{ClientTx, ServerTx};

/// The user that gets a transaction's events: a number of the caller's choosing.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Owner(pub u64);

/// The table is full: refuse the request (503) or give up.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the transaction table is full")]
pub struct TableFull;

const NONE: u32 = u32::MAX;
/// An empty table frees storage beyond this many entries.
const KEPT_WHEN_EMPTY: usize = 1024;

/// Transactions of machine `M`.
#[derive(Debug)]
pub(crate) struct Table<M> {
    entries: Slab<Entry<M>>,
    by_key: HashTable<u32>,
    /// The first entry of the chain of each flow.
    by_flow: HashTable<u32>,
    minter: Minter,
    max: usize,
    next_stamp: NonZeroU32,
}

/// One transaction: its machine and the data that all machines have.
#[derive(Debug)]
pub(crate) struct Entry<M> {
    key: u128,
    stamp: NonZeroU32,
    /// Neighbours in the chain of the flow.
    previous: u32,
    next: u32,
    flow: Flow,
    pub(crate) owner: Owner,
    pub(crate) running: RunningTimers,
    pub(crate) machine: M,
}

impl<M> Entry<M> {
    pub(crate) fn key(&self) -> u128 {
        self.key
    }

    pub(crate) fn flow(&self) -> Flow {
        self.flow
    }
}

impl<M> Table<M> {
    pub(crate) fn new(minter: Minter, max: usize) -> Self {
        Self {
            entries: Slab::new(),
            by_key: HashTable::new(),
            by_flow: HashTable::new(),
            minter,
            // `NONE` ends a chain, so no entry may have its index.
            max: max.min(NONE as usize - 1),
            next_stamp: NonZeroU32::MIN,
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() >= self.max
    }

    /// Number of transactions.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Inserts a transaction. `key` must be new: the caller looks it up first.
    pub(crate) fn insert(
        &mut self,
        key: u128,
        flow: Flow,
        owner: Owner,
        machine: M,
    ) -> Result<Handle, TableFull> {
        if self.is_full() {
            return Err(TableFull);
        }

        let stamp = self.next_stamp;
        self.next_stamp = stamp.checked_add(1).unwrap_or(NonZeroU32::MIN);

        let index = self.entries.insert(Entry {
            key,
            stamp,
            previous: NONE,
            next: NONE,
            flow,
            owner,
            running: RunningTimers::default(),
            machine,
        }) as u32;

        self.by_key.insert_unique(hash_of(key), index, |&at| {
            hash_of(self.entries[at as usize].key)
        });
        self.link(index);
        Ok(Handle { index, stamp })
    }

    pub(crate) fn find(&self, key: u128) -> Option<Handle> {
        let index = *self
            .by_key
            .find(hash_of(key), |&at| self.entries[at as usize].key == key)?;
        Some(self.handle(index))
    }

    pub(crate) fn entry(&self, handle: Handle) -> Option<&Entry<M>> {
        self.entries
            .get(handle.index as usize)
            .filter(|entry| entry.stamp == handle.stamp)
    }

    pub(crate) fn entry_mut(&mut self, handle: Handle) -> Option<&mut Entry<M>> {
        self.entries
            .get_mut(handle.index as usize)
            .filter(|entry| entry.stamp == handle.stamp)
    }

    pub(crate) fn remove(&mut self, handle: Handle) -> Option<Entry<M>> {
        self.entry(handle)?;
        self.unlink(handle.index);
        let entry = self.entries.remove(handle.index as usize);

        if let Ok(found) = self
            .by_key
            .find_entry(hash_of(entry.key), |&index| index == handle.index)
        {
            found.remove();
        }

        // A table that a burst has filled would keep its storage for the life of the process.
        if self.entries.is_empty() && self.entries.capacity() > KEPT_WHEN_EMPTY {
            *self = Self {
                // Stamps go on, so that handles from before still refer to nothing.
                next_stamp: self.next_stamp,
                ..Self::new(self.minter.clone(), self.max)
            };
        }

        Some(entry)
    }

    /// The transactions that use the path of `flow`: the same connection, or on UDP the same peer.
    pub(crate) fn on_flow(&self, flow: &Flow) -> Vec<Handle> {
        let key = FlowKey::of(flow);
        let first = self
            .by_flow
            .find(self.flow_hash(&key), |&at| self.flow_key(at) == key);
        std::iter::successors(first.copied(), |&at| {
            Some(self.entries[at as usize].next).filter(|&next| next != NONE)
        })
        .map(|index| self.handle(index))
        // Collected, since the caller removes or moves the entries that it visits.
        .collect()
    }

    /// Moves a transaction to another flow.
    pub(crate) fn move_to(&mut self, handle: Handle, flow: Flow) {
        if self.entry(handle).is_some() {
            // The chain is found by the entry's flow: unlinked under the old one, linked under the new one.
            self.unlink(handle.index);
            self.entries[handle.index as usize].flow = flow;
            self.link(handle.index);
        }
    }

    fn handle(&self, index: u32) -> Handle {
        Handle {
            index,
            stamp: self.entries[index as usize].stamp,
        }
    }

    fn flow_key(&self, index: u32) -> FlowKey {
        FlowKey::of(&self.entries[index as usize].flow)
    }

    fn flow_hash(&self, key: &FlowKey) -> u64 {
        key.hash(&self.minter)
    }

    /// Puts an entry at the head of its flow's chain.
    fn link(&mut self, index: u32) {
        let key = self.flow_key(index);
        let hash = self.flow_hash(&key);
        let entries = &mut self.entries;

        match self
            .by_flow
            .find_mut(hash, |&at| FlowKey::of(&entries[at as usize].flow) == key)
        {
            Some(first) => {
                let second = std::mem::replace(first, index);
                entries[second as usize].previous = index;
                let entry = &mut entries[index as usize];
                (entry.previous, entry.next) = (NONE, second);
            }
            None => {
                let entry = &mut entries[index as usize];
                (entry.previous, entry.next) = (NONE, NONE);
                let minter = &self.minter;
                self.by_flow.insert_unique(hash, index, |&at| {
                    FlowKey::of(&entries[at as usize].flow).hash(minter)
                });
            }
        }
    }

    fn unlink(&mut self, index: u32) {
        let Entry { previous, next, .. } = self.entries[index as usize];
        if next != NONE {
            self.entries[next as usize].previous = previous;
        }
        if previous != NONE {
            self.entries[previous as usize].next = next;
            return;
        }

        // Without a predecessor the entry is the head of its chain, to which `by_flow` points.
        let hash = self.flow_hash(&self.flow_key(index));
        if let Ok(mut first) = self.by_flow.find_entry(hash, |&at| at == index) {
            if next == NONE {
                first.remove();
            } else {
                *first.get_mut() = next;
            }
        }
    }
}

/// Returns the lower half of a key, which is a keyed hash or random already.
fn hash_of(key: u128) -> u64 {
    key as u64
}

/// The part of a flow that breaks as a unit.
#[derive(PartialEq, Eq, Hash)]
enum FlowKey {
    Datagram {
        listener: u16,
        peer: SocketAddr,
    },
    Connection(u32),
    /// A connection that the shell has to find or open.
    Opening {
        transport: Transport,
        peer: SocketAddr,
    },
}

impl FlowKey {
    fn of(flow: &Flow) -> Self {
        let Flow {
            transport,
            listener,
            connection,
            local: _,
            peer,
        } = *flow;
        match (transport, connection) {
            (Transport::Udp, _) => Self::Datagram { listener, peer },
            (Transport::Tcp | Transport::Tls, 0) => Self::Opening { transport, peer },
            (Transport::Tcp | Transport::Tls, connection) => Self::Connection(connection),
        }
    }

    /// Keyed hash, since peers choose their addresses.
    fn hash(&self, minter: &Minter) -> u64 {
        let mut hasher = minter.hasher();
        Hash::hash(self, &mut hasher);
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot::Node;

    fn table(max: usize) -> Table<&'static str> {
        Table::new(Minter::new(Node(1), [3; 16]), max)
    }

    fn flow(transport: Transport, connection: u32, port: u16) -> Flow {
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        Flow {
            transport,
            listener: 0,
            connection,
            local: at(5060),
            peer: at(port),
        }
    }

    fn udp(port: u16) -> Flow {
        flow(Transport::Udp, 0, port)
    }

    fn insert(table: &mut Table<&'static str>, key: u128, flow: Flow) -> Handle {
        table
            .insert(key, flow, Owner(0), "machine")
            .expect("the table has room")
    }

    #[test]
    fn a_handle_names_nothing_once_its_transaction_ended() {
        let mut table = table(8);
        let first = insert(&mut table, 1, udp(1));
        assert_eq!(table.find(1), Some(first));
        assert!(table.remove(first).is_some());
        let second = insert(&mut table, 2, udp(1));
        assert!(table.entry(first).is_none());
        assert!(table.remove(first).is_none());
        assert_eq!((table.find(1), table.find(2)), (None, Some(second)));
    }

    #[test]
    fn a_full_table_refuses() {
        let mut table = table(1);
        let only = insert(&mut table, 1, udp(1));
        assert_eq!(table.insert(2, udp(1), Owner(0), "machine"), Err(TableFull));
        table.remove(only);
        assert!(table.insert(2, udp(1), Owner(0), "machine").is_ok());
    }

    #[test]
    fn an_empty_table_gives_its_storage_back_and_still_knows_old_handles() {
        let mut table = table(4096);
        let handles: Vec<_> = (0..2048)
            .map(|key| insert(&mut table, key, udp(1)))
            .collect();
        for handle in &handles {
            table.remove(*handle);
        }
        assert_eq!(table.entries.capacity(), 0);
        insert(&mut table, 9, udp(1));
        assert!(handles.iter().all(|handle| table.entry(*handle).is_none()));
    }

    #[test]
    fn a_flow_finds_its_transactions_whichever_ended_between() {
        for gone in 0..3 {
            let mut table = table(8);
            let mut handles: Vec<_> = (0..3).map(|key| insert(&mut table, key, udp(1))).collect();
            let other = insert(&mut table, 9, udp(2));
            table.remove(handles.remove(gone));
            let mut found = table.on_flow(&udp(1));
            found.sort_by_key(|handle| handle.stamp);
            assert_eq!(found, handles, "without {gone}");
            assert_eq!(table.on_flow(&udp(2)), [other]);
            for handle in handles {
                table.remove(handle);
            }
            assert_eq!(table.on_flow(&udp(1)), []);
        }
    }

    #[test]
    fn what_is_lost_as_one() {
        let tcp = |connection, port| flow(Transport::Tcp, connection, port);
        let cases = [
            (
                "a datagram peer whatever our address",
                udp(1),
                Flow {
                    local: udp(9).peer,
                    ..udp(1)
                },
                true,
            ),
            ("another datagram peer", udp(1), udp(2), false),
            (
                "another listener",
                udp(1),
                Flow {
                    listener: 1,
                    ..udp(1)
                },
                false,
            ),
            ("a connection by its number", tcp(5, 1), tcp(5, 2), true),
            (
                "another connection to the same peer",
                tcp(5, 1),
                tcp(6, 1),
                false,
            ),
            ("one yet to be opened", tcp(0, 1), tcp(0, 1), true),
            (
                "one yet to be opened elsewhere",
                tcp(0, 1),
                tcp(0, 2),
                false,
            ),
            (
                "an open one is not one to be opened",
                tcp(5, 1),
                tcp(0, 1),
                false,
            ),
            ("nor is another transport", udp(1), tcp(0, 1), false),
        ];

        for (name, one, other, together) in cases {
            let mut table = table(8);
            let handle = insert(&mut table, 1, one);
            assert_eq!(table.on_flow(&other) == [handle], together, "{name}");
        }
    }

    #[test]
    fn a_moved_transaction_is_found_by_its_new_flow() {
        let mut table = table(8);
        let handle = insert(&mut table, 1, udp(1));
        table.move_to(handle, udp(2));
        assert_eq!(
            (table.on_flow(&udp(1)), table.on_flow(&udp(2))),
            (vec![], vec![handle])
        );
    }
}
