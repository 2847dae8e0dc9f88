//! Tests of the whole configuration: sources, faults and their origins, derived values.

use std::net::SocketAddr;

use trunkline_sip::endpoint::SentBy;
use trunkline_sip::flow::Transport;

use super::*;

fn file(text: &str) -> Sources {
    Sources {
        file: Some((PathBuf::from("t.toml"), text.to_owned())),
        ..Sources::default()
    }
}

fn variables(pairs: &[(&str, &str)]) -> Sources {
    let variables = pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    Sources {
        variables,
        ..Sources::default()
    }
}

fn faults(sources: &Sources) -> Vec<String> {
    Config::load(sources).map_or_else(
        |faults| faults.faults.iter().map(ConfigFault::to_string).collect(),
        |_| Vec::new(),
    )
}

#[test]
fn nothing_at_all_is_a_configuration() {
    let config = Config::load(&Sources::default()).unwrap();
    assert_eq!(config.data_dir, PathBuf::from("trunkline-data"));
    assert_eq!(
        config.database.url,
        DatabaseUrl::Sqlite("trunkline-data/trunkline.db".into())
    );
    assert_eq!(
        config.http.listen,
        "127.0.0.1:8080".parse::<SocketAddr>().unwrap()
    );

    let addresses: Vec<_> = config
        .sip
        .listeners
        .iter()
        .map(|listener| (listener.transport, listener.address.to_string()))
        .collect();

    assert_eq!(
        addresses,
        [
            (Transport::Udp, "0.0.0.0:5060".to_owned()),
            (Transport::Tcp, "0.0.0.0:5060".to_owned())
        ]
    );

    assert_eq!(&*config.sip.header_prefix, "X-PLATFORM");
    assert_eq!(config.phone.default_runtime, DefaultRuntime::Echo);
    assert!(
        !config.sip.endpoint().contains(":5060"),
        "the default port needn't be told"
    );
}

#[test]
fn flags_override_the_environment_which_overrides_the_file() {
    let mut sources = file("[sip]\nrealm = \"file\"\nheader_prefix = \"X-FILE\"\nnode = 1\n");
    sources.variables = vec![
        ("TRUNKLINE__SIP__REALM".into(), "env".into()),
        ("TRUNKLINE__SIP__NODE".into(), "2".into()),
    ];
    sources.flags = vec![Override {
        key: "sip.node".into(),
        value: "3".into(),
        flag: "--set sip.node".into(),
    }];
    let sip = Config::load(&sources).unwrap().sip;
    assert_eq!(
        (&*sip.header_prefix, &*sip.realm(), sip.node),
        ("X-FILE", "env", 3)
    );
}

#[test]
fn a_list_in_the_environment_is_comma_separated() {
    let sources = variables(&[
        ("TRUNKLINE__SIP__UDP", "127.0.0.1:5070, [::1]:5070"),
        ("TRUNKLINE__SIP__TCP", ""),
        ("PATH", "/bin"),
    ]);
    let sip = Config::load(&sources).unwrap().sip;
    let addresses: Vec<_> = sip
        .listeners
        .iter()
        .map(|listener| listener.address.to_string())
        .collect();
    assert_eq!(addresses, ["127.0.0.1:5070", "[::1]:5070"]);
    assert_eq!(sip.endpoint(), "127.0.0.1:5070");
}

