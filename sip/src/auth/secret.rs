//! Stored form of a password: one hash for each algorithm, bound to user and realm (RFC 7616 §3.4.2).

use std::fmt;

use super::algorithm::{Algorithm, Hash};

/// `H(user:realm:password)` under one algorithm. It answers challenges by itself, so it is as secret as the password.
#[derive(Copy, Clone)]
pub struct Ha1 {
    pub(super) algorithm: Algorithm,
    pub(super) hash: Hash,
}

impl Ha1 {
    /// Hashes a password.
    pub fn new(algorithm: Algorithm, user: &str, realm: &str, password: &str) -> Self {
        Self::of_octets(
            algorithm,
            user.as_bytes(),
            realm.as_bytes(),
            password.as_bytes(),
        )
    }

    /// Hashes a password for a peer's realm, which may not be UTF-8.
    pub(super) fn of_octets(
        algorithm: Algorithm,
        user: &[u8],
        realm: &[u8],
        password: &[u8],
    ) -> Self {
        Self {
            algorithm,
            hash: algorithm.hash(&[user, realm, password]),
        }
    }
}

/// The hashes of one password under all algorithms, made once and kept: 80 octets.
#[derive(Clone)]
pub struct Secret {
    md5: [u8; 16],
    sha256: [u8; 32],
    sha512_256: [u8; 32],
}

impl Secret {
    /// Hashes a password for that user in that realm.
    pub fn new(user: &str, realm: &str, password: &str) -> Self {
        Self::of(|algorithm| Ha1::new(algorithm, user, realm, password).hash)
    }

    /// Derives a secret that no password has.
    pub(super) fn decoy(key: &[u8; 32]) -> Self {
        Self::of(|algorithm| algorithm.hash(&[key]))
    }

    fn of(hash: impl Fn(Algorithm) -> Hash) -> Self {
        Self {
            md5: octets(&hash(Algorithm::Md5)),
            sha256: octets(&hash(Algorithm::Sha256)),
            sha512_256: octets(&hash(Algorithm::Sha512_256)),
        }
    }

    /// The hash under one algorithm.
    pub fn ha1(&self, algorithm: Algorithm) -> Ha1 {
        let hash = match algorithm {
            Algorithm::Md5 => Hash::new(&self.md5),
            Algorithm::Sha256 => Hash::new(&self.sha256),
            Algorithm::Sha512_256 => Hash::new(&self.sha512_256),
        };
        Ha1 { algorithm, hash }
    }
}

fn octets<const N: usize>(hash: &Hash) -> [u8; N] {
    hash.octets()
        .try_into()
        .expect("the array is as long as the algorithm's hash")
}

impl fmt::Debug for Ha1 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ha1({}, redacted)", self.algorithm)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(redacted)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_holds_each_algorithms_hash() {
        let secret = Secret::new("bob", "biloxi.com", "zanzibar");
        for algorithm in Algorithm::ALL {
            let alone = Ha1::new(algorithm, "bob", "biloxi.com", "zanzibar");
            let kept = secret.ha1(algorithm);
            assert_eq!(kept.hash.octets(), alone.hash.octets(), "{algorithm}");
            assert_eq!(kept.algorithm, algorithm);
        }
    }

    #[test]
    fn debugging_shows_nothing() {
        let secret = Secret::new("bob", "biloxi.com", "zanzibar");
        assert_eq!(
            format!("{secret:?} {:?}", secret.ha1(Algorithm::Md5)),
            "Secret(redacted) Ha1(MD5, redacted)"
        );
    }
}
