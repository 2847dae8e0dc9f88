//! `sip:`, `sips:` and `tel:` URIs, read without a copy (RFC 3261 §19.1, RFC 5118, RFC 3966).
//!
//! Strict where two readers could disagree about the host, lenient in the user part, where phone systems write what
//! they like. Any other scheme is kept whole and unread.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use super::params::{self, Params};
use super::text;
use crate::flow::Transport;

/// The scheme of a URI.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Scheme {
    /// `sip:`
    Sip,
    /// `sips:`
    Sips,
    /// `tel:`
    Tel,
    /// Any other scheme: only [`Uri::raw`] is set.
    Other,
}

/// Host of a URI.
#[derive(Copy, Clone, PartialEq, Eq, Hash)]
pub enum Host<'a> {
    /// A host name, as sent; empty where the scheme has no host.
    Name(&'a [u8]),
    /// An IPv4 address.
    V4(Ipv4Addr),
    /// An IPv6 address, sent in brackets.
    V6(Ipv6Addr),
}

/// A URI. All of it borrows; [`Uri::raw`] is the whole text.
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct Uri<'a> {
    /// The scheme.
    pub scheme: Scheme,
    /// The user part as sent, escapes and user parameters included; the number of a `tel:` URI. `None` where empty.
    pub user: Option<&'a [u8]>,
    /// The password. RFC 3261 §19.1.1 recommends against sending one.
    pub password: Option<&'a [u8]>,
    /// The host.
    pub host: Host<'a>,
    /// The port, if given.
    pub port: Option<u16>,
    /// `;a=b;c`, from the first semicolon on, or nothing.
    pub params: &'a [u8],
    /// Text behind the question mark, or nothing.
    pub headers: &'a [u8],
    /// The URI as it was sent.
    pub raw: &'a [u8],
}

/// Reason why a URI can't be read.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UriFault {
    /// No colon, or no valid scheme before it.
    #[error("no scheme")]
    Scheme,
    /// A blank, a control character, a quote or an angle bracket.
    #[error("an octet that no URI may hold")]
    Octet,
    /// No host, or neither name, IPv4 address nor bracketed IPv6 address.
    #[error("no valid host")]
    Host,
    /// The port is not a number from 1 to 65535.
    #[error("no valid port")]
    Port,
    /// A `tel:` URI without a number.
    #[error("no valid telephone number")]
    Number,
    /// An `@` among the parameters.
    #[error("no valid parameters")]
    Params,
}

/// The longest host name that DNS allows.
const LONGEST_NAME: usize = 255;

impl<'a> Uri<'a> {
    /// Reads a whole URI: no text is allowed before or after it.
    pub fn parse(raw: &'a [u8]) -> Result<Self, UriFault> {
        let (scheme, rest) = Scheme::cut(raw)?;
        if text::holds(rest, |octet| !is_uri_octet(octet)) {
            return Err(UriFault::Octet);
        }
        match scheme {
            Scheme::Sip | Scheme::Sips => Self::sip(scheme, rest, raw),
            Scheme::Tel => Self::tel(rest, raw),
            Scheme::Other => Ok(Self::hostless(scheme, raw)),
        }
    }

    fn sip(scheme: Scheme, rest: &'a [u8], raw: &'a [u8]) -> Result<Self, UriFault> {
        // A user part may hold `;`, `?` and `:`, but never a bare `@`, so the first one ends it.
        let (userinfo, rest) = match memchr::memchr(b'@', rest) {
            Some(at) => (Some(&rest[..at]), &rest[at + 1..]),
            None => (None, rest),
        };
        let (rest, headers) = cut(rest, b'?');
        let params_at = memchr::memchr(b';', rest).unwrap_or(rest.len());
        let (hostport, params) = rest.split_at(params_at);
        // A reader that ends the user part at the last `@` would see another host.
        if memchr::memchr(b'@', params).is_some() {
            return Err(UriFault::Params);
        }

        let (host, port) = host_and_port(hostport)?;
        let (user, password) = match userinfo {
            Some(userinfo) => user_and_password(userinfo),
            None => (None, None),
        };

        Ok(Self {
            scheme,
            user,
            password,
            host,
            port,
            params,
            headers: headers.unwrap_or_default(),
            raw,
        })
    }

    fn tel(rest: &'a [u8], raw: &'a [u8]) -> Result<Self, UriFault> {
        let params_at = memchr::memchr(b';', rest).unwrap_or(rest.len());
        let (number, params) = rest.split_at(params_at);
        if number.is_empty() || !number.iter().copied().all(is_number_octet) {
            return Err(UriFault::Number);
        }
        Ok(Self {
            user: Some(number),
            params,
            ..Self::hostless(Scheme::Tel, raw)
        })
    }

