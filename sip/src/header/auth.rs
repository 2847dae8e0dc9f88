//! Digest challenges and credentials in WWW-Authenticate and Authorization (RFC 3261 §20.7, §22.4,
//! RFC 7616 §3.3, §3.4). Parsed in one pass. A repeated parameter makes the value unreadable, since two
//! readers could disagree about it. `crate::auth` decides whether an answer is right.

use std::borrow::Cow;
use std::fmt;

use super::text;

/// Reason why a challenge or credentials can't be read.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AuthFault {
    /// Another scheme than Digest.
    #[error("not a Digest")]
    Scheme,
    /// Something that isn't `name=value`, or an open quote.
    #[error("a malformed parameter")]
    Malformed,
    /// A parameter occurs twice.
    #[error("a repeated parameter")]
    Repeated,
    /// A required parameter is missing.
    #[error("a parameter is missing")]
    Missing,
}

/// Credentials: the answer to a challenge. Values are the octets between the quotes, as sent.
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct Credentials<'a> {
    /// User name that the sender claims.
    pub username: &'a [u8],
    /// The realm of the challenge.
    pub realm: &'a [u8],
    /// The nonce of the challenge.
    pub nonce: &'a [u8],
    /// The URI that was hashed.
    pub uri: &'a [u8],
    /// The response, hex digits.
    pub response: &'a [u8],
    /// The algorithm, MD5 where absent.
    pub algorithm: Option<&'a [u8]>,
    /// The client's nonce.
    pub cnonce: Option<&'a [u8]>,
    /// The quality of protection.
    pub qop: Option<&'a [u8]>,
    /// The nonce count, hex digits as sent.
    pub nc: Option<&'a [u8]>,
    /// Value that the challenge asked to have back.
    pub opaque: Option<&'a [u8]>,
    /// True if the user name is a hash (RFC 7616 §3.4.4).
    pub userhash: bool,
}

/// A challenge. Values are the octets between the quotes, as sent.
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct Challenge<'a> {
    /// Realm whose password is wanted.
    pub realm: &'a [u8],
    /// Nonce to hash in.
    pub nonce: &'a [u8],
    /// Value to send back unchanged.
    pub opaque: Option<&'a [u8]>,
    /// The algorithm, MD5 where absent.
    pub algorithm: Option<&'a [u8]>,
    /// The list of qualities of protection; `None` is a challenge by RFC 2069.
    pub qop: Option<&'a [u8]>,
    /// True if only the nonce was too old.
    pub stale: bool,
}

impl<'a> Credentials<'a> {
    /// Reads the value of an Authorization or Proxy-Authorization header.
    pub fn parse(value: &'a [u8]) -> Result<Self, AuthFault> {
        let [
            username,
            realm,
            nonce,
            uri,
            response,
            algorithm,
            cnonce,
            qop,
            nc,
            opaque,
            userhash,
        ] = fields(
            value,
            [
                "username",
                "realm",
                "nonce",
                "uri",
                "response",
                "algorithm",
                "cnonce",
                "qop",
                "nc",
                "opaque",
                "userhash",
            ],
        )?;

        Ok(Self {
            username: username.ok_or(AuthFault::Missing)?,
            realm: realm.ok_or(AuthFault::Missing)?,
            nonce: nonce.ok_or(AuthFault::Missing)?,
            uri: uri.ok_or(AuthFault::Missing)?,
            response: response.ok_or(AuthFault::Missing)?,
            algorithm,
            cnonce,
            qop,
            nc,
            opaque,
            userhash: is_true(userhash),
        })
    }

    /// The user name with its escapes resolved.
    pub fn username_unescaped(&self) -> Cow<'a, [u8]> {
        text::unescape_pairs(self.username)
    }

    /// The nonce count: one to eight hex digits.
    pub fn nonce_count(&self) -> Option<u32> {
        let digits = std::str::from_utf8(self.nc?).ok()?;
        // `from_str_radix` alone would take a plus sign as well.
        if !(1..=8).contains(&digits.len())
            || !digits.bytes().all(|octet| octet.is_ascii_hexdigit())
        {
            return None;
        }
        u32::from_str_radix(digits, 16).ok()
    }
}

impl<'a> Challenge<'a> {
    /// Reads the value of a WWW-Authenticate or Proxy-Authenticate header.
    pub fn parse(value: &'a [u8]) -> Result<Self, AuthFault> {
        let [realm, nonce, opaque, algorithm, qop, stale] = fields(
            value,
            ["realm", "nonce", "opaque", "algorithm", "qop", "stale"],
        )?;
        Ok(Self {
            realm: realm.ok_or(AuthFault::Missing)?,
            nonce: nonce.ok_or(AuthFault::Missing)?,
            opaque,
            algorithm: algorithm.filter(|name| !name.is_empty()),
            // Some registrars send `qop=""` for none.
            qop: qop.filter(|list| text::elements(list).next().is_some()),
            stale: is_true(stale),
        })
    }

    /// Returns true if that quality of protection is on offer.
    pub fn offers(&self, quality: &str) -> bool {
        self.qop.is_some_and(|list| {
            text::elements(list).any(|one| one.eq_ignore_ascii_case(quality.as_bytes()))
        })
    }
}

