//! Examines how a PBX speaks SIP: what one of its INVITEs shows that harms calls, transfers or routing, with the
//! setting to change.

use trunkline_model::invite_facts::{InviteFacts, Proof};
use trunkline_model::settings::TransferWay;
use trunkline_routing::{Country, numbers};

use super::finding::Finding;
use trunkline_calls::is_private;
pub use trunkline_calls::parts::pbx::Pbx;

/// Check of the codecs in an offer.
pub const CODECS: &str = "codecs";

/// Difference of clocks in seconds that is reported.
const SKEW_S: i64 = 60;

/// Examines one INVITE. `country` and `way` are the trunk's.
pub fn examine(asked: &InviteFacts, country: Option<Country>, way: TransferWay) -> Vec<Finding> {
    let mut findings = vec![
        authentication(asked),
        caller_id(asked, country),
        offer(asked),
        dtmf(asked),
        session_timers(asked),
        refer(asked, way),
    ];
    findings.extend(dialled(asked, country));
    findings.extend(nat(asked));
    findings.extend(clock(asked));
    findings
}

fn authentication(asked: &InviteFacts) -> Finding {
    let source = asked.source.ip();

    match asked.proof {
        Proof::Digest => Finding::ok(
            "authentication",
            format!("It logs in with the trunk's credentials, from {source}."),
        ),
        Proof::DedicatedAddress | Proof::AllowedAddress if is_forgeable(asked) => Finding::hint(
            "authentication",
            format!(
                "It is known by its address {source} over UDP, where a source can be forged: with credentials, or over TCP or TLS, its calls would need no other proof."
            ),
        ),
        Proof::DedicatedAddress => Finding::ok(
            "authentication",
            format!("It is known by its address {source}, which is dedicated to the org."),
        ),
        Proof::Session => Finding::ok(
            "authentication",
            "A person called from the console's page, by a session.".to_owned(),
        ),
        Proof::AllowedAddress => Finding::hint(
            "authentication",
            format!(
                "It is known by its address {source} alone, for the numbers on the trunk's list; with credentials it could call all numbers of the org."
            ),
        ),
    }
}

/// Returns whether an INVITE came over UDP from a public address, which anybody on the Internet may have written into the packet.
fn is_forgeable(asked: &InviteFacts) -> bool {
    &*asked.transport == "udp" && !is_private(asked.source.ip())
}

fn caller_id(asked: &InviteFacts, country: Option<Country>) -> Finding {
    const CHECK: &str = "caller_id";
    let facts = &asked.facts;
    let (header, user) = match facts.asserted.first() {
        Some(user) => ("P-Asserted-Identity", user.as_str()),
        None => ("From", facts.from_user.as_deref().unwrap_or_default()),
    };

    if facts.anonymous {
        return Finding::hint(
            CHECK,
            "The caller asks not to be named: no contact is found or made.",
        );
    }

    match numbers::reduce(user, country, &|_| false) {
        Some(number) if number.as_str() == user => Finding::ok(
            CHECK,
            format!("{header} gives the caller as E.164, {user}."),
        ),
        Some(number) => Finding::ok(
            CHECK,
            format!("{header} gives the caller as {user:?}, which is read as {number}."),
        ),
        None if is_national(user) => Finding::warning(
            CHECK,
            format!("{header} gives the caller as {user:?}, a national number that can't be read."),
            "Send callers as E.164 with a plus sign, or set the trunk's default_country.",
        ),
        None => Finding::hint(
            CHECK,
            format!(
                "{header} gives the caller as {user:?}, which is not a number: no contact is found or made."
            ),
        ),
    }
}

/// Returns true if it looks like a number without its country code.
pub fn is_national(user: &str) -> bool {
    let digits = user.chars().filter(char::is_ascii_digit).count();
    let others = user
        .chars()
        .any(|char| !char.is_ascii_digit() && !" -./()".contains(char));
    (7..=15).contains(&digits) && !others
}

fn dialled(asked: &InviteFacts, country: Option<Country>) -> Option<Finding> {
    let user = asked.facts.request_user.as_deref()?;
    let is_lost = is_national(user) && numbers::reduce(user, country, &|_| false).is_none();
    is_lost.then(|| {
        Finding::warning(
            "dialled_number",
            format!("The dialled number comes as {user:?}, a national number that can't be read."),
            "Set the trunk's default_country, or have the PBX send E.164 with a plus sign.",
        )
    })
}

