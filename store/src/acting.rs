//! On whose behalf this process changes something: known to the transaction that commits the change, which writes the entry of the audit log.
//!
//! A request or a command opens a scope. Its actor is set once the credential is known. The first transaction that commits a change within the
//! scope takes the entry; what is bookkeeping of our own is committed beside it.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use trunkline_sip::moment::Moment;
use uuid::Uuid;

tokio::task_local! {
    static ACTING: Acting;
}

/// Most names of fields in an entry.
const MOST_FIELDS: usize = 64;

/// Kind of a credential.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ActorKind {
    /// An API key of an org.
    OrgKey,
    /// A key of a partner.
    PartnerKey,
    /// A session of the dashboard.
    Dashboard,
    /// The token that a runtime got with its call.
    SessionToken,
    /// A command of the operator.
    Command,
}

impl ActorKind {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::OrgKey,
        Self::PartnerKey,
        Self::Dashboard,
        Self::SessionToken,
        Self::Command,
    ];

    /// The name as the API and the database have it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OrgKey => "org_key",
            Self::PartnerKey => "partner_key",
            Self::Dashboard => "dashboard",
            Self::SessionToken => "session_token",
            Self::Command => "command",
        }
    }
}

/// The author of a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Actor {
    /// Kind of its credential.
    pub kind: ActorKind,
    /// The key or the session.
    pub id: Option<Uuid>,
    /// Name of the key, address of the person, words of the command.
    pub name: String,
}

/// A change as it is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deed {
    /// When it was asked for.
    pub at: Moment,
    /// Where the request came from.
    pub address: Option<IpAddr>,
    /// Method and route, or the words of the command.
    pub action: String,
    /// Kind of the thing that is changed.
    pub resource: &'static str,
    /// The thing, if the request names it; else the first that is made.
    pub resource_id: Option<Uuid>,
    /// Id of the request, as the log has it.
    pub request_id: Option<String>,
}

/// What is known by now of a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Known {
    pub(super) deed: Deed,
    pub(super) actor: Option<Actor>,
    pub(super) org: Option<Uuid>,
    pub(super) partner: Option<Uuid>,
    pub(super) fields: Vec<String>,
    made: Option<Uuid>,
    entries: u32,
}

/// A scope of changes. Clones share it.
#[derive(Clone, Debug)]
pub struct Acting(Arc<Mutex<Known>>);

impl Acting {
    /// A scope whose actor isn't known yet: until it is, no entry is written.
    #[must_use]
    pub fn new(deed: Deed) -> Self {
        Self(Arc::new(Mutex::new(Known {
            deed,
            actor: None,
            org: None,
            partner: None,
            fields: Vec::new(),
            made: None,
            entries: 0,
        })))
    }

    /// The scope that this task is in; to be carried to a task that does its work.
    #[must_use]
    pub fn current() -> Option<Self> {
        ACTING.try_with(Clone::clone).ok()
    }

    /// Does work within the scope.
    pub async fn scope<T>(self, work: impl Future<Output = T>) -> T {
        ACTING.scope(self, work).await
    }

    /// Does the work within the scope of the calling task, if it is in one, wherever the work is awaited.
    pub async fn carried<T>(acting: Option<Self>, work: impl Future<Output = T>) -> T {
        match acting {
            Some(acting) => acting.scope(work).await,
            None => work.await,
        }
    }

    /// Does the work of a thread within the scope of the task that asked for it.
    pub(super) fn on<T>(acting: Option<Self>, work: impl FnOnce() -> T) -> T {
        match acting {
            Some(acting) => ACTING.sync_scope(acting, work),
            None => work(),
        }
    }

    /// Sets the actor of the scope that this task is in, with the org or partner that its credential is of.
    pub fn by(actor: Actor, org: Option<Uuid>, partner: Option<Uuid>) {
        note(|known| {
            known.actor = Some(actor);
            known.org = known.org.or(org);
            known.partner = known.partner.or(partner);
        });
    }

    /// Names the org that is changed.
    pub fn of_org(org: Uuid) {
        note(|known| known.org = Some(org));
    }

    /// Names the partner that is changed.
    pub fn of_partner(partner: Uuid) {
        note(|known| known.partner = Some(partner));
    }

    /// Names the thing that is changed.
    pub fn about(id: Uuid) {
        note(|known| known.deed.resource_id = Some(id));
    }

    /// Names the fields that are given.
    pub fn fields<'n>(names: impl IntoIterator<Item = &'n str>) {
        note(|known| {
            let names = names.into_iter().take(MOST_FIELDS).map(str::to_owned);
            known.fields = names.collect();
            known.fields.sort_unstable();
        });
    }

    /// Whether a change was made, as far as the actor is known, that has no entry yet.
    #[must_use]
    pub fn is_due(&self) -> bool {
        let known = self.known();
        known.actor.is_some() && known.entries == 0
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn note(change: impl FnOnce(&mut Known)) {
    let _ = ACTING.try_with(|acting| change(&mut acting.known()));
}

/// Notes the id of a thing that is made.
pub(super) fn made(id: Uuid) {
    note(|known| known.made = known.made.or(Some(id)));
}

/// The entry that the transaction of this task is to write; `None` where nobody acts.
pub(super) fn take() -> Option<Known> {
    let taken = ACTING.try_with(|acting| {
        let mut known = acting.known();
        let made = known.made.take();
        known.actor.as_ref()?;
        known.entries += 1;
        let mut entry = known.clone();
        entry.deed.resource_id = entry.deed.resource_id.or(made);

        match entry.deed.resource {
            "org" => {
                entry.org = entry.org.or(entry.deed.resource_id);
                entry.deed.resource_id = entry.deed.resource_id.or(entry.org);
            }
            "partner" => entry.partner = entry.partner.or(entry.deed.resource_id),
            _ => {}
        }

        Some(entry)
    });

    taken.ok().flatten()
}
