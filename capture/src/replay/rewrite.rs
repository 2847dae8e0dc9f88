//! Adapts a captured message to the live call: Call-ID, tags, branches, addresses, the peer's Contact, credentials, lengths. The daemon's
//! identifiers are learnt from each of its messages that was recognised.

use std::collections::HashMap;
use std::net::SocketAddr;

use trunkline_sip::auth::client::{ChallengedMessage, Login, answer, challenge};
use trunkline_sip::wire::{Framing, HeaderName, lex};

use super::script::Item;
use crate::Transport;
use crate::message::{Message, parameter};

/// Differences between the captured and the live call, as one side knows them.
#[derive(Debug, Default)]
pub(super) struct RewriteMap {
    /// Live Call-IDs and tags by captured ones.
    known: HashMap<String, String>,
    /// Live branches of our requests by captured ones.
    branches: HashMap<String, String>,
    /// Live Contacts of the daemon by captured ones.
    contacts: HashMap<String, String>,
    /// The daemon's latest live Contact.
    contact: Option<String>,
    /// Live RSeq numbers by captured ones.
    reliable: HashMap<String, String>,
    /// Live requests of the daemon by captured ones.
    requests: HashMap<(String, u32, String), Message>,
    /// Route set of the live dialog.
    routes: Vec<String>,
    /// Number of challenges beyond the captured ones. CSeq numbers grow by it.
    pub(super) shift: u32,
    /// The last challenge.
    asked: Option<Vec<u8>>,
    /// Number of answers to it, for the nonce count.
    answers: u32,
    /// Captured and live addresses.
    places: Vec<(String, String)>,
}

/// Live address of this side.
#[derive(Copy, Clone, Debug)]
pub(super) struct LiveEndpoint {
    pub(super) local: SocketAddr,
    pub(super) target: SocketAddr,
    pub(super) transport: Transport,
}

pub(super) fn fresh() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

impl RewriteMap {
    pub(super) fn new(places: Vec<(String, String)>) -> Self {
        Self {
            places,
            ..Self::default()
        }
    }

    /// Returns the live identifier for a captured one. One that isn't known is drawn at random, and kept.
    fn today(&mut self, captured: &str) -> String {
        self.known
            .entry(captured.to_owned())
            .or_insert_with(fresh)
            .clone()
    }

    /// Returns whether this is a Call-ID of the live call.
    pub(super) fn has_call_id(&self, live: &str) -> bool {
        self.known.values().any(|known| known == live)
    }

    /// Learns the identifiers of a recognised message.
    pub(super) fn learn(&mut self, captured: &Message, live: &Message) {
        for name in ["From", "To"] {
            if let (Some(was), Some(is)) = (captured.tag(name), live.tag(name)) {
                self.known.insert(was, is);
            }
        }

        if let (Some(was), Some(is)) = (captured.first("Call-ID"), live.first("Call-ID")) {
            self.known.insert(was, is);
        }

        if let Some(is) = live.first("Contact").as_deref().and_then(uri) {
            self.contact = Some(is.to_owned());
            if let Some(was) = captured.first("Contact").as_deref().and_then(uri) {
                self.contacts.insert(was.to_owned(), is.to_owned());
            }
            self.routes = live.all("Record-Route");
            if live.status().is_some() {
                // RFC 3261 §12.1.2: the caller takes the Record-Route of a response in reverse order.
                self.routes.reverse();
            }
        }

        if let (Some(was), Some(is)) = (captured.first("RSeq"), live.first("RSeq")) {
            self.reliable.insert(was, is);
        }

        if live.status().is_none()
            && let (Some(call_id), Some((number, method))) =
                (captured.first("Call-ID"), captured.cseq())
        {
            self.requests
                .insert((call_id, number, method), live.clone());
        }

        self.challenged(live);
    }

    /// Stores a challenge.
    pub(super) fn challenged(&mut self, live: &Message) {
        if matches!(live.status(), Some(401 | 407)) {
            self.asked = Some(live.to_octets());
            self.answers = 0;
        }
    }

