//! Nonces that need no memory until a client uses one: a MAC proves their content (RFC 7616 §3.3, §5.4).
//!
//! 32 octets in URL-safe base64: milliseconds since the epoch (6), a tag of the issuer's choice (2), random bits (4), a mark (4), a MAC
//! (16). The mark is half of the SipHash-2-4 of the three parts before it, under a key that all nodes of a deployment share. The MAC is
//! the first half of an HMAC-SHA-256 over the four parts before it and the source of the request, under the node's own key. The mark lets
//! any node recognise a nonce of the deployment; the MAC lets only its issuer accept it.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use siphasher::sip::SipHasher24;

use super::secret::Secret;
use crate::entropy::Entropy;
use crate::flow::Flow;
use crate::moment::Moment;

const MARKED: usize = 12;
const SIGNED: usize = 16;
const OCTETS: usize = 32;
const DIGITS: usize = 43;
/// Octets of a source under the MAC: its kind, and the part of the address that counts.
const SOURCE: usize = 7;

/// Lifetime of a nonce unless configured otherwise.
pub const LIFETIME: Duration = Duration::from_secs(300);

/// Issues nonces and recognises them. Cloned to every shard.
#[derive(Clone)]
pub struct Nonces {
    keyed: Hmac<Sha256>,
    /// Makes the mark. An HMAC cut to four octets would be no harder to guess, and took 2 % of the core's instructions
    /// of a call (`just instructions --profile`).
    shared: SipHasher24,
    lifetime: Duration,
    decoy: Secret,
}

/// Keys of the MAC in nonces.
#[derive(Clone)]
pub struct NonceKeys {
    /// Key of this node alone: no other node accepts its nonces.
    pub node: [u8; 32],
    /// Key that all nodes share, by which each recognises the nonces of the others.
    pub deployment: [u8; 32],
}

/// Reason to challenge a request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ChallengeCause<'n> {
    /// The request has no credentials for our realm.
    Bare,
    /// The sender knows the password, but the nonce can no longer be used (`stale=true`).
    Stale,
    /// The credentials with this nonce are wrong. The next challenge repeats the nonce while it is fresh, which shows the client that the
    /// password was refused (RFC 7616 §3.3, `stale`). Clients of pjsip try a wrong password again with every new nonce.
    Wrong(&'n [u8]),
}

/// State of a nonce.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum NonceState {
    /// Issued by this node, and within its lifetime.
    Fresh,
    /// Issued by this node, but too old, or from a clock ahead of ours.
    Stale,
    /// Not issued under this node's key: by another node, to another source, or forged.
    Foreign,
}

/// Source that a nonce is good for: over UDP the IPv4 /24 or IPv6 /48 of the peer, whose port a NAT may change with each request. A nonce is worth
/// nothing to a peer that forges its source, since it doesn't get the challenges of that source. All streams count as one source, since their
/// handshake proves it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct NonceSource([u8; SOURCE]);

impl NonceSource {
    /// Source of the messages of a flow.
    pub fn of(flow: &Flow) -> Self {
        let mut source = [0; SOURCE];
        if flow.transport.is_reliable() {
            return Self(source);
        }
        match flow.peer.ip().to_canonical() {
            IpAddr::V4(v4) => {
                source[0] = 4;
                source[1..4].copy_from_slice(&v4.octets()[..3]);
            }
            IpAddr::V6(v6) => {
                source[0] = 6;
                source[1..].copy_from_slice(&v6.octets()[..6]);
            }
        }
        Self(source)
    }
}

/// A nonce as text.
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct Nonce([u8; DIGITS]);

