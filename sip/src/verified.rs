//! The names that peers on TLS have to prove (RFC 5922 §7.1): what a flow carries of one is a number.
//!
//! A connection to an address is good for one name alone, since one address may serve many. So a flow that asks for "a
//! connection to that peer" says as whom the peer must show itself, and nobody else's connection is used for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::flow::Flow;

/// Set in [`Flow::connection`] where the rest is the number of a name and not of a connection.
const NAMED: u32 = 1 << 31;
/// Names that are kept; with more, the further ones can't be reached.
const MOST: usize = 65_536;

/// Names and their numbers, for as long as the process lives. All shards share one.
#[derive(Debug, Default)]
pub struct Names(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    numbers: HashMap<Arc<str>, u32>,
    names: Vec<Arc<str>>,
}

impl Names {
    /// What a flow to that host has as its connection; case doesn't matter. `None` if there are too many names.
    pub fn connection(&self, host: &str) -> Option<u32> {
        let name = host.to_ascii_lowercase();
        let mut known = self.known();
        if let Some(number) = known.numbers.get(&*name) {
            return Some(NAMED | number);
        }
        let number = u32::try_from(known.names.len()).ok()?;
        if known.names.len() >= MOST {
            return None;
        }
        let name: Arc<str> = name.into();
        known.names.push(Arc::clone(&name));
        known.numbers.insert(name, number);
        Some(NAMED | number)
    }

    /// The name that a flow's connection asks for.
    pub fn name(&self, connection: u32) -> Option<Arc<str>> {
        let number = usize::try_from(connection & !NAMED).ok()?;
        let known = self.known();
        known
            .names
            .get(number)
            .filter(|_| connection & NAMED != 0)
            .map(Arc::clone)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Flow {
    /// Whether it asks for any connection to the peer that has proved a name, and none in particular.
    pub const fn is_named(&self) -> bool {
        self.connection & NAMED != 0
    }

    /// Whether it is one connection and no other.
    pub const fn is_connection(&self) -> bool {
        self.connection != 0 && !self.is_named()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_number() {
        let names = Names::default();
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
    fn too_many_names_are_refused_and_the_known_stay() {
        let names = Names::default();
        for number in 0..MOST {
            assert!(names.connection(&format!("{number}.example")).is_some());
        }
        assert_eq!(names.connection("one.more"), None);
        assert!(names.connection("7.example").is_some());
    }
}
