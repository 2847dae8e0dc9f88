//! Messages to a bot in the format of Twilio's Media Streams and of Telnyx' media streaming. Every counter is a string.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::request::{BotProtocol, BotStart};

/// Octets of a frame of audio: 20 ms of G.711.
pub(crate) const FRAME: usize = 160;

/// Length of a frame in base64.
const ENCODED: usize = FRAME.div_ceil(3) * 4;

/// Writer of the messages of one call.
#[derive(Debug)]
pub(crate) struct Wire {
    protocol: BotProtocol,
    stream_sid: Box<str>,
    account_sid: Box<str>,
    call_sid: Box<str>,
    /// Number of the last message; `connected` has none.
    sequence: u64,
    /// Number of the last frame of audio.
    chunk: u64,
}

impl Wire {
    pub(crate) fn new(start: &BotStart) -> Self {
        Self {
            protocol: start.protocol,
            stream_sid: start.stream_sid.as_str().into(),
            account_sid: start.account_sid.as_str().into(),
            call_sid: start.call_sid.as_str().into(),
            sequence: 0,
            chunk: 0,
        }
    }

    /// Writes the very first message.
    pub(crate) fn connected(&self, to: &mut Vec<u8>) {
        to.clear();
        to.extend_from_slice(match self.protocol {
            BotProtocol::Twilio => br#"{"event":"connected","protocol":"Call","version":"1.0.0"}"#,
            BotProtocol::Telnyx => br#"{"event":"connected","version":"1.0.0"}"#,
        });
    }

