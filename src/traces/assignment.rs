//! Assignment of messages to the legs of calls, by the identities that shards report: the transaction of the INVITE that began a leg, and the
//! dialogs in which we have a tag of our own. A Call-ID alone assigns nothing, because each peer chooses its own, and text in a message
//! assigns nothing either.
//!
//! Our tag decides: we made it for one leg, and the direction of a message tells which of its two tags is ours. A message with our tag counts
//! only if its Call-ID and its peer's tag are the leg's too.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher as _;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use smallvec::SmallVec;
use trunkline_calls::{DialogIdentity, TracedLeg};
use trunkline_sip::moment::Moment;
use trunkline_sip::slot::Tag;
use uuid::Uuid;

use super::scan::{Method, Seen};

/// Time after a call's end in which its late messages are still assigned to it: transactions last 32 s (RFC 3261 §17).
const LATE: Duration = Duration::from_secs(60);
/// Ended calls remembered for that time, at most.
const MAX_ENDED: usize = 16_384;
/// Peers' tags remembered of the forks of one INVITE.
const MAX_FORKS: usize = 32;
/// Octets of one call's messages: more than a trace shows, and little beside what all calls may have. Further messages aren't kept.
const OCTETS_OF_CALL: usize = 4 << 20;

/// Report of a shard about a call.
#[derive(Debug)]
pub(super) enum LegReport {
    /// Messages with this identity belong to the leg.
    Begun(TracedLeg, Box<DialogIdentity>),
    /// The call is over.
    Over(Uuid),
}

/// Dialogs with one tag of ours.
#[derive(Debug)]
struct Dialog {
    leg: TracedLeg,
    local: Tag,
    call_id: Box<[u8]>,
    peer: PeerTags,
}

/// Tags of a peer.
#[derive(Debug)]
enum PeerTags {
    /// The peer began the dialog with this tag.
    Fixed(Box<[u8]>),
    /// We sent the INVITE: its answers bring the tags of its forks.
    Forks(SmallVec<[Box<[u8]>; 1]>),
}

/// Transaction of an INVITE that a peer has sent.
#[derive(Clone, PartialEq, Eq, Debug)]
struct InviteTransaction {
    call_id: Box<[u8]>,
    from_tag: Box<[u8]>,
    sent_by: Box<[u8]>,
    branch: Box<[u8]>,
    peer: IpAddr,
}

impl InviteTransaction {
    /// The transaction that a message belongs to, if it is an INVITE, or its ACK, CANCEL or answer.
    fn of(seen: &Seen<'_>, peer: IpAddr) -> Self {
        Self {
            call_id: seen.call_id.into(),
            from_tag: seen.from_tag.unwrap_or_default().into(),
            sent_by: seen.sent_by.into(),
            branch: seen.branch.into(),
            peer,
        }
    }

    fn is_of(&self, seen: &Seen<'_>, peer: IpAddr) -> bool {
        self.as_parts() == parts_of(seen, peer)
    }

    fn as_parts(&self) -> Parts<'_> {
        let texts = [&self.call_id, &self.from_tag, &self.sent_by, &self.branch];
        (texts.map(|text| &**text), self.peer)
    }
}

/// Parts of a transaction: Call-ID, From-tag, sent-by and branch, and the peer's address.
type Parts<'a> = ([&'a [u8]; 4], IpAddr);

fn parts_of<'a>(seen: &Seen<'a>, peer: IpAddr) -> Parts<'a> {
    let from_tag = seen.from_tag.unwrap_or_default();
    ([seen.call_id, from_tag, seen.sent_by, seen.branch], peer)
}

/// Known identities of one call, and the size of its messages.
#[derive(Debug, Default)]
struct KnownCall {
    octets: usize,
    tags: SmallVec<[u64; 2]>,
    invites: SmallVec<[u64; 1]>,
}

