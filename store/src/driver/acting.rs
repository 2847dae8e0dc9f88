//! Author of the changes that a request or a command makes, as a task-local scope. The transaction that commits the change reads it and
//! writes the entry of the audit log.
//!
//! A request or a command opens a scope, and names its actor once the credential is known. Each transaction that commits a change within the
//! scope writes an entry; internal bookkeeping is committed without one.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use trunkline_sip::moment::Moment;
use uuid::Uuid;

tokio::task_local! {
    static ACTING: Acting;
}

/// Most field names in an entry; further ones are left out.
const MOST_FIELDS: usize = 64;
/// Most octets of a field name in an entry; a longer one is cut.
const LONGEST_FIELD: usize = 64;

/// Kind of a credential.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ActorKind {
    /// An API key of an org.
    OrgKey,
    /// A key of a partner.
    PartnerKey,
    /// A session of the dashboard.
    Dashboard,
    /// A session of the dashboard that the operator has opened.
    Operator,
    /// The session token that a runtime received with its call.
    SessionToken,
    /// A command of the operator.
    Command,
}

impl ActorKind {
    /// All variants.
    pub const ALL: [Self; 6] = [
        Self::OrgKey,
        Self::PartnerKey,
        Self::Dashboard,
        Self::Operator,
        Self::SessionToken,
        Self::Command,
    ];

    /// Returns the name as the API and the database have it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OrgKey => "org_key",
            Self::PartnerKey => "partner_key",
            Self::Dashboard => "dashboard",
            Self::Operator => "operator",
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

/// A change as it was requested.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuditedAction {
    /// Time of the request.
    pub at: Moment,
    /// Source address of the request.
    pub address: Option<IpAddr>,
    /// Method and route, or the words of the command.
    pub action: String,
    /// Kind of the resource that is changed.
    pub resource: &'static str,
    /// The resource, if the request names it; else the first one that is created.
    pub resource_id: Option<Uuid>,
    /// Id of the request, as the log has it.
    pub request_id: Option<String>,
}

/// Entry of the audit log in the making.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct AuditDraft {
    pub(crate) audited_action: AuditedAction,
    pub(crate) actor: Option<Actor>,
    pub(crate) org: Option<Uuid>,
    pub(crate) partner: Option<Uuid>,
    pub(crate) fields: Vec<String>,
    /// First resource that was created since the last entry.
    made: Option<Uuid>,
    /// Entries taken so far.
    entries: u32,
}

/// A scope of changes. Clones share it.
#[derive(Clone, Debug)]
pub struct Acting(Arc<Mutex<AuditDraft>>);

impl Acting {
    /// Creates a scope without an actor: as long as none is named, no entry is written.
    #[must_use]
    pub fn new(audited_action: AuditedAction) -> Self {
        Self(Arc::new(Mutex::new(AuditDraft {
            audited_action,
            actor: None,
            org: None,
            partner: None,
            fields: Vec::new(),
            made: None,
            entries: 0,
        })))
    }

    /// Returns the scope of this task, to be carried to a task that works for it.
    #[must_use]
    pub fn current() -> Option<Self> {
        ACTING.try_with(Clone::clone).ok()
    }

    /// Runs `work` within the scope.
    pub async fn scope<T>(self, work: impl Future<Output = T>) -> T {
        ACTING.scope(self, work).await
    }

    /// Runs `work` within the given scope, if there is one, on whichever task the future runs.
    pub async fn carried<T>(acting: Option<Self>, work: impl Future<Output = T>) -> T {
        match acting {
            Some(acting) => acting.scope(work).await,
            None => work.await,
        }
    }

    /// Runs the work of a thread within the scope of the task that requested it.
    pub(crate) fn on<T>(acting: Option<Self>, work: impl FnOnce() -> T) -> T {
        match acting {
            Some(acting) => ACTING.sync_scope(acting, work),
            None => work(),
        }
    }

