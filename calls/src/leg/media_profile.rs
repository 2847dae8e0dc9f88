//! Profiles of audio streams: plain RTP, or SRTP (RFC 3711). An answer has the profile of its offer (RFC 3264 §6: "the transport protocol MUST
//! match"). With another one neither end hears the other, and each takes the call for answered. So no such answer crosses: a 2xx to an INVITE that
//! begins a call, or to that of a destination, is hung up on; an 18x crosses without it; a re-INVITE or UPDATE is refused; an offer that an ACK answers
//! so is rejected; a PRACK that does so ends the call's set-up. An end that answers a re-INVITE of ours so has refused it.

/// Returns whether an audio stream of the answer is of another profile than the offer's, so that one side would send what the other can't read.
pub(crate) fn differ(offer: &[u8], answer: &[u8]) -> bool {
    // Without SRTP in either there is one profile: most calls pay for this check only.
    if [offer, answer]
        .iter()
        .all(|sdp| memchr::memmem::find(sdp, b"SAVP").is_none())
    {
        return false;
    }

    // A plain offer with keys asks for SRTP where the other side has it, and an answer may say so by its profile.
    let has_keys = ["a=crypto:", "a=fingerprint:"]
        .iter()
        .any(|keys| memchr::memmem::find(offer, keys.as_bytes()).is_some());
    // Streams answer each other by their places.
    streams(offer)
        .zip(streams(answer))
        .filter(|(_, answered)| answered.is_on_audio)
        .any(
            |(offered, answered)| match (offered.is_secure, answered.is_secure) {
                (true, false) => true,
                (false, true) => !has_keys,
                (true, true) | (false, false) => false,
            },
        )
}

/// A media section.
struct Stream {
    is_secure: bool,
    /// It is audio, and not switched off.
    is_on_audio: bool,
}

fn streams(sdp: &[u8]) -> impl Iterator<Item = Stream> {
    let starts = std::iter::once(0).chain(memchr::memchr_iter(b'\n', sdp).map(|end| end + 1));
    starts.filter_map(|start| {
        let value = sdp[start..].strip_prefix(b"m=")?;
        let value = value.split(|octet| *octet == b'\n').next()?;
        let mut fields = value.split(|octet| *octet == b' ');
        let (kind, port, profile) = (fields.next()?, fields.next()?, fields.next()?);
        Some(Stream {
            is_secure: memchr::memmem::find(profile, b"SAVP").is_some(),
            is_on_audio: kind == b"audio" && port != b"0",
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_the_profile_of_its_offer() {
        let avp = "m=audio 4000 RTP/AVP 0\r\n";
        let avpf = "m=audio 4000 RTP/AVPF 0\r\n";
        let savp = "m=audio 4000 RTP/SAVP 0\r\na=crypto:1 K\r\n";
        let dtls = "m=audio 4000 UDP/TLS/RTP/SAVPF 0\r\na=fingerprint:sha-256 F\r\n";
        let off = "m=audio 0 RTP/SAVP 0\r\n";
        let video = "m=video 4002 RTP/AVP 96\r\n";

        for (name, offer, answer, differs) in [
            ("plain", avp.to_owned(), avp.to_owned(), false),
            ("with feedback", avpf.to_owned(), avp.to_owned(), false),
            ("SRTP", savp.to_owned(), savp.to_owned(), false),
            ("DTLS", dtls.to_owned(), dtls.to_owned(), false),
            (
                "a plain answer to SRTP",
                savp.to_owned(),
                avp.to_owned(),
                true,
            ),
            (
                "a plain answer to DTLS",
                dtls.to_owned(),
                avpf.to_owned(),
                true,
            ),
            (
                "SRTP in answer to a plain offer",
                avp.to_owned(),
                savp.to_owned(),
                true,
            ),
            (
                "to a plain offer with keys",
                format!("{avp}a=crypto:1 K\r\n"),
                savp.to_owned(),
                false,
            ),
            (
                "the plain one of two",
                format!("{savp}{avp}"),
                format!("{off}{avp}"),
                false,
            ),
            (
                "the wrong one of two",
                format!("{savp}{avp}"),
                format!("{avp}{avp}"),
                true,
            ),
            (
                "video is its ends' affair",
                format!("{savp}m=video 4002 RTP/SAVP 96\r\n"),
                format!("{savp}{video}"),
                false,
            ),
            ("nothing", savp.to_owned(), String::new(), false),
        ] {
            let sdp = |streams: &str| format!("v=0\r\nc=IN IP4 192.0.2.1\r\n{streams}");
            let (offer, answer) = (sdp(&offer), sdp(&answer));
            assert_eq!(
                differ(offer.as_bytes(), answer.as_bytes()),
                differs,
                "{name}"
            );
        }
    }
}
