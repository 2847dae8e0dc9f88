//! Everything that is kept: all SQL is here, one file an aggregate, for SQLite and PostgreSQL alike, and the [`journal`] of calls.
//!
//! A method of an aggregate takes the org first, so that a query across tenants can't be written by accident; what isn't of one
//! org (partners, nodes, the change feed) says so by its type. Knows nothing of HTTP, SIP messages or sockets.

mod acting;
pub mod aged;
pub mod agent_config;
pub mod agents;
pub mod asks;
pub mod attempts;
pub mod audit;
pub mod auth_failures;
pub mod call_ends;
mod call_events;
pub mod calls;
pub mod challenges;
pub mod clock;
mod column;
mod contacts;
pub mod dedications;
pub mod deleted_orgs;
pub mod deliveries;
pub mod destinations;
mod drawn;
mod effects;
pub mod erasing;
pub mod erasures;
mod error;
mod event;
pub mod events;
pub mod explained;
pub mod feed;
pub mod handoffs;
pub mod idempotency;
mod identify;
mod in_force;
pub mod inbound_trunks;
pub mod integrations;
pub mod journal;
mod keyring;
pub mod logins;
pub mod lost;
mod migrate;
pub mod nodes;
pub mod number_codes;
pub mod numbers;
pub mod of_contact;
pub mod old_pairs;
mod open;
pub mod org_keys;
pub mod org_limits;
pub mod orgs;
pub mod outbound_trunks;
mod page;
pub mod partners;
mod password;
mod pool;
mod postgres;
pub mod private;
mod projection;
pub mod purge;
mod reach;
pub mod realm;
pub mod registrations;
mod reseal;
mod retention;
mod rows;
mod secrets;
pub mod sessions;
mod snapshot;
mod sqlite;
mod subject;
mod threads;
pub mod tied_peers;
pub mod transfers;
mod tx;
pub mod usage;
mod value;
pub mod webhooks;

use std::sync::Arc;

use tokio::sync::{Mutex, watch};
use trunkline_sip::moment::Moment;
use uuid::{NoContext, Timestamp, Uuid};

pub use acting::{Acting, Actor, ActorKind, Deed};
pub use agent_config::AgentConfig;
pub use agents::{Agent, AgentChange, AgentKind, NewAgent};
pub use asks::{Ask, Asking};
pub use audit::{AuditEntry, AuditFilter, AuditOf};
pub use auth_failures::{AuthFailure, NewAuthFailure};
pub use call_ends::{CallEnd, CallEnds};
pub use calls::{Call, CallFilter};
pub use challenges::{UnansweredChallenge, UnansweredOf};
pub use column::written;
pub use contacts::{Contact, Contacts};
pub use dedications::Dedication;
pub use deleted_orgs::{DeletedOrg, Purge};
pub use deliveries::{Attempt, Delivery, DeliveryState, Held, Outcome};
pub use destinations::{Destination, DestinationChange, NewDestination};
pub use effects::Effects;
pub use erasing::RowsErased;
pub use erasures::{Erased, ErasedLegs, Erasure, ErasureNode, KeptConfiguration, OpenErasure};
pub use error::{Broke, Error, Kind, Refused, Wrong};
pub use event::{EventType, NewEvent, RegisteredPbx};
pub use events::Event;
pub use explained::{Explained, Recorded};
pub use feed::Change;
pub use handoffs::{Handoff, HandoffFilter, NewHandoff, Reason, Sentiment};
pub use idempotency::{Asked, Claim, Kept};
pub use identify::ContactDetails;
pub use inbound_trunks::{InboundTrunk, InboundTrunkChange, Synced};
pub use integrations::{Integration, NewBooking};
pub use keyring::{Keyring, RetiredKey, SigningPair};
pub use logins::{Access, LoginLink, NewLogin, Role};
pub use nodes::{Renewal, Serving};
pub use number_codes::{MadeCode, TRIES, TriedCode};
pub use numbers::Number;
pub use of_contact::{ContactCall, ContactSearch};
pub use old_pairs::OldPair;
pub use open::{OpenFault, Options, Outset};
pub use org_keys::{Issued, IssuedBy, NewOrgKey, OrgKey, SignedKeys};
pub use org_limits::{DefaultLimits, LimitChanges, LimitedBy, OrgLimit, StoredLimit, StoredLimits};
pub use orgs::{NewOrg, Org, OrgChange, SuspendedBy, Suspender};
pub use outbound_trunks::{NewOutboundTrunk, OutboundTrunk, OutboundTrunkChange};
pub use page::{Narrow, Page, Position};
pub use partners::{NewPartner, Partner, PartnerKey};
pub use password::Password;
pub use projection::project;

