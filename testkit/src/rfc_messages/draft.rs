//! A SIP message under construction, line by line, so that any line can be wrong.

/// Builds a message from its name, which makes its Call-ID and branch unique.
pub(super) type Build = fn(&str) -> Vec<u8>;

/// A message under construction: its first line, its header lines without their ends, its body.
pub(super) struct Draft {
    pub(super) start: String,
    pub(super) lines: Vec<String>,
    pub(super) body: Vec<u8>,
}

impl Draft {
    /// A plain request with the six headers of RFC 3261 §8.1.1 and an empty body.
    pub(super) fn request(name: &str, method: &str, uri: &str) -> Self {
        let lines = [
            format!("Via: SIP/2.0/UDP pbx.example.org;branch=z9hG4bK-{name}"),
            "Max-Forwards: 70".to_owned(),
            format!("From: <sip:quentin@example.org>;tag=from-{name}"),
            "To: <sip:desk@example.net>".to_owned(),
            format!("Call-ID: {name}@calls.example.org"),
            format!("CSeq: 7 {method}"),
            "Content-Length: 0".to_owned(),
        ];
        Self {
            start: format!("{method} {uri} SIP/2.0"),
            lines: lines.into(),
            body: Vec::new(),
        }
    }

    /// A plain INVITE with an offer.
    pub(super) fn invite(name: &str) -> Self {
        Self::request(name, "INVITE", "sip:desk@example.net")
            .with("Contact: <sip:quentin@pbx.example.org>")
            .body("application/sdp", OFFER)
    }

    /// A plain OPTIONS.
    pub(super) fn options(name: &str) -> Self {
        Self::request(name, "OPTIONS", "sip:desk@example.net")
    }

    /// A plain REGISTER.
    pub(super) fn register(name: &str) -> Self {
        Self::request(name, "REGISTER", "sip:example.net")
            .set("To: <sip:quentin@example.org>")
            .with("Contact: <sip:quentin@pbx.example.org>")
    }

    /// A plain response to a request of `method` that nobody sent.
    pub(super) fn response(name: &str, status: &str, method: &str) -> Self {
        Self::request(name, method, "")
            .start(&format!("SIP/2.0 {status}"))
            .set("To: <sip:desk@example.net>;tag=to")
            .without("Max-Forwards")
    }

    pub(super) fn start(mut self, line: &str) -> Self {
        self.start = line.to_owned();
        self
    }

    /// Adds a header line after the others.
    pub(super) fn with(mut self, line: &str) -> Self {
        self.lines.push(line.to_owned());
        self
    }

    pub(super) fn without(mut self, name: &str) -> Self {
        self.lines.retain(|line| name_of(line) != name);
        self
    }

    /// Replaces the header lines of the same name by this one.
    pub(super) fn set(mut self, line: &str) -> Self {
        let name = name_of(line).to_owned();
        let at = self.lines.iter().position(|line| name_of(line) == name);
        let at = at.unwrap_or(self.lines.len());
        self = self.without(&name);
        self.lines.insert(at.min(self.lines.len()), line.to_owned());
        self
    }

    /// Sets the body with its type and its length.
    pub(super) fn body(self, kind: &str, body: impl AsRef<[u8]>) -> Self {
        let body = body.as_ref().to_vec();
        let length = format!("Content-Length: {}", body.len());
        let draft = self.set(&format!("Content-Type: {kind}")).set(&length);
        Self { body, ..draft }
    }

    pub(super) fn octets(self) -> Vec<u8> {
        let mut octets = self.start.into_bytes();
        for line in &self.lines {
            octets.extend_from_slice(b"\r\n");
            octets.extend_from_slice(line.as_bytes());
        }
        octets.extend_from_slice(b"\r\n\r\n");
        octets.extend(self.body);
        octets
    }
}

fn name_of(line: &str) -> &str {
    line.split(':').next().unwrap_or(line)
}

pub(super) const OFFER: &str = "v=0\r\no=- 1 1 IN IP4 192.0.2.7\r\ns=-\r\nc=IN IP4 192.0.2.7\r\nt=0 0\r\nm=audio 30000 RTP/AVP 0\r\n";
