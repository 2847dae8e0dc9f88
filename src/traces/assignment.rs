//! Assignment of messages to the legs of calls, by the identities that shards report: the transaction of the INVITE that began a leg, and the
//! dialogs in which we have a tag of our own. A Call-ID alone assigns nothing, because each peer chooses its own, and text in a message
//! assigns nothing either.
//!
//! Our tag decides: we made it for one leg, and the direction of a message tells which of its two tags is ours. A message with our tag counts
//! only if its Call-ID and its peer's tag are the leg's too.

use std::collections::hash_map::RandomState;
use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher as _, Hash, Hasher as _};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use siphasher::sip::SipHasher13;
use slab::Slab;
use smallvec::SmallVec;
use trunkline_bounds::{IdTable, PartnerShare};
use trunkline_calls::parts::wall_clock::WallOffset;
use trunkline_calls::{DialogIdentity, InviteParts, LegRole, TracedLeg};
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::scan::{self, Method, Seen};

/// Time after a call's end in which its late messages are still assigned to it: transactions last 32 s (RFC 3261 §17).
const LATE: Duration = Duration::from_secs(60);
/// Ended calls remembered for that time, at most.
const MAX_ENDED: usize = 16_384;
/// Peers' tags remembered of the forks of one INVITE.
const MAX_FORKS: usize = 32;
/// Transactions of peers' INVITEs remembered of one call. A caller that is challenged begins with two.
const MAX_INVITES: usize = 8;
/// Headers that may be credentials remembered of one call: an agent's runtime has 20 at most.
const MAX_SECRETS: usize = 40;
/// Octets of one call's messages: more than a trace shows, and little beside what all calls may have. Further messages aren't kept.
const OCTETS_OF_CALL: usize = 4 << 20;

/// Report of a shard about a call.
#[derive(Debug)]
pub(super) enum LegReport {
    /// Messages with this identity belong to the leg. The offset is that of the wall clock then.
    Begun(TracedLeg, Box<DialogIdentity>, WallOffset),
    /// The call is over.
    Over(Uuid),
    /// Partner of an org.
    Partner(Uuid, PartnerShare),
}

/// Keyed fingerprints, kept instead of texts: peers choose their texts, and may make them long. Without the keys, nobody can make two texts
/// with one fingerprint.
#[derive(Debug)]
struct Fingerprints {
    keys: (u64, u64),
}

impl Default for Fingerprints {
    fn default() -> Self {
        let random = RandomState::new();
        Self {
            keys: (random.hash_one(0), random.hash_one(1)),
        }
    }
}

impl Fingerprints {
    fn of<T: Hash + ?Sized>(&self, parts: &T) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.keys.0, self.keys.1);
        parts.hash(&mut hasher);
        hasher.finish()
    }

    /// The transaction that a message belongs to, if it is an INVITE, or its ACK, CANCEL or answer.
    fn of_transaction(&self, seen: &Seen<'_>, peer: IpAddr) -> u64 {
        let from_tag = seen.from_tag.unwrap_or_default();
        self.of(&(
            [seen.call_id, from_tag, seen.sent_by(), seen.branch()],
            peer,
        ))
    }

    /// A header, by its name in small letters and its value.
    fn of_header(&self, name: &[u8], value: &[u8]) -> u64 {
        self.of(&[name, value])
    }

    /// The parts of an INVITE that stay when it is sent again after a challenge (RFC 3261 §8.1.3.5).
    ///
    /// The Request-URI is one of them. A proxy that serves two orgs may fork one call to both, with one Call-ID and one From-tag.
    fn of_repeated(&self, texts: [&[u8]; 2], request_uri: &[u8], peer: SocketAddr) -> u64 {
        // A kept message has no password any more, and the INVITE that begins the call has it still.
        let uri = scan::struck_uri(request_uri);
        self.of(&(texts, &*uri, peer))
    }
}

/// A leg: the place of its call among those known, and the rest of its [`TracedLeg`].
#[derive(Copy, Clone, Debug)]
struct KnownLeg {
    call: u32,
    leg: u8,
    role: LegRole,
}

/// Dialogs with one tag of ours.
#[derive(Debug)]
struct Dialog {
    leg: KnownLeg,
    call_id: u64,
    peer: PeerTags,
}

/// Fingerprints of a peer's tags.
#[derive(Debug)]
enum PeerTags {
    /// The peer began the dialog with this tag; without one, if it is of RFC 2543.
    Fixed(Option<u64>),
    /// We sent the INVITE: its answers bring the tags of its forks.
    Forks(SmallVec<[u64; 2]>),
}

/// Known identities of one call, and the size of its messages.
#[derive(Debug)]
struct KnownCall {
    org: Uuid,
    call: Uuid,
    octets: usize,
    /// Offset of the wall clock when its first leg began, on which the times of its messages are.
    wall: WallOffset,
    tags: SmallVec<[u64; 2]>,
    /// At most [`MAX_INVITES`].
    invites: SmallVec<[u64; 2]>,
    /// Names and values of headers that may be credentials; at most [`MAX_SECRETS`].
    secrets: Vec<u64>,
}