impl Nonces {
    /// Issues nonces under `keys`, good for `lifetime`.
    pub fn new(keys: NonceKeys, lifetime: Duration) -> Self {
        let NonceKeys { node, deployment } = keys;
        let keyed = Hmac::<Sha256>::new_from_slice(&node).expect("HMAC takes a key of any length");
        Self {
            decoy: Secret::decoy(&key_of_decoy(&keyed)),
            keyed,
            // SipHash takes half of the key.
            shared: SipHasher24::new_with_key(&std::array::from_fn(|at| deployment[at])),
            lifetime,
        }
    }

    /// The secret to check unknown user names against: no password hashes to it, and only this node knows it.
    pub const fn decoy(&self) -> &Secret {
        &self.decoy
    }

    /// Issues a nonce to a source. It carries `tag` unencrypted, for instance the slot of the shard that issues it.
    pub fn issue(
        &self,
        tag: u16,
        source: NonceSource,
        entropy: &mut Entropy,
        now: Moment,
    ) -> Nonce {
        let mut octets = [0; OCTETS];
        octets[..6].copy_from_slice(&now.as_millis().to_be_bytes()[2..]);
        octets[6..8].copy_from_slice(&tag.to_be_bytes());
        octets[8..MARKED].copy_from_slice(&entropy.bits64().to_be_bytes()[..4]);

        let mark = self.mark(&octets[..MARKED]);
        octets[MARKED..SIGNED].copy_from_slice(&mark);
        let mac = self.mac(&octets[..SIGNED], source).finalize().into_bytes();
        octets[SIGNED..].copy_from_slice(&mac[..OCTETS - SIGNED]);

        let mut digits = [0; DIGITS];
        URL_SAFE_NO_PAD
            .encode_slice(octets, &mut digits)
            .expect("32 octets are 43 digits of base64");
        Nonce(digits)
    }

    /// Returns the nonce of the next challenge.
    pub fn for_challenge(
        &self,
        cause: ChallengeCause<'_>,
        tag: u16,
        source: NonceSource,
        entropy: &mut Entropy,
        now: Moment,
    ) -> Nonce {
        let again = match cause {
            // A nonce that is no longer good isn't repeated: even the right password would get `stale` for it.
            ChallengeCause::Wrong(used) if self.check(used, source, now) == NonceState::Fresh => {
                used.try_into().ok()
            }
            ChallengeCause::Wrong(_) | ChallengeCause::Bare | ChallengeCause::Stale => None,
        };
        again.map_or_else(|| self.issue(tag, source, entropy, now), Nonce)
    }

    /// Returns the state of a nonce that comes from `source` at `now`.
    pub fn check(&self, nonce: &[u8], source: NonceSource, now: Moment) -> NonceState {
        let Some(read) = Issued::read(nonce) else {
            return NonceState::Foreign;
        };
        let is_ours = self
            .mac(&read.octets[..SIGNED], source)
            .verify_truncated_left(&read.octets[SIGNED..])
            .is_ok();
        if !is_ours {
            NonceState::Foreign
        } else if read.at <= now && now.since(read.at) <= self.lifetime {
            NonceState::Fresh
        } else {
            NonceState::Stale
        }
    }

    /// Returns true if a node of this deployment has issued the nonce, however long ago.
    pub fn is_of_deployment(&self, nonce: &[u8]) -> bool {
        Issued::read(nonce)
            .is_some_and(|read| self.mark(&read.octets[..MARKED]) == read.octets[MARKED..SIGNED])
    }

    fn mark(&self, marked: &[u8]) -> [u8; SIGNED - MARKED] {
        let hash = self.shared.hash(marked);
        ((hash >> 32) as u32).to_be_bytes()
    }

    fn mac(&self, signed: &[u8], source: NonceSource) -> Hmac<Sha256> {
        self.keyed
            .clone()
            .chain_update(signed)
            .chain_update(source.0)
    }
}

impl Nonce {
    /// The text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("base64 is ASCII")
    }

    /// The text as octets.
    pub const fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Derives the key of the decoy from the node's key. The label is shorter than what the MAC of a nonce covers, so that no nonce carries