    /// Adapts a captured message to the live call. `None` if it answers a request that hasn't come.
    pub(super) fn outgoing(
        &mut self,
        item: &Item,
        seat: LiveEndpoint,
        login: Option<&(String, String)>,
    ) -> Option<Message> {
        let mut message = item.message.clone();
        // A length that was captured wrong stays wrong: it may be what the replay is about.
        let is_length_right = message.is_length_right();

        if message.status().is_some() {
            self.response(item, &mut message)?;
        } else {
            self.request(&mut message, seat, login);
        }

        self.all_else(&mut message, seat);

        // A stream requires Content-Length, a datagram doesn't (RFC 3261 §18.3).
        let is_wanted = seat.transport != Transport::Udp && message.content_length().is_none();
        if is_length_right || is_wanted {
            message.set("Content-Length", &message.body.len().to_string());
        }

        // Last, since a digest may cover the body.
        if message.status().is_none() {
            self.log_in(&mut message, login);
        }

        Some(message)
    }

    fn response(&mut self, item: &Item, message: &mut Message) -> Option<()> {
        let (number, method) = message.cseq()?;
        let request = self
            .requests
            .get(&(item.call_id(), number, method))?
            .clone();
        for name in ["Via", "Record-Route"] {
            message.replace_all(name, &request.all(name));
        }

        for name in ["From", "Call-ID", "CSeq"] {
            message.set(name, &request.first(name)?);
        }

        let mut to = request.first("To")?;
        if request.tag("To").is_none()
            && let Some(tag) = message.tag("To")
        {
            to = format!("{to};tag={}", self.today(&tag));
        }

        message.set("To", &to);
        Some(())
    }

    fn request(
        &mut self,
        message: &mut Message,
        seat: LiveEndpoint,
        login: Option<&(String, String)>,
    ) {
        let uri = self.request_uri(message, seat);
        let method = message.method();
        message.set_start_line(&format!("{method} {uri} SIP/2.0"));
        let vias = message.all("Via");
        let vias: Vec<String> = vias
            .iter()
            .flat_map(|line| line.split(',').map(|via| via.trim().to_owned()))
            .collect();
        let branch = vias
            .first()
            .and_then(|via| parameter(via, "branch"))
            .unwrap_or_default();
        let branch = self
            .branches
            .entry(branch)
            .or_insert_with(|| format!("z9hG4bK{}", fresh()))
            .clone();

        let mut via = vec![format!(
            "SIP/2.0/{} {};branch={branch};rport{}",
            seat.transport.as_str().to_ascii_uppercase(),
            seat.local,
            vias.first().map_or_else(String::new, |via| of_its_own(via)),
        )];
        // The Vias below stay as captured: the daemon only returns them.
        via.extend(vias.into_iter().skip(1));
        message.replace_all("Via", &via);

        for name in ["From", "To"] {
            if let (Some(value), Some(tag)) = (message.first(name), message.tag(name)) {
                let today = self.today(&tag);
                message.set(
                    name,
                    &value.replace(&format!("tag={tag}"), &format!("tag={today}")),
                );
            }
        }

        if let Some(call_id) = message.first("Call-ID") {
            let today = self.today(&call_id);
            message.set("Call-ID", &today);
        }

        if let Some((number, method)) = message.cseq() {
            message.set(
                "CSeq",
                &format!("{} {method}", number.saturating_add(self.shift)),
            );
        }

        if message.tag("To").is_some() {
            message.replace_all("Route", &self.routes.clone());
        }

        if let Some(rack) = message.first("RAck") {
            message.set("RAck", &self.rack(&rack));
        }

        if login.is_none() {
            message.remove("Authorization");
            message.remove("Proxy-Authorization");
        }
    }

    fn rack(&self, rack: &str) -> String {
        let words: Vec<&str> = rack.split_whitespace().collect();
        let [reliable, number, method] = words.as_slice() else {
            return rack.to_owned();
        };
        let reliable = self
            .reliable
            .get(*reliable)
            .map_or(*reliable, String::as_str);
        let number = number
            .parse::<u32>()
            .unwrap_or(0)
            .saturating_add(self.shift);
        format!("{reliable} {number} {method}")
    }

