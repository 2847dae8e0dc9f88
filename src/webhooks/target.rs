//! URL of a webhook receiver: `https:`, or `http:` if the operator allows receivers on private networks.

use std::net::IpAddr;

use axum::http::Uri;
use axum::http::uri::PathAndQuery;
use trunkline_model::address::{AddressPolicy, HostFault, is_documentation, is_public};

/// Maximum length of a URL, in octets.
const MAX_LENGTH: usize = 2048;

/// Parsed URL of a receiver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// Name, or address without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) tls: bool,
    /// Value of `Host`.
    pub(super) authority: String,
    pub(super) path: PathAndQuery,
}

/// Reason why a text is no receiver's URL.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TargetFault {
    /// It isn't an http or https URL.
    #[error("is not an https: URL of at most {MAX_LENGTH} characters")]
    NoUrl,
    /// It contains a user name or a password.
    #[error("must not hold a user name or a password")]
    Credentials,
    /// It contains a fragment.
    #[error("must not hold a fragment")]
    Fragment,
    /// It isn't over TLS.
    #[error("must be an https: URL (webhooks.allow_private_addresses allows http:)")]
    Plain,
    /// It names this machine or a private network.
    #[error(
        "names no address of the public Internet (webhooks.allow_private_addresses allows that)"
    )]
    Private,
    /// A number, which a resolver may take for an address.
    #[error("names another spelling of an IP address: write an IPv4 address as 192.0.2.1")]
    Spelling,
}

impl Target {
    /// Parses a URL. Whether a name resolves to a private network is checked when it is resolved.
    ///
    /// # Errors
    /// [`TargetFault`].
    pub fn parse(text: &str, private_allowed: bool) -> Result<Self, TargetFault> {
        if text.len() > MAX_LENGTH {
            return Err(TargetFault::NoUrl);
        }
        // Looked for in the text, because `Uri` drops a fragment without a word.
        if text.contains('#') {
            return Err(TargetFault::Fragment);
        }

        let uri: Uri = text.parse().map_err(|_| TargetFault::NoUrl)?;
        let parts = uri.into_parts();
        let tls = match parts.scheme.as_ref().map(|scheme| scheme.as_str()) {
            Some("https") => true,
            Some("http") => false,
            Some(_) | None => return Err(TargetFault::NoUrl),
        };

        let authority = parts.authority.ok_or(TargetFault::NoUrl)?;
        if authority.as_str().contains('@') {
            return Err(TargetFault::Credentials);
        }

        let host = authority.host();
        let host = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);

        let is_bare = authority.as_str().len() == authority.host().len();
        let port = match authority.port() {
            // A text after the host that isn't a port.
            None if !is_bare => return Err(TargetFault::NoUrl),
            None if tls => 443,
            None => 80,
            Some(port) => port.as_u16(),
        };

        if host.is_empty() || port == 0 {
            return Err(TargetFault::NoUrl);
        }

        let address = host.parse::<IpAddr>().ok();
        // A zone (RFC 6874) leads to a link of this machine.
        if address.is_none() && host.contains([':', '%']) {
            return Err(TargetFault::NoUrl);
        }

        if !private_allowed {
            judge_host(host, port, address)?;
            if !tls {
                return Err(TargetFault::Plain);
            }
        }

        let path = parts.path_and_query;
        Ok(Self {
            host: host.to_owned(),
            port,
            tls,
            authority: authority.to_string(),
            path: path.unwrap_or(PathAndQuery::from_static("/")),
        })
    }
}

/// Returns whether a receiver may have an address: by the rule that decides which addresses tenants may name for SIP and bots, and none of the networks
/// for examples, which lead nowhere.
pub(super) fn may_receive(ip: IpAddr) -> bool {
    is_public(ip) && !is_documentation(ip)
}

/// Judges a host by the rule for those that tenants enter for SIP and for bots, and by [`may_receive`], which allows less.
fn judge_host(host: &str, port: u16, address: Option<IpAddr>) -> Result<(), TargetFault> {
    if let Some(ip) = address {
        return if may_receive(ip) {
            Ok(())
        } else {
            Err(TargetFault::Private)
        };
    }

    match AddressPolicy::default().examine_host(host, port) {
        Ok(()) => Ok(()),
        Err(HostFault::Spelling) => Err(TargetFault::Spelling),
        Err(HostFault::Localhost | HostFault::Refused(_)) => Err(TargetFault::Private),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_is_named_by_a_url() {
        let target = Target::parse("https://hooks.example.com/a?b=c", false).unwrap();
        assert_eq!(
            (&*target.host, target.port, target.tls, target.path.as_str()),
            ("hooks.example.com", 443, true, "/a?b=c")
        );
        let target = Target::parse("http://[::1]:8080", true).unwrap();
        assert_eq!(
            (&*target.host, target.port, target.tls, target.path.as_str()),
            ("::1", 8080, false, "/")
        );
        assert_eq!(target.authority, "[::1]:8080");
    }

    #[test]
    fn what_is_no_receiver_is_refused() {
        use TargetFault::{Credentials, Fragment, NoUrl, Plain, Private, Spelling};

        let long = format!("https://example.com/{}", "a".repeat(MAX_LENGTH));
        for (text, fault) in [
            ("", NoUrl),
            ("example.com", NoUrl),
            ("/path", NoUrl),
            ("ftp://example.com", NoUrl),
            ("https://", NoUrl),
            ("https://exa mple.com", NoUrl),
            ("https://example.com:0", NoUrl),
            ("https://example.com:", NoUrl),
            ("https://example.com:99999", NoUrl),
            (&long, NoUrl),
            ("https://user@example.com", Credentials),
            ("https://user:word@example.com", Credentials),
            ("https://example.com/#x", Fragment),
            ("http://example.com", Plain),
            ("https://localhost/", Private),
            ("https://127.0.0.1/", Private),
            ("http://10.0.0.1/", Private),
            ("https://[::1]/", Private),
            ("https://[::ffff:10.0.0.1]/", Private),
            ("https://169.254.169.254/latest", Private),
            ("https://localhost./", Private),
            ("https://a.LocalHost/", Private),
            ("https://127.1/", Spelling),
            ("https://2130706433/", Spelling),
            ("https://0x7f000001/", Spelling),
            ("https://0177.0.0.1/", Spelling),
            ("https://127.0.0.1./", Spelling),
            ("https://[fe80::1%eth0]/", NoUrl),
            ("https://[fe80::1%25eth0]/", NoUrl),
        ] {
            assert_eq!(Target::parse(text, false), Err(fault), "{text}");
        }
    }
}
