//! Our tags, branches and Call-IDs: their content, their minting, and the check that tells them from forged ones.
//!
//! Each token carries the node, one of 1,024 virtual slots, 64 random bits and a short keyed MAC, so that a message that
//! returns it finds the shard that made it (RFC 3261 §8.1.1.7, §19.3). The shell maps slots to threads; this module doesn't
//! know the map.

use std::fmt;
use std::hash::Hasher;
use std::ops::Deref;

use siphasher::sip::SipHasher24;
use siphasher::sip128::{Hasher128, SipHasher24 as SipHasher24x128};

use crate::entropy::Entropy;
use crate::header::replaces::Replaces;
use crate::header::via::Via;
use crate::wire::{HeaderName, Message, Method};

/// A virtual slot, which a table of the shell maps to a thread.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Slot(u16);

impl Slot {
    /// Number of slots.
    pub const COUNT: u16 = 1024;

    /// The slot of that index, if it is below [`Slot::COUNT`].
    pub const fn new(index: u16) -> Option<Self> {
        if index < Self::COUNT {
            Some(Self(index))
        } else {
            None
        }
    }

    /// The index, below [`Slot::COUNT`].
    pub const fn index(self) -> u16 {
        self.0
    }

    const fn of_hash(hash: u64) -> Self {
        Self((hash % Self::COUNT as u64) as u16)
    }
}

/// The number of a node in a cluster that shares one secret.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Node(pub u8);

/// Content of our tag, branch or Call-ID, once its MAC has been checked.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct TagKey {
    /// The node that minted it.
    pub node: Node,
    /// The slot it belongs to.
    pub slot: Slot,
    /// Its random part.
    pub bits: u64,
}

/// Number of hex digits of node, slot, random part and MAC.
const NODE: usize = 2;
const SLOT: usize = 3;
const BITS: usize = 16;
const MAC: usize = 8;
const SIGNED: usize = NODE + SLOT + BITS;
const MINTED: usize = SIGNED + MAC;

/// The part of a branch's random octets that holds the hash of [`LoopKey`].
const LOOP_HASH: u64 = 0xffff_ffff;

/// Parts of an INVITE that stay the same while it loops. The Request-URI's user is among them: a proxy that retargets the INVITE changes
/// it, and the return of a retargeted INVITE is a spiral, not a loop.
#[derive(Copy, Clone, Debug)]
pub struct LoopKey<'a> {
    /// The Request-URI's user part, as sent.
    pub user: &'a [u8],
    /// From's tag.
    pub from_tag: &'a [u8],
    /// Call-ID.
    pub call_id: &'a [u8],
    /// The number in CSeq.
    pub cseq: u32,
}

impl<'a> LoopKey<'a> {
    fn of(invite: &Message<'a>) -> Self {
        Self {
            user: user_of(invite.request_uri()),
            from_tag: invite.from_tag().unwrap_or_default(),
            call_id: invite.call_id(),
            cseq: invite.cseq().number,
        }
    }
}

/// The user part of a URI; empty without one.
pub(crate) fn user_of(uri: &[u8]) -> &[u8] {
    let rest = uri
        .iter()
        .position(|octet| *octet == b':')
        .map_or(uri, |colon| &uri[colon + 1..]);
    let end = rest.iter().position(|octet| *octet == b'@');
    end.map_or(&[], |at| &rest[..at])
}

/// Vias of this deployment in an incoming INVITE.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Returned {
    /// Number of Vias of this deployment.
    pub ours: usize,
    /// True if one of them was added to this same INVITE.
    pub is_loop: bool,
}

/// The magic cookie of RFC 3261 §8.1.1.7.
const COOKIE: &[u8] = b"z9hG4bK";

/// A From- or To-tag of ours: 29 lower-case hex digits.
#[derive(Copy, Clone, PartialEq, Eq, Hash)]
pub struct Tag([u8; MINTED]);

/// A Call-ID of ours: 29 lower-case hex digits, without a host.
#[derive(Copy, Clone, PartialEq, Eq, Hash)]
pub struct CallId([u8; MINTED]);

/// A Via branch of ours: the magic cookie and 29 lower-case hex digits.
#[derive(Copy, Clone, PartialEq, Eq, Hash)]
pub struct Branch([u8; COOKIE.len() + MINTED]);

