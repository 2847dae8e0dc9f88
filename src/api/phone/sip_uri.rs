//! SIP URIs in fields of the API.

use std::net::SocketAddr;

use trunkline_calls::parts::target::default_port;
use trunkline_model::ws_url::WsUrl;
use trunkline_sip::flow::Transport;
use trunkline_sip::header::uri::{Host, Scheme, Uri};
use trunkline_store::tied_peers;
use uuid::Uuid;

use crate::api::field_type::Parsed;
use crate::api::{Api, ApiError};

/// JSON Schema pattern of SIP URIs: a text that matches is accepted. Alternatives to an octet of the user part and to
/// the first label of the host may be added.
macro_rules! pattern {
    ($user:literal, $label:literal) => {
        concat!(
            r"^sips?:(([A-Za-z0-9_.!~*'()&=+$,/-]|%[2-6][0-9A-Fa-f]",
            $user,
            r")+@)?(([A-Za-z0-9_]{1,63}",
            $label,
            r")([.-][A-Za-z0-9_]{1,63}){0,6}|\[([0-9A-Fa-f]{1,4}:){7}[0-9A-Fa-f]{1,4}\]",
            r"|\[([0-9A-Fa-f]{1,4}:){1,4}(:[0-9A-Fa-f]{1,4}){1,3}\])",
            r"(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}))?(;[A-Za-z0-9_.-]+(=[A-Za-z0-9_.:-]+)?)*$"
        )
    };
}
pub(super) use pattern;

/// SIP or SIPS URI (RFC 3261 §19.1).
pub(super) const SIP_URI: Parsed<Box<str>> =
    Parsed::new("a SIP URI such as sip:sales@pbx.example.com", |text| {
        is_sip_uri(text).then(|| text.into())
    })
    .like(pattern!("", ""))
    .at_most(LONGEST)
    .example("sip:sales@pbx.example.com");

/// Maximum length in octets, because a URI has to fit into messages beside much else.
const LONGEST: usize = 500;

pub(super) fn is_sip_uri(text: &str) -> bool {
    text.len() <= LONGEST && reads_as_sip_uri(text)
}

/// Returns true for a SIP URI of any length.
pub(super) fn reads_as_sip_uri(text: &str) -> bool {
    text.is_ascii()
        && Uri::parse(text.as_bytes()).is_ok_and(|uri| match uri.scheme {
            Scheme::Sip | Scheme::Sips => true,
            Scheme::Tel | Scheme::Other => false,
        })
}

/// Refuses URIs whose host the address policy forbids, by the path of their field. Placeholders are filled with ids.
pub(super) async fn may_call<'u>(
    api: &Api,
    org: Uuid,
    uris: impl Iterator<Item = (String, &'u str)>,
) -> Result<(), ApiError> {
    let hosts = |(path, uri): (String, &str)| {
        let id = Uuid::nil().hyphenated().to_string();
        let filled = uri.replace("{agent_id}", &id).replace("{org_id}", &id);
        let filled = match filled.split_once('@') {
            Some((user, host)) => format!("{}@{host}", without_parties(user)),
            None => filled,
        };

        // The field's reader has parsed the text already, so this doesn't fail.
        let Ok(parsed) = Uri::parse(filled.as_bytes()) else {
            return Vec::new();
        };
        let transport = parsed.transport().unwrap_or(Transport::Udp);
        let port = parsed.port.unwrap_or(default_port(transport));

        // RFC 3261 §19.1.1: `maddr` is the address to be contacted,
        // "overriding any address derived from the host field".
        let maddr = parsed.param("maddr").flatten().map(String::from_utf8_lossy);
        let host = match parsed.host {
            Host::V4(ip) => ip.to_string(),
            Host::V6(ip) => ip.to_string(),
            Host::Name(name) => String::from_utf8_lossy(name).into_owned(),
        };

        let hosts = std::iter::once(host).chain(maddr.map(Into::into));
        hosts.map(|host| (path.clone(), host, port)).collect()
    };
    may_name(api, org, uris.flat_map(hosts).collect()).await
}

/// Refuses URLs of WebSockets whose host the address policy forbids, by the path of their field.
pub(super) async fn may_open(
    api: &Api,
    org: Uuid,
    urls: &[(String, &str)],
) -> Result<(), ApiError> {
    let id = Uuid::nil().hyphenated().to_string();
    let mut hosts = Vec::new();
    for (path, url) in urls {
        let filled = url.replace("{agent_id}", &id).replace("{org_id}", &id);
        let Some(parsed) = WsUrl::parse(&filled) else {
            continue;
        };

        // The addresses of a name are judged when it is called.
        if let Ok(ip) = parsed.host.parse() {
            let address = SocketAddr::new(ip, parsed.port);
            let judged = api.addresses().examine_plain(address, parsed.is_secure);
            judged.map_err(|refusal| ApiError::bad(format!("{path}: {ip} {refusal}")))?;
        }

        hosts.push((path.clone(), parsed.host.to_owned(), parsed.port));
    }

    may_name(api, org, hosts).await
}

/// Refuses hosts that the address policy forbids, each given with the path of its field and its port.
pub(super) async fn may_name(
    api: &Api,
    org: Uuid,
    mut hosts: Vec<(String, String, u16)>,
) -> Result<(), ApiError> {
    let policy = api.addresses();
    // The store is asked only about hosts that not every org may name: they may be tied to this one.
    hosts.retain(|(_, host, port)| policy.examine_host(host, *port).is_err());
    if hosts.is_empty() {
        return Ok(());
    }

    let tied = api.read_inline(move |tx| tied_peers::list(tx, org)).await?;
    let tied = tied_peers::together(&tied);
    let fault = |(path, host, port): (String, String, u16)| {
        let judged = policy.examine_host_of(&host, port, tied.namer_of(&host));
        let fault = judged.err()?;
        Some(format!("{path}: {host} {fault}"))
    };

    let faults: Vec<String> = hosts.into_iter().filter_map(fault).collect();
    match faults.is_empty() {
        true => Ok(()),
        false => Err(ApiError::BadRequest(faults)),
    }
}

/// Replaces the placeholders of a user part that are filled with what a peer sends, or with the session's id.
pub(super) fn without_parties(user: &str) -> String {
    let names = ["{called}", "{caller}", "{session_id}"];
    names
        .iter()
        .fold(user.to_owned(), |user, name| user.replace(name, "1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sip_uris_are_told_from_others() {
        for (text, is) in [
            ("sip:sales@pbx.example.com", true),
            ("sips:sales@pbx.example.com:5061;transport=tcp", true),
            ("sip:[2001:db8::1]", true),
            ("sip:a@b?Replaces=x", true),
            ("sales@pbx.example.com", false),
            ("tel:+442071838750", false),
            ("https://pbx.example.com", false),
            ("sip:", false),
            ("sip:a b@c", false),
            ("<sip:a@b>", false),
            ("sip:a@b\r\nX: y", false),
            ("sip:é@b", false),
        ] {
            assert_eq!(is_sip_uri(text), is, "{text}");
        }

        assert!(!is_sip_uri(&format!("sip:{}@b", "a".repeat(500))));
    }
}
