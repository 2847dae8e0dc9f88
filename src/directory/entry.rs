//! One org's part of the view: how it is put in, replaced and taken out.
//!
//! Pure. What both versions of an org have in common is left alone, so a change costs no more than the org it is of.

use std::collections::HashSet;
use std::sync::Arc;

use ipnet::IpNet;
use trunkline_routing::E164;
use uuid::Uuid;

use super::sources::Sources;
use super::view::{Login, OrgView, View};

/// What one org adds to the view.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) org: Arc<OrgView>,
    pub(super) logins: Vec<(Arc<str>, Login)>,
    pub(super) dedicated: Vec<IpNet>,
    pub(super) allowed: Vec<IpNet>,
    pub(super) allowed_near: Vec<IpNet>,
    pub(super) operators: Vec<IpNet>,
}

impl View {
    /// Shows `after` in the place of `before`.
    pub(super) fn replace(&mut self, org: Uuid, before: Option<&Entry>, after: Option<&Entry>) {
        self.logins(org, before, after);
        self.sources(org, before, after);
        self.numbers(org, before, after);
        self.countries(before, after);

        let registers = |entry: &Entry| entry.org.outbound.iter().any(|way| way.register);
        match after.is_some_and(registers) {
            true => drop(self.registering.insert(org, ())),
            false => drop(self.registering.remove(&org)),
        }
        match after {
            Some(after) => drop(self.orgs.insert(org, Arc::clone(&after.org))),
            None => drop(self.orgs.remove(&org)),
        }
    }

    fn logins(&mut self, org: Uuid, before: Option<&Entry>, after: Option<&Entry>) {
        let [before, after] = [before, after].map(|entry| entry.map_or(&[][..], |own| &own.logins));
        for (username, _) in before {
            let is_own = |login: &Login| login.org == org;
            if self.by_username.get(&**username).is_some_and(is_own) {
                self.by_username.remove(&**username);
            }
        }
        for (username, login) in after {
            self.by_username.insert(Arc::clone(username), login.clone());
        }
    }

    fn sources(&mut self, org: Uuid, before: Option<&Entry>, after: Option<&Entry>) {
        let change = |sources: &mut Sources, own: fn(&Entry) -> &[IpNet]| {
            let [before, after] = [before, after].map(|entry| entry.map_or(&[][..], own));
            if before == after {
                return;
            }
            for network in before {
                sources.remove(*network, org);
            }
            for network in after {
                sources.insert(*network, org);
            }
        };
        change(&mut self.dedicated, |entry| &entry.dedicated);
        change(&mut self.allowed, |entry| &entry.allowed);
        change(&mut self.allowed_near, |entry| &entry.allowed_near);
        change(&mut self.operators, |entry| &entry.operators);
    }

    /// Of two orgs in one turn, the one that has lost a number may come after the one that has got it.
    fn numbers(&mut self, org: Uuid, before: Option<&Entry>, after: Option<&Entry>) {
        let [before, after] =
            [before, after].map(|entry| entry.map(|own| &own.org.routing.numbers));
        let has = |numbers: Option<&HashSet<E164>>, number: &E164| {
            numbers.is_some_and(|numbers| numbers.contains(number))
        };
        for number in before.into_iter().flatten() {
            if !has(after, number) && self.by_number.get(number) == Some(&org) {
                self.by_number.remove(number);
            }
        }
        for number in after.into_iter().flatten() {
            if !has(before, number) {
                self.by_number.insert(*number, org);
            }
        }
    }

    fn countries(&mut self, before: Option<&Entry>, after: Option<&Entry>) {
        let [before, after] =
            [before, after].map(|entry| entry.and_then(|own| own.org.routing.country()));
        if before == after {
            return;
        }
        if let Some(country) = before {
            let left = self.countries.get(&country).map_or(0, |count| count - 1);
            match left {
                0 => drop(self.countries.remove(&country)),
                left => drop(self.countries.insert(country, left)),
            }
        }
        if let Some(country) = after {
            self.countries.update(country, |count| *count += 1);
        }
    }
}
