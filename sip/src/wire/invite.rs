//! The INVITE that starts a call, as `rsip` reads it. Admission and routing take their facts from it.
//!
//! The headers that identify the request are compared with the lexer's reading; if the readings differ, the request is refused. If
//! `rsip` refuses an INVITE that the lexer accepts (IPv6, `tel:`, …), its request is built from our parts. Values are read
//! through [`crate::header`].

use rsip::common::uri::{Host as RsipHost, HostWithPort};

use super::message::elements;
use super::{CSeq, HeaderName, Message, normalise};
use crate::header::name_addr::NameAddr;
use crate::header::privacy::{self, Privacy};
use crate::header::text;
use crate::header::uri::{Host, Scheme, Uri, unescape};
use crate::header::via::Via;

/// An INVITE held as an `rsip` request.
#[derive(Clone, Debug)]
pub struct Invite {
    request: rsip::Request,
    built_from_parts: bool,
    request_user: Option<String>,
    from_user: Option<String>,
    is_anonymous: bool,
}

/// The part in which the two readings of a request differ.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("two readings of the request differ in {0}")]
pub struct Difference(pub &'static str);

/// Reads an INVITE that the lexer has accepted.
///
/// # Errors
/// `rsip` reads another request than the lexer, or the Request-URI can't be read at all.
pub fn read(message: &Message<'_>) -> Result<Invite, Difference> {
    read_with(message, Uri::parse(message.request_uri()).ok().as_ref())
}

/// [`read`] with a Request-URI that has already been parsed.
///
/// # Errors
/// Those of [`read`]; also if there is no readable Request-URI.
pub fn read_with(message: &Message<'_>, uri: Option<&Uri<'_>>) -> Result<Invite, Difference> {
    let uri = uri.ok_or(const { Difference("Request-URI") })?;
    // A refusal by `rsip` says nothing against an INVITE that the lexer has accepted: the parts are used instead.
    let parsed = is_for_rsip(uri)
        .then(|| rsip::Request::try_from(normalise::request_text(message)))
        .and_then(Result::ok);
    let built_from_parts = parsed.is_none();
    let request = parsed.unwrap_or_else(|| from_parts(message));
    let mut invite = Invite::unread(request, built_from_parts);
    invite.compare(message, uri)?;

    // Both readings have the same user by now.
    invite.request_user = user_of(uri);
    (invite.from_user, invite.is_anonymous) = invite.sender();
    Ok(invite)
}

/// Returns true if `rsip` can read this URI. It takes part of an IPv6 address or of a URI with headers for the whole, and a `tel:` number
/// for a host.
const fn is_for_rsip(uri: &Uri<'_>) -> bool {
    matches!(uri.scheme, Scheme::Sip | Scheme::Sips)
        && !matches!(uri.host, Host::V6(_))
        && uri.headers.is_empty()
}

/// Builds `rsip`'s request from the lexer's parts. The whole URI goes where `rsip` keeps the host, since it would print an unknown
/// scheme with two slashes.
fn from_parts(message: &Message<'_>) -> rsip::Request {
    let uri = text::lossy(message.request_uri());
    let headers: Vec<rsip::Header> = normalise::lines(message)
        .map(|(name, value)| normalise::header(name, value))
        .collect();
    rsip::Request {
        method: rsip::Method::Invite,
        uri: HostWithPort {
            host: RsipHost::Domain(uri.as_ref().into()),
            port: None,
        }
        .into(),
        version: rsip::Version::V2,
        headers: headers.into(),
        // Nothing reads the body through `rsip`, whose printer would mangle it.
        body: Vec::new(),
    }
}

impl Invite {
    const fn unread(request: rsip::Request, built_from_parts: bool) -> Self {
        Self {
            request,
            built_from_parts,
            request_user: None,
            from_user: None,
            is_anonymous: false,
        }
    }

    /// Returns true if `rsip` refused the request and its value was built from the lexer's parts.
    pub const fn built_from_parts(&self) -> bool {
        self.built_from_parts
    }

    /// The values of a header without a [`HeaderName`], such as `X-PLATFORM-AGENT-ID`, one per line; a blank value
    /// counts as absent.
    pub fn header<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        self.values(name)
            .map(str::trim)
            .filter(|value| !value.is_empty())
    }

    /// The user part of the Request-URI, unescaped; the number of a `tel:` URI, with its `phone-context`.
    pub fn request_uri_user(&self) -> Option<String> {
        self.request_user.clone()
    }

    /// The user parts of the Request-URI and of From.
    pub fn into_users(self) -> (Option<String>, Option<String>) {
        (self.request_user, self.from_user)
    }

    /// The user part of To.
    pub fn to_user(&self) -> Option<String> {
        user_of_address(&self.address("To")?)
    }

    /// The user part of From.
    pub fn from_user(&self) -> Option<String> {
        self.from_user.clone()
    }

    /// The display name of From, without quotes.
    pub fn from_display(&self) -> Option<String> {
        let display = self.address("From")?.display_text()?;
        Some(text::lossy(&display).into_owned()).filter(|name| !name.is_empty())
    }

    /// The users of P-Asserted-Identity (RFC 3325), in their order. An identity without a user, which names a host alone, isn't one of a caller.
    pub fn asserted_identities(&self) -> Vec<String> {
        self.values("P-Asserted-Identity")
            .flat_map(|list| elements(list.as_bytes()))
            .filter_map(|element| user_of_address(&NameAddr::parse(element).ok()?))
            .collect()
    }

    /// Returns true if the caller asks for anonymity: by an anonymous From, or by Privacy.
    pub const fn is_anonymous(&self) -> bool {
        self.is_anonymous
    }

    /// From's user part, and whether From and Privacy make the caller anonymous.
    fn sender(&self) -> (Option<String>, bool) {
        let address = self.address("From");
        let from = address.and_then(|address| address.parse_uri().ok());
        let mut wishes = self.values("Privacy");
        let is_anonymous = wishes.any(|wishes| Privacy::of(wishes.as_bytes()).hides_identity())
            || from.as_ref().is_some_and(privacy::is_nobody);
        (
            address.and_then(|address| user_of_address(&address)),
            is_anonymous,
        )
    }

    /// Checks that both readings have the same identifying headers.
    fn compare(&self, message: &Message<'_>, uri: &Uri<'_>) -> Result<(), Difference> {
        let printed = self.request.uri.to_string();
        // Equal text isn't parsed again.
        let is_read_alike = printed.as_bytes() == uri.raw
            || Uri::parse(printed.as_bytes()).is_ok_and(|theirs| is_same(&theirs, uri));
        check(is_read_alike, "Request-URI")?;

        let call_id = self.value("Call-ID").map(str::as_bytes);
        check(call_id == Some(message.call_id()), "Call-ID")?;

        let cseq = self.value("CSeq").map(str::as_bytes);
        let is_read_alike =
            |cseq| CSeq::parse(cseq) == Ok((message.cseq(), message.cseq_method_token()));
        check(cseq.is_some_and(is_read_alike), "CSeq")?;

        // Of From and To only the tags identify the dialog, so only these have to agree.
        check(
            self.has_tag("From", message.from(), message.from_tag()),
            "From",
        )?;
        check(self.has_tag("To", message.to(), message.to_tag()), "To")?;
        check(self.has_top_via(message), "Via")
    }

    /// Returns true if `rsip` has this tag in a header, whose text the lexer has as `ours`. Equal text isn't parsed twice.
    fn has_tag(&self, name: &str, ours: &[u8], tag: Option<&[u8]>) -> bool {
        let Some(theirs) = self.value(name).map(str::as_bytes) else {
            return tag.is_none();
        };
        theirs == ours
            || NameAddr::parse(theirs)
                .ok()
                .and_then(|address| address.tag())
                == tag
    }

    fn has_top_via(&self, message: &Message<'_>) -> bool {
        let Some(theirs) = self.value("Via").map(str::as_bytes) else {
            return false;
        };
        let is_read_alike = |via: Via<'_>| via.branch == message.top_via().branch;
        message.elements(HeaderName::Via).next() == Some(theirs)
            || Via::parse(theirs).is_ok_and(is_read_alike)
    }

    fn address(&self, name: &str) -> Option<NameAddr<'_>> {
        NameAddr::parse(self.value(name)?.as_bytes()).ok()
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.values(name).next()
    }

    fn values<'a, 'n>(&'a self, name: &'n str) -> impl Iterator<Item = &'a str> + use<'a, 'n> {
        self.request
            .headers
            .iter()
            .map(normalise::parts)
            .filter(|(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }
}