/// this MAC.
fn key_of_decoy(keyed: &Hmac<Sha256>) -> [u8; 32] {
    keyed
        .clone()
        .chain_update(b"the secret of nobody")
        .finalize()
        .into_bytes()
        .into()
}

/// Content of a nonce before its MAC is checked.
pub(super) struct Issued {
    octets: [u8; OCTETS],
    /// Moment of issue, to the millisecond.
    pub(super) at: Moment,
}

impl Issued {
    /// Splits a nonce into its parts; `None` if it doesn't have the form of our nonces.
    pub(super) fn read(nonce: &[u8]) -> Option<Self> {
        if nonce.len() != DIGITS {
            return None;
        }
        let mut octets = [0; OCTETS];
        URL_SAFE_NO_PAD.decode_slice(nonce, &mut octets).ok()?;
        let [a, b, c, d, e, f, ..] = octets;
        let millis = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
        Some(Self {
            octets,
            at: Moment::from_micros(millis * 1000),
        })
    }

    /// 64 bits of the MAC. Once the MAC is verified, no client can have chosen them.
    pub(super) const fn fingerprint(&self) -> u64 {
        let [.., a, b, c, d, e, f, g, h] = self.octets;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for NonceKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NonceKeys").finish_non_exhaustive()
    }
}