impl Tag {
    /// The random part.
    pub fn bits(&self) -> u64 {
        read_hex(&self.0[NODE + SLOT..SIGNED]).expect("a tag is minted from hex digits")
    }
}

macro_rules! token {
    ($name:ident) => {
        impl $name {
            /// The token as octets.
            pub const fn as_bytes(&self) -> &[u8] {
                &self.0
            }

            /// The token as text.
            pub fn as_str(&self) -> &str {
                std::str::from_utf8(&self.0).expect("minted from ASCII")
            }
        }

        impl Deref for $name {
            type Target = [u8];

            fn deref(&self) -> &[u8] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

token!(Tag);
token!(CallId);
token!(Branch);

/// Purpose of a token, so that a token minted for one purpose doesn't pass for another.
#[derive(Copy, Clone)]
enum Domain {
    Tag = 1,
    Branch = 2,
    CallId = 3,
    CallIdSlot = 4,
    Stateless = 5,
    Transaction = 6,
    Loop = 7,
}

/// Mints and recognises tokens of this node. Cheap to clone; all clones mint alike.
#[derive(Clone)]
pub struct Minter {
    node: Node,
    secret: [u8; 16],
}

impl fmt::Debug for Minter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Minter")
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

impl Minter {
    /// A minter for `node`, with the secret that the nodes of a cluster share.
    pub const fn new(node: Node, secret: [u8; 16]) -> Self {
        Self { node, secret }
    }

    /// The node of this minter.
    pub const fn node(&self) -> Node {
        self.node
    }

    /// A new tag.
    pub fn tag(&self, slot: Slot, entropy: &mut Entropy) -> Tag {
        self.tag_of(slot, entropy.bits64())
    }

    /// Prints the tag of this node with that slot and random part, as [`Minter::read_tag`] returned them.
    pub fn tag_of(&self, slot: Slot, bits: u64) -> Tag {
        Tag(self.mint(Domain::Tag, slot, bits))
    }

    /// Returns the content of a tag; `None` unless it was minted under our secret.
    pub fn read_tag(&self, tag: &[u8]) -> Option<TagKey> {
        self.read(Domain::Tag, tag)
    }

    /// A new branch.
    pub fn branch(&self, slot: Slot, entropy: &mut Entropy) -> Branch {
        self.branch_of(slot, entropy.bits64())
    }

    /// The branch of this node with that slot and random part.
    pub fn branch_of(&self, slot: Slot, bits: u64) -> Branch {
        let mut branch = [0; COOKIE.len() + MINTED];
        branch[..COOKIE.len()].copy_from_slice(COOKIE);
        branch[COOKIE.len()..].copy_from_slice(&self.mint(Domain::Branch, slot, bits));
        Branch(branch)
    }

    /// Returns the content of a branch; `None` unless it was minted under our secret.
    pub fn read_branch(&self, branch: &[u8]) -> Option<TagKey> {
        self.read(Domain::Branch, branch.strip_prefix(COOKIE)?)
    }

    /// A new Call-ID; [`Minter::slot_of_call_id`] returns `slot` for it.
    pub fn call_id(&self, slot: Slot, entropy: &mut Entropy) -> CallId {
        CallId(self.mint(Domain::CallId, slot, entropy.bits64()))
    }

    /// The random part of a new INVITE's branch. It ends with a keyed hash of the INVITE's loop key.
    pub(crate) fn invite_bits(&self, sent: &LoopKey<'_>, entropy: &mut Entropy) -> u64 {
        (entropy.bits64() & !LOOP_HASH) | self.loop_hash(sent)
    }

    /// Counts the Vias of this deployment in an incoming INVITE, and checks whether one was added to this same INVITE: a loop, not a
    /// spiral (RFC 3261 §16.3).
    pub fn returned(&self, invite: &Message<'_>) -> Returned {
        let mut returned = Returned::default();
        let mut hash = None;
        for via in invite.elements(HeaderName::Via) {
            // A Via that can't be read isn't one of ours.
            let branch = Via::parse(via).ok().and_then(|via| via.branch);
            let Some(key) = branch.and_then(|branch| self.read_branch(branch)) else {
                continue;
            };
            returned.ours += 1;
            // Hashed only once there is a Via of this deployment, which nearly no INVITE has.
            let hash = *hash.get_or_insert_with(|| self.loop_hash(&LoopKey::of(invite)));
            returned.is_loop |= key.bits & LOOP_HASH == hash;
        }
        returned
    }

    fn loop_hash(&self, key: &LoopKey<'_>) -> u64 {
        let LoopKey {
            user,
            from_tag,
            call_id,
            cseq,
        } = key;
        let parts: [&[u8]; 4] = [user, from_tag, call_id, &cseq.to_be_bytes()];
        self.hash64(Domain::Loop, &parts) & LOOP_HASH
    }

    /// The slot of a Call-ID: the one inside it if this node minted it, else a keyed hash.
    pub fn slot_of_call_id(&self, call_id: &[u8]) -> Slot {
        match self.read(Domain::CallId, call_id) {
            // Another node's slots say nothing about this node's threads, so its Call-IDs are hashed like a peer's.
            Some(key) if key.node == self.node => key.slot,
            Some(_) | None => Slot::of_hash(self.hash64(Domain::CallIdSlot, &[call_id])),
        }
    }

    /// Slot of a message's Call-ID.
    pub(crate) fn slot_of(&self, message: &Message<'_>) -> Slot {
        let known = message.keys().and_then(|keys| Slot::new(keys.slot));
        known.unwrap_or_else(|| self.slot_of_call_id(message.call_id()))
    }

    /// The slot whose shard handles a message. A response goes by our branch, a request by our To-tag, an INVITE that replaces one of our
    /// dialogs by that dialog's tag, any other message by its Call-ID.
    pub fn dispatch(&self, message: &Message<'_>) -> Slot {
        let ours = if message.is_request() {
            let tag = message.to_tag().or_else(|| replaced_tag(message));
            tag.and_then(|tag| self.read_tag(tag))
        } else {
            message
                .top_via()
                .branch
                .and_then(|branch| self.read_branch(branch))
        };

        match ours {
            Some(key) if key.node == self.node => key.slot,
            // All requests of a call that have no tag of ours meet here: an INVITE, its retransmissions, its CANCEL,
            // merged copies.
            Some(_) | None => self.slot_of(message),
        }
    }

    /// The To-tag of a stateless answer: the same for each retransmission of the request, and recognised in the ACK of an INVITE
    /// (RFC 3261 §8.2.7).
    pub fn stateless_tag(&self, request: &Message<'_>) -> Tag {
        self.tag_of(self.slot_of(request), self.stateless_bits(request))
    }

    fn stateless_bits(&self, request: &Message<'_>) -> u64 {
        let via = request.top_via();
        self.hash64(
            Domain::Stateless,
            &[
                request.call_id(),
                request.from_tag().unwrap_or_default(),
                &request.cseq().number.to_be_bytes(),
                via.branch.unwrap_or(via.head),
            ],
        )
    }

    /// Returns true if `request`, an ACK, carries the tag of a stateless answer to its INVITE.
    pub fn is_stateless_tag(&self, request: &Message<'_>) -> bool {
        let Some(tag) = request.to_tag().filter(|tag| tag.len() == MINTED) else {
            return false;
        };
        // The random parts are compared first. That of a dialog's tag differs, and then no MAC is computed.
        let bits = self.stateless_bits(request);
        read_hex(&tag[NODE + SLOT..SIGNED]) == Some(bits)
            && *tag == *self.tag_of(self.slot_of(request), bits)
    }

    /// Hashes parts with arbitrary content to 128 bits, keyed.
    pub(crate) fn hash128(&self, parts: &[&[u8]]) -> u128 {
        let mut hasher = SipHasher24x128::new_with_key(&self.secret);
        write_parts(&mut hasher, Domain::Transaction, parts);
        hasher.finish128().as_u128()
    }

    /// A keyed hasher for hash tables whose keys peers choose.
    pub(crate) fn hasher(&self) -> SipHasher24 {
        SipHasher24::new_with_key(&self.secret)
    }

    fn hash64(&self, domain: Domain, parts: &[&[u8]]) -> u64 {
        let mut hasher = self.hasher();
        write_parts(&mut hasher, domain, parts);
        hasher.finish()
    }

    fn mint(&self, domain: Domain, slot: Slot, bits: u64) -> [u8; MINTED] {
        let mut token = [0; MINTED];
        write_hex(&mut token[..NODE], u64::from(self.node.0));
        write_hex(&mut token[NODE..NODE + SLOT], u64::from(slot.0));
        write_hex(&mut token[NODE + SLOT..SIGNED], bits);
        let mac = self.mac(domain, &token[..SIGNED]);
        write_hex(&mut token[SIGNED..], u64::from(mac));
        token
    }

    fn read(&self, domain: Domain, token: &[u8]) -> Option<TagKey> {
        if token.len() != MINTED {
            return None;
        }
        let (signed, mac) = token.split_at(SIGNED);
        if read_hex(mac)? != u64::from(self.mac(domain, signed)) {
            return None;
        }
        Some(TagKey {
            node: Node(u8::try_from(read_hex(&signed[..NODE])?).ok()?),
            slot: Slot::new(u16::try_from(read_hex(&signed[NODE..NODE + SLOT])?).ok()?)?,
            bits: read_hex(&signed[NODE + SLOT..])?,
        })
    }

    fn mac(&self, domain: Domain, signed: &[u8]) -> u32 {
        (self.hash64(domain, &[signed]) >> 32) as u32
    }
}

/// Writes each part after its length, so that two different lists of parts never hash the same octets.
fn write_parts(hasher: &mut impl Hasher, domain: Domain, parts: &[&[u8]]) {
    hasher.write_u8(domain as u8);
    for part in parts {
        hasher.write_u32(part.len() as u32);
        hasher.write(part);
    }
}

fn write_hex(out: &mut [u8], mut value: u64) {
    for digit in out.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(value & 15) as usize];
        value >>= 4;
    }
}

/// Reads lower-case digits only, so that a token has one spelling.
fn read_hex(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0, |value, digit| {
        let nibble = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(value << 4 | u64::from(nibble))
    })
}

