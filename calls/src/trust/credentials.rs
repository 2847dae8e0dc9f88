//! The credentials of a leg, a pair of user name and password, and the 401 and 407 that they answer (RFC 3261 §22). A digest given to any
//! challenger could be relayed to a host where the pair is valid, or the password be guessed offline. So each pair is only sent to peers that it
//! belongs to.

use std::net::IpAddr;
use std::sync::Arc;

use trunkline_model::auth_realms::{AuthRealms, ChallengeFault, KnownRealm};
use trunkline_model::view::{OutboundRoute, PeerLogin};
use trunkline_sip::auth::client::ChallengedMessage;
use trunkline_sip::auth::{Nonces, client};
use trunkline_sip::dialog::Dialog;
use trunkline_sip::header::auth::Challenge;
use trunkline_sip::header::text::unescape_pairs;
use trunkline_sip::header::uri::{Host, Uri};
use trunkline_sip::wire::Message;
use uuid::Uuid;

use super::digest_answers::DigestAnswers;

/// Addresses of one peer kept per call. Further ones are ignored.
const MAX_ADDRESSES: usize = 16;

/// Pair that answers the challenges of a leg's peer, and where it may be sent.
#[derive(Clone, Debug)]
pub(crate) struct LegCredentials {
    login: Arc<PeerLogin>,
    scope: CredentialScope,
}

/// Peers that a pair may be sent to.
#[derive(Clone, PartialEq, Eq, Debug)]
enum CredentialScope {
    /// Source of the INVITE whose digest verified with this pair.
    Inbound(IpAddr),
    /// A host that the org has named with the pair. Outside a dialog a request goes to that host; inside a dialog, only these hosts and addresses get
    /// the digest.
    Named {
        trunk: Option<TrunkRealms>,
        hosts: Box<[String]>,
        addresses: Box<[IpAddr]>,
    },
}

/// An outbound trunk, and the realms that its pair is for.
#[derive(Clone, PartialEq, Eq, Debug)]
struct TrunkRealms {
    trunk: Uuid,
    realms: Arc<AuthRealms>,
}

/// The request that was challenged.
#[derive(Copy, Clone, Debug)]
pub(crate) enum ChallengedRequest<'a> {
    /// A REGISTER, or an INVITE that begins a dialog.
    Initial,
    /// Such an INVITE after an 18x: the challenger may be a peer behind the host.
    Ringing,
    /// A request inside this dialog.
    InDialog(&'a Dialog),
}

/// Reason why a challenge isn't answered.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Unanswerable {
    /// This peer has no pair: its call was admitted by address, or its trunk has none.
    NoPair,
    /// The next hop, or a proxy or Contact behind it, isn't a peer that the pair belongs to.
    OtherAddress,
    /// It names our own realm, or has a nonce of ours.
    OwnRealm,
    /// The realm is none of the trunk's.
    OtherRealm,
    /// There is no `qop` where there has to be one.
    NoQop,
    /// The realm has refused the answer already.
    Refused,
    /// The algorithm, scheme or `qop` isn't supported.
    Unknown,
}

/// Recognises challenges of this deployment.
#[derive(Copy, Clone, Debug)]
pub(crate) struct OwnChallenges<'a> {
    pub(crate) realm: &'a str,
    pub(crate) nonces: &'a Nonces,
    /// True if the pair's user name is that of an inbound trunk here.
    pub(crate) shares_user: bool,
}

impl LegCredentials {
    /// The pair that a caller's digest verified with; it came from `source`.
    pub(crate) fn proven(login: Arc<PeerLogin>, source: IpAddr) -> Self {
        Self {
            login,
            scope: CredentialScope::Inbound(source.to_canonical()),
        }
    }

    /// The pair that the peer has proven itself by, if it has.
    pub(crate) fn proven_pair(&self) -> Option<Arc<PeerLogin>> {
        match self.scope {
            CredentialScope::Inbound(_) => Some(Arc::clone(&self.login)),
            CredentialScope::Named { .. } => None,
        }
    }

    /// The pair of an outbound trunk that is yet to be called.
    pub(crate) fn of_trunk(way: &OutboundRoute) -> Option<Self> {
        let trunk = TrunkRealms {
            trunk: way.id,
            realms: Arc::clone(&way.realms),
        };
        Some(Self::named(Arc::clone(way.login.as_ref()?), Some(trunk)))
    }

