//! Anonymisation of bodies: SDP keeps the parts that decide whether a call can be set up, everything else is blanked.

use super::treatment::is_in;
use super::{Anonymiser, blank, cut_at};

/// SDP attributes that identify nobody (RFC 8866 §6, and common additions of phones).
const ATTRIBUTES: [&str; 33] = [
    "bundle-only",
    "conf",
    "connection",
    "cpar",
    "csup",
    "curr",
    "des",
    "direction",
    "extmap",
    "fmtp",
    "framerate",
    "group",
    "inactive",
    "lang",
    "maxprate",
    "maxptime",
    "mid",
    "ptime",
    "recvonly",
    "rtcp",
    "rtcp-fb",
    "rtcp-mux",
    "rtcp-rsize",
    "rtcp-xr",
    "rtpmap",
    "sdplang",
    "sendonly",
    "sendrecv",
    "setup",
    "silenceSupp",
    "T38FaxVersion",
    "T38MaxBitRate",
    "type",
];

impl Anonymiser {
    pub(super) fn body(&mut self, body: &[u8]) -> String {
        let text = String::from_utf8_lossy(body);
        if text.starts_with("v=0") {
            let lines = text.lines().filter_map(|line| self.sdp_line(line));
            return lines.fold(String::with_capacity(text.len()), |body, line| {
                body + &line + "\r\n"
            });
        }

        // The body of a NOTIFY after a REFER (RFC 3515 §2.4.5); the fragment may have further lines.
        if text.starts_with("SIP/2.0 ") {
            let (line, rest) = text.split_once("\r\n").unwrap_or((&text, ""));
            let end = if text.contains("\r\n") { "\r\n" } else { "" };
            return format!("{}{end}{}", self.status_line(line), blank(rest));
        }

        // DTMF in an INFO: the key is as private as speech.
        if text.starts_with("Signal=") {
            return text.split_inclusive('\n').map(key_line).collect();
        }

        blank(&text)
    }

    fn sdp_line(&mut self, line: &str) -> Option<String> {
        let (kind, value) = line.split_once('=')?;
        match kind {
            // Information, URI, e-mail address, phone number, and the key that decrypts the media.
            "i" | "u" | "e" | "p" | "k" => None,
            "s" => Some("s=-".to_owned()),
            "o" => {
                let (user, rest) = value.split_once(' ').unwrap_or((value, ""));
                let user = if user.is_empty() { "" } else { "-" };
                Some(format!("o={user} {}", self.connection(rest)))
            }
            "c" => Some(format!("c={}", self.connection(value))),
            "a" => {
                let (name, rest) = cut_at(value, b':');
                let shown = match rest {
                    None if is_in(&ATTRIBUTES, name) => name.to_owned(),
                    None => blank(name),
                    Some(rest) if name == "rtcp" => format!("rtcp:{}", self.connection(rest)),
                    Some(rest) if is_in(&ATTRIBUTES, name) => {
                        format!("{name}:{}", self.plain(rest))
                    }
                    Some(rest) => format!("{name}:{}", blank(rest)),
                };

                Some(format!("a={shown}"))
            }
            "v" | "b" | "t" | "r" | "z" | "m" => Some(format!("{kind}={}", self.plain(value))),
            _ => Some(format!("{kind}={}", blank(value))),
        }
    }

    /// Replaces the address behind `IP4` or `IP6`, which may have a TTL; keeps numbers, and blanks other words.
    fn connection(&mut self, value: &str) -> String {
        let mut is_address = false;
        let words = value.split(' ').map(|word| match word {
            "IN" => word.to_owned(),
            "IP4" | "IP6" => {
                is_address = true;
                word.to_owned()
            }
            _ if is_address => {
                let (host, rest) = word.split_once('/').unwrap_or((word, ""));
                let slash = if word.contains('/') { "/" } else { "" };
                format!("{}{slash}{}", self.names.host(host), blank(rest))
            }
            _ if word.bytes().all(|octet| octet.is_ascii_digit()) => word.to_owned(),
            _ => blank(word),
        });

        words.collect::<Vec<_>>().join(" ")
    }
}

fn key_line(line: &str) -> String {
    match line.split_once('=') {
        Some(("Duration", _)) => line.to_owned(),
        Some((name @ "Signal", key)) => format!("{name}={}", blank(key)),
        Some(_) | None => blank(line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_keep_their_shape() {
        for (body, expected) in [
            (
                "v=0\r\no=Alice 7 8 IN IP4 pbx.example\r\ns=Alice\r\nc=IN IP4 8.8.8.8/127\r\nm=audio 4000 RTP/AVP 0\r\na=rtpmap:0 PCMU/8000\r\n",
                "v=0\r\no=- 7 8 IN IP4 host-1.invalid\r\ns=-\r\nc=IN IP4 192.0.2.1/000\r\nm=audio 4000 RTP/AVP 0\r\na=rtpmap:0 PCMU/8000\r\n",
            ),
            (
                "v=0\r\na=ssrc:7 cname:alice@h\r\na=candidate:1 1 UDP 1 8.8.8.8 4 typ host\r\na=alice\r\na=sendrecv\r\na=rtcp:4001 IN IP4 pbx.example\r\n",
                "v=0\r\na=ssrc:0 xxxxx:xxxxx@x\r\na=candidate:0 0 xxx 0 0.0.0.0 0 xxx xxxx\r\na=xxxxx\r\na=sendrecv\r\na=rtcp:4001 IN IP4 host-1.invalid\r\n",
            ),
            (
                "Signal=5\r\nDuration=160\r\n",
                "Signal=0\r\nDuration=160\r\n",
            ),
            (
                "SIP/2.0 200 OK\r\nContact: <sip:alice@h>\r\n",
                "SIP/2.0 200 OK\r\nxxxxxxx: <xxx:xxxxx@x>\r\n",
            ),
            ("my PIN is 4711", "xx xxx xx 0000"),
        ] {
            let shown = Anonymiser::default().body(body.as_bytes());
            assert_eq!(shown, expected, "{body}");
        }
    }
}