/// Identities of the legs of calls that are up, and of those that have ended a moment ago.
#[derive(Debug, Default)]
pub(super) struct Assignments {
    /// By the fingerprint of our tag.
    dialogs: IdTable<u64, Dialog>,
    /// By the fingerprint of the transaction of a peer's INVITE.
    invites: IdTable<u64, KnownLeg>,
    calls: Slab<KnownCall>,
    /// Places among the calls, by their ids.
    places: IdTable<Uuid, u32>,
    /// Ended calls, in order.
    over: VecDeque<(Moment, Uuid)>,
    fingerprints: Fingerprints,
}

/// Assignment of a message. Good until a call is forgotten.
#[derive(Copy, Clone, Debug)]
pub(super) struct Assigned {
    pub(super) leg: TracedLeg,
    /// Place of the call.
    call: u32,
}

/// INVITEs that have begun calls in one batch, by what an earlier INVITE of the same caller has too: the caller was challenged, and sent
/// it again with credentials.
#[derive(Debug, Default)]
pub(super) struct Repeated {
    /// `None` where two orgs have the same, so that neither gets the other's.
    legs: IdTable<u64, Option<TracedLeg>>,
    /// Keys of messages with their Call-IDs.
    keys: HashSet<u64>,
}

impl Repeated {
    pub(super) fn is_empty(&self) -> bool {
        self.legs.is_empty()
    }

    /// Keys under which blocks have messages with the Call-IDs of these INVITEs.
    pub(super) const fn keys(&self) -> &HashSet<u64> {
        &self.keys
    }
}

impl Assignments {
    /// Takes a report that messages belong to a leg. Adds the leg to `repeated` if a peer's INVITE began it.
    pub(super) fn begin(
        &mut self,
        leg: TracedLeg,
        identity: DialogIdentity,
        wall: WallOffset,
        repeated: &mut Repeated,
    ) {
        let known_leg = KnownLeg {
            call: self.place_of(&leg, wall),
            leg: leg.leg,
            role: leg.role,
        };

        match identity {
            DialogIdentity::Invite(invite, flow) => {
                let InviteParts {
                    call_id,
                    from_tag,
                    request_uri,
                    sent_by,
                    branch,
                } = invite.parts();
                let texts = [call_id, from_tag];
                let same = self.fingerprints.of_repeated(texts, request_uri, flow.peer);
                repeated.keys.insert(scan::key(call_id));
                let entry = repeated.legs.entry(same).or_insert(Some(leg));
                if entry.is_some_and(|other| other.org != leg.org) {
                    *entry = None;
                }

                let texts = [call_id, from_tag, sent_by, branch];
                let transaction = self.fingerprints.of(&(texts, flow.peer.ip()));
                self.add_invite(transaction, known_leg);
            }
            DialogIdentity::Tag {
                call_id,
                local,
                remote,
                secrets,
            } => {
                let fingerprint = self.fingerprints.of(local.as_bytes());
                let known = &mut self.calls[known_leg.call as usize];
                known.tags.push(fingerprint);
                for (name, value) in secrets.iter().filter(|(_, value)| !value.is_empty()) {
                    let name = name.to_ascii_lowercase();
                    let secret = self
                        .fingerprints
                        .of_header(name.as_bytes(), value.as_bytes());
                    if known.secrets.len() < MAX_SECRETS && !known.secrets.contains(&secret) {
                        known.secrets.push(secret);
                    }
                }
                let peer = match remote {
                    Some(tag) => {
                        PeerTags::Fixed((!tag.is_empty()).then(|| self.fingerprints.of(&*tag)))
                    }
                    None => PeerTags::Forks(SmallVec::new()),
                };
                let dialog = Dialog {
                    leg: known_leg,
                    call_id: self.fingerprints.of(&*call_id),
                    peer,
                };
                self.dialogs.insert(fingerprint, dialog);
            }
        }
    }

    /// Returns the place of a leg's call, which becomes known if it isn't.
    fn place_of(&mut self, leg: &TracedLeg, wall: WallOffset) -> u32 {
        let calls = &mut self.calls;
        *self.places.entry(leg.call).or_insert_with(|| {
            let place = calls.insert(KnownCall {
                org: leg.org,
                call: leg.call,
                octets: 0,
                wall,
                tags: SmallVec::new(),
                invites: SmallVec::new(),
                secrets: Vec::new(),
            });
            u32::try_from(place).expect("fewer calls than an int of 32 bits has values")
        })
    }

    fn assigned(&self, leg: KnownLeg) -> Assigned {
        let KnownCall { org, call, .. } = self.calls[leg.call as usize];
        Assigned {
            leg: TracedLeg {
                org,
                call,
                leg: leg.leg,
                role: leg.role,
            },
            call: leg.call,
        }
    }

