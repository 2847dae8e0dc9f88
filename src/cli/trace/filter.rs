//! Filter of calls: conditions that all have to hold, as the command line gives them and as a person types them
//! (`number:+442071838750 agent:Echo status:refused`).

use std::collections::HashMap;
use std::fmt;

use uuid::Uuid;

use super::call::CallLine;

/// Fewest characters, at the beginning or the end of an id, by which a filter finds it.
const MIN_PART: usize = 4;

/// Field that a condition is about.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Field {
    /// The number that calls or is called, as sent or as E.164.
    Number,
    /// The agent's id, a part of it, or its name.
    Agent,
    /// The trunk's id, a part of it, or its name.
    Trunk,
    /// Part of a leg's `Call-ID`.
    CallId,
    /// Part of the `User-Agent`.
    UserAgent,
    Status,
    Direction,
}

const FIELDS: [(&str, Field); 7] = [
    ("number", Field::Number),
    ("agent", Field::Agent),
    ("trunk", Field::Trunk),
    ("call-id", Field::CallId),
    ("user-agent", Field::UserAgent),
    ("status", Field::Status),
    ("direction", Field::Direction),
];

/// Names of agents and trunks by id.
pub(super) type Names = HashMap<Uuid, String>;

/// Conditions that all have to hold.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Filter(Vec<(Field, String)>);

impl Filter {
    pub(super) fn new(conditions: impl IntoIterator<Item = (Field, Option<String>)>) -> Self {
        let given = conditions.into_iter();
        Self(
            given
                .filter_map(|(field, value)| Some((field, value?)))
                .collect(),
        )
    }

    /// Reads a filter as it is typed. A value with blanks has double quotes.
    ///
    /// # Errors
    /// The first word that is no condition.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let conditions: Result<Vec<_>, String> = words(text).map(|word| condition(&word)).collect();
        conditions.map(Self)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn matches(&self, call: &CallLine, names: &Names) -> bool {
        let is_met = |(field, value): &(Field, String)| {
            let names_id = |id: Option<Uuid>| id.is_some_and(|id| is_named(id, value, names));
            match field {
                Field::Number => {
                    let sent = [&call.from, &call.to].into_iter();
                    sent.chain(call.e164.iter().flatten())
                        .any(|number| number == value)
                }
                Field::Agent => names_id(call.agent),
                Field::Trunk => names_id(call.trunk),
                Field::CallId => call.call_ids.iter().any(|id| id.contains(value.as_str())),
                Field::UserAgent => {
                    let said = call.user_agent.as_deref().map(str::to_lowercase);
                    said.is_some_and(|said| said.contains(&value.to_lowercase()))
                }
                Field::Status => call.status == *value,
                Field::Direction => call.direction == *value,
            }
        };

        self.0.iter().all(is_met)
    }
}

fn condition(word: &str) -> Result<(Field, String), String> {
    let (name, value) = word.split_once(':').unwrap_or((word, ""));
    let field = FIELDS.iter().find(|(known, _)| *known == name);
    match field {
        Some((_, field)) if !value.is_empty() => Ok((*field, value.to_owned())),
        Some(_) => Err(format!("{name}: needs a value")),
        None => Err(format!(
            "{word:?} is not a condition: use number:, agent:, trunk:, call-id:, user-agent:, status: or direction:"
        )),
    }
}

/// Splits a text at blanks. Double quotes keep blanks together, and are removed.
fn words(text: &str) -> impl Iterator<Item = String> {
    let (mut words, mut word, mut is_quoted) = (Vec::new(), String::new(), false);
    for char in text.chars() {
        match char {
            '"' => is_quoted = !is_quoted,
            ' ' if !is_quoted => words.push(std::mem::take(&mut word)),
            char => word.push(char),
        }
    }
    words.push(word);
    words.into_iter().filter(|word| !word.is_empty())
}

fn is_named(id: Uuid, value: &str, names: &Names) -> bool {
    let value = value.to_lowercase();
    let id_text = id.to_string();
    let is_part = id_text.starts_with(&value) || id_text.ends_with(&value);
    let name = names.get(&id).map(|name| name.to_lowercase());
    name == Some(value.clone()) || (value.len() >= MIN_PART && is_part)
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.0.iter().map(|(field, value)| {
            let name = FIELDS.iter().find(|(_, known)| known == field);
            let name = name.map_or("", |(name, _)| *name);
            match value.contains(' ') {
                true => format!("{name}:\"{value}\""),
                false => format!("{name}:{value}"),
            }
        });
        f.write_str(&words.collect::<Vec<_>>().join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_read_written_and_applied() {
        let agent = Uuid::from_u128(0xa11ce);
        let names = Names::from([(agent, "Front Desk".to_owned())]);
        let call = CallLine {
            agent: Some(agent),
            trunk: Some(Uuid::from_u128(7)),
            status: "refused".to_owned(),
            direction: "inbound".to_owned(),
            from: "030 1".to_owned(),
            e164: [Some("+49301".to_owned()), None],
            call_ids: vec!["abc@pbx".to_owned()],
            user_agent: Some("Asterisk PBX 22".to_owned()),
            ..CallLine::new(Uuid::nil())
        };
        for (text, is_met) in [
            ("", true),
            ("number:+49301", true),
            ("number:\"030 1\" status:refused", true),
            ("number:+4930", false),
            ("agent:\"front desk\"", true),
            ("agent:a11ce", true),
            ("agent:desk", false),
            ("trunk:0007", true),
            ("call-id:abc@", true),
            ("call-id:ABC", false),
            ("user-agent:asterisk direction:inbound", true),
            ("user-agent:asterisk direction:outbound", false),
        ] {
            let filter = Filter::parse(text).expect(text);
            assert_eq!(filter.matches(&call, &names), is_met, "{text}");
            assert_eq!(Filter::parse(&filter.to_string()), Ok(filter), "{text}");
        }

        for text in ["x", "who:me", "number:"] {
            assert!(Filter::parse(text).is_err(), "{text}");
        }
    }
}
