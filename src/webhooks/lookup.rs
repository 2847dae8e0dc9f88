//! Look-ups of receivers' names by the system's resolver. Each takes a thread until a name server has answered, and that of a tenant's domain may never
//! do so: the number is bounded, an org has a share of it, and so have the orgs of a partner together. A name that is being looked up takes no second
//! place.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};
use trunkline_bounds::{Holder, PartnerShare};

/// Most look-ups at once, and most of one org.
const MOST: usize = 64;
const MOST_OF_ORG: usize = MOST / 4;
/// Most addresses of a name.
const MAX_ADDRESSES: usize = 16;

/// Addresses of a name; `None` while it is looked up, or if that failed.
type Answer = Option<Arc<[SocketAddr]>>;

/// Look-ups under way. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Lookups(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// By name and port.
    under_way: Mutex<HashMap<(String, u16), Lookup>>,
    /// One has ended.
    ended: Notify,
}

#[derive(Debug)]
struct Lookup {
    /// The org that began it, and its partner.
    holder: Holder,
    answer: watch::Receiver<Answer>,
}

impl Lookups {
    /// Returns the addresses of a host, which is looked up for `holder`. Waits for a place: the caller bounds the time.
    ///
    /// # Errors
    /// The name has no address.
    pub(super) async fn find(
        &self,
        holder: Holder,
        host: &str,
        port: u16,
    ) -> io::Result<Arc<[SocketAddr]>> {
        if let Ok(ip) = host.parse() {
            return Ok([SocketAddr::new(ip, port)].into());
        }
        // RFC 6761 §6.3: loopback, also where no file of the system says so.
        if host.eq_ignore_ascii_case("localhost") {
            let loopback = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
            return Ok(loopback.map(|ip| SocketAddr::new(ip, port)).into());
        }

        self.looked_up(holder, host, port, resolve).await
    }

    async fn looked_up(
        &self,
        holder: Holder,
        host: &str,
        port: u16,
        resolve: impl FnOnce(&str, u16) -> Answer + Copy + Send + 'static,
    ) -> io::Result<Arc<[SocketAddr]>> {
        let mut answer = loop {
            // Made first, so that no end between the look and the wait is missed.
            let ended = self.0.ended.notified();
            match self.begun(holder, host, port, resolve) {
                Some(answer) => break answer,
                None => ended.await,
            }
        };
        // The sender is dropped with the look-up, whether it has found something or not.
        let found = answer.wait_for(Option::is_some).await.ok();
        let found = found.and_then(|found| found.clone());
        found.ok_or(io::ErrorKind::NotFound.into())
    }

    /// Joins the look-up of a name, or begins one; `None` if there is no place for it.
    fn begun(
        &self,
        holder: Holder,
        host: &str,
        port: u16,
        resolve: impl FnOnce(&str, u16) -> Answer + Send + 'static,
    ) -> Option<watch::Receiver<Answer>> {
        let name = (host.to_owned(), port);
        let mut under_way = self.under_way();
        if let Some(lookup) = under_way.get(&name) {
            return Some(lookup.answer.clone());
        }
        let lookups = || under_way.values().map(|lookup| lookup.holder);
        let of_org = lookups().filter(|other| other.org == holder.org);
        let is_partners_used_up = holder.partner.is_some_and(|own| {
            let of_partner = lookups().filter_map(|other| other.partner);
            let of_partner = of_partner.filter(|partner| partner.id == own.id);
            of_partner.count() >= most_of_partner(own)
        });
        if under_way.len() >= MOST || of_org.count() >= MOST_OF_ORG || is_partners_used_up {
            return None;
        }

        let (done, answer) = watch::channel(None);
        let lookup = Lookup {
            holder,
            answer: answer.clone(),
        };
        under_way.insert(name.clone(), lookup);
        drop(under_way);

        let lookups = self.clone();
        // A request may give up meanwhile; the thread can't.
        tokio::task::spawn_blocking(move || {
            let found = resolve(&name.0, name.1);
            lookups.under_way().remove(&name);
            done.send_replace(found);
            lookups.0.ended.notify_waiters();
        });
        Some(answer)
    }

    fn under_way(&self) -> MutexGuard<'_, HashMap<(String, u16), Lookup>> {
        self.0
            .under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the most look-ups at once of the orgs of a partner.
fn most_of_partner(share: PartnerShare) -> usize {
    (MOST * usize::from(share.percent) / 100).max(1)
}

fn resolve(host: &str, port: u16) -> Answer {
    let found = (host, port).to_socket_addrs().ok()?;
    Some(found.take(MAX_ADDRESSES).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use uuid::Uuid;

    use super::*;

    /// The name servers of the attackers' domains never answer.
    #[tokio::test]
    async fn look_ups_are_bounded_and_an_org_leaves_places_to_others() {
        let lookups = Lookups::default();
        let (release, held) = mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let begin = |holder: Holder, name: String| {
            let held = Arc::clone(&held);
            let hang = move |_: &str, _: u16| {
                let _ = held.lock().map(|held| held.recv());
                None
            };
            lookups.begun(holder, &name, 443, hang).is_some()
        };
        let alone = |org: u128| Holder::alone(Uuid::from_u128(org));
        let of_partner = |org: u128| Holder {
            partner: Some(PartnerShare {
                id: Uuid::from_u128(1_000),
                percent: 40,
            }),
            ..alone(org)
        };
        let begun = |holder: Holder| {
            let names = (0..2 * MOST).map(|at| format!("{at}.{}.test", holder.org));
            names.filter(|name| begin(holder, name.clone())).count()
        };

        assert_eq!(begun(alone(1)), MOST_OF_ORG, "one attacker");
        let again = format!("0.{}.test", Uuid::from_u128(1));
        assert!(begin(alone(1), again), "the same name again");
        let together = (100..200).map(|org| begun(of_partner(org)));
        let of_forty_percent = MOST * 40 / 100;
        assert_eq!(together.sum::<usize>(), of_forty_percent);
        let others = (2..10).map(|org| begun(alone(org))).sum::<usize>();
        assert_eq!(others, MOST - MOST_OF_ORG - of_forty_percent);
        let address = lookups.find(alone(0), "127.0.0.1", 443).await;
        let address = address.expect("an address is looked up by nobody");
        assert_eq!(*address, ["127.0.0.1:443".parse().expect("an address")]);

        // The honest org waits until there is a place.
        let honest = tokio::spawn({
            let lookups = lookups.clone();
            let found = |_: &str, port| Some([SocketAddr::from(([127, 0, 0, 1], port))].into());
            async move {
                let honest = Holder::alone(Uuid::from_u128(99));
                lookups.looked_up(honest, "honest.test", 443, found).await
            }
        });
        drop(release);
        let found = honest.await.expect("it ends").expect("an address");
        assert!(found.iter().all(|address| address.ip().is_loopback()));
    }
}
