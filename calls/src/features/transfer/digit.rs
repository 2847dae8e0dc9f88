//! Keys that a caller presses while its media ends here. The built-in agent or a bot hears them. With the echo agent digit N hands the caller to the
//! agent's N-th destination, 0 to the tenth, so that a transfer can be tried with a phone and nothing else.

use trunkline_model::handoff::Report;
use trunkline_model::view::OrgView;
use trunkline_sip::wire::{HeaderName, Message};

use super::event::{NewTransfer, Requester};
use super::order::Meant;
use super::transferee::Transferee;
use crate::core::context::Cx;
use crate::core::effect::Effect;
use crate::dialog::info_body::KeyBody;
use crate::leg::bridge::Bridge;

/// Takes the key in an INFO of a caller whose media ends here. A bot gets it at once; for any other agent its number is returned.
pub(crate) fn take_key(bridge: &Bridge, cx: &mut Cx<'_>, message: &Message<'_>) -> Option<u8> {
    let kind = message.first(HeaderName::ContentType).unwrap_or_default();
    let key = key(kind, message.body())?;
    if bridge.bot().is_some_and(|bot| !bot.is_builtin()) {
        let call = bridge.key;
        cx.core.effects.push_back(Effect::PressKey { call, key });
        return None;
    }
    Some(event(key))
}

impl Transferee<'_> {
    /// Returns the transfer to the agent's destination that a digit selects.
    pub(crate) fn by_digit(
        &self,
        cx: &mut Cx<'_>,
        org: &OrgView,
        digit: u8,
    ) -> Option<NewTransfer> {
        let own = org.destinations.get(&self.ids.agent)?;
        let destination = own.get(place(digit)?)?.clone();
        // A digit without a usable destination does nothing: no requester is there to get the reason.
        let plan = self.plan(cx, org, &destination, None).ok()?;
        let meant = Meant {
            destination,
            replaces: None,
            plan,
        };
        Some(self.transfer_to(cx, org, meant, Report::default(), Requester::Api))
    }
}

/// Number of a key in RFC 4733 §3.2.
fn event(key: char) -> u8 {
    match key {
        '*' => 10,
        '#' => 11,
        'A'..='D' => key as u8 - b'A' + 12,
        _ => key as u8 - b'0',
    }
}

/// Index in the list that a digit selects.
fn place(digit: u8) -> Option<usize> {
    (digit <= 9).then(|| usize::from((digit + 9) % 10))
}

/// The key in an INFO: `Signal=5` of `application/dtmf-relay`, or the bare key of `application/dtmf`. Ten and eleven are `*` and `#`.
fn key(kind: &[u8], body: &[u8]) -> Option<char> {
    let signal = match KeyBody::of(kind)? {
        KeyBody::Relay => body.split(|octet| *octet == b'\n').find_map(|line| {
            let at = line.iter().position(|octet| *octet == b'=')?;
            let (name, value) = line.split_at(at);
            name.trim_ascii()
                .eq_ignore_ascii_case(b"signal")
                .then_some(value[1..].trim_ascii())
        })?,
        KeyBody::Bare => body.trim_ascii(),
    };

    match signal {
        [key @ (b'0'..=b'9' | b'*' | b'#' | b'A'..=b'D' | b'a'..=b'd')] => {
            Some(char::from(key.to_ascii_uppercase()))
        }
        b"10" => Some('*'),
        b"11" => Some('#'),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_from_either_form() {
        let cases: [(&str, &[u8], Option<char>); 9] = [
            (
                "application/dtmf-relay",
                b"Signal=5\r\nDuration=160\r\n",
                Some('5'),
            ),
            (
                "Application/DTMF-Relay; x=y",
                b"Duration=160\nSignal= 0",
                Some('0'),
            ),
            ("application/dtmf", b"7\r\n", Some('7')),
            ("application/dtmf-relay", b"Signal=*\r\n", Some('*')),
            ("application/dtmf-relay", b"Signal=11\r\n", Some('#')),
            ("application/dtmf", b"d", Some('D')),
            ("application/dtmf-relay", b"Signal=12\r\n", None),
            ("application/dtmf-relay", b"", None),
            ("text/plain", b"5", None),
        ];
        for (kind, body, expected) in cases {
            assert_eq!(key(kind.as_bytes(), body), expected, "{kind}");
        }
    }

    #[test]
    fn one_is_the_first_and_nought_the_tenth() {
        let places = [0, 1, 8, 9].map(Some);
        assert_eq!([1, 2, 9, 0].map(place), places);
        assert_eq!(place(10), None, "a star selects none");
    }
}