    const fn hostless(scheme: Scheme, raw: &'a [u8]) -> Self {
        Self {
            scheme,
            user: None,
            password: None,
            host: Host::Name(b""),
            port: None,
            params: b"",
            headers: b"",
            raw,
        }
    }

    /// The URI's parameters in order.
    pub const fn params(&self) -> Params<'a> {
        Params::new(self.params)
    }

    /// The value of a URI parameter: `Some(None)` if the parameter has no value.
    pub fn param(&self, name: &str) -> Option<Option<&'a [u8]>> {
        params::find(self.params, name)
    }

    /// The transport that the URI asks for; `sips:` asks for TLS whatever its parameter says (RFC 3261 §26.2.2). `None` if the URI
    /// leaves the choice, or names an unsupported transport.
    pub fn transport(&self) -> Option<Transport> {
        if self.scheme == Scheme::Sips {
            return Some(Transport::Tls);
        }
        let asked = self.param("transport")??;
        [Transport::Udp, Transport::Tcp, Transport::Tls]
            .into_iter()
            .find(|transport| asked.eq_ignore_ascii_case(transport.uri_name().as_bytes()))
    }

    /// Returns true if a route by this URI is a loose one (`lr`, RFC 3261 §16.12).
    pub fn is_loose(&self) -> bool {
        self.param("lr").is_some()
    }

    /// The user part with its escapes resolved; empty if there is none.
    pub fn user_unescaped(&self) -> Cow<'a, [u8]> {
        unescape(self.user.unwrap_or_default())
    }

    /// The headers behind the question mark, name and value unescaped.
    pub fn header_fields(&self) -> impl Iterator<Item = (Cow<'a, [u8]>, Cow<'a, [u8]>)> {
        self.headers
            .split(|octet| *octet == b'&')
            .filter(|field| !field.is_empty())
            .map(|field| {
                let (name, value) = cut(field, b'=');
                (unescape(name), unescape(value.unwrap_or_default()))
            })
    }

    /// Host to which a request with this URI is sent: `maddr` if the URI has one, since it "overrides any address derived from the
    /// host field" (RFC 3261 §19.1.1). `None` if `maddr` is no valid host.
    pub fn destination(&self) -> Option<Host<'a>> {
        // Called for each next hop; nearly none has `maddr`.
        if memchr::memchr2(b'm', b'M', self.params).is_none() {
            return Some(self.host);
        }
        match self.param("maddr") {
            None => Some(self.host),
            Some(maddr) => Host::parse(maddr?).ok(),
        }
    }

    /// The socket address, if the destination is an IP address; the port defaults to the transport's.
    pub fn socket_addr(&self) -> Option<SocketAddr> {
        let ip = self.destination()?.address()?;
        Some(SocketAddr::new(ip, self.port_or_default()))
    }

    /// The port, or 5061 for TLS and 5060 for the rest (RFC 3261 §19.1.2).
    pub fn port_or_default(&self) -> u16 {
        self.port.unwrap_or(match self.transport() {
            Some(Transport::Tls) => 5061,
            Some(Transport::Udp | Transport::Tcp) | None => 5060,
        })
    }
}

impl Scheme {
    /// The scheme of a URI; the rest of it is not checked.
    pub fn of(raw: &[u8]) -> Option<Self> {
        Some(Self::cut(raw).ok()?.0)
    }

    fn cut(raw: &[u8]) -> Result<(Self, &[u8]), UriFault> {
        // Nearly all URIs begin this way.
        if let Some(rest) = raw.strip_prefix(b"sip:") {
            return Ok((Self::Sip, rest));
        }
        let colon = memchr::memchr(b':', raw).ok_or(UriFault::Scheme)?;
        Ok((Self::read(&raw[..colon])?, &raw[colon + 1..]))
    }

    fn read(scheme: &[u8]) -> Result<Self, UriFault> {
        match scheme {
            [b'a'..=b'z' | b'A'..=b'Z', rest @ ..] if rest.iter().all(is_scheme_octet) => {}
            _ => return Err(UriFault::Scheme),
        }
        Ok(if scheme.eq_ignore_ascii_case(b"sip") {
            Self::Sip
        } else if scheme.eq_ignore_ascii_case(b"sips") {
            Self::Sips
        } else if scheme.eq_ignore_ascii_case(b"tel") {
            Self::Tel
        } else {
            Self::Other
        })
    }

    /// The scheme in lower case; empty for [`Scheme::Other`].
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sip => "sip",
            Self::Sips => "sips",
            Self::Tel => "tel",
            Self::Other => "",
        }
    }
}

