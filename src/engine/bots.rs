//! Opens the WebSockets of bots, off the shards' threads: resolves the host, judges its addresses, and connects to an allowed one. The handshake is
//! signed with the org's token, so that the bot can authenticate this node.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha1::Sha1;
use tokio::time::timeout;
use trunkline_bounds::{Descriptor, Descriptors};
use trunkline_calls::invite::attempts::DnsFault;
use trunkline_calls::media::bot::{BotDial, BotFailure, BotFault, BotGone};
use trunkline_calls::parts::target::{DialTarget, Target, UnresolvedTarget, dial_target_of_url};
use trunkline_model::address::{AddressPolicy, Refusal};
use trunkline_model::settings;
use trunkline_net::bot::{Bot, BotEnd, BotError, BotProtocol, BotRequest, BotStart, connect};
use trunkline_net::listener::tls::Security;
use trunkline_net::shortage;
use trunkline_sip::fault::{Fault, Unreachable};
use trunkline_sip::flow::Transport;
use uuid::Uuid;

use super::clock;
use super::resolve::{Resolver, addresses_by_system, query_origin};
use crate::directory::Directory;

/// Time from the look-up to the bot's answer: a bot may dial its own model first.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Addresses of a name that are tried.
const MAX_TRIED: usize = 4;
/// Header that carries the signature.
const SIGNATURE: &str = "X-Twilio-Signature";

/// Opens WebSockets. Clones share its state.
#[derive(Clone)]
pub(crate) struct BotDialler {
    resolver: Resolver,
    policy: Arc<AddressPolicy>,
    security: Arc<Security>,
    directory: Arc<Directory>,
    descriptors: Arc<Descriptors>,
}

/// A bot that has accepted its WebSocket.
#[derive(Debug)]
pub(crate) struct DialledBot {
    pub(crate) bot: Bot,
    pub(crate) address: SocketAddr,
}

impl BotDialler {
    pub(crate) const fn new(
        resolver: Resolver,
        policy: Arc<AddressPolicy>,
        security: Arc<Security>,
        directory: Arc<Directory>,
        descriptors: Arc<Descriptors>,
    ) -> Self {
        Self {
            resolver,
            policy,
            security,
            directory,
            descriptors,
        }
    }

    /// The resolver, with queries charged to the operator.
    pub(crate) const fn resolver(&self) -> &Resolver {
        &self.resolver
    }

    /// Opens a WebSocket, within five seconds.
    pub(crate) async fn dial(&self, dial: BotDial) -> Result<DialledBot, BotFailure> {
        // One deadline for the look-up and all addresses together.
        let until = clock::now() + TIMEOUT;
        let found = match timeout(TIMEOUT, self.find(&dial)).await {
            Ok(found) => found.map_err(|fault| BotFailure {
                address: None,
                fault,
            })?,
            Err(_) => return Err(failure(None, BotFault::Silence)),
        };

        let is_encrypted = |target: &Target| target.transport == Transport::Tls;
        let mut last = failure(None, BotFault::Unresolved(DnsFault::NoAddress));
        for target in found.iter().take(MAX_TRIED) {
            let address = target.address;
            // Judged by address: a name that a tenant gives may lead anywhere.
            let judged = self
                .policy
                .examine_web_socket(address, dial.named, is_encrypted(target));
            if let Err(refusal) = judged {
                last = failure(Some(address), BotFault::NotAllowed(refusal));
                continue;
            }

            let Some(descriptor) = self.descriptors.take() else {
                shortage::report(&self.descriptors);
                return Err(failure(Some(address), BotFault::Broken(Fault::TooMany)));
            };
            let left = until.since(clock::now());
            match connect(self.request(&dial, address, descriptor), left).await {
                Ok(bot) => return Ok(DialledBot { bot, address }),
                // Another address may be of another machine; a machine that has answered has decided.
                Err(error @ BotError::Refused(_)) => last = failure(Some(address), fault(error)),
                Err(error) => return Err(failure(Some(address), fault(error))),
            }
        }

        Err(last)
    }

    async fn find(&self, dial: &BotDial) -> Result<Vec<Target>, BotFault> {
        let place = dial_target_of_url(&dial.url)
            .ok_or(BotFault::Handshake("its URL can't be read".into()))?;
        let place = place.named(dial.named);
        if place.is_reserved(&self.policy) {
            return Err(BotFault::NotAllowed(Refusal::Reserved));
        }
        match place {
            DialTarget::Resolved(target) => Ok(vec![target]),
            DialTarget::Unresolved(wanted) => self.resolve(&wanted, dial.org).await,
        }
    }

