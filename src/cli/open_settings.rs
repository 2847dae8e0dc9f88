//! Checks of settings alone: what they leave open to tenants, and what they keep from working. The doctor shows the findings, and the daemon
//! logs them when it starts.

use trunkline_routing::tariff::calling_code;

use crate::config::{Config, QUICKSTART_FILE};
use crate::explain::finding::Finding;

/// Examines the configuration of an installation with so many orgs.
pub(super) fn examine(config: &Config, orgs: usize) -> Vec<Finding> {
    let found = [quickstart(config, orgs), verification(config)];
    found.into_iter().flatten().collect()
}

/// quickstart opens loopback and the LAN for the org that it makes. Once there is another org, its customer can name them too.
fn quickstart(config: &Config, orgs: usize) -> Option<Finding> {
    if config.quickstart_keys.is_empty() || orgs < 2 {
        return None;
    }

    let keys = config.quickstart_keys.join(" and ");
    let file = config.data_dir.join(QUICKSTART_FILE);
    let closed: Vec<String> = config
        .quickstart_keys
        .iter()
        .map(|key| format!("{key} = []"))
        .collect();
    Some(Finding::warning(
        "quickstart",
        format!(
            "{} sets {keys} for a first call on this machine, and there are {orgs} orgs: all of them may have Trunkline call this machine's own \
             addresses and its LAN, and their runtimes there get session tokens.",
            file.display()
        ),
        format!(
            "Set in trunkline.toml what your orgs need, or nothing: {}. Or delete the file.",
            closed.join(", ")
        ),
    ))
}

/// The operator pays for calls that speak a code, so none is placed before the operator has said to which numbers.
fn verification(config: &Config) -> Option<Finding> {
    let trunk = config.phone.verification_trunk.as_ref()?;
    if !trunk.prefixes.is_empty() {
        return None;
    }
    let country = calling_code(&trunk.caller_number).unwrap_or("44");
    Some(Finding::warning(
        "verification_prefixes",
        "phone.verification_trunk has no prefixes: no number can be verified by a call that speaks a code (409 no_verification_route).",
        format!(
            "Add the countries that you pay calls to: phone.verification_trunk.prefixes = [\"+{country}\"]"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::config::Sources;

    const FROM_QUICKSTART: &str = "[sip]\nallow_private_peers = [\"127.0.0.0/8\", \"192.168.0.0/16\"]\ntrusted_runtimes = [\"127.0.0.0/8\"]\n";

    fn found(base: &str, file: &str, orgs: usize) -> Vec<Finding> {
        let source = |name: &str, text: &str| Some((PathBuf::from(name), text.to_owned()));
        let sources = Sources {
            base: source("trunkline-data/quickstart.toml", base),
            file: source("trunkline.toml", file),
            ..Sources::default()
        };
        examine(&Config::load(&sources).unwrap(), orgs)
    }

    #[test]
    fn what_quickstart_opened_is_reported_once_there_is_another_org() {
        let own = "[sip]\nallow_private_peers = []\n";
        for (case, base, file, orgs, keys) in [
            ("one org", FROM_QUICKSTART, "", 1, None),
            ("no file of quickstart's", "", FROM_QUICKSTART, 2, None),
            (
                "two orgs",
                FROM_QUICKSTART,
                "",
                2,
                Some("allow_private_peers and sip.trusted_runtimes"),
            ),
            (
                "one key is the operator's",
                FROM_QUICKSTART,
                own,
                2,
                Some("sets sip.trusted_runtimes for"),
            ),
        ] {
            let found = found(base, file, orgs);
            let text = found.first().map(|finding| finding.text.as_str());
            match keys {
                None => assert_eq!(text, None, "{case}"),
                Some(keys) => assert!(
                    text.is_some_and(|text| text.contains(keys)),
                    "{case}: {text:?}"
                ),
            }
        }
    }

    #[test]
    fn a_verification_trunk_without_prefixes_is_reported_with_the_line() {
        let trunk = "[phone.verification_trunk]\nhost = \"sip.example.com\"\ncaller_number = \"+493012345678\"\n";
        let without = found("", trunk, 1).remove(0);
        let line = "phone.verification_trunk.prefixes = [\"+49\"]";
        assert!(without.fix.is_some_and(|fix| fix.ends_with(line)));
        let with = format!("{trunk}prefixes = [\"+49\"]\n");
        assert_eq!(found("", &with, 1), []);
    }
}