impl<'a> Host<'a> {
    /// Reads a host: a name, an IPv4 address or an IPv6 address in brackets.
    pub fn parse(host: &'a [u8]) -> Result<Self, UriFault> {
        if let [b'[', address @ .., b']'] = host {
            let address = address_of(address).or_else(|| with_three_colons(address));
            return address.map(Host::V6).ok_or(UriFault::Host);
        }

        // Only a host that begins with a digit can be an address; a name may begin with one as well.
        if host.first().is_some_and(u8::is_ascii_digit)
            && let Some(address) = v4_of(host)
        {
            return Ok(Host::V4(address));
        }

        let is_name = (1..=LONGEST_NAME).contains(&host.len())
            && !text::holds(host, |octet| !is_name_octet(octet))
            && host.iter().any(u8::is_ascii_alphanumeric);
        if is_name {
            Ok(Host::Name(host))
        } else {
            Err(UriFault::Host)
        }
    }

    /// Appends the host as a URI has it, an IPv6 address in brackets. Each call prints several hosts, and this takes a fifth of the
    /// instructions of the standard library's formatter (`just instructions --profile`).
    pub fn push_to(&self, out: &mut String) {
        match self {
            Host::Name(name) => out.push_str(&text::lossy(name)),
            Host::V4(address) => push_v4(out, *address),
            Host::V6(address) => out.push_str(&format!("[{address}]")),
        }
    }

    /// The IP address, if the host is one.
    pub const fn address(&self) -> Option<IpAddr> {
        match self {
            Host::Name(_) => None,
            Host::V4(address) => Some(IpAddr::V4(*address)),
            Host::V6(address) => Some(IpAddr::V6(*address)),
        }
    }
}

/// Room for an IPv4 address with a port, and for most names.
const USUAL_HOST: usize = 32;

/// Cuts `host[:port]`; the port is from 1 to 65535.
pub fn host_and_port(hostport: &[u8]) -> Result<(Host<'_>, Option<u16>), UriFault> {
    let host_end = match hostport {
        [b'[', ..] => memchr::memchr(b']', hostport).ok_or(UriFault::Host)? + 1,
        _ => memchr::memchr(b':', hostport).unwrap_or(hostport.len()),
    };
    let host = Host::parse(&hostport[..host_end])?;
    let port = match &hostport[host_end..] {
        [] => None,
        [b':', digits @ ..] => Some(port(digits).ok_or(UriFault::Port)?),
        _ => return Err(UriFault::Host),
    };
    Ok((host, port))
}

/// Appends `host[:port]`.
pub fn push_host_and_port(out: &mut String, host: &Host<'_>, port: Option<u16>) {
    out.reserve(USUAL_HOST);
    host.push_to(out);
    if let Some(port) = port {
        out.push(':');
        push_decimal(out, port);
    }
}

fn push_v4(out: &mut String, address: Ipv4Addr) {
    for (at, octet) in address.octets().into_iter().enumerate() {
        if at > 0 {
            out.push('.');
        }
        push_decimal(out, octet.into());
    }
}

fn push_decimal(out: &mut String, mut number: u16) {
    // The longest has five digits.
    let mut digits = [0; 5];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(number % 10).expect("a remainder of ten");
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.push_str(std::str::from_utf8(&digits[at..]).expect("digits are ASCII"));
}

fn port(digits: &[u8]) -> Option<u16> {
    u16::try_from(text::number(digits)?)
        .ok()
        .filter(|port| *port != 0)
}

/// Reads four decimal numbers of at most three digits without leading zeros, as the standard library does. Each URI of a call names a
/// host, and most hosts are IPv4 addresses: this takes a fifth of the instructions of `str::parse` behind `str::from_utf8`
/// (`just instructions --profile`).
fn v4_of(text: &[u8]) -> Option<Ipv4Addr> {
    let mut octets = [0u8; 4];
    let mut parts = text.split(|octet| *octet == b'.');
    for octet in &mut octets {
        *octet = match parts.next()? {
            [one @ b'0'..=b'9'] => one - b'0',
            [first @ b'1'..=b'9', rest @ ..] if rest.len() <= 2 => {
                let number = rest.iter().try_fold(first - b'0', |number, digit| {
                    let digit = digit.is_ascii_digit().then(|| digit - b'0')?;
                    number.checked_mul(10)?.checked_add(digit)
                });
                number?
            }
            _ => return None,
        };
    }

    parts.next().is_none().then(|| octets.into())
}

