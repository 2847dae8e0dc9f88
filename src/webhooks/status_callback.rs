//! Status callbacks as Twilio posts them: a form of the call's progress, signed with the org's bot token.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::Timestamp;
use serde_json::Value;
use sha1::Sha1;
use trunkline_store::ANONYMOUS;
use uuid::Uuid;

/// Header that carries the signature.
pub(super) const SIGNATURE: &str = "x-twilio-signature";

/// Fields of a callback, sorted by name as the signature takes them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Callback {
    session: Uuid,
    fields: Vec<(&'static str, String)>,
}

impl Callback {
    /// Makes the callback of an event of a call; `None` for the JSON of any other event.
    pub(super) fn of(org: Uuid, event: &str) -> Option<Self> {
        let event: Value = serde_json::from_str(event).ok()?;
        let data = &event["data"];
        let session: Uuid = data["session_id"].as_str()?.parse().ok()?;
        let (stage, status) = progress(event["type"].as_str()?, data["status"].as_str()?)?;

        let text = |field: &str| data[field].as_str().unwrap_or_default().to_owned();
        let party = |e164: &str, sent: &str| {
            data[e164]
                .as_str()
                .map_or_else(|| text(sent), str::to_owned)
        };
        let from = party("from_e164", "from_number");
        let to = party("to_e164", "to_number");

        let mut fields = vec![
            ("AccountSid", format!("AC{}", org.simple())),
            ("ApiVersion", "2010-04-01".to_owned()),
            ("CallSid", format!("CA{}", session.simple())),
            ("CallStatus", status.to_owned()),
            ("CallbackSource", "call-progress-events".to_owned()),
            ("Called", to.clone()),
            ("Caller", from.clone()),
            (
                "Direction",
                match data["direction"].as_str() {
                    Some("outbound") => "outbound-api".to_owned(),
                    Some(_) | None => "inbound".to_owned(),
                },
            ),
            ("From", from),
            ("SequenceNumber", stage.to_string()),
            ("Timestamp", date(event["timestamp"].as_str()?)?),
            ("To", to),
        ];

        if let Some(seconds) = data["answered_s"].as_u64() {
            fields.push(("CallDuration", seconds.to_string()));
        }
        if let Some(code) = data["sip_code"].as_u64() {
            fields.push(("SipResponseCode", code.to_string()));
        }

        fields.sort_unstable();
        Some(Self { session, fields })
    }

    /// Session of the call.
    pub(super) const fn session(&self) -> Uuid {
        self.session
    }

    /// Replaces the number of a caller who withholds it, as in the bot's stream.
    pub(super) fn withholding_caller(mut self) -> Self {
        for (name, value) in &mut self.fields {
            if matches!(*name, "From" | "Caller") {
                ANONYMOUS.clone_into(value);
            }
        }
        self
    }

    /// Returns the body: `application/x-www-form-urlencoded`.
    pub(super) fn form(&self) -> String {
        let fields = self.fields.iter();
        let fields = fields.map(|(name, value)| format!("{name}={}", escaped(value)));
        fields.collect::<Vec<_>>().join("&")
    }

    /// Signs the URL and the fields: HMAC-SHA1 of the URL, and of each name and value behind it.
    pub(super) fn signature(&self, token: &str, url: &str) -> String {
        let mac =
            Hmac::<Sha1>::new_from_slice(token.as_bytes()).expect("HMAC takes a key of any length");
        let mac = self
            .fields
            .iter()
            .fold(mac.chain_update(url), |mac, (name, value)| {
                mac.chain_update(name).chain_update(value)
            });
        STANDARD.encode(mac.finalize().into_bytes())
    }
}

/// Returns the number of the call's stage, and its status in Twilio's words; `None` for an event that no callback reports.
fn progress(kind: &str, status: &str) -> Option<(u8, &'static str)> {
    Some(match kind {
        "call.started" => (0, "initiated"),
        "call.ringing" => (1, "ringing"),
        "call.answered" => (2, "in-progress"),
        "call.ended" | "call.refused" => {
            let status = match status {
                "busy" => "busy",
                "no_answer" => "no-answer",
                "canceled" => "canceled",
                "failed" | "refused" => "failed",
                // Twilio has no words for calls that were transferred or lost; they are over.
                _ => "completed",
            };
            (3, status)
        }
        _ => return None,
    })
}

