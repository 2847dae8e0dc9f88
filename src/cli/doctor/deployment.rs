//! Deployment under examination, as every check sees it.

use std::net::IpAddr;

use trunkline_calls::is_private;
use trunkline_model::invite_facts::{InviteFacts, Proof};
use trunkline_store::Recorded;

use super::super::paste::TEST_CALL;
use crate::config::Config;
use crate::engine::{Resolver, local};

/// Name of the checks of runtimes.
pub(super) const RUNTIME: &str = "runtime";

/// Deployment under examination.
pub(super) struct Deployment<'c> {
    pub(super) config: &'c Config,
    pub(super) resolver: Resolver,
    /// Recent calls of all orgs, newest first.
    pub(super) calls: Vec<Recorded>,
    pub(super) own: OwnAddresses,
}

/// Addresses of this machine.
pub(super) struct OwnAddresses(Vec<IpAddr>);

impl OwnAddresses {
    pub(super) fn find() -> Self {
        Self(local::addresses())
    }

    pub(super) fn contains(&self, ip: IpAddr) -> bool {
        ip.is_loopback() || self.0.contains(&ip)
    }
}

/// Returns true if a phone system called: neither the line that `trunk paste sipp` prints, nor a person from the console's page.
pub(super) fn is_of_pbx(asked: &InviteFacts) -> bool {
    let is_test_call = asked.user_agent.as_deref() == Some(TEST_CALL);
    !is_test_call && asked.proof != Proof::Session
}

impl Deployment<'_> {
    /// Returns the INVITEs of phone systems' recent calls that came from other machines.
    pub(super) fn asked_from_outside(&self) -> impl Iterator<Item = &InviteFacts> {
        let asked = self.calls.iter().filter_map(|call| call.asked.as_ref());
        asked.filter(|asked| is_of_pbx(asked) && !self.own.contains(asked.source.ip()))
    }

    /// Returns a public address of another machine from which a call came.
    pub(super) fn source_outside(&self) -> Option<IpAddr> {
        let sources = self.asked_from_outside().map(|asked| asked.source.ip());
        sources.into_iter().find(|source| !is_private(*source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_at_the_console_and_our_own_line_are_no_phone_system() {
        use trunkline_model::invite_facts::PeerTraits;

        let asked = |proof, user_agent: Option<&str>| InviteFacts {
            facts: trunkline_routing::Facts::default(),
            proof,
            source: "198.51.100.7:5060".parse().unwrap(),
            transport: "udp".into(),
            host: "sip.example.com".into(),
            user_agent: user_agent.map(Into::into),
            traits: PeerTraits::default(),
        };
        for (name, asked, expected) in [
            (
                "a PBX",
                asked(Proof::Digest, Some("Asterisk PBX 22.10")),
                true,
            ),
            ("without a name", asked(Proof::AllowedAddress, None), true),
            ("our line", asked(Proof::Digest, Some(TEST_CALL)), false),
            ("the console's page", asked(Proof::Session, None), false),
        ] {
            assert_eq!(is_of_pbx(&asked), expected, "{name}");
        }
    }

    #[test]
    fn loopback_and_what_the_kernel_lists_are_this_machine() {
        let own = OwnAddresses(vec!["192.0.2.1".parse().unwrap()]);
        for (ip, expected) in [
            ("127.0.0.9", true),
            ("::1", true),
            ("192.0.2.1", true),
            ("192.0.2.2", false),
        ] {
            assert_eq!(own.contains(ip.parse().unwrap()), expected, "{ip}");
        }
    }
}
