//! The language codes that contacts and orgs may have.

use super::shape::Choice;

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

/// A language as the API takes one, for who reads it elsewhere.
///
/// # Errors
/// Which there are.
pub(crate) fn language(text: &str) -> Result<String, String> {
    LANGUAGE.meaning(text).map(str::to_owned)
}
