//! A persistent hash map: a clone shares all entries with its origin, and a change copies only the path to one entry.
//!
//! Pure. A reader of one version needs no lock while the next version is being built. Hash array mapped trie (Bagwell, 2001): branches of
//! 32 by five bits of the hash, and small leaves that are searched in order.

use std::borrow::Borrow;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::ops::Index;
use std::sync::Arc;

/// Bits of the hash that each level of branches takes.
const BITS: u32 = 5;
/// Children of a branch.
const WIDTH: usize = 1 << BITS;
/// Entries of a leaf; one more makes a branch of it.
const LEAF: usize = 16;

/// A hash map whose clones share their common entries.
#[derive(Clone)]
pub struct PersistentMap<K, V, S = RandomState> {
    root: Arc<Node<K, V>>,
    len: usize,
    hasher: S,
}

#[derive(Clone)]
enum Node<K, V> {
    Leaf(Vec<Entry<K, V>>),
    Branch(Box<[Option<Arc<Self>>; WIDTH]>),
}

#[derive(Clone)]
struct Entry<K, V> {
    hash: u64,
    key: K,
    value: V,
}

impl<K, V, S> PersistentMap<K, V, S> {
    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the map has no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Iterates over all entries, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let mut waiting: Vec<&Node<K, V>> = vec![&self.root];
        let leaves = std::iter::from_fn(move || {
            loop {
                match waiting.pop()? {
                    Node::Leaf(entries) => return Some(entries),
                    Node::Branch(children) => {
                        waiting.extend(children.iter().flatten().map(|child| &**child));
                    }
                }
            }
        });
        leaves.flatten().map(|entry| (&entry.key, &entry.value))
    }

    /// Iterates over all keys, in no particular order.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }
}

impl<K: Eq + Hash, V, S: BuildHasher> PersistentMap<K, V, S> {
    /// Returns the value of a key.
    pub fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let hash = self.hasher.hash_one(key);
        let mut node = &*self.root;
        let mut rest = hash;

        loop {
            match node {
                Node::Leaf(entries) => {
                    let mut entries = entries.iter();
                    let found =
                        entries.find(|entry| entry.hash == hash && entry.key.borrow() == key)?;
                    return Some(&found.value);
                }
                Node::Branch(children) => {
                    node = children[child_of(rest)].as_deref()?;
                    rest >>= BITS;
                }
            }
        }
    }

    /// Returns whether the key has an entry.
    pub fn contains_key<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }
}

impl<K: Clone + Eq + Hash, V: Clone, S: BuildHasher> PersistentMap<K, V, S> {
    /// Sets the value of a key; returns the previous value.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let hash = self.hasher.hash_one(&key);
        let entry = Entry { hash, key, value };
        let before = Node::insert(&mut self.root, entry, 0);
        self.len += usize::from(before.is_none());
        before
    }

    /// Removes a key; returns its value. Branches that become empty stay.
    pub fn remove<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        // Without this check, a key that has no entry would have its path copied for nothing.
        self.get(key)?;

        let hash = self.hasher.hash_one(key);
        let mut node = Arc::make_mut(&mut self.root);
        let mut rest = hash;
        while let Node::Branch(children) = node {
            node = Arc::make_mut(children[child_of(rest)].as_mut()?);
            rest >>= BITS;
        }

        let Node::Leaf(entries) = node else {
            return None;
        };
        let place = entries
            .iter()
            .position(|entry| entry.hash == hash && entry.key.borrow() == key)?;
        self.len -= 1;
        Some(entries.swap_remove(place).value)
    }

    /// Changes the value of a key, starting from the default value if it has none.
    pub fn update(&mut self, key: K, change: impl FnOnce(&mut V))
    where
        V: Default,
    {
        let mut value = self.get(&key).cloned().unwrap_or_default();
        change(&mut value);
        self.insert(key, value);
    }
}

impl<K: Clone + Eq, V: Clone> Node<K, V> {
    /// Puts an entry below this node, which is reached by the first `used` bits of the hash.
    fn insert(this: &mut Arc<Self>, entry: Entry<K, V>, used: u32) -> Option<V> {
        // Copies the node only if another version of the map shares it: a version that isn't shared is changed in
        // place.
        match Arc::make_mut(this) {
            Self::Branch(children) => match &mut children[child_of(entry.hash >> used)] {
                Some(child) => Self::insert(child, entry, used + BITS),
                empty @ None => {
                    *empty = Some(Arc::new(Self::Leaf(vec![entry])));
                    None
                }
            },
            Self::Leaf(entries) => {
                let mut known = entries.iter_mut();
                let known = known.find(|known| known.hash == entry.hash && known.key == entry.key);
                if let Some(known) = known {
                    return Some(std::mem::replace(&mut known.value, entry.value));
                }

                entries.push(entry);

                // Entries whose hashes are equal in all bits stay together.
                if entries.len() > LEAF && used + BITS < u64::BITS {
                    let entries = std::mem::take(entries);
                    *this = Arc::new(Self::branch(entries, used));
                }

                None
            }
        }
    }