    /// The pair of a runtime that is yet to be called.
    pub(crate) fn of_runtime(login: Arc<PeerLogin>) -> Self {
        Self::named(login, None)
    }

    fn named(login: Arc<PeerLogin>, trunk: Option<TrunkRealms>) -> Self {
        Self {
            login,
            scope: CredentialScope::Named {
                trunk,
                hosts: Box::default(),
                addresses: Box::default(),
            },
        }
    }

    /// Returns the credentials for the dialog after the peer has answered: these hosts and addresses get the digest.
    pub(crate) fn answered_at(&self, hosts: &[String], addresses: &[IpAddr]) -> Self {
        let scope = match &self.scope {
            CredentialScope::Inbound(source) => CredentialScope::Inbound(*source),
            CredentialScope::Named { trunk, .. } => CredentialScope::Named {
                trunk: trunk.clone(),
                hosts: hosts.into(),
                addresses: addresses.into(),
            },
        };
        Self {
            login: Arc::clone(&self.login),
            scope,
        }
    }

    /// The user name of the pair.
    pub(crate) fn user(&self) -> &str {
        &self.login.user
    }

    /// The outbound trunk whose pair it is.
    pub(crate) fn trunk(&self) -> Option<Uuid> {
        match &self.scope {
            CredentialScope::Named { trunk, .. } => trunk.as_ref().map(|held| held.trunk),
            CredentialScope::Inbound(_) => None,
        }
    }

    /// Realms that it is for, if they are limited.
    pub(crate) fn realms(&self) -> Option<Arc<AuthRealms>> {
        match &self.scope {
            CredentialScope::Named { trunk, .. } => {
                trunk.as_ref().map(|held| Arc::clone(&held.realms))
            }
            CredentialScope::Inbound(_) => None,
        }
    }

    /// Returns whether it is the pair of a runtime.
    pub(crate) const fn is_runtimes(&self) -> bool {
        matches!(self.scope, CredentialScope::Named { trunk: None, .. })
    }

    /// Remembers a realm for this call.
    pub(crate) fn learn(&mut self, seen: &KnownRealm) {
        if let CredentialScope::Named { trunk, .. } = &mut self.scope
            && let Some(held) = trunk
        {
            Arc::make_mut(&mut held.realms).learn(seen);
        }
    }

    /// Returns whether the pair may answer a challenge outside a dialog. A named pair always may, since such a request goes to its host.
    pub(crate) fn may_begin_at(&self, destination: IpAddr) -> bool {
        matches!(self.scope, CredentialScope::Named { .. }) || self.reaches(destination)
    }

    /// Returns whether a digest may be sent in a dialog whose next hop is `destination`. A proxy on the recorded route would relay the digest, so the
    /// whole route has to be the peer's.
    pub(crate) fn may_answer_in(&self, dialog: &Dialog, destination: IpAddr) -> bool {
        let is_peers = |uri: &[u8]| match &self.scope {
            // The PBX that has proved the pair chose this route, and the digest goes to its own address.
            CredentialScope::Inbound(_) => true,
            CredentialScope::Named { hosts, .. } => {
                destination_of(uri).is_some_and(|host| match host {
                    Host::V4(ip) => self.reaches(ip.into()),
                    Host::V6(ip) => self.reaches(ip.into()),
                    Host::Name(name) => hosts
                        .iter()
                        .any(|host| host.as_bytes().eq_ignore_ascii_case(name)),
                })
            }
        };
        let whole_way = || {
            dialog
                .routes()
                .chain([dialog.remote_target()])
                .all(is_peers)
        };

        self.reaches(destination) && (!dialog.has_route() || whole_way())
    }

    fn reaches(&self, destination: IpAddr) -> bool {
        let destination = destination.to_canonical();
        match &self.scope {
            CredentialScope::Inbound(source) => *source == destination,
            CredentialScope::Named { addresses, .. } => addresses.contains(&destination),
        }
    }