    /// Resolves a name by DNS, or else by the system (`/etc/hosts`).
    async fn resolve(&self, wanted: &UnresolvedTarget, org: Uuid) -> Result<Vec<Target>, BotFault> {
        let resolver = self.resolver.on_behalf_of(query_origin(wanted, org));
        let fault = match resolver.find(wanted).await {
            Ok(targets) => return Ok(targets),
            Err(fault) => fault,
        };
        let (transport, port) = (wanted.transport, wanted.port);
        // The system knows addresses alone. Without a port they lead nowhere.
        let (Some(transport), Some(port)) = (transport, port) else {
            return Err(BotFault::Unresolved(fault));
        };

        let found = addresses_by_system(&wanted.host).await;
        let targets = found.into_iter().map(|ip| Target {
            uri: wanted.uri.clone(),
            transport,
            address: SocketAddr::new(ip, port),
            by: None,
            route: None,
            named: wanted.named,
        });

        let targets: Vec<Target> = targets.collect();
        match targets.is_empty() {
            true => Err(BotFault::Unresolved(fault)),
            false => Ok(targets),
        }
    }

    fn request(&self, dial: &BotDial, address: SocketAddr, descriptor: Descriptor) -> BotRequest {
        let view = self.directory.load();
        let token = view.org(dial.org).and_then(|org| org.bot_token.as_ref());
        let signature = token.map(|token| sign(&token.signs, &dial.url));
        let parameter =
            |(name, value): &(Box<str>, Box<str>)| (name.to_string(), value.to_string());

        BotRequest {
            url: dial.url.to_string(),
            address,
            tls: self.security.client(),
            headers: signature
                .into_iter()
                .map(|signature| (SIGNATURE.to_owned(), signature))
                .collect(),
            start: BotStart {
                protocol: match dial.protocol {
                    settings::BotProtocol::Twilio => BotProtocol::Twilio,
                    settings::BotProtocol::Telnyx => BotProtocol::Telnyx,
                },
                account_sid: format!("AC{}", dial.org.simple()),
                call_sid: format!("CA{}", dial.session.simple()),
                stream_sid: format!("MZ{:032x}", rand::random::<u128>()),
                parameters: dial.parameters.iter().map(parameter).collect(),
            },
            descriptor: Some(descriptor),
        }
    }
}

/// Way in which a bot has gone, as its call has it.
pub(crate) const fn gone(end: BotEnd) -> BotGone {
    match end {
        BotEnd::Closed => BotGone::Closed,
        BotEnd::Protocol => BotGone::Protocol,
        BotEnd::TooSlow => BotGone::TooSlow,
        BotEnd::Lost => BotGone::Lost,
    }
}

const fn failure(address: Option<SocketAddr>, fault: BotFault) -> BotFailure {
    BotFailure { address, fault }
}

/// Signs a URL as Twilio does: HMAC-SHA1 of the URL as it is configured.
fn sign(token: &str, url: &str) -> String {
    let mac =
        Hmac::<Sha1>::new_from_slice(token.as_bytes()).expect("HMAC takes a key of any length");
    STANDARD.encode(mac.chain_update(url).finalize().into_bytes())
}

fn fault(error: BotError) -> BotFault {
    match error {
        BotError::Url | BotError::Header | BotError::NotWebSocket(_) => {
            BotFault::Handshake(error.to_string().into())
        }
        BotError::Status(status) => {
            BotFault::Handshake(format!("it answered {status} instead of 101").into())
        }
        BotError::Timeout => BotFault::Silence,
        BotError::Tls(why) => BotFault::Broken(Fault::NotSecured(why.into())),
        BotError::Refused(why) if why.contains("refused") => BotFault::Broken(Fault::Refused),
        BotError::Refused(_) => BotFault::Broken(Fault::Unreachable(Unreachable::Other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value is that of another implementation of HMAC.
    #[test]
    fn a_url_is_signed_as_twilio_does() {
        let signed = sign(
            "0123456789abcdef0123456789abcdef",
            "wss://bot.example.com/ws?a=b",
        );
        assert_eq!(signed, "vEEQyMRPFwvrZypzXtcHSfImNZA=");
    }
}
