//! Reads `Accept` (RFC 9110 §12.5.1): the first media type in the list that is known. Weights (`q`) are ignored.

use axum::http::{HeaderMap, header};

/// Returns the value that `form_of` has for the first media type in `Accept` that it knows.
pub(super) fn first_known<T>(
    headers: &HeaderMap,
    form_of: impl Fn(&str) -> Option<T>,
) -> Option<T> {
    let accept = headers.get(header::ACCEPT)?.to_str().ok()?;
    let kinds = accept.split(',').filter_map(|kind| kind.split(';').next());
    kinds.map(str::trim).find_map(form_of)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn the_first_known_media_type_is_taken() {
        let form_of = |kind: &str| match kind {
            "text/csv" => Some(1),
            "*/*" => Some(2),
            _ => None,
        };

        for (name, accept, form) in [
            ("alone", Some("text/csv"), Some(1)),
            ("with a parameter", Some("text/csv; charset=utf-8"), Some(1)),
            ("behind an unknown one", Some("image/x, text/csv"), Some(1)),
            ("behind another", Some("*/*, text/csv"), Some(2)),
            ("unknown", Some("image/x"), None),
            ("absent", None, None),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(accept) = accept {
                headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
            }
            assert_eq!(first_known(&headers, form_of), form, "{name}");
        }
    }
}
