//! Fields of forms: how each is shown, and how its submitted text becomes part of an API request. The API does the validation.

use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::choice::Choice;
use super::visitor::FormFields;

/// Kind of an input.
#[derive(Clone, Debug)]
pub(super) enum Input {
    Text,
    /// Several lines of text.
    Area,
    Number,
    Date,
    /// A switch; absent means off.
    Check,
    /// One of these: value and title.
    Select(Vec<(String, String)>),
    /// One of any number, by the text that means it.
    Choice(Choice),
    /// Any of these: value and title.
    Checks(Vec<(String, String)>),
    /// A list, one entry a line.
    Lines,
    /// Never shown, and sent only if it was typed.
    Secret,
}

/// A field of a form. A name with a dot leads into an object.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) label: &'static str,
    pub(super) help: &'static str,
    pub(super) input: Input,
    /// Texts that the form shows, and submits unless somebody changes them.
    shown: Vec<String>,
}

/// Texts of a value in a form: one, those of a list, or none for an absent value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Texts(Vec<String>);

impl From<&str> for Texts {
    fn from(text: &str) -> Self {
        Self::from([text].as_slice())
    }
}

impl From<bool> for Texts {
    /// Returns what a browser sends for a switch: nothing for one that is off.
    fn from(is_on: bool) -> Self {
        Self::from(is_on.then_some("on"))
    }
}

impl From<u32> for Texts {
    fn from(number: u32) -> Self {
        Self::from([number].as_slice())
    }
}

impl<T: ToString> From<&[T]> for Texts {
    fn from(list: &[T]) -> Self {
        let texts = list.iter().map(T::to_string);
        Self(texts.filter(|text| !text.is_empty()).collect())
    }
}

impl<T: Into<Texts>> From<Option<T>> for Texts {
    fn from(value: Option<T>) -> Self {
        value.map_or_else(|| Self(Vec::new()), T::into)
    }
}

impl Field {
    pub(super) const fn new(name: &'static str, label: &'static str, input: Input) -> Self {
        Self {
            name,
            label,
            help: "",
            input,
            shown: Vec::new(),
        }
    }

    pub(super) const fn help(mut self, help: &'static str) -> Self {
        self.help = help;
        self
    }

    /// Sets the value that the form shows: of the object that it changes, or the first one of a new object.
    pub(super) fn holds(mut self, value: impl Into<Texts>) -> Self {
        self.shown = value.into().0;
        self
    }

    /// The object that the field is in, and its name there.
    fn place(&self) -> (Option<&'static str>, &'static str) {
        match self.name.split_once('.') {
            Some((object, name)) => (Some(object), name),
            None => (None, self.name),
        }
    }

    /// Texts that were submitted.
    fn submitted(&self, form: &FormFields) -> Vec<String> {
        let texts = form.values(self.name);
        let texts: Vec<String> = match self.input {
            Input::Lines => texts
                .flat_map(str::lines)
                .map(|line| line.trim().to_owned())
                .collect(),
            // Browsers send line ends of a text as CR LF.
            Input::Area => texts.map(|text| text.replace("\r\n", "\n")).collect(),
            // A password isn't trimmed: it may begin or end with a blank. The others have the form's own values.
            Input::Secret | Input::Check | Input::Select(_) | Input::Checks(_) => {
                texts.map(str::to_owned).collect()
            }
            Input::Text | Input::Number | Input::Date | Input::Choice(_) => {
                texts.map(|text| text.trim().to_owned()).collect()
            }
        };

        texts.into_iter().filter(|text| !text.is_empty()).collect()
    }

    /// Value for the API; `null` without a text.
    fn value(&self, texts: &[String]) -> Value {
        let first = texts.first();
        match self.input {
            // Browsers send nothing for a box that isn't ticked.
            Input::Check => Value::Bool(first.is_some()),
            Input::Lines | Input::Checks(_) => json!(texts),
            Input::Number => match first.map(|text| text.parse::<i64>()) {
                Some(Ok(number)) => json!(number),
                // The API reports the fault.
                Some(Err(_)) => json!(first),
                None => Value::Null,
            },
            Input::Text
            | Input::Area
            | Input::Date
            | Input::Select(_)
            | Input::Choice(_)
            | Input::Secret => {
                json!(first)
            }
        }
    }
}