    fn request_uri(&self, message: &Message, seat: LiveEndpoint) -> String {
        let captured = message.request_uri();
        if let Some(today) = self.contacts.get(&captured) {
            return today.clone();
        }
        match &self.contact {
            // RFC 3261 §9.1: a CANCEL has the Request-URI of the request that it cancels.
            Some(contact) if message.tag("To").is_some() && message.method() != "CANCEL" => {
                contact.clone()
            }
            Some(_) | None => with_host(&captured, seat.target),
        }
    }

    /// Adapts Contact, and everything else that names the captured dialog or its addresses.
    fn all_else(&self, message: &mut Message, seat: LiveEndpoint) {
        let handled = [
            "via",
            "from",
            "call-id",
            "cseq",
            "content-length",
            "authorization",
            "proxy-authorization",
            "route",
            "rack",
        ];

        // A response repeats the Record-Route of its request.
        let is_answer = message.status().is_some();
        for line in message.lines_mut() {
            let name = line.name().to_ascii_lowercase();
            let is_handled = handled.contains(&name.as_str());
            if name.is_empty() || is_handled || (is_answer && name == "record-route") {
                continue;
            }

            let value = line.value();
            let today = match name.as_str() {
                "contact" => contact(&value, seat),
                "record-route" => self.record_route(&value, seat),
                _ => self.text(&value),
            };
            if today != value {
                line.set(&today);
            }
        }

        if message.status().is_none()
            && let Some(from) = message.first("From")
        {
            message.set("From", &self.addresses(&from));
        }

        if let Ok(body) = std::str::from_utf8(&message.body) {
            message.body = self.addresses(body).into_bytes();
        }
    }

    /// Adapts a Record-Route. A captured proxy in front of this side gets this side's live address.
    fn record_route(&self, value: &str, seat: LiveEndpoint) -> String {
        let uris = value.split(',').map(|route| {
            let route = without_transport(&self.text(route.trim()));
            if seat.transport == Transport::Udp {
                return route;
            }
            let by = seat.transport.as_str();
            route.replacen('>', &format!(";transport={by}>"), 1)
        });
        uris.collect::<Vec<_>>().join(", ")
    }

    fn text(&self, text: &str) -> String {
        // Short identifiers could match by accident.
        let known = self.known.iter().filter(|(was, _)| was.len() >= 6);
        let text = known.fold(text.to_owned(), |text, (was, is)| {
            text.replace(was.as_str(), is)
        });
        self.addresses(&text)
    }

    /// Replaces captured addresses by live ones, in one pass, so that no replacement is replaced again.
    fn addresses(&self, text: &str) -> String {
        let mut today = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(char) = rest.chars().next() {
            let is_inner = |char: Option<char>| char.is_some_and(|char| char.is_ascii_digit());
            let found = self.places.iter().find(|(was, _)| {
                rest.starts_with(was.as_str())
                    && !is_inner(rest[was.len()..].chars().next())
                    && !is_inner(today.chars().next_back())
            });
            if let Some((was, is)) = found {
                today.push_str(is);
                rest = &rest[was.len()..];
            } else {
                today.push(char);
                rest = &rest[char.len_utf8()..];
            }
        }

        today
    }

    fn log_in(&mut self, message: &mut Message, login: Option<&(String, String)>) {
        let Some((user, password)) = login else {
            return;
        };
        let wants = message.first("Authorization").is_some()
            || message.first("Proxy-Authorization").is_some();
        message.remove("Authorization");
        message.remove("Proxy-Authorization");
        if wants {
            self.authorise(message, user, password);
        }
    }

    /// Adds credentials for the last challenge; returns whether there was one.
    pub(super) fn authorise(&mut self, message: &mut Message, user: &str, password: &str) -> bool {
        let Some(asked) = &self.asked else {
            return false;
        };

        let Ok(response) = lex(asked, Framing::Datagram) else {
            return false;
        };

        let Some((header, challenge)) = challenge(&response) else {
            return false;
        };

        self.answers += 1;
        let (method, uri) = (message.method(), message.request_uri());
        let challenged = ChallengedMessage {
            method: &method,
            uri: uri.as_bytes(),
            body: &message.body,
        };

        let login = Login { user, password };
        let Some(value) = answer(&challenge, &challenged, &login, self.answers, &fresh()) else {
            return false;
        };

        let name = if header == HeaderName::ProxyAuthorization {
            "Proxy-Authorization"
        } else {
            "Authorization"
        };

        message.set(name, &value);
        true
    }
}