/// Identities of the legs of calls that are up, and of those that have ended a moment ago.
#[derive(Debug, Default)]
pub(super) struct Assignments {
    /// By a keyed hash of our tag.
    dialogs: HashMap<u64, Dialog>,
    /// By a keyed hash of the transaction.
    invites: HashMap<u64, (InviteTransaction, TracedLeg)>,
    calls: HashMap<Uuid, KnownCall>,
    /// Ended calls, in order.
    over: VecDeque<(Moment, Uuid)>,
    hasher: RandomState,
}

/// INVITEs that have begun calls in one batch, by what an earlier INVITE of the same caller has too: the caller was challenged, and sent
/// it again with credentials. `None` where two orgs have the same, so that neither gets the other's.
pub(super) type Repeated = HashMap<(Box<[u8]>, Box<[u8]>, SocketAddr), Option<TracedLeg>>;

impl Assignments {
    /// Takes a report that messages belong to a leg. Adds the leg to `repeated` if a peer's INVITE began it.
    pub(super) fn begin(
        &mut self,
        leg: TracedLeg,
        identity: DialogIdentity,
        repeated: &mut Repeated,
    ) {
        match identity {
            DialogIdentity::Invite {
                call_id,
                from_tag,
                sent_by,
                branch,
                flow,
            } => {
                let same = (call_id.clone(), from_tag.clone(), flow.peer);
                let entry = repeated.entry(same).or_insert(Some(leg));
                if entry.is_some_and(|other| other.org != leg.org) {
                    *entry = None;
                }
                let transaction = InviteTransaction {
                    call_id,
                    from_tag,
                    sent_by,
                    branch,
                    peer: flow.peer.ip(),
                };
                self.add_invite(transaction, leg);
            }
            DialogIdentity::Tag {
                call_id,
                local,
                remote,
            } => {
                let hash = self.hasher.hash_one(local.as_bytes());
                self.calls.entry(leg.call).or_default().tags.push(hash);
                let peer = match remote {
                    Some(tag) => PeerTags::Fixed(tag),
                    None => PeerTags::Forks(SmallVec::new()),
                };
                let dialog = Dialog {
                    leg,
                    local,
                    call_id,
                    peer,
                };
                self.dialogs.insert(hash, dialog);
            }
        }
    }

    fn add_invite(&mut self, transaction: InviteTransaction, leg: TracedLeg) {
        let hash = self.hasher.hash_one(transaction.as_parts());
        self.calls.entry(leg.call).or_default().invites.push(hash);
        self.invites.insert(hash, (transaction, leg));
    }

    /// Notes the end of a call, and forgets calls that ended long ago.
    pub(super) fn end(&mut self, call: Uuid, now: Moment) {
        self.over.push_back((now, call));
        if self.over.len() > MAX_ENDED
            && let Some((_, oldest)) = self.over.pop_front()
        {
            self.remove(oldest);
        }
    }

    /// Forgets calls that have no more messages.
    pub(super) fn forget(&mut self, now: Moment) {
        while let Some((at, oldest)) = self.over.front().copied()
            && now.since(at) > LATE
        {
            self.over.pop_front();
            self.remove(oldest);
        }
        // A table that a load has filled would keep its memory.
        if self.calls.is_empty() && self.calls.capacity() > 0 {
            *self = Self::default();
        }
    }

    /// Forgets a call: later messages are assigned to it no more.
    pub(super) fn remove(&mut self, call: Uuid) {
        let Some(known) = self.calls.remove(&call) else {
            return;
        };
        for hash in known.tags {
            self.dialogs.remove(&hash);
        }
        for hash in known.invites {
            // The same transaction may have begun a later call.
            if self
                .invites
                .get(&hash)
                .is_some_and(|(_, leg)| leg.call == call)
            {
                self.invites.remove(&hash);
            }
        }
    }

    /// Counts a message of a call; false if the call has had its share.
    pub(super) fn has_room(&mut self, call: Uuid, octets: usize) -> bool {
        let Some(known) = self.calls.get_mut(&call) else {
            return true;
        };
        known.octets = known.octets.saturating_add(octets);
        known.octets <= OCTETS_OF_CALL
    }