/// Body that creates an object: every field that was filled in.
pub(super) fn new_body(fields: &[Field], form: &FormFields) -> Value {
    let mut body = Map::new();
    for field in fields {
        let value = field.value(&field.submitted(form));
        if !value.is_null() {
            put(&mut body, field, value);
        }
    }
    Value::Object(body)
}

/// Body of an update: the fields whose text differs from the one shown. A nested object is sent whole: `nested` has all that the forms lead into.
pub(super) fn changes(fields: &[Field], form: &FormFields, nested: &Value) -> Value {
    let changed: Vec<&Field> = fields.iter().filter(|field| differs(field, form)).collect();
    let within: Vec<&str> = changed.iter().filter_map(|field| field.place().0).collect();

    let mut body = Map::new();
    for object in &within {
        // Properties that the form doesn't show keep their values.
        if let Value::Object(whole) = &nested[*object] {
            let set = whole.iter().filter(|(_, value)| !value.is_null());
            let set = set.map(|(name, value)| (name.clone(), value.clone()));
            body.insert((*object).to_owned(), Value::Object(set.collect()));
        }
    }
    for field in fields {
        let is_within = field
            .place()
            .0
            .is_some_and(|object| within.contains(&object));
        if is_within || changed.iter().any(|other| other.name == field.name) {
            put(&mut body, field, field.value(&field.submitted(form)));
        }
    }

    Value::Object(body)
}

fn differs(field: &Field, form: &FormFields) -> bool {
    let mut submitted = field.submitted(form);

    // Ticked boxes come in the order of the form, and the API has its own. Of a list of lines the order counts.
    if matches!(field.input, Input::Checks(_)) {
        let mut shown = field.shown.clone();
        submitted.sort_unstable();
        shown.sort_unstable();
        return submitted != shown;
    }
    submitted != field.shown
}

/// Sets a value in the body. In a nested object, which is sent whole, `null` removes the property.
fn put(body: &mut Map<String, Value>, field: &Field, value: Value) {
    let (Some(object), name) = field.place() else {
        body.insert(field.name.to_owned(), value);
        return;
    };
    let within = body.entry(object).or_insert_with(|| json!({}));
    if let Value::Object(within) = within {
        match value.is_null() {
            true => drop(within.remove(name)),
            false => drop(within.insert(name.to_owned(), value)),
        }
    }
}

/// Values of the fields that differ between a submitted form and the object as it is now: label, submitted, current.
pub(super) fn conflicts(
    fields: &[Field],
    form: &FormFields,
) -> Vec<(&'static str, String, String)> {
    let differing = fields.iter().filter(|field| differs(field, form));
    differing
        // A typed secret always differs, and neither value may be shown.
        .filter(|field| !matches!(field.input, Input::Secret))
        .map(|field| {
            let submitted = field.submitted(form).join(", ");
            (field.label, submitted, field.shown.join(", "))
        })
        .collect()
}

/// Inputs of the fields with the values that they hold, or those that were submitted, each with the faults that the API found in it.
pub(super) fn inputs(
    fields: &[Field],
    submitted: Option<&FormFields>,
    faults: &[(Option<String>, String)],
) -> Markup {
    html! {
        @for field in fields {
            @let texts = submitted.map_or_else(|| field.shown.clone(), |form| field.submitted(form));
            (input(field, &texts, &faults_of(field, faults)))
        }
    }
}

fn faults_of<'f>(field: &Field, faults: &'f [(Option<String>, String)]) -> Vec<&'f str> {
    let is_of = |path: &str| {
        let rest = path.strip_prefix(field.name);
        // A fault inside a list or an object belongs to the field, one of a field with a longer name doesn't.
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    let own = faults
        .iter()
        .filter(|(path, _)| path.as_deref().is_some_and(is_of));
    own.map(|(_, message)| message.as_str()).collect()
}