    /// Sets the actor of this task's scope, with the org or partner of the credential.
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

    /// Names the resource that is changed.
    pub fn about(id: Uuid) {
        note(|known| known.audited_action.resource_id = Some(id));
    }

    /// Names the fields that the request sets.
    pub fn fields<'n>(names: impl IntoIterator<Item = &'n str>) {
        note(|known| known.fields = field_names(names));
    }

    /// Adds a field that the request sets.
    pub fn field(name: &str) {
        note(|known| {
            let names = known.fields.iter().map(String::as_str);
            known.fields = field_names(names.chain([name]));
        });
    }

    /// Returns the kind of the resource that is changed.
    #[must_use]
    pub fn resource(&self) -> &'static str {
        self.known().audited_action.resource
    }

    /// Returns whether an actor is known whose change has no entry yet.
    #[must_use]
    pub fn is_due(&self) -> bool {
        let known = self.known();
        known.actor.is_some() && known.entries == 0
    }

    fn known(&self) -> MutexGuard<'_, AuditDraft> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the names of fields as an entry keeps them: sorted, each once, and each a token of at most [`LONGEST_FIELD`] octets. A client may
/// send any text as the name of a field.
pub(crate) fn field_names<'n>(names: impl IntoIterator<Item = &'n str>) -> Vec<String> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
    let token = |name: &str| {
        let letters = name.chars().take(LONGEST_FIELD);
        letters
            .map(|letter| if is_plain(letter) { letter } else { '_' })
            .collect()
    };

    let mut kept: Vec<String> = names.into_iter().take(MOST_FIELDS).map(token).collect();
    kept.sort_unstable();
    kept.dedup();
    kept
}

fn note(change: impl FnOnce(&mut AuditDraft)) {
    // Outside of a scope there is no entry to complete.
    let _ = ACTING.try_with(|acting| change(&mut acting.known()));
}

/// Notes the id of a resource that is created.
pub(crate) fn made(id: Uuid) {
    note(|known| known.made = known.made.or(Some(id)));
}

/// Takes the entry that this task's transaction has to write; `None` without an actor.
pub(crate) fn take() -> Option<AuditDraft> {
    let taken = ACTING.try_with(|acting| {
        let mut known = acting.known();
        // The id is taken even without an actor: it belongs to this transaction, not to the next one's entry.
        let made = known.made.take();
        known.actor.as_ref()?;
        known.entries += 1;

        let mut entry = known.clone();
        entry.audited_action.resource_id = entry.audited_action.resource_id.or(made);

        // An org or a partner that is itself the changed resource also owns the entry. A new one has its id only now.
        match entry.audited_action.resource {
            "org" => {
                entry.org = entry.org.or(entry.audited_action.resource_id);
                entry.audited_action.resource_id = entry.audited_action.resource_id.or(entry.org);
            }
            "partner" => entry.partner = entry.partner.or(entry.audited_action.resource_id),
            _ => {}
        }

        Some(entry)
    });

    taken.ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_fields_are_short_tokens() {
        let long = "x".repeat(900_000);
        let cut = "x".repeat(64);
        for (case, given, kept) in [
            (
                "plain",
                &["name", "customData"][..],
                &["customData", "name"][..],
            ),
            ("long", &[long.as_str()], &[cut.as_str()]),
            ("a formula", &["=HYPERLINK(\"x\")"], &["_HYPERLINK__x__"]),
            ("a line of its own", &["a\r\n2026,b"], &["a__2026_b"]),
            ("outside ASCII", &["＝é"], &["__"]),
            ("twice", &["a", "a"], &["a"]),
        ] {
            assert_eq!(field_names(given.iter().copied()), kept, "{case}");
        }

        let many: Vec<String> = (0..100).map(|n| n.to_string()).collect();
        let kept = field_names(many.iter().map(String::as_str));
        assert_eq!(kept.len(), MOST_FIELDS);
    }
}
