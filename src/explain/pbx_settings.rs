//! Settings of PBXs for one trunk, ready to be pasted or entered. The password may be left out, for readers who must
//! not see it.

use super::pbx::Pbx;

/// Placeholder of the password.
pub const PASSWORD: &str = "<the trunk's auth_password>";

/// Data for a trunk's settings.
#[derive(Copy, Clone, Debug)]
pub struct Trunk<'t> {
    /// Host, or host and port, that the PBX sends to.
    pub endpoint: &'t str,
    /// Digest user name.
    pub username: &'t str,
    /// Password, or [`PASSWORD`].
    pub password: &'t str,
    /// Digest realm.
    pub realm: &'t str,
}

/// Makes the settings for a PBX.
pub fn settings(pbx: Pbx, trunk: Trunk<'_>) -> String {
    match pbx {
        Pbx::Asterisk => asterisk(trunk),
        Pbx::FreeSwitch => freeswitch(trunk),

        Pbx::FreePbx => form(
            // FreePBX joins host and port itself.
            Trunk {
                endpoint: host(trunk.endpoint),
                ..trunk
            },
            "Connectivity > Trunks > Add SIP (chan_pjsip) Trunk",
            &[
                ("Registration", "None"),
                ("SIP Server Port", port(trunk.endpoint).unwrap_or("5060")),
                ("From Domain (Advanced)", host(trunk.endpoint)),
                ("Match (Permit)", host(trunk.endpoint)),
                ("Codecs", "ulaw, alaw"),
                ("DTMF Mode", "RFC 4733"),
                ("Qualify Frequency", "60"),
            ],
        ),

        Pbx::ThreeCx => form(
            trunk,
            "SIP Trunks > Add SIP Trunk > Generic",
            &[
                ("Type of Authentication", "Register/Account based"),
                ("Re-Register Timeout", "120"),
                ("Outbound caller ID", "E.164 with +"),
                ("Codec priority", "G.711 U-law, G.711 A-law"),
            ],
        ),

        Pbx::Yeastar => form(
            trunk,
            "Extension and Trunk > Trunk > Add",
            &[
                ("Trunk Type", "Register Trunk"),
                ("Domain", trunk.endpoint),
                ("DTMF Mode", "RFC4733 (RFC2833)"),
                ("Codec", "u-law, a-law"),
                ("Session Timers", "Accept"),
            ],
        ),

        Pbx::Grandstream => form(
            trunk,
            "Extension/Trunk > VoIP Trunks > Create New SIP Trunk",
            &[
                ("Type", "Register SIP Trunk"),
                ("DTMF Mode", "RFC4733"),
                ("Codec Preference", "PCMU, PCMA"),
                ("Enable Session Timer", "on"),
            ],
        ),

        Pbx::Cisco => cisco(trunk),
    }
}

fn host(endpoint: &str) -> &str {
    let port = port(endpoint).map_or(0, |port| port.len() + 1);
    endpoint.get(..endpoint.len() - port).unwrap_or(endpoint)
}

fn port(endpoint: &str) -> Option<&str> {
    // Without a port, what follows the last colon of `[2001:db8::1]` isn't all digits.
    let (_, port) = endpoint.rsplit_once(':')?;
    port.bytes()
        .all(|digit| digit.is_ascii_digit())
        .then_some(port)
}

/// Target of a dial peer, which names the kind of its address.
fn session_target(endpoint: &str) -> String {
    let host = host(endpoint);
    let kind = match host.parse::<std::net::Ipv4Addr>() {
        Ok(_) => "ipv4",
        Err(_) if host.starts_with('[') => "ipv6",
        Err(_) => "dns",
    };
    format!("{kind}:{endpoint}")
}

fn asterisk(trunk: Trunk<'_>) -> String {
    let Trunk {
        endpoint,
        username,
        password,
        ..
    } = trunk;
    let host = host(endpoint);
    format!(
        "; pjsip.conf
[trunkline]
type=endpoint
context=from-trunkline
disallow=all
allow=ulaw,alaw
dtmf_mode=rfc4733
timers=yes
direct_media=no
allow_transfer=yes
aors=trunkline
outbound_auth=trunkline
from_domain={host}

[trunkline]
type=auth
auth_type=userpass
username={username}
password={password}

[trunkline]
type=aor
contact=sip:{endpoint}
qualify_frequency=60

[trunkline]
type=identify
endpoint=trunkline
match={host}
"
    )
}