fn offer(asked: &InviteFacts) -> Finding {
    const CHECK: &str = CODECS;
    let traits = &asked.traits;
    if !traits.offer {
        return Finding::hint(
            CHECK,
            "The INVITE has no offer: codecs are agreed in the answer, and calls connect a little later.",
        );
    }

    let codecs = traits.codecs.join(", ");
    if traits.encrypted {
        return Finding::error(
            CHECK,
            format!("It offers only encrypted media (SRTP, with {codecs})."),
            "Turn SRTP off for this trunk unless the agents' runtimes speak it.",
        );
    }

    let is_plain = |codec: &str| {
        ["PCMU", "PCMA"]
            .iter()
            .any(|known| codec.eq_ignore_ascii_case(known))
    };
    if traits.codecs.iter().any(|codec| is_plain(codec)) {
        Finding::ok(CHECK, format!("It offers {codecs}."))
    } else {
        Finding::warning(
            CHECK,
            format!("It offers neither PCMU nor PCMA, but {codecs}, unencrypted."),
            "Allow G.711 (ulaw, alaw) on this trunk beside them: bots and built-in agents speak nothing else, and most runtimes don't either.",
        )
    }
}

fn dtmf(asked: &InviteFacts) -> Finding {
    const CHECK: &str = "dtmf";
    match (asked.traits.offer, asked.traits.telephone_event) {
        (true, true) => Finding::ok(CHECK, "Keys are sent as telephone-event (RFC 4733)."),
        (true, false) => Finding::warning(
            CHECK,
            "It doesn't offer telephone-event: keys that callers press are lost or must be heard in the audio.",
            "Set the DTMF mode of the trunk to RFC 4733 (also called RFC 2833).",
        ),
        (false, _) => Finding::hint(
            CHECK,
            "Without an offer it can't be seen how keys are sent.",
        ),
    }
}

fn session_timers(asked: &InviteFacts) -> Finding {
    const CHECK: &str = "session_timers";
    match (asked.traits.timer, asked.traits.session_expires) {
        (true, Some(seconds)) => Finding::ok(
            CHECK,
            format!("It refreshes calls, every {seconds} seconds at the latest."),
        ),
        (true, None) => Finding::ok(CHECK, "It speaks session timers."),
        (false, _) => Finding::warning(
            CHECK,
            "It speaks no session timers: a call whose BYE got lost stays up and counts against every limit.",
            "Turn session timers on (RFC 4028, accept or always), 1800 seconds.",
        ),
    }
}

fn refer(asked: &InviteFacts, way: TransferWay) -> Finding {
    const CHECK: &str = "refer";
    let pbx = asked.user_agent.as_deref().and_then(Pbx::of_user_agent);
    // A PBX that names no REFER in its Allow refuses it, and so keeps its callers.
    let pbx = pbx.filter(|pbx| pbx.loses_caller() && asked.traits.refer != Some(false));
    if let Some(pbx) = pbx {
        let name = pbx.name();
        return match way {
            TransferWay::Refer => Finding::warning(
                CHECK,
                format!(
                    "{name} takes the caller into its dialplan once it has accepted a REFER: if the destination is busy or doesn't answer, the caller is cut off."
                ),
                "Set the trunk's transfer_way to auto.",
            ),
            TransferWay::Bridge | TransferWay::Auto => Finding::ok(
                CHECK,
                format!(
                    "{name} loses callers when a REFER fails: with this transfer_way calls are bridged here instead."
                ),
            ),
        };
    }

    match asked.traits.refer {
        Some(true) => Finding::ok(
            CHECK,
            "It allows REFER: cold transfers can leave through it.",
        ),
        Some(false) => Finding::warning(
            CHECK,
            "Its Allow doesn't name REFER: transfers will be refused or bridged here.",
            "Allow transfers on the trunk; until then calls are bridged where bridge_when_refer_fails is on.",
        ),
        None => Finding::hint(
            CHECK,
            "It sends no Allow, so whether it takes REFER is seen at the first transfer.",
        ),
    }
}

fn nat(asked: &InviteFacts) -> Vec<Finding> {
    let traits = &asked.traits;
    let source = asked.source.ip();
    let mut findings = Vec::new();
    if let Some(ip) = &traits.rewritten {
        findings.push(Finding::warning(
            "sip_alg",
            format!("Something between the PBX and here rewrites SIP: {ip} is left in the message where other addresses say {source}."),
            "Turn SIP ALG (SIP helper, SIP inspection) off in the router or firewall before the PBX.",
        ));
    }

    if let Some(ip) = &traits.private_contact {
        findings.push(Finding::warning(
            "private_contact",
            format!("Contact says {ip}, which can't be reached from here, while packets come from {source}."),
            "Set the PBX's external address (external_signaling_address, ext-sip-ip, public IP) to its public one.",
        ));
    }

    if let Some(ip) = &traits.private_media {
        findings.push(Finding::warning(
            "private_media",
            format!("The media address is {ip}, which can't be reached from here, while packets come from {source}."),
            "Set the PBX's external media address (external_media_address, ext-rtp-ip) to its public one.",
        ));
    }

    findings
}