/// Rewrites a time from the form of RFC 3339 to that of RFC 2822.
fn date(time: &str) -> Option<String> {
    let time: Timestamp = time.parse().ok()?;
    Some(time.strftime("%a, %d %b %Y %H:%M:%S +0000").to_string())
}

fn escaped(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for octet in value.bytes() {
        match octet {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'*' => {
                escaped.push(char::from(octet));
            }
            b' ' => escaped.push('+'),
            _ => escaped.push_str(&format!("%{octet:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(kind: &str, status: &str) -> String {
        json!({
            "id": Uuid::nil(), "type": kind, "timestamp": "2026-11-26T15:16:17.123Z",
            "data": {
                "session_id": Uuid::from_u128(0xa), "direction": "inbound", "status": status,
                "from_number": "100", "to_number": "200", "from_e164": "+441632960001", "to_e164": null,
                "sip_code": 200, "answered_s": 3,
            },
        })
        .to_string()
    }

    #[test]
    fn an_end_is_a_form_as_twilio_posts_it() {
        let callback =
            Callback::of(Uuid::from_u128(0xb), &event("call.ended", "completed")).unwrap();
        assert_eq!(
            callback.form(),
            "AccountSid=AC0000000000000000000000000000000b&ApiVersion=2010-04-01&CallDuration=3&CallSid=CA0000000000000000000000000000000a\
             &CallStatus=completed&CallbackSource=call-progress-events&Called=200&Caller=%2B441632960001&Direction=inbound\
             &From=%2B441632960001&SequenceNumber=3&SipResponseCode=200&Timestamp=Thu%2C+26+Nov+2026+15%3A16%3A17+%2B0000&To=200"
        );
    }

    #[test]
    fn a_withheld_number_is_in_no_field() {
        let callback = Callback::of(Uuid::nil(), &event("call.started", "queued")).unwrap();
        assert!(callback.form().contains("441632960001"));
        let form = callback.withholding_caller().form();
        assert!(!form.contains("441632960001"), "{form}");
        for field in ["&Caller=anonymous&", "&From=anonymous&", "&To=200"] {
            assert!(form.contains(field), "{field} in {form}");
        }
    }

    #[test]
    fn stages_have_twilios_words_and_count_up() {
        for (kind, status, expected) in [
            ("call.started", "queued", Some((0, "initiated"))),
            ("call.ringing", "ringing", Some((1, "ringing"))),
            ("call.answered", "in_progress", Some((2, "in-progress"))),
            ("call.ended", "transferred", Some((3, "completed"))),
            ("call.ended", "no_answer", Some((3, "no-answer"))),
            ("call.ended", "busy", Some((3, "busy"))),
            ("call.ended", "canceled", Some((3, "canceled"))),
            ("call.refused", "refused", Some((3, "failed"))),
            ("trunk.lost", "x", None),
        ] {
            assert_eq!(progress(kind, status), expected, "{kind} {status}");
        }
    }

    /// The example of Twilio's documentation of the signature, with its own fields.
    #[test]
    fn the_documented_example_is_signed_as_there() {
        let callback = Callback {
            session: Uuid::nil(),
            fields: vec![
                ("CallSid", "CA1234567890ABCDE".to_owned()),
                ("Caller", "+14158675309".to_owned()),
                ("Digits", "1234".to_owned()),
                ("From", "+14158675309".to_owned()),
                ("To", "+18005551212".to_owned()),
            ],
        };
        let url = "https://mycompany.com/myapp.php?foo=1&bar=2";
        assert_eq!(
            callback.signature("12345", url),
            "RSOYDt4T1cUTdK1PDd93/VVr8B8="
        );
    }
}
