//! `[phone.verification_trunk]`: the operator's route for calls that speak a verification code.

use trunkline_routing::E164;
use trunkline_sip::flow::Transport;

use super::HostPort;
use super::secret::Secret;
use super::section::{ConfigEntry, Section};

/// Carrier with which the operator has an account.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VerificationTrunk {
    /// Host of the carrier; an IPv6 address is in brackets.
    pub host: Box<str>,
    /// Port; without one, SRV records decide, or the transport's default port.
    pub port: Option<u16>,
    /// Transport to the carrier.
    pub transport: Transport,
    /// Credentials for its challenges.
    pub login: Option<(Box<str>, Secret)>,
    /// Caller number.
    pub caller_number: E164,
    /// Prefixes of numbers that may be called; empty: none may, since nobody has said what the calls may cost.
    pub prefixes: Vec<Box<str>>,
}

impl VerificationTrunk {
    /// Most calls in 24 hours, of all orgs and nodes together.
    pub const CALLS_PER_DAY: u32 = 200;

    /// Returns whether this number may be called.
    pub fn allows(&self, number: E164) -> bool {
        let mut prefixes = self.prefixes.iter();
        prefixes.any(|prefix| number.as_str().starts_with(&**prefix))
    }

    /// Reads the section; `None` without a host, or with a fault.
    pub(super) fn of(phone: &mut Section<'_>) -> Option<Self> {
        let mut section = phone.inner("verification_trunk", "phone.verification_trunk");
        let read = Self::read(&mut section);
        phone.faults.extend(section.finish());
        read
    }

    fn read(section: &mut Section<'_>) -> Option<Self> {
        let host: Option<HostPort> = section.parsed("host");
        let transport = section.word(
            "transport",
            &[
                ("udp", Transport::Udp),
                ("tcp", Transport::Tcp),
                ("tls", Transport::Tls),
            ],
        );

        let (username, password) = (section.text("username"), section.secret("password"));
        let caller_number = section.text("caller_number");
        let prefixes = section.list("prefixes", prefix);

        let is_given = username.is_some()
            || password.is_some()
            || caller_number.is_some()
            || prefixes.is_some();
        // Otherwise a section whose host was forgotten would count as absent.
        if host.is_none() && is_given {
            section.refuse_key("host", "is needed: the carrier's host or host:port");
        }

        let login = match (username, password) {
            (Some(username), Some(password)) => Some((username.into(), password)),
            (None, None) => None,
            (Some(_), None) => {
                section.refuse_key("password", "is needed with username");
                None
            }
            (None, Some(_)) => {
                section.refuse_key("username", "is needed with password");
                None
            }
        };

        // Not earlier: a key that hasn't been read is reported as unknown.
        let host = host?;
        let number = caller_number.as_deref().map(E164::parse);
        let Some(Ok(caller_number)) = number else {
            let fault = "is needed: a number of yours in E.164, such as +442071838750";
            section.refuse_key("caller_number", fault);
            return None;
        };

        Some(Self {
            host: host.host().into(),
            port: host.port,
            transport: transport.unwrap_or(Transport::Udp),
            login,
            caller_number,
            prefixes: prefixes.unwrap_or_default(),
        })
    }
}

/// Parses `+` and at least one digit: a country or a part of one.
pub(super) fn prefix(entry: &ConfigEntry) -> Result<Box<str>, String> {
    let text = entry.text()?;
    let digits = text.strip_prefix('+').unwrap_or_default();
    if digits.is_empty() || digits.len() > 15 || !digits.bytes().all(|octet| octet.is_ascii_digit())
    {
        return Err(format!("{text:?} is not a number prefix such as +44"));
    }
    Ok(text.into())
}
