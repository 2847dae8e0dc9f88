//! Secret that a runtime gets with its call, and that opens the session's context.
//!
//! It is a MAC over org and session: no node stores it, every node verifies it, and a reader of the store can't make one. The code that
//! uses this module checks that the call is still up.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use uuid::Uuid;

/// Prefix of every token.
pub const PREFIX: &str = "tls_";
/// Octets of the MAC that a token carries.
const MAC: usize = 16;

/// Makes and verifies tokens.
#[derive(Clone)]
pub struct SessionTokens(Hmac<Sha256>);

impl SessionTokens {
    /// Uses that key.
    pub fn new(key: [u8; 32]) -> Self {
        Self(Hmac::new_from_slice(&key).expect("HMAC takes a key of any length"))
    }

    /// The token of a session.
    pub fn mint(&self, org: Uuid, session: Uuid) -> Box<str> {
        let mac = self.keyed(org, session).finalize().into_bytes();
        [PREFIX, &digits(org, &mac)].concat().into()
    }

    /// Returns the org, if this is the token of that session.
    pub fn read(&self, token: &str, session: Uuid) -> Option<Uuid> {
        let (org, mac) = read(token.strip_prefix(PREFIX)?)?;
        let expected = self.keyed(org, session);
        expected.verify_truncated_left(&mac.to_be_bytes()).ok()?;
        Some(org)
    }

    /// Returns the org that a token claims, without proof.
    pub fn claimed(token: &str) -> Option<Uuid> {
        let (org, _) = read(token.strip_prefix(PREFIX)?)?;
        Some(org)
    }

    /// Makes the proof that this installation replaces a dialog of an org's call: `dialog` is the value of Replaces.
    pub(crate) fn join(&self, org: Uuid, dialog: &[u8]) -> String {
        let mac = self.joining(org, dialog).finalize().into_bytes();
        digits(org, &mac)
    }

    /// Returns the org, if this proves it.
    pub(crate) fn joins(&self, proof: &str, dialog: &[u8]) -> Option<Uuid> {
        let (org, mac) = read(proof)?;
        let expected = self.joining(org, dialog);
        expected.verify_truncated_left(&mac.to_be_bytes()).ok()?;
        Some(org)
    }

    fn joining(&self, org: Uuid, dialog: &[u8]) -> Hmac<Sha256> {
        self.0
            .clone()
            // With this prefix no session's token can pass for a proof, although one key makes both.
            .chain_update(b"join")
            .chain_update(org.as_bytes())
            .chain_update(dialog)
    }

    fn keyed(&self, org: Uuid, session: Uuid) -> Hmac<Sha256> {
        self.0
            .clone()
            .chain_update(org.as_bytes())
            .chain_update(session.as_bytes())
    }
}

/// An org and the first half of a MAC as 64 digits. A MAC prints as an id does.
fn digits(org: Uuid, mac: &[u8]) -> String {
    let mac = Uuid::from_slice(&mac[..MAC]).expect("a MAC has 32 octets");
    let mut digits = String::with_capacity(64);
    for half in [org, mac] {
        digits.push_str(half.simple().encode_lower(&mut Uuid::encode_buffer()));
    }
    digits
}

/// Reads an org and a MAC from 64 digits.
fn read(digits: &str) -> Option<(Uuid, u128)> {
    let is_hex = |digit: u8| digit.is_ascii_digit() || (b'a'..=b'f').contains(&digit);
    if digits.len() != 64 || !digits.bytes().all(is_hex) {
        return None;
    }
    let org = Uuid::try_parse(&digits[..32]).ok()?;
    let mac = u128::from_str_radix(&digits[32..], 16).ok()?;
    Some((org, mac))
}

impl std::fmt::Debug for SessionTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionTokens").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_good_for_its_dialog_and_its_org() {
        let tokens = SessionTokens::new([1; 32]);
        let org = Uuid::from_u128(7);
        let proof = tokens.join(org, b"x;to-tag=1;from-tag=2");
        let foreign = SessionTokens::new([2; 32]).join(org, b"x;to-tag=1;from-tag=2");
        let token = tokens.mint(org, org);

        for (name, proof, dialog, expected) in [
            (
                "its own",
                proof.as_str(),
                "x;to-tag=1;from-tag=2",
                Some(org),
            ),
            ("another dialog", &proof, "x;to-tag=1;from-tag=3", None),
            (
                "another org's",
                &proof.replacen("07", "09", 1),
                "x;to-tag=1;from-tag=2",
                None,
            ),
            (
                "another installation's",
                &foreign,
                "x;to-tag=1;from-tag=2",
                None,
            ),
            (
                "a session's token",
                &token[PREFIX.len()..],
                "x;to-tag=1;from-tag=2",
                None,
            ),
            ("empty", "", "x;to-tag=1;from-tag=2", None),
        ] {
            assert_eq!(tokens.joins(proof, dialog.as_bytes()), expected, "{name}");
        }
    }

    #[test]
    fn a_token_opens_its_own_session_and_nothing_else() {
        let tokens = SessionTokens::new([1; 32]);
        let (org, session) = (Uuid::from_u128(7), Uuid::from_u128(8));
        let token = tokens.mint(org, session).to_string();
        let foreign = SessionTokens::new([2; 32]).mint(org, session);
        let elsewhere = token.replacen("07", "09", 1);
        let upper = token.to_uppercase().replacen("TLS_", PREFIX, 1);

        for (name, token, asked, expected) in [
            ("its own", token.as_str(), session, Some(org)),
            ("another session", &token, org, None),
            ("another installation's", &foreign, session, None),
            ("another org's", &elsewhere, session, None),
            ("cut", &token[..token.len() - 1], session, None),
            ("longer", &format!("{token}0"), session, None),
            ("bare", &token[PREFIX.len()..], session, None),
            ("in capitals", &upper, session, None),
            ("empty", "", session, None),
            ("no ASCII", "tls_ü", session, None),
        ] {
            assert_eq!(tokens.read(token, asked), expected, "{name}");
        }
    }
}
