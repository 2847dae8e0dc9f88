//! Characters in names that can't be seen, or that turn the text around them: a page shows their code in their place, so that nobody takes one name
//! for another. What a form sends stays as it is.

use crate::telemetry::redact::is_invisible;

/// Marks such characters in the text of a page. Those in attributes and in a `textarea` stay: they are values of forms.
pub(super) fn marked(html: String) -> String {
    if !html.contains(is_invisible) {
        return html;
    }

    let mut shown = String::with_capacity(html.len() + 64);
    let (mut is_tag, mut is_value) = (false, false);
    for (at, char) in html.char_indices() {
        match char {
            // Maud escapes both in texts and in attributes.
            '<' => {
                is_tag = true;
                is_value = html[at..].starts_with("<textarea");
            }
            '>' => is_tag = false,
            _ if is_invisible(char) && !is_tag && !is_value => {
                shown.push_str(&format!("[U+{:04X}]", u32::from(char)));
                continue;
            }
            _ => {}
        }
        shown.push(char);
    }
    shown
}

#[cfg(test)]
mod tests {
    use maud::html;

    use super::*;

    #[test]
    fn texts_are_marked_and_values_of_forms_are_not() {
        for (case, page, expected) in [
            (
                "an ordinary name",
                html! { p { "Zoë 日本 👍🏽" } },
                "<p>Zoë 日本 👍🏽</p>",
            ),
            (
                "zero width",
                html! { td { "Ac\u{200b}me" } },
                "<td>Ac[U+200B]me</td>",
            ),
            ("turned around", html! { "a\u{202e}b" }, "a[U+202E]b"),
            (
                "values",
                html! { input value="a\u{200b}>"; textarea { "b\u{200b}" } p { "c\u{200b}" } },
                "<input value=\"a\u{200b}&gt;\"><textarea>b\u{200b}</textarea><p>c[U+200B]</p>",
            ),
        ] {
            assert_eq!(marked(page.into_string()), expected, "{case}");
        }
    }
}