    /// Turns the entries of a full leaf into a branch.
    fn branch(entries: Vec<Entry<K, V>>, used: u32) -> Self {
        let mut leaves = [const { Vec::new() }; WIDTH];
        for entry in entries {
            leaves[child_of(entry.hash >> used)].push(entry);
        }
        let child = |leaf: Vec<_>| (!leaf.is_empty()).then(|| Arc::new(Self::Leaf(leaf)));
        Self::Branch(Box::new(leaves.map(child)))
    }
}

/// Returns the index of the child to which the remaining bits of a hash lead.
fn child_of(rest: u64) -> usize {
    rest as usize % WIDTH
}

impl<K, V, S: Default> Default for PersistentMap<K, V, S> {
    fn default() -> Self {
        Self {
            root: Arc::new(Node::Leaf(Vec::new())),
            len: 0,
            hasher: S::default(),
        }
    }
}

impl<K, V, S> FromIterator<(K, V)> for PersistentMap<K, V, S>
where
    K: Clone + Eq + Hash,
    V: Clone,
    S: BuildHasher + Default,
{
    fn from_iter<T: IntoIterator<Item = (K, V)>>(entries: T) -> Self {
        let mut map = Self::default();
        for (key, value) in entries {
            map.insert(key, value);
        }
        map
    }
}

impl<K, V, const N: usize> From<[(K, V); N]> for PersistentMap<K, V>
where
    K: Clone + Eq + Hash,
    V: Clone,
{
    fn from(entries: [(K, V); N]) -> Self {
        entries.into_iter().collect()
    }
}

impl<K, V, Q, S> Index<&Q> for PersistentMap<K, V, S>
where
    K: Borrow<Q> + Eq + Hash,
    Q: Eq + Hash + ?Sized,
    S: BuildHasher,
{
    type Output = V;

    /// # Panics
    /// The key has no entry.
    fn index(&self, key: &Q) -> &V {
        self.get(key).expect("the key has an entry")
    }
}

impl<K: fmt::Debug, V: fmt::Debug, S> fmt::Debug for PersistentMap<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::hash::Hasher;

    use proptest::prelude::*;

    use super::*;

    /// Gives most keys one of few hashes, so that leaves of equal hashes occur as well.
    #[derive(Clone, Default)]
    struct Weak;

    struct Few(u64);

    impl BuildHasher for Weak {
        type Hasher = Few;

        fn build_hasher(&self) -> Few {
            Few(0)
        }
    }

    impl Hasher for Few {
        fn finish(&self) -> u64 {
            self.0 % 7
        }

        fn write(&mut self, bytes: &[u8]) {
            for byte in bytes {
                self.0 = self.0.wrapping_mul(31).wrapping_add(u64::from(*byte));
            }
        }
    }

    /// Applies changes to a map and to its model; clones taken on the way must stay as they were.
    fn play<S: BuildHasher + Clone + Default>(steps: &[(u16, Option<u32>)]) {
        let mut map = PersistentMap::<u16, u32, S>::default();
        let mut model = HashMap::new();
        let mut versions = Vec::new();
        for (at, (key, value)) in steps.iter().enumerate() {
            let before = match value {
                Some(value) => (map.insert(*key, *value), model.insert(*key, *value)),
                None => (map.remove(key), model.remove(key)),
            };
            assert_eq!(before.0, before.1);
            if at % 50 == 0 {
                versions.push((map.clone(), model.clone()));
            }
        }

        versions.push((map, model));
        for (map, model) in versions {
            assert_eq!(map.len(), model.len());
            assert_eq!(map.is_empty(), model.is_empty());
            let listed: HashMap<u16, u32> = map.iter().map(|(key, value)| (*key, *value)).collect();
            assert_eq!(listed, model);
            for key in 0..600 {
                assert_eq!(map.get(&key), model.get(&key));
            }
        }
    }

    proptest! {
        #[test]
        fn it_holds_what_a_hash_map_holds(steps in prop::collection::vec((0_u16..600, prop::option::weighted(0.7, any::<u32>())), 0..1_500)) {
            play::<RandomState>(&steps);
            play::<Weak>(&steps);
        }
    }

    #[test]
    fn a_value_is_changed_in_its_place() {
        let mut map = PersistentMap::from([("a", 1)]);
        map.update("a", |count| *count += 1);
        map.update("b", |count| *count += 1);
        assert_eq!((map["a"], map["b"], map.len()), (2, 1, 2));
    }
}