pub use retention::{Retained, RetentionChange, RetentionDays};
pub use sessions::{ListedSession, Session, TokenHash};
pub use snapshot::{OldCredentials, OrgRows, rows_of};
pub use subject::Subject;
pub use tied_peers::TiedPeer;
pub use transfers::CallTransfer;
pub use tx::Tx;
pub use usage::{CallSeconds, UsageParts, UsageRow, UsageWindow, whole_seconds};
pub use webhooks::{NewWebhook, Webhook, WebhookChange};

use in_force::Followers;
use pool::Pool;
use secrets::{KeyEdit, Vault};
use tx::{Committed, Mode};

/// The open store. Clones share it.
#[derive(Clone, Debug)]
pub struct Store(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pool: Pool,
    keyring: Keyring,
    vault: Vault,
    /// Counts the commits of this process that have a row in the change feed.
    changed: watch::Sender<u64>,
    /// Counts the commits of this process that have events.
    recorded: watch::Sender<u64>,
    followers: Followers,
    /// Held while the keys are read again.
    following: Mutex<()>,
}

impl Store {
    /// Whether other nodes may work on the same data.
    pub fn is_shared(&self) -> bool {
        self.pool().is_shared()
    }

    /// Opens the database, making it if there is none, and brings its schema up to date.
    ///
    /// # Errors
    /// A sentence that says what to do; nothing was changed then.
    pub async fn open(options: &Options, now: Moment) -> Result<Self, OpenFault> {
        let (pool, keyring, vault) = open::open(options, now).await?;
        pool.knows(&keyring);
        Ok(Self(Arc::new(Inner {
            pool,
            keyring,
            vault,
            changed: watch::Sender::new(0),
            recorded: watch::Sender::new(0),
            followers: Followers::default(),
            following: Mutex::default(),
        })))
    }

    /// Why a database of another process can't be reached now; `None` if it can, and for one that is part of this process.
    ///
    /// # Errors
    /// Why waiting doesn't help.
    pub async fn away(options: &Options) -> Result<Option<String>, OpenFault> {
        open::away(options).await
    }

    /// What [`Store::open`] would find. Nothing is changed.
    ///
    /// # Errors
    /// Why it couldn't be opened.
    pub async fn look(options: &Options) -> Result<Outset, OpenFault> {
        open::look(options).await
    }

    /// Adds a signing key, with which every process signs as soon as it has followed the change feed: tokens of the others stay good.
    ///
    /// # Errors
    /// The keys can't be read or written; nothing was changed then.
    pub async fn rotate_signing_key(&self, now: Moment) -> Result<(), OpenFault> {
        let session = self.pool().begin().await?;
        self.edit_keys(session, KeyEdit::AddSigning, now).await
    }

    /// Retires a signing key: what it has signed is refused by every process that has followed the change feed, but for API keys whose
    /// token is kept. One that is retired already is told of again, to those whom a command that was cut off didn't tell.
    ///
    /// # Errors
    /// There is no such key, or it is the one that signs; or the keys can't be read or written. Nothing was changed then.
    pub async fn retire_signing_key(&self, kid: &str, now: Moment) -> Result<(), OpenFault> {
        let session = self.pool().begin().await?;
        let edit = KeyEdit::RetireSigning(kid.to_owned());
        self.edit_keys(session, edit, now).await
    }

    /// Reads the keys again; says whether others than before sign.
    ///
    /// # Errors
    /// They can't be read; those that are known stay.
    pub async fn follow_signing_keys(&self) -> Result<bool, OpenFault> {
        // Of two at once, the one that read first must not have the last word.
        let _turn = self.0.following.lock().await;
        let kept = self.0.vault.read(self.pool()).await?;
        Ok(self.keyring().follow(&kept))
    }

    /// The installation's keys.
    pub fn keyring(&self) -> &Keyring {
        &self.0.keyring
    }

    fn vault(&self) -> &Vault {
        &self.0.vault
    }

    /// Whether the database answers.
    ///
    /// # Errors
    /// [`Broke`] if it does not.
    pub async fn check(&self) -> Result<(), Error> {
        let sql = "SELECT COALESCE(MAX(version), 0) FROM schema_migrations";
        self.read(move |tx| tx.only(sql, &[]).map(|(_,): (i64,)| ()))
            .await
    }

    /// Gives back the memory that a load has left in connections to an embedded database: for a node at rest.
    ///
    /// # Errors
    /// [`Broke`] if the database doesn't answer.
    pub async fn rest(&self) -> Result<(), Error> {
        self.0.pool.rest();
        Ok(())
    }

    /// Closes every connection, waiting for what is under way.
    pub async fn close(&self) {
        self.0.pool.close().await;
    }

    fn pool(&self) -> &Pool {
        &self.0.pool
    }

    fn changed(&self) -> watch::Receiver<u64> {
        self.0.changed.subscribe()
    }