fn is_true(value: Option<&[u8]>) -> bool {
    value.is_some_and(|value| value.eq_ignore_ascii_case(b"true"))
}

/// Returns the values of the wanted parameters, in the order of their names; skips all others.
fn fields<'a, const N: usize>(
    value: &'a [u8],
    names: [&str; N],
) -> Result<[Option<&'a [u8]>; N], AuthFault> {
    let mut rest = behind_scheme(text::trim(value))?;
    let mut found = [None; N];
    while !rest.is_empty() {
        let (Field { name, value }, behind) = cut_param(rest)?;
        // Other parameters are skipped, also those that occur twice: nothing is read from them.
        if let Some(index) = names
            .iter()
            .position(|known| name.eq_ignore_ascii_case(known.as_bytes()))
            && found[index].replace(value).is_some()
        {
            return Err(AuthFault::Repeated);
        }
        rest = behind;
    }

    Ok(found)
}

fn behind_scheme(value: &[u8]) -> Result<&[u8], AuthFault> {
    const DIGEST: &[u8] = b"digest";
    match value.split_at_checked(DIGEST.len()) {
        Some((scheme, rest @ [blank, ..]))
            if scheme.eq_ignore_ascii_case(DIGEST) && text::is_blank(*blank) =>
        {
            Ok(behind_commas(rest))
        }
        Some(_) | None => Err(AuthFault::Scheme),
    }
}

struct Field<'a> {
    name: &'a [u8],
    value: &'a [u8],
}

/// Cuts off one `name = value`; also returns the text after the comma behind it.
fn cut_param(rest: &[u8]) -> Result<(Field<'_>, &[u8]), AuthFault> {
    let equals = memchr::memchr(b'=', rest).ok_or(AuthFault::Malformed)?;
    let name = text::trim(&rest[..equals]);
    if !text::is_token(name) {
        return Err(AuthFault::Malformed);
    }

    let behind = trim_start(&rest[equals + 1..]);
    let (value, behind) = match behind {
        // Any value may be quoted. By the grammar qop, nc and algorithm of credentials are tokens (RFC 7616 §3.4), but
        // clients that quote them are read too.
        [b'"', ..] => text::cut_quoted(behind).ok_or(AuthFault::Malformed)?,
        _ => {
            let end = memchr::memchr(b',', behind).unwrap_or(behind.len());
            (text::trim(&behind[..end]), &behind[end..])
        }
    };
    match trim_start(behind) {
        [] | [b',', ..] => Ok((Field { name, value }, behind_commas(behind))),
        _ => Err(AuthFault::Malformed),
    }
}

fn trim_start(mut value: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = value
        && text::is_blank(*first)
    {
        value = rest;
    }
    value
}

fn behind_commas(mut value: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = value
        && (text::is_blank(*first) || *first == b',')
    {
        value = rest;
    }
    value
}

// Neither response nor nonce may reach a log.
impl fmt::Debug for Credentials<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("username", &text::Octets(self.username))
            .field("realm", &text::Octets(self.realm))
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Challenge<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Challenge")
            .field("realm", &text::Octets(self.realm))
            .field("stale", &self.stale)
            .finish_non_exhaustive()
    }
}

/// Prints an Authorization value; the fields go between the quotes exactly as they are.
impl fmt::Display for Credentials<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest username=\"{}\"", text::Octets(self.username))?;
        for (name, value) in [
            ("realm", self.realm),
            ("nonce", self.nonce),
            ("uri", self.uri),
            ("response", self.response),
        ] {
            write!(f, ", {name}=\"{}\"", text::Octets(value))?;
        }

        if let Some(algorithm) = self.algorithm {
            write!(f, ", algorithm={}", text::Octets(algorithm))?;
        }

        if let Some(cnonce) = self.cnonce {
            write!(f, ", cnonce=\"{}\"", text::Octets(cnonce))?;
        }

        // Here qop and nc are tokens, not quoted strings (RFC 7616 §3.4).
        for (name, value) in [("qop", self.qop), ("nc", self.nc)] {
            if let Some(value) = value {
                write!(f, ", {name}={}", text::Octets(value))?;
            }
        }
        if let Some(opaque) = self.opaque {
            write!(f, ", opaque=\"{}\"", text::Octets(opaque))?;
        }
        if self.userhash {
            f.write_str(", userhash=true")?;
        }

        Ok(())
    }
}

