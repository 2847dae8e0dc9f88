//! The hash functions of digest: MD5 (RFC 2617), SHA-256 and SHA-512/256 (RFC 7616 §6.1, RFC 8760).

use std::fmt;

use md5::Md5;
use sha2::digest::Digest;
use sha2::{Sha256, Sha512_256};

/// A digest algorithm that Trunkline supports. The `-sess` forms are missing, since no peer offers them over SIP.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Algorithm {
    /// The only algorithm that stock phone systems know.
    Md5,
    /// RFC 8760.
    Sha256,
    /// RFC 8760; SHA-512 with its own start values, cut to 256 bits.
    Sha512_256,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Md5, Self::Sha256, Self::Sha512_256];

    /// The name in challenges and credentials.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Md5 => "MD5",
            Self::Sha256 => "SHA-256",
            Self::Sha512_256 => "SHA-512-256",
        }
    }

    /// Reads an `algorithm` parameter, ignoring case; its absence means MD5 (RFC 7616 §3.3). `None` if unknown.
    pub fn read(parameter: Option<&[u8]>) -> Option<Self> {
        let Some(name) = parameter else {
            return Some(Self::Md5);
        };
        Self::ALL
            .into_iter()
            .find(|algorithm| name.eq_ignore_ascii_case(algorithm.as_str().as_bytes()))
    }

    /// Hashes the parts, joined by colons.
    pub(super) fn hash(self, parts: &[&[u8]]) -> Hash {
        match self {
            Self::Md5 => Hash::of::<Md5>(parts),
            Self::Sha256 => Hash::of::<Sha256>(parts),
            Self::Sha512_256 => Hash::of::<Sha512_256>(parts),
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

const LONGEST: usize = 32;

/// The octets of a hash: 16 of MD5, 32 of the others.
#[derive(Copy, Clone)]
pub(super) struct Hash {
    octets: [u8; LONGEST],
    length: usize,
}

impl Hash {
    fn of<D: Digest>(parts: &[&[u8]]) -> Self {
        let mut state = D::new();
        for (index, part) in parts.iter().enumerate() {
            if index > 0 {
                state.update(b":");
            }
            state.update(part);
        }
        Self::new(&state.finalize())
    }

    /// Copies a hash of at most 32 octets.
    pub(super) fn new(hash: &[u8]) -> Self {
        let mut octets = [0; LONGEST];
        octets[..hash.len()].copy_from_slice(hash);
        Self {
            octets,
            length: hash.len(),
        }
    }

    pub(super) fn octets(&self) -> &[u8] {
        &self.octets[..self.length]
    }

    /// Returns the hash as lower-case hex digits, the form in which one hash goes into the next.
    pub(super) fn hex(&self) -> Hex {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut digits = [0; 2 * LONGEST];
        for (pair, octet) in digits.chunks_exact_mut(2).zip(self.octets()) {
            pair[0] = DIGITS[usize::from(octet >> 4)];
            pair[1] = DIGITS[usize::from(octet & 15)];
        }
        Hex {
            digits,
            length: 2 * self.length,
        }
    }
}

/// Hex digits on the stack.
pub(super) struct Hex {
    digits: [u8; 2 * LONGEST],
    length: usize,
}

impl Hex {
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.digits[..self.length]
    }
}

/// Decodes hex digits of either case; `None` unless they make a hash of exactly `length` octets.
pub(super) fn unhex(digits: &[u8], length: usize) -> Option<Hash> {
    if digits.len() != 2 * length {
        return None;
    }
    let mut octets = [0; LONGEST];
    for (octet, pair) in octets.iter_mut().zip(digits.chunks_exact(2)) {
        let high = char::from(pair[0]).to_digit(16)?;
        let low = char::from(pair[1]).to_digit(16)?;
        *octet = u8::try_from(high * 16 + low).ok()?;
    }
    Some(Hash { octets, length })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_whatever_their_case() {
        for (parameter, algorithm) in [
            (None, Some(Algorithm::Md5)),
            (Some("md5"), Some(Algorithm::Md5)),
            (Some("sha-256"), Some(Algorithm::Sha256)),
            (Some("SHA-512-256"), Some(Algorithm::Sha512_256)),
            (Some("MD5-sess"), None),
            (Some(""), None),
        ] {
            assert_eq!(
                Algorithm::read(parameter.map(str::as_bytes)),
                algorithm,
                "{parameter:?}"
            );
        }
    }

    #[test]
    fn hex_goes_both_ways() {
        let hash = Algorithm::Md5.hash(&[b"bob", b"biloxi.com", b"zanzibar"]);
        let hex = hash.hex();
        assert_eq!(hex.as_bytes(), b"12af60467a33e8518da5c68bbff12b11");
        let upper = hex.as_bytes().to_ascii_uppercase();
        assert_eq!(unhex(&upper, 16).unwrap().octets(), hash.octets());
        assert!(unhex(&upper, 32).is_none());
        assert!(unhex(b"zz", 1).is_none());
    }
}
