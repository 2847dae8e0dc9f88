//! Content-Type (RFC 3261 §20.15), as far as it says whether a body is a session description or a location, and Content-Disposition (§20.11), as far
//! as it says whether a body may be ignored.

use std::borrow::Cow;

use super::params::Params;

/// Returns true if a body of this type is an SDP, or has several parts, one of which may be.
pub fn may_hold_sdp(content_type: &[u8]) -> bool {
    is_sdp(content_type) || is_multipart(content_type)
}

/// Returns whether a body of this type has several parts (RFC 2046 §5.1).
pub fn is_multipart(content_type: &[u8]) -> bool {
    const PARTS: &[u8] = b"multipart";
    let begins = content_type.get(..PARTS.len());
    begins.is_some_and(|begins| begins.eq_ignore_ascii_case(PARTS))
}

/// Returns the boundary between the parts of a body of this type.
pub fn boundary(content_type: &[u8]) -> Option<Cow<'_, [u8]>> {
    let params = memchr::memchr(b';', content_type)?;
    let boundary = Params::new(&content_type[params..]).named("boundary")?;
    boundary.text().filter(|boundary| !boundary.is_empty())
}

/// Returns whether a body of this type gives a location: a PIDF-LO (RFC 4119).
pub fn is_location(content_type: &[u8]) -> bool {
    is_media(content_type, b"application/pidf+xml")
}

/// Returns whether a body of this type is an SDP.
pub fn is_sdp(content_type: &[u8]) -> bool {
    // The type of nearly every SDP is written this way.
    if content_type == b"application/sdp" {
        return true;
    }
    is_media(content_type, b"application/sdp")
}

/// Returns whether a Content-Disposition lets the body be ignored (RFC 3261 §20.11).
pub fn is_optional(disposition: &[u8]) -> bool {
    let disposition = disposition.to_ascii_lowercase();
    memchr::memmem::find(&disposition, b"handling=optional").is_some()
}

/// `name` is in lower case.
fn is_media(content_type: &[u8], name: &[u8]) -> bool {
    let media = content_type
        .split(|octet| *octet == b';')
        .next()
        .unwrap_or_default();
    // The slash may have space around it (RFC 3261 §25.1).
    let media = media.iter().filter(|octet| !octet.is_ascii_whitespace());
    media.map(u8::to_ascii_lowercase).eq(name.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boundary_is_a_parameter() {
        for (content_type, expected) in [
            ("multipart/mixed;boundary=b", Some("b")),
            ("Multipart/Mixed; x=y; Boundary=\"a b\"", Some("a b")),
            ("multipart/mixed;boundary=", None),
            ("multipart/mixed", None),
        ] {
            let found = boundary(content_type.as_bytes());
            assert_eq!(
                found.as_deref(),
                expected.map(str::as_bytes),
                "{content_type}"
            );
        }
    }

    #[test]
    fn an_sdp_is_known_by_its_type() {
        for (content_type, may) in [
            ("application/sdp", true),
            ("Application / SDP ; charset=utf-8", true),
            ("multipart/mixed;boundary=b", true),
            ("MULTIPART/related", true),
            ("application/sdpx", false),
            ("application/isup", false),
            ("", false),
        ] {
            let held = may_hold_sdp(content_type.as_bytes());
            assert_eq!(held, may, "{content_type}");
        }
    }
}