fn address_of<A: FromStr>(text: &[u8]) -> Option<A> {
    const LONGEST_ADDRESS: usize = 45; // ffff:…:255.255.255.255
    if text.len() > LONGEST_ADDRESS {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The grammar of RFC 3261 allowed three colons before an IPv4 part, and some print them (RFC 5118 §4.10).
fn with_three_colons(text: &[u8]) -> Option<Ipv6Addr> {
    let at = memchr::memmem::find(text, b":::")?;
    address_of(&[&text[..at], &text[at + 1..]].concat())
}

fn user_and_password(userinfo: &[u8]) -> (Option<&[u8]>, Option<&[u8]>) {
    let (user, password) = cut(userinfo, b':');
    ((!user.is_empty()).then_some(user), password)
}

fn cut(text: &[u8], separator: u8) -> (&[u8], Option<&[u8]>) {
    match memchr::memchr(separator, text) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}

/// Returns true for an octet that a URI may hold. Octets past ASCII count, since phone systems put UTF-8 and Latin-1 into user parts unescaped.
const fn is_uri_octet(octet: u8) -> bool {
    octet > b' ' && octet != 0x7f && !matches!(octet, b'<' | b'>' | b'"')
}

const fn is_scheme_octet(octet: &u8) -> bool {
    octet.is_ascii_alphanumeric() || matches!(octet, b'+' | b'-' | b'.')
}

/// Returns true for an octet of a host name. The grammar of host names has no underscore, but many are written with one.
const fn is_name_octet(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'.' | b'_')
}

const fn is_number_octet(octet: u8) -> bool {
    octet.is_ascii_hexdigit() || matches!(octet, b'+' | b'*' | b'#' | b'-' | b'.' | b'(' | b')')
}

/// Resolves `%hh`; a percent sign without two hex digits after it stays as it is.
pub fn unescape(text: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(b'%', text).is_none() {
        return Cow::Borrowed(text);
    }

    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, behind @ ..] = rest {
        let escaped = match behind {
            [high, low, ..] if *first == b'%' => hex_octet(*high, *low),
            _ => None,
        };
        plain.push(escaped.unwrap_or(*first));
        // Each escape is resolved once: what comes of it isn't read again, or `%2541` would become `A`.
        rest = if escaped.is_some() {
            &behind[2..]
        } else {
            behind
        };
    }

    Cow::Owned(plain)
}

fn hex_octet(high: u8, low: u8) -> Option<u8> {
    let high = char::from(high).to_digit(16)?;
    let low = char::from(low).to_digit(16)?;
    u8::try_from(high * 16 + low).ok()
}

/// Prints text, escaping every character that is not allowed in a user part or in the headers of a URI.
#[derive(Copy, Clone, Debug)]
pub struct Escaped<'a>(pub &'a [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        escape_where(f, self.0, |octet| {
            let mark = matches!(
                octet,
                b'-' | b'_' | b'.' | b'!' | b'~' | b'*' | b'\'' | b'(' | b')'
            );
            !octet.is_ascii_alphanumeric() && !mark && octet != b'+'
        })
    }
}

fn escape_where(
    f: &mut fmt::Formatter<'_>,
    text: &[u8],
    is_escaped: impl Fn(u8) -> bool,
) -> fmt::Result {
    for octet in text {
        if is_escaped(*octet) {
            write!(f, "%{octet:02X}")?;
        } else {
            fmt::Write::write_char(f, char::from(*octet))?;
        }
    }
    Ok(())
}

// Escapes only octets that could break out of the URI or aren't ASCII: the rest stays as sent.
struct AsSent<'a>(&'a [u8]);

impl fmt::Display for AsSent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        escape_where(f, self.0, |octet| !octet.is_ascii() || !is_uri_octet(octet))
    }
}

impl fmt::Display for Host<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Name(name) => AsSent(name).fmt(f),
            Host::V4(address) => address.fmt(f),
            Host::V6(address) => write!(f, "[{address}]"),
        }
    }
}

impl fmt::Display for Uri<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.scheme == Scheme::Other {
            return AsSent(self.raw).fmt(f);
        }

        write!(f, "{}:", self.scheme.as_str())?;
        if let Some(user) = self.user {
            AsSent(user).fmt(f)?;
        }

        if self.scheme != Scheme::Tel {
            if let Some(password) = self.password {
                write!(f, ":{}", AsSent(password))?;
            }
            // An empty user part is printed as a bare `@`. Without it, an `@` among the headers would end a user part.
            if self.user.is_some() || self.password.is_some() || self.headers.contains(&b'@') {
                f.write_str("@")?;
            }
            self.host.fmt(f)?;
        }

        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }

        AsSent(self.params).fmt(f)?;
        if !self.headers.is_empty() {
            write!(f, "?{}", AsSent(self.headers))?;
        }

        Ok(())
    }
}

impl fmt::Debug for Host<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for Uri<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text::Octets(self.raw).fmt(f)
    }
}

#[cfg(test)]
#[path = "uri_tests.rs"]
mod tests;