    /// Returns the leg that a message belongs to.
    pub(super) fn leg_of(
        &mut self,
        is_sent: bool,
        peer: SocketAddr,
        seen: &Seen<'_>,
    ) -> Option<TracedLeg> {
        self.by_tag(is_sent, seen)
            .or_else(|| self.by_invite(is_sent, peer.ip(), seen))
    }

    /// Assigns an INVITE that came before the one that began a leg, from the same source with the same Call-ID and tag: a challenge was its
    /// answer, or it waited for the proof of its source. From then on its answers and its ACK belong to the leg too.
    pub(super) fn leg_of_repeated(
        &mut self,
        is_sent: bool,
        peer: SocketAddr,
        seen: &Seen<'_>,
        repeated: &Repeated,
    ) -> Option<TracedLeg> {
        let is_first =
            !is_sent && seen.is_request && seen.method == Method::Invite && seen.to_tag.is_none();
        if !is_first || repeated.is_empty() {
            return None;
        }
        let from_tag = seen.from_tag.unwrap_or_default();
        let same = (seen.call_id.into(), from_tag.into(), peer);
        let leg = repeated.get(&same).copied().flatten()?;
        let transaction = InviteTransaction::of(seen, peer.ip());
        self.add_invite(transaction, leg);
        Some(leg)
    }

    fn by_tag(&mut self, is_sent: bool, seen: &Seen<'_>) -> Option<TracedLeg> {
        // Our tag is in To of what answers a peer or comes from it as a request, else in From.
        let (local, remote) = match seen.is_request != is_sent {
            true => (seen.to_tag, seen.from_tag),
            false => (seen.from_tag, seen.to_tag),
        };
        let local = local?;
        let dialog = self.dialogs.get_mut(&self.hasher.hash_one(local))?;
        let is_its = dialog.local.as_bytes() == local
            && *dialog.call_id == *seen.call_id
            && dialog.peer.admits(is_sent, seen, remote);
        is_its.then_some(dialog.leg)
    }

    fn by_invite(&self, is_sent: bool, peer: IpAddr, seen: &Seen<'_>) -> Option<TracedLeg> {
        // Requests of the peer, and our answers to them.
        let is_of_invite = seen.is_request != is_sent && seen.method != Method::Other;
        if !is_of_invite {
            return None;
        }
        let hash = self.hasher.hash_one(parts_of(seen, peer));
        let (known, leg) = self.invites.get(&hash)?;
        known.is_of(seen, peer).then_some(*leg)
    }
}

#[cfg(test)]
impl Assignments {
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.dialogs.is_empty() && self.invites.is_empty()
    }
}

impl PeerTags {
    /// Returns whether a message with our tag and the dialog's Call-ID is the peer's, or goes to the peer.
    fn admits(&mut self, is_sent: bool, seen: &Seen<'_>, remote: Option<&[u8]>) -> bool {
        let forks = match self {
            Self::Fixed(tag) => return **tag == *remote.unwrap_or_default(),
            Self::Forks(forks) => forks,
        };

        let is_known = |tag: &[u8]| forks.iter().any(|fork| **fork == *tag);
        let Some(remote) = remote else {
            // Our INVITE, its CANCEL, and answers to them without a tag.
            return seen.is_request == is_sent;
        };
        if is_known(remote) {
            return true;
        }

        // What we send is sent in a dialog that the call has; an answer to the INVITE makes one. Any other message with an unknown tag is of
        // no dialog of this leg.
        let teaches = match (is_sent, seen.is_request) {
            (true, true) => true,
            (false, false) => seen.method != Method::Other,
            (true, false) | (false, true) => false,
        };
        if teaches && forks.len() < MAX_FORKS {
            forks.push(remote.into());
        }
        teaches
    }
}
