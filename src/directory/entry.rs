//! Part of the view that belongs to one org: its insertion, replacement and removal.
//!
//! Pure. What both versions of an org have in common is left alone, so a change costs no more than its org's size.

use std::collections::HashSet;
use std::sync::Arc;

use ipnet::IpNet;
use trunkline_routing::E164;
use uuid::Uuid;

use trunkline_model::sources::Sources;
use trunkline_model::view::{Login, OrgView, View};

/// Contribution of one org to the view. Its networks have the names of the view's own fields ([`View`]).
#[derive(Debug)]
pub(super) struct OrgEntry {
    pub(super) org: Arc<OrgView>,
    pub(super) logins: Vec<(Arc<str>, Login)>,
    pub(super) dedicated: Vec<IpNet>,
    pub(super) without_proof: Vec<IpNet>,
    pub(super) allowed: Vec<IpNet>,
    pub(super) allowed_near: Vec<IpNet>,
    pub(super) operators: Vec<IpNet>,
}

/// Replaces `before` by `after` in the view.
pub(super) fn replace(
    view: &mut View,
    org: Uuid,
    before: Option<&OrgEntry>,
    after: Option<&OrgEntry>,
) {
    logins(view, org, before, after);
    sources(view, org, before, after);
    numbers(view, org, before, after);
    countries(view, before, after);

    let registers = |entry: &OrgEntry| entry.org.outbound.iter().any(|way| way.register);
    match after.is_some_and(registers) {
        true => drop(view.registering.insert(org, ())),
        false => drop(view.registering.remove(&org)),
    }
    match after {
        Some(after) => drop(view.orgs.insert(org, Arc::clone(&after.org))),
        None => drop(view.orgs.remove(&org)),
    }
}

fn logins(view: &mut View, org: Uuid, before: Option<&OrgEntry>, after: Option<&OrgEntry>) {
    let [before, after] = [before, after].map(|entry| entry.map_or(&[][..], |own| &own.logins));
    for (username, _) in before {
        let is_own = |login: &Login| login.org == org;
        if view.by_username.get(&**username).is_some_and(is_own) {
            view.by_username.remove(&**username);
        }
    }
    for (username, login) in after {
        view.by_username.insert(Arc::clone(username), login.clone());
    }
}

fn sources(view: &mut View, org: Uuid, before: Option<&OrgEntry>, after: Option<&OrgEntry>) {
    let change = |sources: &mut Sources, own: fn(&OrgEntry) -> &[IpNet]| {
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

    change(&mut view.dedicated, |entry| &entry.dedicated);
    change(&mut view.without_proof, |entry| &entry.without_proof);
    change(&mut view.allowed, |entry| &entry.allowed);
    change(&mut view.allowed_near, |entry| &entry.allowed_near);
    change(&mut view.operators, |entry| &entry.operators);
}

/// Replaces the org's numbers. If two orgs change in one turn, the one that lost a number may come after the one that got it: a number is
/// removed only while it is still this org's.
fn numbers(view: &mut View, org: Uuid, before: Option<&OrgEntry>, after: Option<&OrgEntry>) {
    let [before, after] = [before, after].map(|entry| entry.map(|own| &own.org.routing.numbers));
    let has = |numbers: Option<&HashSet<E164>>, number: &E164| {
        numbers.is_some_and(|numbers| numbers.contains(number))
    };
    for number in before.into_iter().flatten() {
        if !has(after, number) && view.by_number.get(number) == Some(&org) {
            view.by_number.remove(number);
        }
    }
    for number in after.into_iter().flatten() {
        if !has(before, number) {
            view.by_number.insert(*number, org);
        }
    }
}

fn countries(view: &mut View, before: Option<&OrgEntry>, after: Option<&OrgEntry>) {
    let [before, after] =
        [before, after].map(|entry| entry.and_then(|own| own.org.routing.country()));
    if before == after {
        return;
    }

    if let Some(country) = before {
        let left = view.countries.get(&country).map_or(0, |count| count - 1);
        match left {
            0 => drop(view.countries.remove(&country)),
            left => drop(view.countries.insert(country, left)),
        }
    }
    if let Some(country) = after {
        view.countries.update(country, |count| *count += 1);
    }
}