    /// Answers the challenge in a 401 or 407 to the request `challenged`, which is sent again with [`DigestAnswers::lines`]. Returns what to remember of its
    /// realm. `in_scope`: the request goes only where the pair belongs.
    pub(crate) fn answer_by(
        &self,
        digest_answers: &mut DigestAnswers,
        response: &Message<'_>,
        challenged: &ChallengedMessage<'_>,
        (stage, in_scope): (ChallengedRequest<'_>, bool),
        own: OwnChallenges<'_>,
        random: u128,
    ) -> Result<Option<KnownRealm>, Unanswerable> {
        let (_, challenge) = client::challenge(response).ok_or(Unanswerable::Unknown)?;
        if !in_scope {
            return Err(Unanswerable::OtherAddress);
        }
        let seen = self.judge(&challenge, stage, own)?;
        let is_inbound = matches!(self.scope, CredentialScope::Inbound(_));
        // Each realm once per request, also with `stale`: a PBX could else collect digests for nonces of its choice.
        let is_given = !(is_inbound && digest_answers.has_answered(challenge.realm))
            && digest_answers.answer(response, challenged, &self.login, random);
        is_given.then_some(seen).ok_or(Unanswerable::Refused)
    }

    /// Decides whether a challenge may be answered. Returns what to remember of its realm.
    fn judge(
        &self,
        challenge: &Challenge<'_>,
        stage: ChallengedRequest<'_>,
        own: OwnChallenges<'_>,
    ) -> Result<Option<KnownRealm>, Unanswerable> {
        let realm = unescape_pairs(challenge.realm);
        // A peer may pass a challenge of ours on to us: the answer would log that peer in here.
        let is_own =
            *realm == *own.realm.as_bytes() || own.nonces.is_of_deployment(challenge.nonce);

        // Our realm may be another carrier's as well, so a trunk's pair may answer it unless an inbound trunk here has the same user name.
        if is_own && (own.shares_user || matches!(self.scope, CredentialScope::Inbound(_))) {
            return Err(Unanswerable::OwnRealm);
        }

        // Without qop the digest fits any nonce that the challenger chooses, and inside a dialog the peer chooses the challenger.
        let offers_qop = challenge.qop.is_some();
        if matches!(stage, ChallengedRequest::InDialog(_)) && !offers_qop {
            return Err(Unanswerable::NoQop);
        }

        let CredentialScope::Named {
            trunk: Some(TrunkRealms { realms, .. }),
            ..
        } = &self.scope
        else {
            return Ok(None);
        };

        // After an 18x a peer behind the trunk's host may be the one that challenges.
        let may_learn = matches!(stage, ChallengedRequest::Initial);
        let judged = realms.judge(&String::from_utf8_lossy(&realm), offers_qop, may_learn);
        judged.map_err(|fault| match fault {
            ChallengeFault::OtherRealm => Unanswerable::OtherRealm,
            ChallengeFault::NoQop => Unanswerable::NoQop,
        })
    }
}

impl Unanswerable {
    /// Name in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoPair => "no_pair",
            Self::OtherAddress => "other_address",
            Self::OwnRealm => "own_realm",
            Self::OtherRealm => "other_realm",
            Self::NoQop => "no_qop",
            Self::Refused => "refused",
            Self::Unknown => "unknown",
        }
    }
}

/// Addresses that a peer has been called at or has answered from.
#[derive(Clone, Debug, Default)]
pub(crate) struct PeerAddresses(Vec<IpAddr>);

impl PeerAddresses {
    pub(crate) fn add(&mut self, address: IpAddr) {
        let Self(held) = self;
        let address = address.to_canonical();
        if held.len() < MAX_ADDRESSES && !held.contains(&address) {
            held.push(address);
        }
    }

    pub(crate) fn as_slice(&self) -> &[IpAddr] {
        &self.0
    }
}