    /// Writes the facts of the call.
    pub(crate) fn start(&mut self, to: &mut Vec<u8>, parameters: &[(String, String)]) {
        self.open(to, "start");
        match self.protocol {
            BotProtocol::Twilio => {
                put(to, br#","start":{"accountSid":"#);
                string(to, &self.account_sid);
                put(to, br#","streamSid":"#);
                string(to, &self.stream_sid);
                put(to, br#","callSid":"#);
                string(to, &self.call_sid);
                put(to, br#","tracks":["inbound"],"mediaFormat":{"encoding":"audio/x-mulaw","sampleRate":8000,"channels":1},"customParameters":{"#);
                members(to, parameters);
                put(to, b"}}");
            }

            BotProtocol::Telnyx => {
                put(to, br#","start":{"user_id":"#);
                string(to, &self.account_sid);
                put(to, br#","call_control_id":"#);
                string(to, &self.call_sid);
                for (field, parameter) in [("from", "from_number"), ("to", "to_number")] {
                    let named = parameters.iter().find(|(name, _)| name == parameter);
                    if let Some((_, value)) = named {
                        put(to, b",");
                        string(to, field);
                        put(to, b":");
                        string(to, value);
                    }
                }

                put(to, br#","media_format":{"encoding":"PCMU","sample_rate":8000,"channels":1},"custom_parameters":{"#);
                members(to, parameters);
                put(to, b"}}");
            }
        }
        self.close(to);
    }

    /// Writes a frame of the caller's audio, in µ-law. Its timestamp is the time of its slot in milliseconds: 20 for each frame since the start.
    pub(crate) fn media(&mut self, to: &mut Vec<u8>, audio: &[u8; FRAME]) {
        // Twilio counts chunks from 1 and timestamps from 0.
        let timestamp = self.chunk * 20;
        self.chunk += 1;
        self.open(to, "media");
        let chunk = self.chunk;
        number(to, br#","media":{"track":"inbound","chunk":"#, chunk);
        number(to, br#","timestamp":"#, timestamp);
        put(to, br#","payload":""#);

        let mut encoded = [0; ENCODED];
        // The buffer has exactly the length of a frame in base64.
        let length = STANDARD.encode_slice(audio, &mut encoded).unwrap_or(0);
        put(to, &encoded[..length]);

        put(to, br#""}"#);
        self.close(to);
    }

    /// Writes a key that the caller pressed.
    pub(crate) fn dtmf(&mut self, to: &mut Vec<u8>, digit: char) {
        self.open(to, "dtmf");
        put(
            to,
            match self.protocol {
                BotProtocol::Twilio => br#","dtmf":{"track":"inbound_track","digit":""#.as_slice(),
                BotProtocol::Telnyx => br#","dtmf":{"digit":""#.as_slice(),
            },
        );
        put(to, digit.encode_utf8(&mut [0; 4]).as_bytes());
        put(to, br#""}"#);
        self.close(to);
    }

    /// Writes a mark that has been reached.
    pub(crate) fn mark(&mut self, to: &mut Vec<u8>, name: &str) {
        self.open(to, "mark");
        put(to, br#","mark":{"name":"#);
        string(to, name);
        put(to, b"}");
        self.close(to);
    }

    /// Writes the end of the call.
    pub(crate) fn stop(&mut self, to: &mut Vec<u8>) {
        self.open(to, "stop");
        let (account, call) = match self.protocol {
            BotProtocol::Twilio => (r#","stop":{"accountSid":"#, r#","callSid":"#),
            BotProtocol::Telnyx => (r#","stop":{"user_id":"#, r#","call_control_id":"#),
        };
        put(to, account.as_bytes());
        string(to, &self.account_sid);
        put(to, call.as_bytes());
        string(to, &self.call_sid);
        put(to, b"}");
        self.close(to);
    }

    fn open(&mut self, to: &mut Vec<u8>, event: &str) {
        self.sequence += 1;
        to.clear();
        put(to, br#"{"event":""#);
        put(to, event.as_bytes());
        let name = match self.protocol {
            BotProtocol::Twilio => br#"","sequenceNumber":"#.as_slice(),
            BotProtocol::Telnyx => br#"","sequence_number":"#.as_slice(),
        };
        number(to, name, self.sequence);
    }

    fn close(&self, to: &mut Vec<u8>) {
        put(
            to,
            match self.protocol {
                BotProtocol::Twilio => br#","streamSid":"#.as_slice(),
                BotProtocol::Telnyx => br#","stream_id":"#.as_slice(),
            },
        );
        string(to, &self.stream_sid);
        put(to, b"}");
    }
}

fn put(to: &mut Vec<u8>, octets: &[u8]) {
    to.extend_from_slice(octets);
}

/// Writes `before`, then a number as a string.
fn number(to: &mut Vec<u8>, before: &[u8], number: u64) {
    put(to, before);
    // Writing to memory never fails.
    let _ = write!(to, "\"{number}\"");
}

fn string(to: &mut Vec<u8>, text: &str) {
    // Writing to memory never fails.
    let _ = serde_json::to_writer(to, text);
}

fn members(to: &mut Vec<u8>, parameters: &[(String, String)]) {
    for (at, (name, value)) in parameters.iter().enumerate() {
        if at > 0 {
            put(to, b",");
        }
        string(to, name);
        put(to, b":");
        string(to, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(protocol: BotProtocol) -> BotStart {
        BotStart {
            protocol,
            account_sid: "AC1".to_owned(),
            call_sid: "CA2".to_owned(),
            stream_sid: "MZ3".to_owned(),
            parameters: [("from_number", "+49"), ("a\"b", "c\n")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
        }
    }

    fn conversation(protocol: BotProtocol) -> Vec<String> {
        let start = start(protocol);
        let mut wire = Wire::new(&start);
        let mut to = Vec::new();
        let mut said = Vec::new();
        let mut keep = |to: &Vec<u8>| said.push(String::from_utf8(to.clone()).unwrap());

        wire.connected(&mut to);
        keep(&to);
        wire.start(&mut to, &start.parameters);
        keep(&to);
        for audio in [[0xff; FRAME], [0; FRAME]] {
            wire.media(&mut to, &audio);
            keep(&to);
        }

        wire.dtmf(&mut to, '#');
        keep(&to);
        wire.mark(&mut to, "end \"1\"");
        keep(&to);
        wire.stop(&mut to);
        keep(&to);
        said
    }

    #[test]
    fn twilio() {
        let (silence, loud) = ("/".repeat(213), "A".repeat(214));
        assert_eq!(
            conversation(BotProtocol::Twilio),
            [
                r#"{"event":"connected","protocol":"Call","version":"1.0.0"}"#.to_owned(),
                r#"{"event":"start","sequenceNumber":"1","start":{"accountSid":"AC1","streamSid":"MZ3","callSid":"CA2","tracks":["inbound"],"mediaFormat":{"encoding":"audio/x-mulaw","sampleRate":8000,"channels":1},"customParameters":{"from_number":"+49","a\"b":"c\n"}},"streamSid":"MZ3"}"#.to_owned(),
                format!(r#"{{"event":"media","sequenceNumber":"2","media":{{"track":"inbound","chunk":"1","timestamp":"0","payload":"{silence}w=="}},"streamSid":"MZ3"}}"#),
                format!(r#"{{"event":"media","sequenceNumber":"3","media":{{"track":"inbound","chunk":"2","timestamp":"20","payload":"{loud}=="}},"streamSid":"MZ3"}}"#),
                r##"{"event":"dtmf","sequenceNumber":"4","dtmf":{"track":"inbound_track","digit":"#"},"streamSid":"MZ3"}"##.to_owned(),
                r#"{"event":"mark","sequenceNumber":"5","mark":{"name":"end \"1\""},"streamSid":"MZ3"}"#.to_owned(),
                r#"{"event":"stop","sequenceNumber":"6","stop":{"accountSid":"AC1","callSid":"CA2"},"streamSid":"MZ3"}"#.to_owned(),
            ]
        );
    }

    #[test]
    fn telnyx() {
        let said = conversation(BotProtocol::Telnyx);
        assert_eq!(said[0], r#"{"event":"connected","version":"1.0.0"}"#);
        assert_eq!(
            said[1],
            r#"{"event":"start","sequence_number":"1","start":{"user_id":"AC1","call_control_id":"CA2","from":"+49","media_format":{"encoding":"PCMU","sample_rate":8000,"channels":1},"custom_parameters":{"from_number":"+49","a\"b":"c\n"}},"stream_id":"MZ3"}"#
        );
        assert_eq!(
            said[4],
            r##"{"event":"dtmf","sequence_number":"4","dtmf":{"digit":"#"},"stream_id":"MZ3"}"##
        );
        assert_eq!(
            said[6],
            r#"{"event":"stop","sequence_number":"6","stop":{"user_id":"AC1","call_control_id":"CA2"},"stream_id":"MZ3"}"#
        );
    }
}