#[test]
fn every_fault_is_reported_with_its_line() {
    let text = "\
data_dir = 5
[http]
listen = \"nowhere\"
[sip]
udp = [
  \"127.0.0.1:5060\",
  \"127.0.0.1\",
]
shards = 0
relm = \"x\"
public_host = \"a b\"
[media]
rtp_ports = \"9-1\"
[lgo]
format = \"text\"
[log]
format = \"xml\"
[secrets]
master_key = \"file:/nowhere/at/all\"
";
    insta::assert_snapshot!(faults(&file(text)).join("\n"), @r#"
    t.toml:1: data_dir: expected text in quotes
    t.toml:14: lgo: is not a key of Trunkline; did you mean "log"?
    t.toml:19: secrets.master_key: the file "/nowhere/at/all" can't be read: No such file or directory (os error 2)
    t.toml:3: http.listen: "nowhere" invalid socket address syntax
    t.toml:7: sip.udp[1]: "127.0.0.1" is not an address such as 0.0.0.0:5060 or [::]:5060
    t.toml:11: sip.public_host: "a b" is not a host or host:port
    t.toml:9: sip.shards: expected a whole number from 1 to 256
    t.toml:10: sip.relm: is not a key of Trunkline; did you mean "realm"?
    t.toml:13: media.rtp_ports: "9-1" starts below port 1024
    t.toml:17: log.format: "xml" is none of "text", "json"
    "#);
}

#[test]
fn a_fault_outside_the_file_names_the_variable_or_the_flag() {
    let mut sources = variables(&[
        ("TRUNKLINE__SIP__SHARDS", "many"),
        ("TRUNKLINE__SIPP__UDP", "x"),
        ("TRUNKLINE__FOO__BAR", "x"),
    ]);
    sources.flags = vec![Override {
        key: "sip.node".into(),
        value: "300".into(),
        flag: "--set sip.node".into(),
    }];
    insta::assert_snapshot!(faults(&sources).join("\n"), @r#"
    environment variable TRUNKLINE__FOO__BAR: foo: is not a key of Trunkline
    environment variable TRUNKLINE__SIPP__UDP: sipp: is not a key of Trunkline; did you mean "sip"?
    environment variable TRUNKLINE__SIP__SHARDS: sip.shards: expected a whole number from 1 to 256
    --set sip.node: sip.node: expected a whole number from 0 to 255
    "#);
}

#[test]
fn broken_toml_is_one_fault_with_its_line() {
    let faults = faults(&file("[sip]\nudp = [\n"));
    assert_eq!(faults.len(), 1);
    assert!(
        faults[0].starts_with("t.toml:3: is not valid TOML"),
        "{}",
        faults[0]
    );
}

#[test]
fn postgres_needs_a_master_key() {
    let with = |more: &str| {
        faults(&file(&format!(
            "[database]\nurl = \"postgres://u:hunter2@h/db\"\n{more}"
        )))
    };

    assert!(
        with("")
            .iter()
            .any(|fault| fault.contains("secrets.master_key"))
    );

    assert!(
        with("[secrets]\nmaster_key = \"short\"\n")
            .iter()
            .any(|fault| fault.contains("at least 32"))
    );

    assert_eq!(
        with("[secrets]\nmaster_key = \"0123456789abcdef0123456789abcdef\"\n"),
        Vec::<String>::new()
    );
}

#[test]
fn a_secret_may_stand_in_a_file_and_is_never_shown() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("key");
    std::fs::write(&path, "0123456789abcdef0123456789abcdef\n").unwrap();
    let config = Config::load(&file(&format!(
        "[secrets]\nmaster_key = \"file:{}\"\n",
        path.display()
    )))
    .unwrap();
    assert_eq!(
        config.secrets.master_key.as_ref().unwrap().expose(),
        "0123456789abcdef0123456789abcdef"
    );
    assert!(!format!("{config:?}").contains("0123456789abcdef"));
}

#[test]
fn a_listener_may_advertise_its_own_host() {
    let text = "\
[sip]
public_host = \"sip.example.com\"
udp = [\"0.0.0.0:5060\", { listen = \"10.0.0.1:5062\", advertise = \"pbx.lan\" }, \"10.0.0.2:5060=lan.example:5099\"]
tcp = []
";
    let sip = Config::load(&file(text)).unwrap().sip;
    let advertised: Vec<_> = sip
        .listeners
        .iter()
        .map(|listener| sip.advertised(listener, listener.address))
        .collect();
    assert_eq!(
        advertised,
        ["sip.example.com:5060", "pbx.lan:5062", "lan.example:5099"]
    );
    assert_eq!(sip.endpoint(), "sip.example.com");
}

#[test]
fn no_link_names_an_address_that_no_browser_opens() {
    for (text, api, console) in [
        (
            "listen = \"127.0.0.1:8080\"",
            "http://127.0.0.1:8080",
            "http://127.0.0.1:8080",
        ),
        ("listen = \"0.0.0.0:8080\"", "own", "http://127.0.0.1:8080"),
        ("listen = \"[::]:8080\"", "own", "http://[::1]:8080"),
        (
            "listen = \"0.0.0.0:8080\"\nallow_plain_console = true",
            "own",
            "own",
        ),
        (
            "listen = \"0.0.0.0:8080\"\npublic_url = \"https://voice.example.com\"",
            "https://voice.example.com",
            "https://voice.example.com",
        ),
    ] {
        let http = Config::load(&file(&format!("[http]\n{text}")))
            .unwrap()
            .http;
        let [shown_api, shown_console] =
            [http.base_url(http.listen), http.dashboard_url(http.listen)];
        for (shown, expected) in [(shown_api, api), (shown_console, console)] {
            assert!(
                !shown.contains("//0.0.0.0") && !shown.contains("//[::]"),
                "{text}: {shown}"
            );
            if expected != "own" {
                assert_eq!(shown, expected, "{text}");
            }
        }
    }
}

#[test]
fn an_address_of_the_other_family_is_no_host_of_a_listener() {
    let text = "[sip]\npublic_host = \"192.0.2.7\"\ntcp = []\nudp = [\"127.0.0.1:5060\", \"[::1]:5060\", \"[::]:5062\", \"[::1]:5064=[2001:db8::7]\", \"[::1]:5066=192.0.2.8\"]";
    let sip = Config::load(&file(text)).unwrap().sip;
    let cases = [
        ("same family", "192.0.2.7:5060", None),
        ("the other one", "[::1]:5060", Some("sip.public_host")),
        ("every address", "called", Some("sip.public_host")),
        ("one of its own", "[2001:db8::7]:5064", None),
        (
            "its own is of the other one",
            "[::1]:5066",
            Some("advertise"),
        ),
    ];
    for (listener, (name, expected, unused)) in sip.listeners.iter().zip(cases) {
        let sent_by = match sip.sent_by(listener, listener.address) {
            SentBy::Fixed(host) => host,
            SentBy::Called { port, .. } => {
                assert_eq!(port, 5062, "{name}");
                "called".to_owned()
            }
        };
        assert_eq!(sent_by, expected, "{name}");
        let found = sip.unused_host(listener).map(|unused| unused.key);
        assert_eq!(found, unused, "{name}");
    }
}

#[test]
fn an_advertised_port_overrides_the_bound_one() {
    let sip = Config::load(&file(
        "[sip]\npublic_host = \"h:7000\"\ntcp = []\nudp = [\"127.0.0.1:0\"]",
    ))
    .unwrap()
    .sip;
    assert_eq!(
        sip.advertised(&sip.listeners[0], "127.0.0.1:41000".parse().unwrap()),
        "h:7000"
    );
    assert_eq!(sip.endpoint(), "h:7000");
}

#[test]
fn listeners_that_can_not_work_are_refused() {
    for (name, text, said) in [
        ("none", "[sip]\nudp = []\ntcp = []\n", "no listener"),
        (
            "twice",
            "[sip]\nudp = [\"127.0.0.1:5060\", \"127.0.0.1:5060\"]\n",
            "listed twice",
        ),
        (
            "tls",
            "[sip]\ntls = [\"0.0.0.0:5061\"]\n",
            "needs sip.tls_certificate",
        ),
        ("section", "sip = 5\n", "is a section"),
    ] {
        let faults = faults(&file(text));
        assert!(
            faults.len() == 1 && faults[0].contains(said),
            "{name}: {faults:?}"
        );
    }
}

#[test]
fn an_integration_is_there_if_its_address_is() {
    let none = Config::load(&file("[integrations.booking]\nkey = \"tours\"")).unwrap();
    assert!(none.integrations.booking.is_none());

    let toml =
        "[integrations.booking]\nbase_url = \"https://api.example.com/v1/\"\nkey = \"tours\"";
    let booking = Config::load(&file(toml))
        .unwrap()
        .integrations
        .booking
        .unwrap();

    assert_eq!(
        (&*booking.key, &*booking.base_url, &*booking.probe_path),
        ("tours", "https://api.example.com/v1", "/companies/")
    );

    let variable = (
        "TRUNKLINE__INTEGRATIONS__BOOKING__BASE_URL",
        "http://127.0.0.1:7",
    );
    let booking = Config::load(&variables(&[variable]))
        .unwrap()
        .integrations
        .booking;

    assert_eq!(&*booking.unwrap().base_url, "http://127.0.0.1:7");
}

#[test]
fn faults_of_an_inner_section_have_its_whole_name() {
    let toml = "[integrations.booking]\nbase_url = \"x\"\nprobe_path = \"y\"\nuser_key_header = \"a b\"\ncolour = 1\n[integrations.other]\nz = 1";
    let faults = faults(&file(toml)).join("\n");
    for expected in [
        "integrations.booking.base_url: \"x\" is not an http:// or https:// address",
        "integrations.booking.probe_path: \"y\" is not a path that begins with a slash",
        "integrations.booking.user_key_header: \"a b\" is not a header name",
        "t.toml:5: integrations.booking.colour: is not a key of Trunkline",
        "integrations.other: is not a key of Trunkline",
    ] {
        assert!(faults.contains(expected), "{expected}\n{faults}");
    }
}

#[test]
fn a_verification_trunk_needs_a_host_and_a_number() {
    let toml = "[phone.verification_trunk]\nhost = \"sip.example.com:5070\"\ncaller_number = \"+442079460000\"\ntransport = \"tcp\"\n\
                username = \"u\"\npassword = \"p\"";
    let phone = Config::load(&file(toml)).unwrap().phone;
    assert!(!phone.speaks_codes(), "no prefix is configured");
    let with_prefixes = format!("{toml}\nprefixes = [\"+44\", \"+1212\"]");
    let phone = Config::load(&file(&with_prefixes)).unwrap().phone;
    assert!(phone.speaks_codes());
    let trunk = phone.verification_trunk.expect("there is one");
    for (number, may_be_called) in [
        ("+442079460123", true),
        ("+12125550100", true),
        ("+13055550100", false),
    ] {
        let number = trunkline_routing::E164::parse(number).unwrap();
        assert_eq!(trunk.allows(number), may_be_called, "{number}");
    }
    assert_eq!((&*trunk.host, trunk.port), ("sip.example.com", Some(5070)));
    assert_eq!(trunk.caller_number.as_str(), "+442079460000");
    assert!(!format!("{trunk:?}").contains("\"p\""));
    assert_eq!(
        Config::load(&file("")).unwrap().phone.verification_trunk,
        None
    );
    for (toml, expected) in [
        (
            "caller_number = \"+442079460000\"",
            "phone.verification_trunk.host: is needed",
        ),
        (
            "host = \"sip.example.com\"",
            "phone.verification_trunk.caller_number: is needed",
        ),
        (
            "host = \"a\"\ncaller_number = \"442079460000\"",
            "phone.verification_trunk.caller_number: is needed",
        ),
        (
            "host = \"a\"\ncaller_number = \"+442079460000\"\nusername = \"u\"",
            "phone.verification_trunk.password: is needed with username",
        ),
        (
            "prefixes = [\"+44\"]",
            "phone.verification_trunk.host: is needed",
        ),
        (
            "host = \"a\"\ncaller_number = \"+442079460000\"\nprefixes = [\"44\"]",
            "phone.verification_trunk.prefixes[0]: \"44\" is not a number prefix",
        ),
        (
            "host = \"a\"\ncaller_number = \"+442079460000\"\ncolour = 1",
            "phone.verification_trunk.colour: is not a key of Trunkline",
        ),
    ] {
        let faults = faults(&file(&format!("[phone.verification_trunk]\n{toml}"))).join("\n");
        assert!(faults.contains(expected), "{expected}\n{faults}");
    }
}

#[test]
fn certificates_are_for_named_hosts() {
    use super::named_host;

    let named = named_host("https://api.example.com:8443/x");
    assert_eq!(named, Some("api.example.com"));
    assert_eq!(named_host("http://127.0.0.1:8080"), None);
}

#[test]
fn a_fault_in_quickstarts_file_is_a_fault() {
    let base = |text: &str| Sources {
        base: Some((PathBuf::from("data/quickstart.toml"), text.to_owned())),
        ..file("[sip]\nnode = 3\n")
    };
    let found = faults(&base("[sip]\ntrusted_runtimes = [\n"));
    let [fault] = found.as_slice() else {
        panic!("{found:?}");
    };
    assert!(fault.starts_with("data/quickstart.toml:"), "{fault}");
    assert!(fault.contains("is not valid TOML"), "{fault}");

    let found = faults(&base("[sip]\ntrusted_runtimes = [\"a b\"]\n"));
    assert!(
        found[0].starts_with("data/quickstart.toml:2: sip.trusted_runtimes"),
        "{found:?}"
    );

    let config = Config::load(&base("[sip]\nnode = 9\nshards = 2\n")).unwrap();
    assert_eq!((config.sip.node, config.sip.shards), (3, 2));
}

#[test]
fn a_listener_advertises_a_text() {
    let listener = |advertise: &str| {
        file(&format!(
            "[sip]\nudp = [{{ listen = \"0.0.0.0:5060\", advertise = {advertise} }}]\n"
        ))
    };
    assert_eq!(faults(&listener("\"sip.example.com\"")), [""; 0]);

    let found = faults(&listener("5070"));
    assert!(found[0].contains("`advertise` must be text"), "{found:?}");
}

#[test]
fn only_names_have_to_be_in_a_certificate() {
    for (url, name) in [
        (
            "https://voice.example.com:8443/x",
            Some("voice.example.com"),
        ),
        ("https://192.0.2.1", None),
        ("https://[2001:db8::1]:8443", None),
    ] {
        assert_eq!(named_host(url), name, "{url}");
    }
}

/// Any value is ignored, also one that no key of the section could have had.
#[test]
fn each_removed_key_warns_once_and_is_no_fault() {
    for (key, in_force) in removed::REMOVED {
        let (section, name) = key.rsplit_once('.').expect("a section");
        for value in ["1", "\"x\"", "[]", "{ a = 1 }"] {
            let config = Config::load(&file(&format!("[{section}]\n{name} = {value}\n")));
            let config = config.unwrap_or_else(|faults| panic!("{key} = {value}: {faults}"));
            let said: Vec<_> = config.removed.iter().map(RemovedKey::to_string).collect();
            let line = format!("t.toml:2: {key} is no key any more: {in_force}");
            assert_eq!(said, [line], "{value}");
        }
    }
}

#[test]
fn a_removed_key_is_named_with_the_place_that_sets_it() {
    let mut sources = file("[sip]\nt2_ms = 200\nnode = 3\n");
    sources.variables = vec![("TRUNKLINE__WIDGET__TOKEN_LIFETIME_S".into(), "never".into())];
    sources.flags = vec![Override {
        key: "sip.min_se_s".into(),
        value: "120".into(),
        flag: "--set sip.min_se_s".into(),
    }];

    let config = Config::load(&sources).unwrap();
    assert_eq!(config.sip.node, 3);
    let said: Vec<_> = config.removed.iter().map(RemovedKey::to_string).collect();
    insta::assert_snapshot!(said.join("\n"), @r"
    --set sip.min_se_s: sip.min_se_s is no key any more: the shortest session interval that is taken is 90 s
    t.toml:2: sip.t2_ms is no key any more: T2 is 4 s
    environment variable TRUNKLINE__WIDGET__TOKEN_LIFETIME_S: widget.token_lifetime_s is no key any more: the token of a widget's visitor is good for 86400 s
    ");

    sources.flags[0].key = "sip.relm".into();
    let faults = Config::load(&sources).unwrap_err();
    assert_eq!((faults.faults.len(), faults.removed.len()), (1, 2));
}
