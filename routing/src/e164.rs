//! A phone number in E.164 form: `+`, then 7 to 15 digits, the first of them not 0.
//!
//! Sixteen octets, copied freely. This type accepts the final form alone; [`crate::numbers`] reads the forms that people and phone systems
//! write.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

const LONGEST: usize = 16;
const SHORTEST: usize = 8;

/// A number in E.164 form, `^\+[1-9]\d{6,14}$`. Compares and sorts as its text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct E164([u8; LONGEST]); // padded with zero octets

/// Error: the text isn't `+` and 7 to 15 digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an E.164 number: a plus sign, then 7 to 15 digits that don't begin with 0")]
pub struct NotE164;

impl E164 {
    /// Regular expression that a number matches.
    pub const PATTERN: &str = r"^\+[1-9][0-9]{6,14}$";

    /// Reads the canonical form and nothing else: no spaces, no separators.
    ///
    /// # Errors
    /// [`NotE164`].
    pub fn parse(text: &str) -> Result<Self, NotE164> {
        let octets = text.as_bytes();
        let [b'+', b'1'..=b'9', rest @ ..] = octets else {
            return Err(NotE164);
        };
        if !(SHORTEST..=LONGEST).contains(&octets.len()) || !rest.iter().all(u8::is_ascii_digit) {
            return Err(NotE164);
        }
        let mut number = [0; LONGEST];
        number[..octets.len()].copy_from_slice(octets);
        Ok(Self(number))
    }

    /// Returns the number as text, with its plus sign.
    pub fn as_str(&self) -> &str {
        let length = self
            .0
            .iter()
            .position(|octet| *octet == 0)
            .unwrap_or(LONGEST);
        std::str::from_utf8(&self.0[..length]).expect("parse accepts ASCII alone")
    }

    /// Returns the digits behind the plus sign.
    pub fn digits(&self) -> &str {
        &self.as_str()[1..]
    }
}

impl FromStr for E164 {
    type Err = NotE164;

    fn from_str(text: &str) -> Result<Self, NotE164> {
        Self::parse(text)
    }
}

impl fmt::Display for E164 {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl fmt::Debug for E164 {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl JsonSchema for E164 {
    fn schema_name() -> Cow<'static, str> {
        "E164".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": Self::PATTERN,
            "description": "A phone number in E.164 form.",
            "examples": ["+442071838750"],
        })
    }
}

impl Serialize for E164 {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for E164 {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_canonical_form_is_read() {
        let cases = [
            ("seven digits", "+1234567", true),
            ("fifteen digits", "+123456789012345", true),
            ("six digits", "+123456", false),
            ("sixteen digits", "+1234567890123456", false),
            ("leading zero", "+0123456789", false),
            ("no plus", "4930123456", false),
            ("a separator", "+49 30123456", false),
            ("a letter", "+4930a23456", false),
            ("arabic digits", "+٤٩٣٠١٢٣", false),
            ("nothing", "", false),
            ("plus alone", "+", false),
        ];
        for (name, text, accepted) in cases {
            assert_eq!(E164::parse(text).is_ok(), accepted, "{name}");
            assert!(
                E164::parse(text).is_err() || E164::parse(text).unwrap().as_str() == text,
                "{name}"
            );
        }
    }

    #[test]
    fn json_is_the_text_and_a_bad_text_is_refused() {
        let number = E164::parse("+493012345678").unwrap();
        assert_eq!(serde_json::to_string(&number).unwrap(), "\"+493012345678\"");
        assert_eq!(
            serde_json::from_str::<E164>("\"+493012345678\"").unwrap(),
            number
        );
        assert!(serde_json::from_str::<E164>("\"030\"").is_err());
    }
}