/// Prints a WWW-Authenticate value; the fields go between the quotes exactly as they are.
impl fmt::Display for Challenge<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Digest realm=\"{}\", nonce=\"{}\"",
            text::Octets(self.realm),
            text::Octets(self.nonce)
        )?;
        if let Some(opaque) = self.opaque {
            write!(f, ", opaque=\"{}\"", text::Octets(opaque))?;
        }

        if self.stale {
            f.write_str(", stale=true")?;
        }

        if let Some(algorithm) = self.algorithm {
            write!(f, ", algorithm={}", text::Octets(algorithm))?;
        }

        if let Some(qop) = self.qop {
            write!(f, ", qop=\"{}\"", text::Octets(qop))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FULL: &str = "Digest username=\"Mufasa\", realm=\"http-auth@example.org\", nonce=\"7yp\", \
        uri=\"/dir/index.html\", response=\"753927fa\", algorithm=SHA-256, cnonce=\"f2\", qop=auth, nc=0000000A, \
        opaque=\"FQ\"";

    #[test]
    fn credentials_read_and_print() {
        let read = Credentials::parse(FULL.as_bytes()).unwrap();
        assert_eq!(read.to_string(), FULL);
        assert_eq!(read.nonce_count(), Some(10));
        assert_eq!(read.algorithm, Some(&b"SHA-256"[..]));
        assert!(!read.userhash);
    }

    #[test]
    fn order_case_blanks_and_quotes_are_free() {
        let value = "dIgEsT ,uri=sip:a@b,\r\n QOP=\"auth\" , Nonce = \"n\",,x=\"a, b=\\\"c\",realm=\"r\",response=f,username=\"a\\\\b\",";
        let read = Credentials::parse(value.as_bytes()).unwrap();
        assert_eq!(
            (read.uri, read.qop, read.nonce),
            (&b"sip:a@b"[..], Some(&b"auth"[..]), &b"n"[..])
        );
        assert_eq!(read.username, br"a\\b");
        assert_eq!(&*read.username_unescaped(), br"a\b");
        assert_eq!((read.nc, read.nonce_count()), (None, None));
    }

    #[test]
    fn an_empty_parameter_of_a_challenge_is_absent() {
        for value in [
            "Digest realm=\"r\", nonce=\"n\", qop=\"\", algorithm=",
            "Digest realm=\"r\", nonce=\"n\", qop=\" , \"",
            "Digest realm=\"r\", nonce=\"n\", qop=",
        ] {
            let read = Challenge::parse(value.as_bytes()).unwrap();
            assert_eq!((read.qop, read.algorithm), (None, None), "{value}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let whole = r#"Digest username="u",realm="r",nonce="n",uri="sip:a@b",response="f""#;
        for (name, value, fault) in [
            ("empty", String::new(), AuthFault::Scheme),
            ("scheme alone", "Digest".into(), AuthFault::Scheme),
            (
                "another scheme",
                "Basic QWxhZGRpbg==".into(),
                AuthFault::Scheme,
            ),
            (
                "a longer scheme",
                whole.replace("Digest", "DigestX"),
                AuthFault::Scheme,
            ),
            (
                "no response",
                whole.replace("response", "reply"),
                AuthFault::Missing,
            ),
            ("twice", format!("{whole},nonce=\"m\""), AuthFault::Repeated),
            (
                "twice in other case",
                format!("{whole},URI=\"m\""),
                AuthFault::Repeated,
            ),
            (
                "open quote",
                format!("{whole},cnonce=\"m"),
                AuthFault::Malformed,
            ),
            ("no equals", format!("{whole},cnonce"), AuthFault::Malformed),
            (
                "text behind a quote",
                format!("{whole} x,cnonce=\"m\""),
                AuthFault::Malformed,
            ),
            ("no name", format!("{whole},=x"), AuthFault::Malformed),
        ] {
            assert_eq!(
                Credentials::parse(value.as_bytes()).map(|_| ()),
                Err(fault),
                "{name}"
            );
        }
    }

    #[test]
    fn a_nonce_count_is_hex() {
        for (nc, count) in [
            ("00000001", Some(1)),
            ("1", Some(1)),
            ("ffffffff", Some(u32::MAX)),
            ("0000000a", Some(10)),
            ("000000001", None),
            ("+1", None),
            ("0x1", None),
        ] {
            let value = format!("{},x=y", FULL.replace("0000000A", nc));
            assert_eq!(
                Credentials::parse(value.as_bytes()).unwrap().nonce_count(),
                count,
                "{nc}"
            );
        }
    }

    #[test]
    fn challenges_read_and_print() {
        let value = r#"Digest realm="biloxi.com", nonce="dcd98b", opaque="5ccc", stale=true, algorithm=MD5, qop="auth,auth-int""#;
        let read = Challenge::parse(value.as_bytes()).unwrap();
        assert_eq!(read.to_string(), value);
        assert!(
            read.stale && read.offers("auth") && read.offers("AUTH-INT") && !read.offers("int")
        );
        let old = Challenge::parse(br#"Digest realm="r",nonce="n",domain="sip:x""#).unwrap();
        assert!(!old.stale && old.qop.is_none() && !old.offers("auth"));
    }

    proptest! {
        #[test]
        fn no_octets_panic(octets in proptest::collection::vec(any::<u8>(), 0..200)) {
            let value = [&b"Digest "[..], &octets].concat();
            let _ = (Credentials::parse(&value), Challenge::parse(&value), Credentials::parse(&octets));
        }

        #[test]
        fn what_looks_like_parameters_never_panics(text in "[a-c=\",\\\\ ]{0,60}") {
            let _ = Challenge::parse(format!("Digest {text}").as_bytes());
        }
    }
}
