//! Hides the tags in a trace from users who may read calls but not end them: a peer that knows the tags of a dialog can
//! send requests inside it, if it also sends from the right place.
//!
//! A tag is replaced by the same letters everywhere in a trace, and by as many, so that dialogs stay distinguishable
//! and lengths right. Tags are found in parameters (`tag=`, `to-tag=`, also escaped in a URI). Those of a message's From and To are found anywhere, if
//! they are long enough to be nothing else. A peer may fill a trace with tags: each octet is looked at a fixed number of times.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use trunkline_capture::message::Message;

/// Length below which tags are hidden in parameters only: in other text they could be anything.
const MIN_LENGTH: usize = 8;
/// Letters of a hidden tag.
const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
/// Attempts to find unused letters for a tag. A short tag may find none: then two tags share their letters.
const TRIES: u8 = 8;

/// Hides the tags in all messages of a trace. `secret` keeps anybody from guessing a tag and comparing.
pub fn hide_tags<'m>(messages: impl Iterator<Item = &'m mut Vec<u8>>, secret: [u8; 32]) {
    let mut tag_mask = TagMask {
        secret,
        hidden: HashMap::new(),
        given: HashSet::new(),
    };

    let mut messages: Vec<&mut Vec<u8>> = messages.collect();
    // Collected before the first tag is hidden: From and To are read for it.
    let of_dialogs: HashSet<Vec<u8>> = messages
        .iter()
        .flat_map(|message| dialog_tags(message))
        .collect();

    for message in &mut messages {
        for tag in tags_in(message) {
            let hidden = tag_mask.hide(&message[tag.clone()]);
            message[tag].copy_from_slice(&hidden);
        }
    }

    let tags: Vec<Vec<u8>> = of_dialogs.into_iter().collect();
    let hidden: Vec<Vec<u8>> = tags.iter().map(|tag| tag_mask.hide(tag)).collect();
    let finder = AhoCorasick::builder()
        // A tag may begin with another one.
        .match_kind(MatchKind::LeftmostLongest)
        .build(&tags)
        .expect("a trace is far shorter than the most octets of a search");
    for message in &mut messages {
        let found: Vec<_> = finder.find_iter(message.as_slice()).collect();
        for tag in found {
            message[tag.range()].copy_from_slice(&hidden[tag.pattern().as_usize()]);
        }
    }
}

/// Returns the tags of a message's dialog that are long enough to be found in other text.
fn dialog_tags(message: &[u8]) -> impl Iterator<Item = Vec<u8>> + use<> {
    let message = Message::parse(message);
    let tags = ["From", "To"].map(|header| message.tag(header));
    let tags = tags.into_iter().flatten().map(String::into_bytes);
    tags.filter(|tag| tag.len() >= MIN_LENGTH)
}

struct TagMask {
    secret: [u8; 32],
    /// Replacement of each tag.
    hidden: HashMap<Vec<u8>, Vec<u8>>,
    /// Replacements in use.
    given: HashSet<Vec<u8>>,
}

impl TagMask {
    fn hide(&mut self, tag: &[u8]) -> Vec<u8> {
        if let Some(hidden) = self.hidden.get(tag) {
            return hidden.clone();
        }
        let mut hidden = Vec::new();
        for turn in 0..TRIES {
            hidden = self.letters(tag, turn);
            if !self.given.contains(&hidden) {
                break;
            }
        }
        self.given.insert(hidden.clone());
        self.hidden.insert(tag.to_vec(), hidden.clone());
        hidden
    }

    fn letters(&self, tag: &[u8], turn: u8) -> Vec<u8> {
        let mut letters = Vec::with_capacity(tag.len());
        for block in 0_u32.. {
            if letters.len() >= tag.len() {
                break;
            }
            let mut mac =
                Hmac::<Sha256>::new_from_slice(&self.secret).expect("any length is a key");
            mac.update(&[turn]);
            mac.update(&block.to_le_bytes());
            mac.update(tag);
            let octets = mac.finalize().into_bytes();
            letters.extend(octets.iter().map(|octet| LETTERS[usize::from(octet % 32)]));
        }
        letters.truncate(tag.len());
        letters
    }
}

/// Returns the ranges of parameter values whose name ends in `tag`.
fn tags_in(message: &[u8]) -> Vec<Range<usize>> {
    let mut tags = Vec::new();
    let mut at = 0;
    while let Some(found) = find_ignoring_case(&message[at..], b"tag") {
        let name_end = at + found + 3;
        at = name_end;
        let Some(start) = value_start(message, name_end) else {
            continue;
        };

        let length = message[start..]
            .iter()
            .take_while(|octet| is_of_tag(**octet));
        let end = start + length.count();

        if end > start {
            tags.push(start..end);
        }
        at = end.max(at);
    }

    tags
}

