//! Chooses the form of an answer by `Accept` and its like (RFC 9110 §12.5).

use axum::http::{HeaderMap, HeaderName, header};

/// Header of an answer whose form depends on `Accept`, for caches (RFC 9110 §12.5.5).
pub(super) const VARIES: (HeaderName, &str) = (header::VARY, "accept");

/// A media range of `Accept`: `text/csv`, `text/*` or `*/*`, in lower case, with its weight in thousandths.
struct Range {
    kind: String,
    subtype: String,
    weight: u16,
}

/// Returns the form whose media type the client prefers; among types that it prefers alike, the one it names most precisely, then the one it names
/// first, then the first of `forms`. `None` if it accepts none of them, or says nothing.
pub(super) fn preferred<T: Copy>(headers: &HeaderMap, forms: &[(&str, T)]) -> Option<T> {
    let ranges: Vec<Range> = elements(headers, header::ACCEPT)
        .filter_map(range)
        .collect();

    let mut best = None;
    for (media_type, form) in forms {
        // The most precise range decides the weight of a type, wherever it is in the list.
        let matching = ranges.iter().enumerate().filter_map(|(at, range)| {
            let precision = range.precision(media_type)?;
            Some((precision, std::cmp::Reverse(at), range.weight))
        });
        let Some((precision, place, weight)) = matching.max() else {
            continue;
        };
        let rank = (weight, precision, place);
        if weight > 0 && best.is_none_or(|(known, _)| rank > known) {
            best = Some((rank, *form));
        }
    }
    best.map(|(_, form)| form)
}

/// Returns the weight in thousandths that a header gives a token, if it has it.
pub(super) fn weight_of(headers: &HeaderMap, name: HeaderName, token: &str) -> Option<u16> {
    let mut weights = elements(headers, name).filter_map(weighted);
    weights.find_map(|(known, weight)| known.eq_ignore_ascii_case(token).then_some(weight))
}

/// Returns the elements of a header that is a list.
fn elements(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(name).iter();
    let lines = lines.filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(','))
}

/// Splits an element into what it names and its weight. Other parameters are passed over.
fn weighted(element: &str) -> Option<(&str, u16)> {
    let mut parts = element.split(';').map(str::trim);
    let named = parts.next()?;
    let weight = parts.find_map(|part| {
        let (name, value) = part.split_once('=')?;
        name.trim().eq_ignore_ascii_case("q").then(|| value.trim())
    });
    Some((named, weight.map_or(Some(1_000), thousandths)?))
}

/// Reads a media range.
fn range(element: &str) -> Option<Range> {
    let (named, weight) = weighted(element)?;
    let (kind, subtype) = named.split_once('/')?;
    Some(Range {
        kind: kind.to_ascii_lowercase(),
        subtype: subtype.to_ascii_lowercase(),
        weight,
    })
}

/// Reads a weight from 0 to 1 with at most three decimals.
fn thousandths(weight: &str) -> Option<u16> {
    let (whole, decimals) = weight.split_once('.').unwrap_or((weight, ""));
    let is_number = decimals.len() <= 3 && decimals.bytes().all(|octet| octet.is_ascii_digit());
    let decimals = format!("{decimals:0<3}")
        .parse::<u16>()
        .ok()
        .filter(|_| is_number)?;
    match whole {
        "0" => Some(decimals),
        "1" if decimals == 0 => Some(1_000),
        _ => None,
    }
}

impl Range {
    /// Precision with which the range names a media type, 0 for `*/*` to 2; `None` if it doesn't have it.
    fn precision(&self, media_type: &str) -> Option<u8> {
        let essence = media_type.split(';').next().unwrap_or_default().trim();
        let (kind, subtype) = essence.split_once('/')?;
        match (&*self.kind, &*self.subtype) {
            ("*", "*") => Some(0),
            (own, "*") if own == kind => Some(1),
            (own, other) if own == kind && other == subtype => Some(2),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn the_preferred_form_is_taken() {
        let forms = [
            ("application/json", "json"),
            ("text/csv; charset=utf-8", "csv"),
            ("application/x-ndjson", "lines"),
        ];

        for (accept, form) in [
            (&[][..], None),
            (&["text/csv"], Some("csv")),
            (&["Text/CSV"], Some("csv")),
            (&["text/csv; charset=utf-8"], Some("csv")),
            (&["image/x, text/csv"], Some("csv")),
            (&["image/x"], None),
            (&["nonsense"], None),
            (&["*/*"], Some("json")),
            (&["text/*"], Some("csv")),
            (&["application/json, text/plain, */*"], Some("json")),
            (
                &["text/html, application/xml;q=0.9, */*;q=0.8"],
                Some("json"),
            ),
            (&["application/json;q=0.5, text/csv"], Some("csv")),
            (&["text/csv;q=0.5, application/json;q=0.50"], Some("csv")),
            (&["text/csv;Q=0.4, application/json;q=0.5"], Some("json")),
            (&["*/*, text/csv"], Some("csv")),
            (
                &["application/*;q=0.2, application/x-ndjson;q=0.1"],
                Some("json"),
            ),
            (&["*/*, application/json;q=0"], Some("csv")),
            (&["text/csv;q=0"], None),
            (&["text/csv;q=2, application/json"], Some("json")),
            (&["image/x", "application/x-ndjson"], Some("lines")),
        ] {
            let mut headers = HeaderMap::new();
            for line in accept {
                headers.append(header::ACCEPT, HeaderValue::from_static(line));
            }
            assert_eq!(preferred(&headers, &forms), form, "{accept:?}");
        }
    }
}