fn is_same(theirs: &Uri<'_>, ours: &Uri<'_>) -> bool {
    let same_host = match (theirs.host, ours.host) {
        (Host::Name(theirs), Host::Name(ours)) => theirs.eq_ignore_ascii_case(ours),
        (theirs, ours) => theirs == ours,
    };
    same_host
        && theirs.scheme == ours.scheme
        && theirs.port == ours.port
        && theirs.user == ours.user
}

fn check(same: bool, what: &'static str) -> Result<(), Difference> {
    if same { Ok(()) } else { Err(Difference(what)) }
}

/// The user of an address. Without angle brackets the parameters of its URI are read as the header's.
fn user_of_address(address: &NameAddr<'_>) -> Option<String> {
    let uri = address.parse_uri().ok()?;
    user_in(
        &uri,
        uri.param(PHONE_CONTEXT).or(address.param(PHONE_CONTEXT)),
    )
}

fn user_of(uri: &Uri<'_>) -> Option<String> {
    user_in(uri, uri.param(PHONE_CONTEXT))
}

/// Parameter that completes a local number (RFC 3966 §5.1.5). In a `tel:` URI it isn't part of the user.
const PHONE_CONTEXT: &str = "phone-context";

fn user_in(uri: &Uri<'_>, context: Option<Option<&[u8]>>) -> Option<String> {
    uri.user?;
    let mut user = text::lossy(&uri.user_unescaped()).into_owned();
    // A global number needs no context, and is one without it.
    if let Some(context) = context.flatten().filter(|_| !user.starts_with('+')) {
        user.push(';');
        user.push_str(PHONE_CONTEXT);
        user.push('=');
        user.push_str(&text::lossy(&unescape(context)));
    }
    Some(user)
}

#[cfg(test)]
#[path = "invite_tests.rs"]
mod tests;