/// Host that a request by this URI is sent to.
fn destination_of(uri: &[u8]) -> Option<Host<'_>> {
    Uri::parse(uri).ok()?.destination()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use trunkline_sip::auth::{NonceKeys, NonceSource};
    use trunkline_sip::entropy::Entropy;
    use trunkline_sip::flow::{Flow, Transport};
    use trunkline_sip::moment::Moment;
    use trunkline_sip::wire::{Framing, lex};

    use super::*;

    const OWN: &str = "our \"own\" realm";
    const OURS: &str = r#"realm="our \"own\" realm", nonce="1", qop="auth""#;
    const OURS_ESCAPED: &str = r#"realm="\o\ur \"own\" realm", nonce="1", qop="auth""#;
    const OWN_NONCE: &str = r#"realm="pbx", nonce="NONCE", qop="auth""#;
    const THEIRS: &str = r#"realm="pbx", nonce="1", qop="auth""#;
    const OTHERS: &str = r#"realm="other", nonce="1", qop="auth""#;
    const WITHOUT_QOP: &str = r#"realm="pbx", nonce="1""#;

    fn login() -> Arc<PeerLogin> {
        Arc::new(PeerLogin {
            user: "u".into(),
            password: "p".into(),
        })
    }

    fn of_trunk(realms: AuthRealms) -> LegCredentials {
        let trunk = TrunkRealms {
            trunk: Uuid::nil(),
            realms: Arc::new(realms),
        };
        LegCredentials::named(login(), Some(trunk))
    }

    fn knowing(realms: &[(&str, bool)]) -> AuthRealms {
        let known = realms.iter().map(|(realm, offers_qop)| KnownRealm {
            realm: (*realm).into(),
            offers_qop: *offers_qop,
        });
        AuthRealms::new(None, &known.collect::<Vec<_>>(), false)
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn dialog(contact: &str, routes: &[&str]) -> Dialog {
        let routes: String = routes
            .iter()
            .map(|route| format!("Record-Route: <{route};lr>\r\n"))
            .collect();
        let text = format!(
            "SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP h;branch=z9hG4bK1\r\nFrom: <sip:a@b>;tag=1\r\n\
             To: <sip:c@d>;tag=2\r\nCall-ID: x\r\nCSeq: 1 INVITE\r\nContact: <{contact}>\r\n{routes}\
             Content-Length: 0\r\n\r\n"
        );
        let message = lex(text.as_bytes(), Framing::Datagram).unwrap();
        Dialog::uac(b"sip:+14155550001@carrier.example.com", &message).unwrap()
    }

    /// Returns the answer to a challenge; the nonce `NONCE` is one of ours.
    fn answer(
        (credentials, digest_answers): (&LegCredentials, &mut DigestAnswers),
        challenge: &str,
        (stage, destination): (ChallengedRequest<'_>, &str),
        shares_user: bool,
    ) -> Result<Option<KnownRealm>, Unanswerable> {
        let keys = NonceKeys {
            node: [1; 32],
            deployment: [2; 32],
        };
        let nonces = Nonces::new(keys, Duration::from_secs(30));
        let peer = ([192, 0, 2, 1], 5060).into();
        let source = NonceSource::of(&Flow {
            transport: Transport::Udp,
            listener: 0,
            connection: 0,
            local: peer,
            peer,
        });
        let nonce = nonces.issue(
            0,
            source,
            &mut Entropy::from_seed([3; 32]),
            Moment::from_secs(1),
        );
        let text = format!(
            "SIP/2.0 401 No\r\nVia: SIP/2.0/UDP h;branch=z9hG4bK1\r\nFrom: <sip:a@b>;tag=1\r\nTo: <sip:c@d>;tag=2\r\n\
             Call-ID: x\r\nCSeq: 1 BYE\r\nWWW-Authenticate: Digest {}\r\nContent-Length: 0\r\n\r\n",
            challenge.replace("NONCE", nonce.as_str())
        );
        let response = lex(text.as_bytes(), Framing::Datagram).unwrap();
        let challenged = ChallengedMessage {
            method: "BYE",
            uri: b"sip:c@d",
            body: b"",
        };
        let destination = address(destination);
        let in_scope = match stage {
            ChallengedRequest::Initial | ChallengedRequest::Ringing => {
                credentials.may_begin_at(destination)
            }
            ChallengedRequest::InDialog(dialog) => credentials.may_answer_in(dialog, destination),
        };
        let own = OwnChallenges {
            realm: OWN,
            nonces: &nonces,
            shares_user,
        };
        credentials.answer_by(
            digest_answers,
            &response,
            &challenged,
            (stage, in_scope),
            own,
            7,
        )
    }

    fn once(
        credentials: &LegCredentials,
        challenge: &str,
        at: (ChallengedRequest<'_>, &str),
        shares_user: bool,
    ) -> Result<Option<KnownRealm>, Unanswerable> {
        let mut digest_answers = DigestAnswers::default();
        answer(
            (credentials, &mut digest_answers),
            challenge,
            at,
            shares_user,
        )
    }

    #[test]
    fn a_proven_pair_goes_back_to_its_source_alone() {
        use Unanswerable::{NoQop, OtherAddress, OwnRealm};

        let proven = LegCredentials::proven(login(), address("192.0.2.1"));
        let dialog = dialog("sip:c@192.0.2.1", &[]);
        for (case, challenge, destination, expected) in [
            ("its source", THEIRS, "192.0.2.1", Ok(None)),
            ("the same, mapped", THEIRS, "::ffff:192.0.2.1", Ok(None)),
            ("another address", THEIRS, "192.0.2.2", Err(OtherAddress)),
            ("our realm", OURS, "192.0.2.1", Err(OwnRealm)),
            (
                "our realm, escaped",
                OURS_ESCAPED,
                "192.0.2.1",
                Err(OwnRealm),
            ),
            ("our nonce", OWN_NONCE, "192.0.2.1", Err(OwnRealm)),
            ("no qop", WITHOUT_QOP, "192.0.2.1", Err(NoQop)),
        ] {
            let at = (ChallengedRequest::InDialog(&dialog), destination);
            assert_eq!(once(&proven, challenge, at, true), expected, "{case}");
        }

        for (challenge, destination, expected) in [
            (THEIRS, "192.0.2.1", Ok(None)),
            (WITHOUT_QOP, "192.0.2.1", Ok(None)),
            (THEIRS, "192.0.2.2", Err(OtherAddress)),
            (OURS, "192.0.2.1", Err(OwnRealm)),
        ] {
            let at = (ChallengedRequest::Initial, destination);
            assert_eq!(once(&proven, challenge, at, true), expected, "{at:?}");
        }

        let mut digest_answers = DigestAnswers::default();
        let mut again = || {
            let at = (ChallengedRequest::InDialog(&dialog), "192.0.2.1");
            answer((&proven, &mut digest_answers), THEIRS, at, true)
        };

        assert_eq!(again(), Ok(None));
        assert_eq!(again(), Err(Unanswerable::Refused));
    }

    #[test]
    fn a_trunks_pair_goes_to_the_trunks_addresses() {
        use Unanswerable::{NoQop, OtherAddress, OtherRealm, OwnRealm};
        let mut addresses = PeerAddresses::default();
        for known in ["198.51.100.1", "::ffff:198.51.100.2", "198.51.100.1"] {
            addresses.add(address(known));
        }

        assert_eq!(addresses.as_slice().len(), 2);

        let trunk = of_trunk(knowing(&[("pbx", true), (OWN, true)]));
        let answered = trunk.answered_at(&[], addresses.as_slice());
        let dialog = dialog("sip:c@198.51.100.1", &[]);
        for (case, challenge, at, shares_user, expected) in [
            ("resolved", THEIRS, "198.51.100.1", false, Ok(None)),
            ("answered from", THEIRS, "198.51.100.2", false, Ok(None)),
            (
                "another address",
                THEIRS,
                "198.51.100.3",
                false,
                Err(OtherAddress),
            ),
            (
                "another realm",
                OTHERS,
                "198.51.100.1",
                false,
                Err(OtherRealm),
            ),
            ("no qop", WITHOUT_QOP, "198.51.100.1", false, Err(NoQop)),
            ("our realm", OURS, "198.51.100.1", false, Ok(None)),
            (
                "our realm and user",
                OURS,
                "198.51.100.1",
                true,
                Err(OwnRealm),
            ),
            ("escaped", OURS_ESCAPED, "198.51.100.1", true, Err(OwnRealm)),
            ("our nonce", OWN_NONCE, "198.51.100.1", true, Err(OwnRealm)),
            (
                "our nonce, another user",
                OWN_NONCE,
                "198.51.100.1",
                false,
                Ok(None),
            ),
            ("a user of ours", THEIRS, "198.51.100.1", true, Ok(None)),
        ] {
            let at = (ChallengedRequest::InDialog(&dialog), at);
            let given = once(&answered, challenge, at, shares_user);
            assert_eq!(given, expected, "{case}");
        }

        let at = (ChallengedRequest::InDialog(&dialog), "198.51.100.1");
        assert_eq!(once(&trunk, THEIRS, at, false), Err(OtherAddress));
    }

    #[test]
    fn a_trunk_learns_its_realms_before_anything_rings() {
        use Unanswerable::{NoQop, OtherRealm, OwnRealm};
        let seen = |realm: &str, offers_qop| {
            Ok(Some(KnownRealm {
                realm: realm.into(),
                offers_qop,
            }))
        };
        let new = || of_trunk(AuthRealms::default());
        let known = || of_trunk(knowing(&[("pbx", true)]));
        for (case, trunk, challenge, stage, shares_user, expected) in [
            (
                "a new realm",
                new(),
                THEIRS,
                ChallengedRequest::Initial,
                false,
                seen("pbx", true),
            ),
            (
                "without qop",
                new(),
                WITHOUT_QOP,
                ChallengedRequest::Initial,
                false,
                seen("pbx", false),
            ),
            (
                "our realm",
                new(),
                OURS,
                ChallengedRequest::Initial,
                false,
                seen(OWN, true),
            ),
            (
                "our realm and user",
                new(),
                OURS,
                ChallengedRequest::Initial,
                true,
                Err(OwnRealm),
            ),
            (
                "after an 18x",
                new(),
                THEIRS,
                ChallengedRequest::Ringing,
                false,
                Err(OtherRealm),
            ),
            (
                "known, after an 18x",
                known(),
                THEIRS,
                ChallengedRequest::Ringing,
                false,
                Ok(None),
            ),
            (
                "qop offered before",
                known(),
                WITHOUT_QOP,
                ChallengedRequest::Initial,
                false,
                Err(NoQop),
            ),
        ] {
            let given = once(&trunk, challenge, (stage, "198.51.100.1"), shares_user);
            assert_eq!(given, expected, "{case}");
        }

        // A realm seen by an INVITE counts in its dialog at once.
        let mut trunk = new();
        let at = (ChallengedRequest::Initial, "198.51.100.1");
        let shown = once(&trunk, THEIRS, at, false).unwrap().expect("a realm");
        trunk.learn(&shown);
        let trunk = trunk.answered_at(&[], &[address("198.51.100.1")]);
        let dialog = dialog("sip:c@198.51.100.1", &[]);

        let at = (ChallengedRequest::InDialog(&dialog), "198.51.100.1");
        assert_eq!(once(&trunk, THEIRS, at, false), Ok(None));
        assert_eq!(once(&trunk, OTHERS, at, false), Err(OtherRealm));
    }

    #[test]
    fn a_runtimes_pair_has_any_realm_and_the_way_of_a_trunks() {
        let runtime = LegCredentials::of_runtime(login());
        let scope = "198.51.100.1";
        for challenge in [THEIRS, WITHOUT_QOP, OTHERS] {
            assert_eq!(
                once(
                    &runtime,
                    challenge,
                    (ChallengedRequest::Initial, scope),
                    false
                ),
                Ok(None)
            );
        }

        let runtime = runtime.answered_at(&[], &[address(scope)]);
        let direct = dialog("sip:c@198.51.100.1", &[]);
        let past = dialog("sip:c@203.0.113.66", &["sip:198.51.100.1"]);
        for (dialog, challenge, expected) in [
            (&direct, THEIRS, Ok(None)),
            (&direct, WITHOUT_QOP, Err(Unanswerable::NoQop)),
            (&past, THEIRS, Err(Unanswerable::OtherAddress)),
        ] {
            let at = (ChallengedRequest::InDialog(dialog), scope);
            assert_eq!(
                once(&runtime, challenge, at, false),
                expected,
                "{challenge}"
            );
        }
    }

    #[test]
    fn a_trunks_pair_stays_on_a_way_that_is_all_the_trunks() {
        let scope = address("198.51.100.1");
        let hosts = ["carrier.example.com".to_owned()];
        let trunk = of_trunk(AuthRealms::default()).answered_at(&hosts, &[scope]);

        for (contact, routes, in_scope) in [
            ("sip:c@198.51.100.1", &[][..], true),
            ("sip:c@10.0.0.1", &[], true), // Behind NAT: requests go to where the answer came from.
            ("sip:c@198.51.100.1", &["sip:198.51.100.1"], true),
            (
                "sip:c@Carrier.example.com",
                &["sip:carrier.example.com"],
                true,
            ),
            ("sip:c@203.0.113.66", &["sip:198.51.100.1"], false),
            (
                "sip:c@198.51.100.1",
                &["sip:203.0.113.66", "sip:198.51.100.1"],
                false,
            ),
            ("sip:c@evil.example.com", &["sip:198.51.100.1"], false),
        ] {
            let dialog = dialog(contact, routes);
            assert_eq!(
                trunk.may_answer_in(&dialog, scope),
                in_scope,
                "{contact} {routes:?}"
            );
            assert!(!trunk.may_answer_in(&dialog, address("203.0.113.66")));
        }
    }

    #[test]
    fn few_addresses_are_kept() {
        let mut addresses = PeerAddresses::default();
        for last in 0..=255_u8 {
            addresses.add(IpAddr::from([198, 51, 100, last]));
        }
        assert_eq!(addresses.as_slice().len(), MAX_ADDRESSES);
    }
}