    /// Runs reads on a thread for them. Each sees what is committed, or all see one state after [`Tx::snapshot`].
    ///
    /// # Errors
    /// Those of `work`; [`Broke`] if the database is away or busy.
    pub async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Tx) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.pool().run_read(work).await
    }

    /// The same for reads that every request makes and whose rows an index bounds to a few: of SQLite they are made on the calling thread before
    /// this returns. To find one agent takes 11 µs so, and 115 µs by way of a thread (`cargo bench --profile dev --bench store`, two cores).
    /// Lists, and whatever the command line and the node's upkeep ask for, go by [`read`](Self::read).
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_inline<T: Send + 'static, W>(
        &self,
        work: W,
    ) -> impl Future<Output = Result<T, Error>> + Send + use<T, W>
    where
        W: FnOnce(&mut Tx) -> Result<T, Error> + Send + 'static,
    {
        let (done, left) = match self.pool().inline() {
            Some(mut tx) => (
                Some(tx.begin(Mode::Read).and_then(|()| work(&mut tx))),
                None,
            ),
            None => (None, Some((self.clone(), work))),
        };
        async move {
            match (done, left) {
                (Some(done), _) => done,
                (None, Some((store, work))) => store.read(work).await,
                (None, None) => Err(Broke::Closed.into()),
            }
        }
    }

    /// Runs a transaction on a thread for it and commits it, with what it has [changed](Tx::changed) and [recorded](Tx::record). Returns once that
    /// is in force in this process. What fails or panics is rolled back; where [effects](Effects) are held, so is all that they hold.
    ///
    /// # Errors
    /// Those of `work`; [`Broke`] if the database is away or busy.
    pub async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Tx) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        if effects::are_held() {
            let session = match effects::resume() {
                Some(session) => session,
                None => self.pool().begin().await?,
            };
            let value = session.run(move |tx| tx.part(work)).await?;
            effects::hold(session);
            return Ok(value);
        }
        let (value, committed) = self.pool().run_write(work).await?;
        self.settle(committed).await;
        Ok(value)
    }

    /// Commits what is held with a last step, or that alone where nothing is.
    ///
    /// # Errors
    /// As [`write`](Self::write); what was held is rolled back then.
    pub async fn write_held(
        &self,
        effects: &Effects,
        last: impl FnOnce(&mut Tx) -> Result<(), Error> + Send + 'static,
    ) -> Result<(), Error> {
        let Some(session) = effects.take() else {
            // A refusal that is kept is no change.
            let answer = move |tx: &mut Tx| {
                tx.aside();
                last(tx)
            };
            return self.write(answer).await;
        };
        let ended = session.end(move |tx| {
            last(tx)?;
            tx.aside_if_all_was();
            tx.commit()
        });
        let committed = ended.await?;
        self.settle(committed).await;
        Ok(())
    }

    /// Wakes those who follow what was committed, and waits until it is in force in this process.
    async fn settle(&self, committed: Committed) {
        if committed.has_events {
            self.recorded();
        }
        if let Some(seq) = committed.seq {
            self.published();
            if committed.is_waited_for {
                self.followers().reach(seq).await;
            }
        }
    }

    fn followers(&self) -> &Followers {
        &self.0.followers
    }

    /// Wakes the followers of the change feed in this process.
    fn published(&self) {
        let changed = &self.0.changed;
        changed.send_modify(|commits| *commits = commits.wrapping_add(1));
    }

    /// Wakes the readers of events in this process.
    fn recorded(&self) {
        let recorded = &self.0.recorded;
        recorded.send_modify(|commits| *commits = commits.wrapping_add(1));
    }
}

/// Refuses an org that isn't there. Transactions that edit the same org take turns, so that what was checked still holds at the commit.
fn edit(tx: &mut Tx, org: Uuid) -> Result<(), Error> {
    let sql = tx.words(
        "SELECT id FROM orgs WHERE id = $1 AND deleted_at IS NULL",
        "SELECT id FROM orgs WHERE id = $1 AND deleted_at IS NULL FOR NO KEY UPDATE",
    );
    let row: Option<(Uuid,)> = tx.one(sql, &[&org])?;
    row.ok_or(Wrong::Absent(Kind::Org))?;
    Ok(())
}

/// Id of a thing that is made. The audit log names the first that a transaction makes.
fn new_id(now: Moment) -> Uuid {
    let id = id_at(now);
    acting::made(id);
    id
}

/// A new id: UUIDv7, so that ids sort by their time.
fn id_at(now: Moment) -> Uuid {
    let nanos =
        u32::try_from(now.as_micros() % 1_000_000 * 1_000).expect("below a thousand million");
    Uuid::new_v7(Timestamp::from_unix(NoContext, now.as_secs(), nanos))
}

/// Applies one field of a change.
fn set<V>(field: &mut V, value: Option<V>) {
    if let Some(value) = value {
        *field = value;
    }
}