/// Returns the start of the value after a name's `=`, which is escaped inside a URI's headers.
fn value_start(message: &[u8], name_end: usize) -> Option<usize> {
    // A header may continue on the next line, which then begins with a blank (RFC 3261 §7.3.1).
    let blank = |mut at: usize| {
        loop {
            at += match message.get(at..).unwrap_or_default() {
                [b' ' | b'\t', ..] => 1,
                [b'\n', b' ' | b'\t', ..] => 2,
                [b'\r', b'\n', b' ' | b'\t', ..] => 3,
                _ => return at,
            };
        }
    };

    let sign = blank(name_end);
    let rest = message.get(sign..)?;
    let start = match rest {
        [b'=', ..] => sign + 1,
        [b'%', b'3', b'd' | b'D', ..] => sign + 3,
        _ => return None,
    };

    let start = blank(start);
    // Skip the quote of an XML attribute.
    Some(start + usize::from(matches!(message.get(start), Some(b'"' | b'\''))))
}

/// Returns true for the characters of a token (RFC 3261 §25.1), except the one that begins an escape.
const fn is_of_tag(octet: u8) -> bool {
    octet.is_ascii_alphanumeric()
        || matches!(octet, b'-' | b'.' | b'!' | b'*' | b'_' | b'+' | b'`' | b'~')
}

fn find_ignoring_case(octets: &[u8], wanted: &[u8]) -> Option<usize> {
    octets
        .windows(wanted.len())
        .position(|window| window.eq_ignore_ascii_case(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(messages: &[&str]) -> Vec<String> {
        let mut octets: Vec<Vec<u8>> = messages
            .iter()
            .map(|text| text.as_bytes().to_vec())
            .collect();
        hide_tags(octets.iter_mut(), [7; 32]);
        let shown = octets
            .into_iter()
            .map(|octets| String::from_utf8(octets).unwrap());
        shown.collect()
    }

    fn tag_of<'t>(text: &'t str, name: &str) -> &'t str {
        let (_, rest) = text.split_once(name).unwrap();
        rest.split([';', '\r', '%', '"', '>', '&']).next().unwrap()
    }

    #[test]
    fn a_tag_is_hidden_alike_and_at_its_length_wherever_it_is() {
        let messages = [
            "INVITE sip:a SIP/2.0\r\nf: \"tag=no\" <sip:a@b>;TAG\r\n = caller-tag.1;x=y\r\nTo: <sip:c@d>\r\n\r\n",
            "SIP/2.0 200 OK\r\nFrom: <sip:a@b>;tag=caller-tag.1\r\nTo: <sip:c@d>;tag=7\r\n\r\n",
            "REFER sip:c SIP/2.0\r\nFrom: <sip:a@b>;tag=8\r\nTo: <sip:c@d>;tag=7\r\nX-Note: caller-tag.1\r\n\
             Refer-To: <sip:e@f?Replaces=id%3Bto-tag%3Dcaller-tag.1%3Bfrom-tag%3d7&X=y>\r\n\r\n",
            "NOTIFY sip:c SIP/2.0\r\n\r\n<dialog local-tag=\"caller-tag.1\" remote-tag='7'/>",
        ];
        let shown = hidden(&messages);
        for (shown, before) in shown.iter().zip(messages) {
            assert_eq!(shown.len(), before.len());
            assert!(!shown.contains("caller-tag.1"), "{shown}");
        }

        let caller = tag_of(&shown[0], "TAG\r\n = ");
        assert_eq!(tag_of(&shown[1], "<sip:a@b>;tag="), caller);
        assert_eq!(tag_of(&shown[2], "to-tag%3D"), caller);
        assert_eq!(tag_of(&shown[3], "local-tag=\""), caller);
        assert!(shown[2].contains(&format!("X-Note: {caller}\r\n")));
        let [seven, eight] =
            ["To: <sip:c@d>;tag=", "From: <sip:a@b>;tag="].map(|name| tag_of(&shown[2], name));
        assert_eq!(tag_of(&shown[1], "<sip:c@d>;tag="), seven);
        assert_eq!(tag_of(&shown[2], "from-tag%3d"), seven);
        assert!(shown[3].contains(&format!("remote-tag='{seven}'")));
        assert_ne!(seven, eight, "dialogs are told apart");
        assert!(shown[0].contains("<sip:a@b>") && shown[0].contains(";x=y\r\n"));
    }

    /// A search for each tag in each message would take this test minutes.
    #[test]
    fn a_peer_that_fills_a_trace_with_tags_costs_no_more_than_their_octets() {
        let body: String = (0..40_000)
            .map(|number| format!("tag={number:08x};"))
            .collect();
        let message =
            format!("INFO sip:a SIP/2.0\r\nFrom: <sip:a@b>;tag=caller-tag.1\r\n\r\n{body}");
        let many = vec![message.as_str(); 3];
        let shown = hidden(&many);
        assert!(!shown[0].contains("caller-tag.1") && !shown[0].contains("tag=00000007;"));
        assert_eq!(shown[0], shown[2]);
    }

    #[test]
    fn what_names_no_tag_stays_as_it_is() {
        let message = "OPTIONS sip:a SIP/2.0\r\nSubject: a tag, staged\r\nX-Tagged: yes\r\nFrom: <sip:a@b>;tag=\r\n\r\ntag";
        assert_eq!(hidden(&[message]), [message]);
        for cut in 0..message.len() {
            hidden(&[&message[..cut]]);
        }
    }
}