    /// Adds the transaction of an INVITE; false if the call has had its share.
    fn add_invite(&mut self, transaction: u64, leg: KnownLeg) -> bool {
        let known = &mut self.calls[leg.call as usize];
        if !known.invites.contains(&transaction) {
            if known.invites.len() >= MAX_INVITES {
                return false;
            }
            known.invites.push(transaction);
        }
        self.invites.insert(transaction, leg);
        true
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
        let Some(place) = self.places.remove(&call) else {
            return;
        };
        let known = self.calls.remove(place as usize);
        for tag in known.tags {
            // The leg may have joined another call.
            let dialog = self.dialogs.get(&tag);
            if dialog.is_some_and(|dialog| dialog.leg.call == place) {
                self.dialogs.remove(&tag);
            }
        }
        for transaction in known.invites {
            // The same transaction may have begun a later call.
            let leg = self.invites.get(&transaction);
            if leg.is_some_and(|leg| leg.call == place) {
                self.invites.remove(&transaction);
            }
        }
    }

    /// Strikes headers that may be credentials out of a message of a call, on whichever of its legs it is.
    pub(super) fn strike_secrets(
        &self,
        of: &Assigned,
        octets: &mut [u8],
        places: &scan::HeaderPositions,
    ) {
        let secrets = &self.calls[of.call as usize].secrets;
        if !secrets.is_empty() {
            scan::strike_known(octets, places, |name, value| {
                secrets.contains(&self.fingerprints.of_header(name, value))
            });
        }
    }

    /// Counts a message of a call; false if the call has had its share.
    pub(super) fn has_room(&mut self, of: &Assigned, octets: usize) -> bool {
        let known = &mut self.calls[of.call as usize];
        known.octets = known.octets.saturating_add(octets);
        known.octets <= OCTETS_OF_CALL
    }

    /// Returns the offset on which the times of a call's messages are.
    pub(super) fn offset_of(&self, of: &Assigned) -> WallOffset {
        self.calls[of.call as usize].wall
    }

    /// Returns the leg that a message belongs to.
    pub(super) fn leg_of(
        &mut self,
        is_sent: bool,
        peer: SocketAddr,
        seen: &Seen<'_>,
    ) -> Option<Assigned> {
        let leg = self
            .by_tag(is_sent, seen)
            .or_else(|| self.by_invite(is_sent, peer.ip(), seen))?;
        Some(self.assigned(leg))
    }

    /// Assigns an INVITE that came before the one that began a leg, from the same source with the same Call-ID, tag and Request-URI: a
    /// challenge was its answer, or it waited for the proof of its source. From then on its answers and its ACK belong to the leg too.
    pub(super) fn leg_of_repeated(
        &mut self,
        is_sent: bool,
        peer: SocketAddr,
        seen: &Seen<'_>,
        repeated: &Repeated,
    ) -> Option<Assigned> {
        let is_first =
            !is_sent && seen.is_request && seen.method == Method::Invite && seen.to_tag.is_none();
        if !is_first || repeated.is_empty() {
            return None;
        }
        let from_tag = seen.from_tag.unwrap_or_default();
        let texts = [seen.call_id, from_tag];
        let same = self.fingerprints.of_repeated(texts, seen.request_uri, peer);
        let leg = repeated.legs.get(&same).copied().flatten()?;
        let transaction = self.fingerprints.of_transaction(seen, peer.ip());
        // It began in the same batch.
        let known = KnownLeg {
            call: *self.places.get(&leg.call)?,
            leg: leg.leg,
            role: leg.role,
        };
        // A trace without an INVITE is better than one with an INVITE that nobody answers.
        self.add_invite(transaction, known)
            .then(|| self.assigned(known))
    }

    fn by_tag(&mut self, is_sent: bool, seen: &Seen<'_>) -> Option<KnownLeg> {
        // Our tag is in To of what answers a peer or comes from it as a request, else in From.
        let (local, remote) = match seen.is_request != is_sent {
            true => (seen.to_tag, seen.from_tag),
            false => (seen.from_tag, seen.to_tag),
        };
        let local = local?;
        let fingerprints = &self.fingerprints;
        let dialog = self.dialogs.get_mut(&fingerprints.of(local))?;
        let remote = remote
            .filter(|tag| !tag.is_empty())
            .map(|tag| fingerprints.of(tag));
        let is_its = dialog.call_id == fingerprints.of(seen.call_id)
            && dialog.peer.admits(is_sent, seen, remote);
        is_its.then_some(dialog.leg)
    }

    fn by_invite(&self, is_sent: bool, peer: IpAddr, seen: &Seen<'_>) -> Option<KnownLeg> {
        // Requests of the peer, and our answers to them.
        let is_of_invite = seen.is_request != is_sent && seen.method != Method::Other;
        if !is_of_invite {
            return None;
        }
        let transaction = self.fingerprints.of_transaction(seen, peer);
        self.invites.get(&transaction).copied()
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
    fn admits(&mut self, is_sent: bool, seen: &Seen<'_>, remote: Option<u64>) -> bool {
        let forks = match self {
            Self::Fixed(tag) => return remote == *tag,
            Self::Forks(forks) => forks,
        };

        let Some(remote) = remote else {
            // Our INVITE, its CANCEL, and answers to them without a tag.
            return seen.is_request == is_sent;
        };
        if forks.contains(&remote) {
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
            forks.push(remote);
        }
        teaches
    }
}