/// Our tag in the dialog that an INVITE replaces (RFC 3891).
fn replaced_tag<'m>(message: &Message<'m>) -> Option<&'m [u8]> {
    if message.method() != Method::Invite {
        return None;
    }
    let value = message.first(HeaderName::Replaces)?;
    Replaces::parse(value).map(|replaces| replaces.to_tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minter(node: u8) -> Minter {
        Minter::new(Node(node), [7; 16])
    }

    fn entropy() -> Entropy {
        Entropy::from_seed([1; 32])
    }

    fn slot(index: u16) -> Slot {
        Slot::new(index).expect("below COUNT")
    }

    #[test]
    fn slots_end_at_their_count() {
        assert_eq!(Slot::new(1023).map(Slot::index), Some(1023));
        assert_eq!(Slot::new(1024), None);
    }

    #[test]
    fn a_tag_is_read_back_as_minted() {
        for index in [0, 1, 511, 1023] {
            let tag = minter(3).tag(slot(index), &mut entropy());
            let key = TagKey {
                node: Node(3),
                slot: slot(index),
                bits: tag.bits(),
            };
            assert_eq!(minter(3).read_tag(&tag), Some(key));
            assert_eq!(minter(3).tag_of(slot(index), tag.bits()), tag);
        }
    }

    #[test]
    fn one_changed_digit_makes_a_token_foreign() {
        let branch = minter(3).branch(slot(9), &mut entropy());
        for at in 0..branch.len() {
            let mut forged = branch.to_vec();
            forged[at] = if forged[at] == b'0' { b'1' } else { b'0' };
            assert_eq!(minter(3).read_branch(&forged), None, "digit {at}");
        }
    }

    #[test]
    fn foreign_spellings_are_refused() {
        let tag = minter(3).tag(slot(9), &mut entropy());
        let cases: [(&str, Vec<u8>); 4] = [
            ("empty", vec![]),
            ("short", tag[1..].to_vec()),
            ("long", [&tag[..], b"0"].concat()),
            ("upper case", tag.to_ascii_uppercase()),
        ];

        for (name, spelling) in cases {
            assert_eq!(minter(3).read_tag(&spelling), None, "{name}");
        }
        assert_eq!(
            Minter::new(Node(3), [8; 16]).read_tag(&tag),
            None,
            "another secret"
        );
    }

    #[test]
    fn a_token_serves_one_purpose() {
        let tag = minter(3).tag(slot(9), &mut entropy());
        assert_eq!(minter(3).read_branch(&[COOKIE, &tag].concat()), None);
    }

    #[test]
    fn our_call_ids_lead_home_and_others_to_a_hash() {
        let call_id = minter(3).call_id(slot(77), &mut entropy());
        assert_eq!(minter(3).slot_of_call_id(&call_id), slot(77));
        let slots: std::collections::HashSet<_> = (0..4096)
            .map(|n: u32| minter(3).slot_of_call_id(n.to_string().as_bytes()))
            .collect();
        assert!(
            slots.len() > 900,
            "4096 Call-IDs meet most of 1024 slots, not {}",
            slots.len()
        );
    }

    fn message(first: &str, branch: &str, call_id: &str, to: &str) -> Vec<u8> {
        let number = if first.starts_with("ACK") {
            "7 ACK"
        } else {
            "7 INVITE"
        };
        format!(
            "{first}\r\nVia: SIP/2.0/UDP 192.0.2.1;branch={branch}\r\nFrom: <sip:a@b>;tag=from\r\n\
             To: <sip:c@d>{to}\r\nCall-ID: {call_id}\r\nCSeq: {number}\r\nContent-Length: 0\r\n\r\n"
        )
        .into_bytes()
    }

    fn lexed(octets: &[u8]) -> Message<'_> {
        crate::wire::lex(octets, crate::wire::Framing::Datagram).expect("the message is in order")
    }

    #[test]
    fn messages_go_where_our_tokens_say_and_else_by_call_id() {
        let minter = minter(3);
        let branch = minter.branch(slot(40), &mut entropy());
        let tag = minter.tag(slot(41), &mut entropy());
        let foreign = Minter::new(Node(4), [7; 16]).tag(slot(41), &mut entropy());
        let by_call_id = minter.slot_of_call_id(b"x@y");
        let (invite, ok) = ("INVITE sip:c@d SIP/2.0", "SIP/2.0 200 OK");

        let cases = [
            (
                "our branch",
                message(ok, branch.as_str(), "x@y", ";tag=theirs"),
                slot(40),
            ),
            (
                "another's branch",
                message(ok, "z9hG4bKx", "x@y", ";tag=theirs"),
                by_call_id,
            ),
            (
                "our tag",
                message(invite, "z9hG4bKx", "x@y", &format!(";tag={tag}")),
                slot(41),
            ),
            ("no tag", message(invite, "z9hG4bKx", "x@y", ""), by_call_id),
            (
                "another node's tag",
                message(invite, "z9hG4bKx", "x@y", &format!(";tag={foreign}")),
                by_call_id,
            ),
            (
                "our branch in a request",
                message(invite, branch.as_str(), "x@y", ""),
                by_call_id,
            ),
        ];

        for (name, octets, expected) in cases {
            assert_eq!(minter.dispatch(&lexed(&octets)), expected, "{name}");
        }
    }

    #[test]
    fn the_ack_of_a_stateless_answer_is_known_by_its_tag() {
        let minter = minter(3);
        let invite = message("INVITE sip:c@d SIP/2.0", "z9hG4bKx", "x@y", "");
        let tag = minter.stateless_tag(&lexed(&invite));
        assert_eq!(tag, minter.stateless_tag(&lexed(&invite)));
        assert!(minter.read_tag(&tag).is_some(), "it is a tag of ours");

        let to = format!(";tag={tag}");
        let cases = [
            (
                "its ACK",
                message("ACK sip:c@d SIP/2.0", "z9hG4bKx", "x@y", &to),
                true,
            ),
            (
                "of another branch",
                message("ACK sip:c@d SIP/2.0", "z9hG4bKy", "x@y", &to),
                false,
            ),
            (
                "of another call",
                message("ACK sip:c@d SIP/2.0", "z9hG4bKx", "y@y", &to),
                false,
            ),
            (
                "without tag",
                message("ACK sip:c@d SIP/2.0", "z9hG4bKx", "x@y", ""),
                false,
            ),
        ];
        for (name, octets, expected) in cases {
            assert_eq!(minter.is_stateless_tag(&lexed(&octets)), expected, "{name}");
        }
    }

    #[test]
    fn parts_do_not_run_into_each_other() {
        assert_ne!(
            minter(3).hash128(&[b"ab", b"c"]),
            minter(3).hash128(&[b"a", b"bc"])
        );
    }
}