impl fmt::Debug for Nonces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nonces")
            .field("lifetime", &self.lifetime)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::flow::Transport;

    const NOW: Moment = Moment::from_secs(1_790_000_000);
    const SOURCE_A: NonceSource = NonceSource([4, 192, 0, 2, 0, 0, 0]);

    fn nonces(key: u8) -> Nonces {
        Nonces::new(
            NonceKeys {
                node: [key; 32],
                deployment: [9; 32],
            },
            LIFETIME,
        )
    }

    #[test]
    fn a_nonce_lives_as_long_as_it_should() {
        let nonce = nonces(1).issue(7, SOURCE_A, &mut Entropy::from_seed([1; 32]), NOW);
        let millisecond = Duration::from_millis(1);
        for (name, checker, at, state) in [
            ("at once", 1, NOW, NonceState::Fresh),
            ("on its last day", 1, NOW + LIFETIME, NonceState::Fresh),
            (
                "past it",
                1,
                NOW + LIFETIME + millisecond,
                NonceState::Stale,
            ),
            (
                "before it was made",
                1,
                NOW - millisecond,
                NonceState::Stale,
            ),
            ("another node", 2, NOW, NonceState::Foreign),
        ] {
            assert_eq!(
                nonces(checker).check(nonce.as_bytes(), SOURCE_A, at),
                state,
                "{name}"
            );
        }
    }

    #[test]
    fn a_nonce_is_good_from_the_source_that_it_was_given_to() {
        let source = |transport, peer: &str| {
            let peer = peer.parse().expect("an address");
            NonceSource::of(&Flow {
                transport,
                listener: 0,
                connection: u32::from(transport != Transport::Udp),
                local: peer,
                peer,
            })
        };
        let udp = |peer| source(Transport::Udp, peer);
        let tcp = |peer| source(Transport::Tcp, peer);
        let tls = |peer| source(Transport::Tls, peer);
        for (case, given, used, is_good) in [
            (
                "another port, as a NAT may have it",
                udp("192.0.2.1:5060"),
                udp("192.0.2.1:40000"),
                true,
            ),
            (
                "IPv4 on an IPv6 socket",
                udp("192.0.2.1:5060"),
                udp("[::ffff:192.0.2.1]:5060"),
                true,
            ),
            (
                "a neighbour",
                udp("192.0.2.1:5060"),
                udp("192.0.2.99:5060"),
                true,
            ),
            (
                "another network",
                udp("192.0.2.1:5060"),
                udp("192.0.3.1:5060"),
                false,
            ),
            (
                "another address of an IPv6 site",
                udp("[2001:db8:1:2::3]:5060"),
                udp("[2001:db8:1:9::4]:5060"),
                true,
            ),
            (
                "another IPv6 site",
                udp("[2001:db8:1::3]:5060"),
                udp("[2001:db8:2::3]:5060"),
                false,
            ),
            (
                "got over TCP, sent from a forged address",
                tcp("192.0.2.1:5060"),
                udp("192.0.2.1:5060"),
                false,
            ),
            (
                "another connection",
                tcp("192.0.2.1:5060"),
                tls("198.51.100.1:5061"),
                true,
            ),
        ] {
            let nonce = nonces(1).issue(7, given, &mut Entropy::from_seed([1; 32]), NOW);
            let state = nonces(1).check(nonce.as_bytes(), used, NOW);
            assert_eq!(state == NonceState::Fresh, is_good, "{case}");
        }
    }

    #[test]
    fn a_wrong_answer_is_challenged_with_the_same_nonce_while_that_is_good() {
        let mut entropy = Entropy::from_seed([1; 32]);
        let nonces = nonces(1);
        let used = nonces.issue(7, SOURCE_A, &mut entropy, NOW);
        let old = nonces.issue(7, SOURCE_A, &mut entropy, NOW - LIFETIME * 2);

        for (case, cause, again) in [
            ("wrong", ChallengeCause::Wrong(used.as_bytes()), true),
            (
                "wrong and old",
                ChallengeCause::Wrong(old.as_bytes()),
                false,
            ),
            (
                "wrong and made up",
                ChallengeCause::Wrong(b"made up"),
                false,
            ),
            ("bare", ChallengeCause::Bare, false),
            ("stale", ChallengeCause::Stale, false),
        ] {
            let next = nonces.for_challenge(cause, 7, SOURCE_A, &mut entropy, NOW);
            assert_eq!(next.as_str() == used.as_str(), again, "{case}");
            assert_ne!(next.as_str(), old.as_str(), "{case}");
        }
    }

    #[test]
    fn every_node_of_a_deployment_knows_a_nonce() {
        let nonce = nonces(1).issue(7, SOURCE_A, &mut Entropy::from_seed([1; 32]), NOW);
        assert!(nonces(1).is_of_deployment(nonce.as_bytes()));
        assert!(nonces(2).is_of_deployment(nonce.as_bytes()));
        let keys = NonceKeys {
            node: [1; 32],
            deployment: [8; 32],
        };
        assert!(!Nonces::new(keys, LIFETIME).is_of_deployment(nonce.as_bytes()));
        assert!(!nonces(1).is_of_deployment(b"made up"));
    }

    #[test]
    fn nonces_differ_and_carry_their_tag() {
        let mut entropy = Entropy::from_seed([1; 32]);
        let (one, other) = (
            nonces(1).issue(0x0102, SOURCE_A, &mut entropy, NOW),
            nonces(1).issue(0x0102, SOURCE_A, &mut entropy, NOW),
        );
        assert_ne!(one, other);
        assert_eq!(Issued::read(one.as_bytes()).unwrap().octets[6..8], [1, 2]);
        assert_eq!(Issued::read(one.as_bytes()).unwrap().at, NOW);
    }

    proptest! {
        #[test]
        fn a_changed_nonce_is_foreign(index in 0..DIGITS, octet in any::<u8>()) {
            let mut changed = nonces(1).issue(7, SOURCE_A, &mut Entropy::from_seed([1; 32]), NOW).0;
            prop_assume!(changed[index] != octet);
            changed[index] = octet;
            prop_assert_eq!(nonces(1).check(&changed, SOURCE_A, NOW), NonceState::Foreign);
        }

        #[test]
        fn no_octets_panic(octets in proptest::collection::vec(any::<u8>(), 0..60)) {
            prop_assert_eq!(nonces(1).check(&octets, SOURCE_A, NOW), NonceState::Foreign);
        }
    }
}
