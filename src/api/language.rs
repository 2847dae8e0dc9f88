//! Language codes of contacts and orgs, and language tags of agents.

use serde_json::{Value, json};

use super::field_type::{Choice, FieldType};

macro_rules! codes {
    ($($code:literal),* $(,)?) => { Choice(&[$(($code, $code)),*]) };
}

/// One of the codes of the API's document.
pub(super) const LANGUAGE: Choice<&str> = codes![
    "en", "fr", "de", "nl", "pl", "pt", "es", "it", "ru", "ja", "ko", "zh", "ar", "tr", "sv", "da",
    "no", "fi", "el", "cs", "hu", "th", "vi", "id", "he", "hi", "uk", "ro", "bg", "hr", "sk", "sl",
    "sr", "et", "lv", "lt", "is", "ga", "ms", "tl", "fa", "bn", "ta", "te", "ur", "sw", "zu", "af",
    "sq", "hy", "az", "eu", "be", "bs", "ca", "cy", "ku", "ckb", "kmr",
];

/// Maximum length of a tag (RFC 5646 §4.4.1).
const LONGEST_TAG: usize = 35;

/// Language of an agent: a code of [`LANGUAGE`], or a tag that narrows one, such as `en-GB` (RFC 5646 §2.1).
#[derive(Copy, Clone, Debug)]
pub(super) struct Tag;

impl FieldType for Tag {
    type Read = String;

    fn schema(&self) -> Value {
        let codes: Vec<_> = LANGUAGE.0.iter().map(|(code, _)| *code).collect();
        let pattern = format!("^({})(-[A-Za-z0-9]{{1,8}})*$", codes.join("|"));
        json!({"type": "string", "maxLength": LONGEST_TAG, "pattern": pattern})
    }

    fn read(&self, value: Value, path: &str, faults: &mut Vec<String>) -> Option<String> {
        let any = super::field_type::Text::line(1..=LONGEST_TAG);
        let text = any.read(value, path, faults)?;
        match language_tag(&text) {
            Ok(tag) => Some(tag),
            Err(fault) => {
                faults.push(format!("{path}: {fault}"));
                None
            }
        }
    }
}

/// Parses a tag as agents take one, for use outside the API.
///
/// # Errors
/// The list of codes, or how a tag continues.
pub(crate) fn language_tag(text: &str) -> Result<String, String> {
    let mut parts = text.split('-');
    LANGUAGE.meaning(parts.next().unwrap_or_default())?;
    let is_subtag = |part: &str| {
        (1..=8).contains(&part.len()) && part.bytes().all(|octet| octet.is_ascii_alphanumeric())
    };
    if parts.all(is_subtag) && text.len() <= LONGEST_TAG {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "{text:?} is not a language tag such as en or en-GB"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_narrow_a_known_code() {
        for (text, is) in [
            ("en", true),
            ("en-GB", true),
            ("zh-Hant-TW", true),
            ("ckb", true),
            ("", false),
            ("english", false),
            ("xx-YY", false),
            ("en-", false),
            ("en_GB", false),
            ("en-GB-", false),
            ("en-abcdefghi", false),
            ("en-abcdefgh-abcdefgh-abcdefgh-abcdefgh", false),
        ] {
            assert_eq!(language_tag(text).is_ok(), is, "{text}");
        }
    }
}