/// Faults that belong to none of the fields.
pub(super) fn other_faults<'f>(
    fields: &[Field],
    faults: &'f [(Option<String>, String)],
) -> Vec<&'f (Option<String>, String)> {
    let is_shown = |fault: &(Option<String>, String)| {
        fields
            .iter()
            .any(|field| !faults_of(field, std::slice::from_ref(fault)).is_empty())
    };
    faults.iter().filter(|fault| !is_shown(fault)).collect()
}

fn input(field: &Field, texts: &[String], faults: &[&str]) -> Markup {
    let id = format!("field-{}", field.name.replace('.', "-"));
    let first = texts.first().map_or("", String::as_str);
    let has = |value: &String| texts.contains(value);
    let describes = (!field.help.is_empty() || !faults.is_empty()).then(|| format!("{id}-help"));
    let invalid = (!faults.is_empty()).then_some("true");

    html! {
        div class=(if faults.is_empty() { "field" } else { "field wrong" }) {
            @match &field.input {
                Input::Check => {
                    label.check for=(id) {
                        input id=(id) type="checkbox" name=(field.name) value="on" checked[!first.is_empty()];
                        span { (field.label) }
                    }
                }
                Input::Checks(choices) => {
                    fieldset id=(id) aria-describedby=[describes.as_deref()] {
                        legend { (field.label) }
                        @if choices.is_empty() { p.empty { "There is none to choose from." } }
                        @for (value, title) in choices {
                            label.check {
                                input type="checkbox" name=(field.name) value=(value) checked[has(value)];
                                span { (title) }
                            }
                        }
                    }
                }
                _ => label for=(id) { (field.label) }
            }

            @match &field.input {
                Input::Check | Input::Checks(_) => {}
                Input::Text => {
                    input id=(id) type="text" name=(field.name) value=(first) autocomplete="off" aria-invalid=[invalid] aria-describedby=[describes.as_deref()];
                }
                Input::Number => {
                    input id=(id) type="text" inputmode="numeric" name=(field.name) value=(first) autocomplete="off" aria-invalid=[invalid] aria-describedby=[describes.as_deref()];
                }
                Input::Choice(choice) => {
                    input id=(id) type="text" name=(field.name) value=(first) list={ (id) "-options" } data-choices=(choice.url) autocomplete="off" aria-invalid=[invalid] aria-describedby=[describes.as_deref()];
                    datalist id={ (id) "-options" } { (choice.options()) }
                }
                Input::Date => {
                    input id=(id) type="date" name=(field.name) value=(first) aria-invalid=[invalid] aria-describedby=[describes.as_deref()];
                }
                Input::Secret => {
                    input id=(id) type="password" name=(field.name) autocomplete="new-password" aria-invalid=[invalid] aria-describedby=[describes.as_deref()];
                }

                Input::Area => {
                    textarea id=(id) name=(field.name) rows="4" aria-invalid=[invalid] aria-describedby=[describes.as_deref()] { (first) }
                }
                Input::Lines => {
                    textarea id=(id) name=(field.name) rows="3" aria-invalid=[invalid] aria-describedby=[describes.as_deref()] { (texts.join("\n")) }
                }

                Input::Select(choices) => {
                    select id=(id) name=(field.name) aria-invalid=[invalid] aria-describedby=[describes.as_deref()] {
                        @for (value, title) in choices { option value=(value) selected[value == first] { (title) } }
                        // A value that the form can't choose stays unless another is chosen.
                        @if !first.is_empty() && choices.iter().all(|(value, _)| value != first) { option value=(first) selected { "Unchanged: " (first) } }
                    }
                }
            }

            @if describes.is_some() {
                div.help id={ (id) "-help" } {
                    @for fault in faults { p.fault { (fault) } }
                    @if !field.help.is_empty() { p { (field.help) } }
                }
            }
        }
    }
}

/// Choices of a select, from pairs of value and title.
pub(super) fn choices(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(value, title): &(&str, &str)| ((*value).to_owned(), (*title).to_owned());
    pairs.iter().map(owned).collect()
}
