//! Parameters of URIs and header values: `;name`, `;name=token`, `;name="quoted"` (RFC 3261 §25.1).

use std::borrow::Cow;

use super::text;

/// One parameter.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Param<'a> {
    /// The name, as it was sent.
    pub name: &'a [u8],
    /// The value as sent, quotes included; `None` without `=`.
    pub value: Option<&'a [u8]>,
}

impl<'a> Param<'a> {
    /// Returns true if it has that name, ignoring case.
    pub const fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name.as_bytes())
    }

    /// The value without its quotes.
    pub fn text(&self) -> Option<Cow<'a, [u8]>> {
        self.value.map(text::unquote)
    }
}

/// The parameters in order. Blanks around `;` and `=` are skipped, and so are parameters without a name.
#[derive(Copy, Clone, Debug)]
pub struct Params<'a>(&'a [u8]);

impl<'a> Params<'a> {
    /// The parameters of `;a=b;c`; the first semicolon may be absent.
    pub const fn new(params: &'a [u8]) -> Self {
        Self(params)
    }

    /// The first parameter of that name.
    pub fn named(mut self, name: &str) -> Option<Param<'a>> {
        self.find(|param| param.is(name))
    }
}

impl<'a> Iterator for Params<'a> {
    type Item = Param<'a>;

    fn next(&mut self) -> Option<Param<'a>> {
        while !self.0.is_empty() {
            // A semicolon precedes nearly every parameter; skipping it is cheaper than reading an empty piece.
            if let [b';', rest @ ..] = self.0 {
                self.0 = rest;
                continue;
            }
            let (piece, rest) = cut_at_semicolon(self.0);
            self.0 = rest;
            let param = read(piece);
            if !param.name.is_empty() {
                return Some(param);
            }
        }

        None
    }
}

/// The value of the first parameter of that name: `Some(None)` if it has none.
pub fn find<'a>(params: &'a [u8], name: &str) -> Option<Option<&'a [u8]>> {
    Params::new(params).named(name).map(|param| param.value)
}

/// Returns true if no quote is left open, so that a parameter appended to `params` is read as one.
pub fn are_closed(params: &[u8]) -> bool {
    let mut rest = params;
    while let Some(at) = memchr::memchr(b'"', rest) {
        let Some((_, behind)) = text::cut_quoted(&rest[at..]) else {
            return false;
        };
        rest = behind;
    }
    true
}

/// Cuts at the first semicolon outside of quotes. Angle brackets mean nothing among parameters.
fn cut_at_semicolon(params: &[u8]) -> (&[u8], &[u8]) {
    let mut at = 0;
    while let Some(found) = memchr::memchr2(b';', b'"', &params[at..]) {
        at += found;
        if params[at] == b';' {
            return (&params[..at], &params[at + 1..]);
        }
        match text::cut_quoted(&params[at..]) {
            Some((inner, _)) => at += inner.len() + 2,
            // An open quote swallows the rest.
            None => break,
        }
    }
    (params, b"")
}

fn read(piece: &[u8]) -> Param<'_> {
    match memchr::memchr2(b'=', b'"', piece) {
        Some(at) if piece[at] == b'=' => Param {
            name: text::trim(&piece[..at]),
            value: Some(text::trim(&piece[at + 1..])),
        },
        Some(_) | None => Param {
            name: text::trim(piece),
            value: None,
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Expected = Vec<(&'static str, Option<&'static str>)>;

    #[test]
    fn parameters_are_read_in_order() {
        let cases: Vec<(&str, &str, Expected)> = vec![
            ("none", "", vec![]),
            ("flag", ";lr", vec![("lr", None)]),
            (
                "no first semicolon",
                "a=b;c",
                vec![("a", Some("b")), ("c", None)],
            ),
            (
                "blanks and folds",
                " ; a = b\r\n ;c ",
                vec![("a", Some("b")), ("c", None)],
            ),
            ("empty value", ";a=", vec![("a", Some(""))]),
            ("semicolons alone", ";;;", vec![]),
            ("nameless", ";=x;a", vec![("a", None)]),
            (
                "quoted semicolon",
                r#";a="x;y\";z";b"#,
                vec![("a", Some(r#""x;y\";z""#)), ("b", None)],
            ),
            ("open quote", r#";a="x;y"#, vec![("a", Some(r#""x;y"#))]),
            (
                "angles shield nothing",
                ";a=<x;b>",
                vec![("a", Some("<x")), ("b>", None)],
            ),
            ("value with equals", ";a=b=c", vec![("a", Some("b=c"))]),
        ];
        for (name, params, expected) in cases {
            let found: Vec<_> = Params::new(params.as_bytes())
                .map(|param| (param.name, param.value))
                .collect();
            let expected: Vec<_> = expected
                .into_iter()
                .map(|(name, value)| (name.as_bytes(), value.map(str::as_bytes)))
                .collect();
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn an_open_quote_swallows_what_is_put_behind() {
        for (params, closed) in [
            ("", true),
            (";a=b", true),
            (r#";a="x;\"y";b="z""#, true),
            (r#";a="x"#, false),
            (r#";a="x\""#, false),
            (r#";a="x";b""#, false),
        ] {
            assert_eq!(are_closed(params.as_bytes()), closed, "{params}");
            let more = [params.as_bytes(), b";ours"].concat();
            let found = find(&more, "ours").is_some();
            assert_eq!(found, closed, "{params}");
        }
    }

    #[test]
    fn the_first_of_a_name_counts_whatever_its_case() {
        assert_eq!(find(b";TAG=a;tag=b", "tag"), Some(Some(&b"a"[..])));
        assert_eq!(find(b";lr", "lr"), Some(None));
        assert_eq!(find(b";lrx", "lr"), None);
        let quoted = Params::new(br#";text="a\"b""#)
            .named("text")
            .and_then(|param| param.text());
        assert_eq!(quoted.as_deref(), Some(&br#"a"b"#[..]));
    }

    proptest! {
        #[test]
        fn no_octets_panic(params in proptest::collection::vec(any::<u8>(), 0..200)) {
            for param in Params::new(&params) {
                let _ = param.text();
                prop_assert!(!param.name.is_empty());
            }
        }

        #[test]
        fn what_looks_like_parameters_never_panics(params in "[;=\"\\\\ a<>]{0,40}") {
            prop_assert!(Params::new(params.as_bytes()).count() <= params.len());
        }
    }
}
