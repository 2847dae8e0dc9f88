//! Query parameters, read one by one. An unknown, repeated or wrong one is a fault named by its parameter, and all
//! faults are answered together.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use serde_json::{Value, json};
use trunkline_routing::E164;
use trunkline_sip::moment::Moment;

use super::error::ApiError;
use super::field_type::shown;

/// Maximum length of a text, in characters.
pub(super) const LONGEST: usize = 2048;

/// Schema of a parameter that [`Query::text`] reads.
pub(super) fn text_schema() -> Value {
    let no_controls = "^[^\\u0000-\\u001F\\u007F-\\u009F]*$";
    json!({"type": "string", "minLength": 1, "maxLength": LONGEST, "pattern": no_controls})
}

/// Schema of a parameter that [`time::start`](super::time::start) or [`time::end`](super::time::end) reads.
pub(super) fn date_schema() -> Value {
    json!({"type": "string", "examples": ["2026-01-31", "2026-01-31T12:00:00Z"]})
}

/// Parameters of a request that haven't been read yet.
#[derive(Debug, Default)]
pub(crate) struct Query {
    pairs: Vec<(String, String)>,
    faults: Vec<String>,
}

/// As with a body, extracting them refuses nothing.
impl<S: Send + Sync> FromRequestParts<S> for Query {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Infallible> {
        let pairs =
            axum::extract::Query::<Vec<(String, String)>>::from_request_parts(parts, state).await;
        Ok(match pairs {
            Ok(pairs) => Self {
                pairs: pairs.0,
                faults: Vec::new(),
            },
            Err(_) => Self {
                pairs: Vec::new(),
                faults: vec![
                    "the query string is not application/x-www-form-urlencoded".to_owned(),
                ],
            },
        })
    }
}

impl Query {
    /// Reads the parameter `name` with `parse`, whose error says what was expected.
    pub(crate) fn read<T>(
        &mut self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let place = self.pairs.iter().position(|(key, _)| key == name)?;
        let (_, value) = self.pairs.remove(place);
        if self.pairs.iter().any(|(key, _)| key == name) {
            // Removed, so that it isn't reported as unknown as well.
            self.pairs.retain(|(key, _)| key != name);
            self.faults.push(format!("{name}: is given more than once"));
            return None;
        }
        parse(&value)
            .map_err(|fault| self.faults.push(format!("{name}: {fault}")))
            .ok()
    }

    /// Returns true if the parameter was given and hasn't been read.
    pub(super) fn has(&self, name: &str) -> bool {
        self.pairs.iter().any(|(key, _)| key == name)
    }

    /// Reads a parameter that is one of a few words.
    pub(super) fn one_of(&mut self, name: &str, words: &[&str]) -> Option<String> {
        self.read(name, |text| match words.contains(&text) {
            true => Ok(text.to_owned()),
            false => Err(format!("{} is none of {}", shown(text), words.join(", "))),
        })
    }

    /// Reads a parameter that is `true` or `false`.
    pub(super) fn switch(&mut self, name: &str) -> Option<String> {
        self.one_of(name, &["true", "false"])
    }

    /// Reads a parameter that is a text of 1 to 2,048 characters.
    pub(crate) fn text(&mut self, name: &str) -> Option<String> {
        self.read(name, |text| match text.chars().count() {
            1..=LONGEST if !text.chars().any(char::is_control) => Ok(text.to_owned()),
            _ => Err(format!(
                "expected 1 to {LONGEST} characters, none of them a control character"
            )),
        })
    }

    /// Reads a parameter that is a phone number.
    pub(super) fn number(&mut self, name: &str) -> Option<String> {
        self.read(name, |text| match E164::parse(text) {
            Ok(number) => Ok(number.as_str().to_owned()),
            Err(_) => Err(format!("{} is not an E.164 number", shown(text))),
        })
    }

    /// Notes a fault if `start_date` and `end_date` are given in the wrong order. `defaults` names what an absent one means, as
    /// ` (default: now)`.
    pub(super) fn expect_ordered_dates(&mut self, dates: Option<(Moment, Moment)>, defaults: &str) {
        if dates.is_some_and(|(start, end)| start > end) {
            self.faults
                .push(format!("start_date: lies after end_date{defaults}"));
        }
    }

    /// Notes a fault that concerns several parameters.
    pub(super) fn refuse(&mut self, fault: impl Into<String>) {
        self.faults.push(fault.into());
    }

    /// Finishes reading; parameters that are left are unknown.
    ///
    /// # Errors
    /// 400 with every fault.
    pub(super) fn finish(self) -> Result<(), ApiError> {
        let faults = self.faults();
        if faults.is_empty() {
            Ok(())
        } else {
            Err(ApiError::BadRequest(faults))
        }
    }

    /// Finishes reading and returns every fault.
    pub(super) fn faults(mut self) -> Vec<String> {
        let unknown = self.pairs.iter();
        self.faults
            .extend(unknown.map(|(key, _)| format!("{key}: is no parameter of this endpoint")));
        self.faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_named_by_its_parameter() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let pairs = vec![
            pair("limit", "x"),
            pair("a", "1"),
            pair("a", "2"),
            pair("b", "3"),
            pair("colour", "red"),
        ];
        let mut query = Query {
            pairs,
            faults: Vec::new(),
        };
        let limit = query.read("limit", |text| {
            text.parse::<u32>()
                .map_err(|_| "expected a number".to_owned())
        });
        let a = query.read("a", |text| Ok(text.to_owned()));
        let b = query.read("b", |text| Ok(text.to_owned()));
        let absent = query.read("absent", |text| Ok(text.to_owned()));

        assert_eq!(
            (limit, a, b.as_deref(), absent),
            (None, None, Some("3"), None)
        );

        let fault = query.finish().unwrap_err().to_string();
        assert_eq!(
            fault,
            "limit: expected a number; a: is given more than once; colour: is no parameter of this endpoint"
        );
    }
}