/// Returns the URI of a name-addr.
pub(super) fn uri(value: &str) -> Option<&str> {
    match value.split_once('<') {
        Some((_, rest)) => rest.split_once('>').map(|(uri, _)| uri),
        None => value.split(';').next(),
    }
}

/// Returns the URI with another host and port; `tel:` has none.
fn with_host(uri: &str, target: SocketAddr) -> String {
    let Some((scheme, rest)) = uri
        .split_once(':')
        .filter(|(scheme, _)| scheme.to_ascii_lowercase().starts_with("sip"))
    else {
        return uri.to_owned();
    };

    let (user, host) = rest
        .rsplit_once('@')
        .map_or((None, rest), |(user, host)| (Some(user), host));
    let behind = host.find([';', '?']).map_or("", |at| &host[at..]);

    let parameters: String = behind
        .split(';')
        // The captured transport needn't be that of the replay.
        .filter(|part| !part.to_ascii_lowercase().starts_with("transport="))
        .collect::<Vec<_>>()
        .join(";");

    let user = user.map_or_else(String::new, |user| format!("{user}@"));
    format!("{scheme}:{user}{target}{parameters}")
}

/// Returns the parameters of a Via that are kept, such as a proxy's note on a connection.
fn of_its_own(via: &str) -> String {
    let parts = via.split(';').skip(1).map(str::trim);
    let own = parts.filter(|part| {
        let name = part.split('=').next().unwrap_or_default();
        !["branch", "rport", "received", "alias"]
            .iter()
            .any(|known| known.eq_ignore_ascii_case(name.trim()))
    });
    own.map(|part| format!(";{part}")).collect()
}

/// Returns the URI without its transport parameter.
pub(super) fn without_transport(value: &str) -> String {
    let parts = value.split_inclusive([';', '>']);
    let mut kept = String::with_capacity(value.len());
    for part in parts {
        if part.to_ascii_lowercase().starts_with("transport=") {
            // The text in front ended where this parameter begins.
            let end = part.trim_start_matches(|char| !matches!(char, ';' | '>'));
            kept.truncate(kept.len() - usize::from(kept.ends_with(';')));
            kept.push_str(end);
        } else {
            kept.push_str(part);
        }
    }

    kept
}

/// Returns the Contact of this side's live address.
fn contact(value: &str, seat: LiveEndpoint) -> String {
    let Some(uri) = uri(value).filter(|uri| !uri.is_empty() && *uri != "*") else {
        return value.to_owned();
    };
    let mut today = with_host(uri, seat.local);
    if seat.transport != Transport::Udp {
        today.push_str(";transport=");
        today.push_str(seat.transport.as_str());
    }
    value.replace(uri, &today)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_forgets_its_transport() {
        for (route, kept) in [
            ("<sip:h:5;transport=tcp;lr>", "<sip:h:5;lr>"),
            ("<sip:h:5;lr;Transport=TCP>", "<sip:h:5;lr>"),
            ("<sip:h:5;lr;r2=on>;x=y", "<sip:h:5;lr;r2=on>;x=y"),
            ("<sip:h;transport=udp>", "<sip:h>"),
        ] {
            assert_eq!(without_transport(route), kept, "{route}");
        }
    }

    #[test]
    fn an_uri_moves_to_another_place() {
        let target = "[::1]:5070".parse().unwrap();
        for (uri, moved) in [
            (
                "sip:+44@pbx.example:5060;user=phone",
                "sip:+44@[::1]:5070;user=phone",
            ),
            ("sip:pbx.example;transport=tcp", "sip:[::1]:5070"),
            (
                "sips:a:b@[::2];x;transport=TLS;y",
                "sips:a:b@[::1]:5070;x;y",
            ),
            ("tel:+44", "tel:+44"),
        ] {
            assert_eq!(with_host(uri, target), moved, "{uri}");
        }
    }
}