fn freeswitch(trunk: Trunk<'_>) -> String {
    let Trunk {
        endpoint,
        username,
        password,
        realm,
    } = trunk;
    let realm = realm
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('"', "&quot;");

    format!(
        "<!-- conf/sip_profiles/external/trunkline.xml -->
<include>
  <gateway name=\"trunkline\">
    <param name=\"username\" value=\"{username}\"/>
    <param name=\"password\" value=\"{password}\"/>
    <param name=\"realm\" value=\"{realm}\"/>
    <param name=\"proxy\" value=\"{endpoint}\"/>
    <param name=\"register\" value=\"false\"/>
    <param name=\"caller-id-in-from\" value=\"true\"/>
    <param name=\"ping\" value=\"30\"/>
  </gateway>
</include>
<!-- in the profile: enable-timer true, session-timeout 1800, dtmf-type rfc2833 -->
"
    )
}

fn cisco(trunk: Trunk<'_>) -> String {
    let Trunk {
        endpoint,
        username,
        password,
        realm,
    } = trunk;
    let target = session_target(endpoint);
    format!(
        "sip-ua
 authentication username {username} password {password} realm {realm}
 timers session-expires 1800
dial-peer voice 5060 voip
 description trunkline
 session protocol sipv2
 session target {target}
 dtmf-relay rtp-nte
 codec g711ulaw
"
    )
}

/// Makes settings that are entered in a form: the page, and its fields.
fn form(trunk: Trunk<'_>, page: &str, fields: &[(&str, &str)]) -> String {
    let mut text = format!("{page}\n");
    let own = [
        ("Hostname / SIP server", trunk.endpoint),
        ("Authentication user", trunk.username),
        ("Password", trunk.password),
    ];
    for (name, value) in own.iter().chain(fields) {
        text.push_str(&format!("  {name:<24}  {value}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phone_system_is_told_where_and_as_whom() {
        let trunk = Trunk {
            endpoint: "sip.example.com:5070",
            username: "trunk-x",
            password: PASSWORD,
            realm: "a\"b",
        };
        for pbx in [
            Pbx::Asterisk,
            Pbx::FreePbx,
            Pbx::FreeSwitch,
            Pbx::ThreeCx,
            Pbx::Yeastar,
            Pbx::Cisco,
            Pbx::Grandstream,
        ] {
            let text = settings(pbx, trunk);
            for part in ["sip.example.com", "trunk-x", PASSWORD] {
                assert!(text.contains(part), "{pbx:?}: {text}");
            }
        }

        assert!(settings(Pbx::FreeSwitch, trunk).contains("a&quot;b"));
    }

    #[test]
    fn the_page_prints_what_quickstart_and_the_report_print() {
        let page = include_str!("../../docs/interop.md");
        let trunk = Trunk {
            endpoint: "voice.example.com",
            username: "USER",
            password: "PASSWORD",
            realm: "REALM",
        };
        for pbx in [Pbx::Asterisk, Pbx::FreeSwitch] {
            let text = settings(pbx, trunk);
            assert!(page.contains(&text), "{pbx:?}: the page lacks\n{text}");
        }
    }

    #[test]
    fn freepbx_gets_host_and_port_in_fields_of_their_own() {
        let trunk = Trunk {
            endpoint: "sip.example.com:5070",
            username: "trunk-x",
            password: PASSWORD,
            realm: "r",
        };
        let text = settings(Pbx::FreePbx, trunk);
        let field = |name: &str| {
            let line = text.lines().find(|line| line.trim().starts_with(name));
            line.and_then(|line| line.rsplit("  ").next())
        };
        assert_eq!(field("Hostname"), Some("sip.example.com"), "{text}");
        assert_eq!(field("SIP Server Port"), Some("5070"), "{text}");
        assert!(!text.contains("sip.example.com:"), "{text}");
    }

    #[test]
    fn an_endpoint_has_a_host() {
        assert_eq!(host("sip.example.com"), "sip.example.com");
        assert_eq!(host("[2001:db8::1]:5060"), "[2001:db8::1]");
        assert_eq!(host("[2001:db8::1]"), "[2001:db8::1]");
        assert_eq!(port("sip.example.com:5070"), Some("5070"));
        assert_eq!(port("sip.example.com"), None);
    }

    #[test]
    fn a_dial_peer_names_the_kind_of_its_address_and_the_port() {
        for (endpoint, target) in [
            ("sip.example.com", "dns:sip.example.com"),
            ("sip.example.com:5070", "dns:sip.example.com:5070"),
            ("192.0.2.1:5070", "ipv4:192.0.2.1:5070"),
            ("[2001:db8::1]:5060", "ipv6:[2001:db8::1]:5060"),
        ] {
            assert_eq!(session_target(endpoint), target);
        }
    }
}
