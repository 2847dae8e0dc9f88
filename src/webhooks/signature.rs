//! Signatures according to Standard Webhooks: HMAC-SHA-256 over id, time and body, one per valid secret.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use trunkline_sip::moment::Moment;

use trunkline_store::{Password, Webhook};

const PREFIX: &str = "whsec_";

/// Makes a new secret: 256 random bits in the specification's notation.
pub fn new_secret() -> Password {
    let octets: [u8; 32] = rand::random();
    Password::new(format!("{PREFIX}{}", STANDARD.encode(octets)))
}

/// Value of `webhook-signature`; the newest secret's signature comes first.
pub(super) fn signatures(webhook: &Webhook, id: &str, now: Moment, body: &str) -> String {
    let old = webhook.old_secret.as_ref();
    let old = old.filter(|(_, until)| now < *until).map(|(old, _)| old);
    let signed: Vec<_> = std::iter::once(&webhook.secret)
        .chain(old)
        .map(|secret| signature(secret, id, now, body))
        .collect();
    signed.join(" ")
}

/// Signature by one secret.
pub(crate) fn signature(secret: &Password, id: &str, now: Moment, body: &str) -> String {
    format!("v1,{}", sign(secret, id, now.as_secs(), body))
}

fn sign(secret: &Password, id: &str, timestamp: u64, body: &str) -> String {
    let text = secret.reveal();
    let key = STANDARD.decode(text.strip_prefix(PREFIX).unwrap_or(text));
    let key = key.unwrap_or_else(|_| text.as_bytes().to_vec());
    let mac = Hmac::<Sha256>::new_from_slice(&key).expect("HMAC takes a key of any length");
    let mac = mac.chain_update(format!("{id}.{timestamp}.{body}"));
    STANDARD.encode(mac.finalize().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_specifications_example_is_signed_as_there() {
        let secret = Password::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let signature = sign(
            &secret,
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            r#"{"test": 2432232314}"#,
        );
        assert_eq!(signature, "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_new_secret_has_256_bits_of_its_own() {
        let (one, other) = (new_secret(), new_secret());
        assert_ne!(one, other);
        let octets = STANDARD.decode(&one.reveal()[PREFIX.len()..]);
        assert_eq!(octets.unwrap().len(), 32);
    }
}
