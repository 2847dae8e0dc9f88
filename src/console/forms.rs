//! Parts of forms that prove where they come from, for the pages of an org and for the operator's.

use maud::{Markup, html};

/// Visitor whose pages hold forms: a person of an org, or the operator.
pub(super) trait Forms {
    /// Path of a page.
    fn path(&self, below: &str) -> String;
    /// Token that the session's forms carry.
    fn form_token(&self) -> &str;
}

/// Hidden field that proves that a form is the session's own.
pub(super) fn token(visitor: &impl Forms) -> Markup {
    html! { input type="hidden" name="form_token" value=(visitor.form_token()); }
}

/// Button that is a form of its own: a POST without fields.
pub(super) fn button(visitor: &impl Forms, below: &str, label: &str) -> Markup {
    html! {
        form.inline method="post" action=(visitor.path(below)) {
            (token(visitor))
            button.plain type="submit" { (label) }
        }
    }
}

/// Button that needs a second click, for changes that can't be undone.
pub(super) fn danger(visitor: &impl Forms, below: &str, label: &str, warning: &str) -> Markup {
    html! {
        details.danger {
            summary { (label) "…" }
            form method="post" action=(visitor.path(below)) {
                (token(visitor))
                p { (warning) }
                button.danger type="submit" { (label) }
            }
        }
    }
}
