//! Normal form of an INVITE for `rsip`: full header names, one header per line, one Via per line, no body.
//!
//! `rsip` 0.4.0 doesn't know compact forms, refuses folds and blanks before the colon, and loses the second
//! of two Vias on a line; the normal form has none of these. It holds only the headers that identify the request and those from which
//! admission and routing take facts. All others have parsers of their own, among them those for credentials, since `rsip`'s takes quadratic time.

use std::borrow::Cow;

use rsip::headers::UntypedHeader;

use super::message::{elements, unfold};
use super::{HeaderName, Message};
use crate::header::text;

/// Returns the text of an INVITE for `rsip` to parse.
pub(super) fn request_text(message: &Message<'_>) -> String {
    let mut request = String::with_capacity(message.raw().len() + 64);
    request.push_str("INVITE ");
    request.push_str(&text::lossy(message.request_uri()));
    request.push_str(" SIP/2.0\r\n");
    for (name, value) in lines(message) {
        request.push_str(name);
        request.push_str(": ");
        request.push_str(&value);
        request.push_str("\r\n");
    }
    request.push_str("\r\n");
    request
}

/// Returns the headers for `rsip`, by their full names, each on one line. Invalid UTF-8 becomes U+FFFD.
pub(super) fn lines<'a>(
    message: &'a Message<'_>,
) -> impl Iterator<Item = (&'a str, Cow<'a, str>)> + 'a {
    let read = message.headers().filter(|header| is_read(header.name));
    read.flat_map(|header| {
        // The canonical name, since `rsip` doesn't know compact ones.
        let name = match header.name.as_str() {
            // The lexer takes tokens alone as names, and these are ASCII.
            "" => std::str::from_utf8(header.raw_name).unwrap_or_default(),
            canonical => canonical,
        };

        // Via is split into its values; any other header stays whole.
        let (whole, list) = match header.name == HeaderName::Via {
            true => (None, header.value),
            false => (Some(header.value), &b""[..]),
        };
        let values = whole.into_iter().chain(elements(list));
        values.map(move |value| (name, one_line(value)))
    })
}

/// Returns true if [`Invite`](super::invite::Invite) reads a header. It may read a header unknown to the lexer by its name.
const fn is_read(name: HeaderName) -> bool {
    use HeaderName as H;
    matches!(
        name,
        H::Via
            | H::From
            | H::To
            | H::CallId
            | H::CSeq
            | H::PAssertedIdentity
            | H::Privacy
            | H::Other
    )
}

fn one_line(value: &[u8]) -> Cow<'_, str> {
    match unfold(value) {
        Cow::Borrowed(value) => text::lossy(value),
        Cow::Owned(value) => Cow::Owned(text::lossy(&value).into_owned()),
    }
}

macro_rules! typed_headers {
    ($($variant:ident = $name:literal),+ $(,)?) => {
        /// Returns a header as the variant that `rsip` would parse it to.
        pub(super) fn header(name: &str, value: Cow<'_, str>) -> rsip::Header {
            $(if name.eq_ignore_ascii_case($name) {
                return rsip::headers::$variant::new(value).into();
            })+
            rsip::Header::Other(name.to_owned(), value.into_owned())
        }

        /// Returns the name and the value of a header.
        pub(super) fn parts(header: &rsip::Header) -> (&str, &str) {
            match header {
                $(rsip::Header::$variant(typed) => ($name, typed.value()),)+
                rsip::Header::Other(name, value) => (name, value),
            }
        }
    };
}

typed_headers! {
    Via = "Via", From = "From", To = "To", CallId = "Call-ID", CSeq = "CSeq", Contact = "Contact",
    MaxForwards = "Max-Forwards", ContentLength = "Content-Length", ContentType = "Content-Type", Route = "Route",
    RecordRoute = "Record-Route", Allow = "Allow", Supported = "Supported", UserAgent = "User-Agent", Server = "Server",
    Accept = "Accept", AcceptEncoding = "Accept-Encoding", AcceptLanguage = "Accept-Language", AlertInfo = "Alert-Info",
    AuthenticationInfo = "Authentication-Info", Authorization = "Authorization", CallInfo = "Call-Info",
    ContentDisposition = "Content-Disposition", ContentEncoding = "Content-Encoding",
    ContentLanguage = "Content-Language", Date = "Date", ErrorInfo = "Error-Info", Event = "Event", Expires = "Expires",
    InReplyTo = "In-Reply-To", MimeVersion = "MIME-Version", MinExpires = "Min-Expires", Organization = "Organization",
    Priority = "Priority", ProxyAuthenticate = "Proxy-Authenticate", ProxyAuthorization = "Proxy-Authorization",
    ProxyRequire = "Proxy-Require", ReplyTo = "Reply-To", Require = "Require", RetryAfter = "Retry-After",
    Subject = "Subject", SubscriptionState = "Subscription-State", Timestamp = "Timestamp",
    Unsupported = "Unsupported", Warning = "Warning", WwwAuthenticate = "WWW-Authenticate",
}
