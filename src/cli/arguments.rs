//! Parsers of arguments that several commands take.

use trunkline_routing::E164;

/// Parses a phone number.
pub(super) fn e164(text: &str) -> Result<E164, String> {
    E164::parse(text).map_err(|_| format!("{text:?} is not an E.164 number such as +442071838750"))
}

/// Parses `KEY=VALUE`.
pub(super) fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        Some(_) | None => Err("expected KEY=VALUE, as sip.udp=127.0.0.1:5070".to_owned()),
    }
}
