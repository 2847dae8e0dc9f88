//! Content-Type (RFC 3261 §20.15), as far as it says whether a body describes a session.

/// Whether a body of this type is an SDP, or has several parts, one of which may be.
pub fn may_hold_sdp(content_type: &[u8]) -> bool {
    const PARTS: &[u8] = b"multipart";
    let begins = content_type.get(..PARTS.len());
    is_sdp(content_type) || begins.is_some_and(|begins| begins.eq_ignore_ascii_case(PARTS))
}

/// Returns whether a body of this type is an SDP.
pub fn is_sdp(content_type: &[u8]) -> bool {
    // As nearly all of them are written.
    if content_type == b"application/sdp" {
        return true;
    }
    let media = content_type
        .split(|octet| *octet == b';')
        .next()
        .unwrap_or_default();
    // The slash may have space around it (RFC 3261 §25.1).
    let media = media.iter().filter(|octet| !octet.is_ascii_whitespace());
    media
        .map(u8::to_ascii_lowercase)
        .eq(b"application/sdp".iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

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