fn clock(asked: &InviteFacts) -> Option<Finding> {
    let skew = asked
        .traits
        .clock_skew_s
        .filter(|skew| skew.abs() > SKEW_S)?;
    let way = if skew > 0 { "ahead of" } else { "behind" };
    Some(Finding::warning(
        "clock",
        format!("Its clock is {} seconds {way} ours.", skew.abs()),
        "Set the PBX's clock by NTP.",
    ))
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use trunkline_model::invite_facts::PeerTraits;
    use trunkline_routing::Facts;

    use super::*;

    fn asked(change: impl FnOnce(&mut InviteFacts)) -> InviteFacts {
        let mut asked = InviteFacts {
            facts: Facts {
                request_user: Some("+493012345678".to_owned()),
                from_user: Some("+441632960001".to_owned()),
                ..Facts::default()
            },
            proof: Proof::Digest,
            source: "198.51.100.7:5060".parse().expect("an address"),
            transport: "udp".into(),
            host: "sip.example.com".into(),
            user_agent: None,
            traits: PeerTraits {
                timer: true,
                refer: Some(true),
                offer: true,
                codecs: ["PCMA".into()].into(),
                telephone_event: true,
                ..PeerTraits::default()
            },
        };

        change(&mut asked);
        asked
    }

    fn problems(asked: &InviteFacts, country: Option<Country>) -> Vec<Cow<'static, str>> {
        problems_by(asked, country, TransferWay::Refer)
    }

    fn problems_by(
        asked: &InviteFacts,
        country: Option<Country>,
        way: TransferWay,
    ) -> Vec<Cow<'static, str>> {
        let findings = examine(asked, country, way).into_iter();
        let wrong = findings.filter(Finding::is_problem);
        wrong
            .map(|finding| {
                assert!(finding.fix.is_some(), "{finding}");
                finding.check
            })
            .collect()
    }

    #[test]
    fn a_pbx_that_loses_callers_gets_the_way_that_keeps_them() {
        use TransferWay::{Auto, Bridge, Refer};
        for (user_agent, refer, way, expected) in [
            ("Asterisk PBX 22.10.0", Some(true), Refer, &["refer"][..]),
            ("FreeSWITCH-mod_sofia/1.10.12", None, Refer, &["refer"]),
            ("Asterisk PBX 22.10.0", Some(true), Auto, &[]),
            ("Asterisk PBX 22.10.0", Some(true), Bridge, &[]),
            ("3CXPhoneSystem 20", Some(true), Refer, &[]),
            ("Asterisk PBX 22.10.0", Some(false), Auto, &["refer"]),
        ] {
            let asked = asked(|asked| {
                asked.user_agent = Some(user_agent.into());
                asked.traits.refer = refer;
            });
            assert_eq!(problems_by(&asked, None, way), expected, "{user_agent}");
        }
    }

    #[test]
    fn each_fault_is_one_finding() {
        type Fault = (&'static str, fn(&mut InviteFacts), &'static [&'static str]);
        let faults: [Fault; 13] = [
            ("none", |_| {}, &[]),
            (
                "no timers",
                |asked| asked.traits.timer = false,
                &["session_timers"],
            ),
            (
                "no REFER",
                |asked| asked.traits.refer = Some(false),
                &["refer"],
            ),
            ("no Allow", |asked| asked.traits.refer = None, &[]),
            (
                "no keys",
                |asked| asked.traits.telephone_event = false,
                &["dtmf"],
            ),
            (
                "opus alone",
                |asked| asked.traits.codecs = ["opus".into()].into(),
                &["codecs"],
            ),
            (
                "no offer",
                |asked| {
                    asked.traits = PeerTraits {
                        timer: true,
                        ..PeerTraits::default()
                    }
                },
                &[],
            ),
            (
                "encrypted",
                |asked| asked.traits.encrypted = true,
                &["codecs"],
            ),
            (
                "national",
                |asked| {
                    asked.facts.request_user = Some("030 12345678".to_owned());
                    asked.facts.from_user = Some("01712345678".to_owned());
                },
                &["caller_id", "dialled_number"],
            ),
            (
                "an extension",
                |asked| asked.facts.from_user = Some("201".to_owned()),
                &[],
            ),
            (
                "private",
                |asked| asked.traits.private_contact = Some("10.0.0.5".into()),
                &["private_contact"],
            ),
            (
                "rewritten",
                |asked| asked.traits.rewritten = Some("10.0.0.5".into()),
                &["sip_alg"],
            ),
            (
                "late",
                |asked| asked.traits.clock_skew_s = Some(-3_600),
                &["clock"],
            ),
        ];

        for (name, fault, expected) in faults {
            assert_eq!(problems(&asked(fault), None), expected, "{name}");
        }

        let national = asked(|asked| asked.facts.request_user = Some("03012345678".to_owned()));
        assert_eq!(
            problems(&national, Country::parse("DE").ok()),
            [] as [&str; 0]
        );
    }
}
