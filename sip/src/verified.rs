//! The names that peers on TLS have to prove (RFC 5922 §7.1). A flow carries the number of a name.
//!
//! One address may serve many names, so a connection is good only for the name that its peer has proved. A flow that asks for "a connection
//! to that peer" therefore carries the number of a name. It never uses a connection whose peer has proved another name.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::flow::Flow;

/// Set in [`Flow::connection`] if the rest is the number of a name, not of a connection.
const NAMED: u32 = 1 << 31;
/// Most names that are kept, since messages bring names too. Before a further one, the least recently used half is dropped.
const MOST: usize = 65_536;

/// Names and their numbers. No number is reused while the process lives: a flow with a number asks for that name or, once it is
/// forgotten, for none. All shards share one table.
#[derive(Debug, Default)]
pub struct VerifiedNames(Mutex<NameTable>);

#[derive(Debug, Default)]
struct NameTable {
    numbers: HashMap<Arc<str>, Numbered>,
    names: HashMap<u32, Arc<str>>,
    next: u32,
    uses: u64,
}

/// The number of a name, and its last use, counted in uses of all names.
#[derive(Debug)]
struct Numbered {
    number: u32,
    used: u64,
}

impl VerifiedNames {
    /// Returns the connection number of a flow to that host; case doesn't matter. `None` once the numbers are used up.
    pub fn connection(&self, host: &str) -> Option<u32> {
        let name = host.to_ascii_lowercase();
        let mut known = self.known();
        known.uses += 1;

        let used = known.uses;
        if let Some(numbered) = known.numbers.get_mut(&*name) {
            numbered.used = used;
            return Some(NAMED | numbered.number);
        }

        let number = known.next;
        // A number is never given twice, so that a flow from long ago asks for no other peer.
        if number >= NAMED {
            return None;
        }

        known.next += 1;
        if known.numbers.len() >= MOST {
            known.forget_half();
        }

        let name: Arc<str> = name.into();
        known.names.insert(number, Arc::clone(&name));
        known.numbers.insert(name, Numbered { number, used });
        Some(NAMED | number)
    }

    /// The name that a flow's connection asks for; `None` also for a forgotten one.
    pub fn name(&self, connection: u32) -> Option<Arc<str>> {
        if connection & NAMED == 0 {
            return None;
        }
        self.known().names.get(&(connection & !NAMED)).cloned()
    }

    fn known(&self) -> MutexGuard<'_, NameTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NameTable {
    /// Forgets the least recently used half: seldom, and all of it at once.
    fn forget_half(&mut self) {
        let mut used: Vec<u64> = self.numbers.values().map(|held| held.used).collect();
        let middle = used.len() / 2;
        let (_, oldest, _) = used.select_nth_unstable(middle);
        let oldest = *oldest;
        self.numbers.retain(|_, held| held.used >= oldest);
        let Self { numbers, names, .. } = self;
        names.retain(|number, name| numbers.get(name).is_some_and(|held| held.number == *number));
    }
}

impl Flow {
    /// Returns true if the flow asks for any connection to the peer that has proved a name.
    pub const fn is_named(&self) -> bool {
        self.connection & NAMED != 0
    }

    /// Returns true if the flow asks for one particular connection.
    pub const fn is_connection(&self) -> bool {
        self.connection != 0 && !self.is_named()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_number() {
        let names = VerifiedNames::default();
        let [a, b] = ["a.example", "b.example"].map(|name| names.connection(name).unwrap());
        assert_ne!(a, b);
        assert_eq!(names.connection("A.Example"), Some(a));
        assert_eq!(names.name(a).as_deref(), Some("a.example"));
        assert_eq!(names.name(b).as_deref(), Some("b.example"));
        assert_eq!(
            names.name(b & !NAMED),
            None,
            "a connection's number is no name's"
        );
        assert_eq!(names.name(0), None);
    }

    #[test]
    fn names_that_are_used_stay_and_no_number_is_given_twice() {
        let names = VerifiedNames::default();
        let numbers: Vec<u32> = (0..MOST)
            .map(|number| names.connection(&format!("{number}.example")).unwrap())
            .collect();
        assert_eq!(names.connection("7.example"), Some(numbers[7]));

        let one_more = names.connection("one.more").unwrap();
        assert!(!numbers.contains(&one_more));
        assert_eq!(names.name(one_more).as_deref(), Some("one.more"));

        for (number, is_kept) in [(7, true), (8, false), (MOST - 1, true)] {
            let name = format!("{number}.example");
            let held = names.name(numbers[number]);
            assert_eq!(held.as_deref(), is_kept.then_some(&*name));
        }

        let anew = names.connection("8.example").unwrap();
        assert!(
            !numbers.contains(&anew),
            "another name may have asked by it"
        );
    }
}
