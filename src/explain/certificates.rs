//! Checks of TLS certificates: they can be read, match the dialled names, and don't expire soon.

use std::path::Path;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use trunkline_sip::moment::Moment;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::explain::finding::Finding;

const DAY_S: i64 = 86_400;
/// Days of validity below which there is a warning, and below which there is a hint.
const SOON: i64 = 14;
const WATCH: i64 = 30;

/// Examines the certificate in a file that a configuration key names. It has to cover `host`, the name that peers dial, if there is one.
pub fn examine(key: &str, file: &Path, host: Option<&str>, now: Moment) -> Finding {
    const CHECK: &str = "certificate";
    let read = std::fs::read(file).map_err(|error| error.to_string());
    let read = read.and_then(|pem| Facts::read(&pem));
    let facts = match read {
        Ok(facts) => facts,
        Err(fault) => {
            return Finding::error(
                CHECK,
                format!("{} ({key}) can't be used: {fault}.", file.display()),
                format!("Set {key} to a PEM file with the certificate chain."),
            );
        }
    };

    let today = i64::try_from(now.as_millis() / 1_000).unwrap_or(i64::MAX);
    // Rounded down, so that a certificate has -1 day from the first second after its end.
    let days = (facts.until - today).div_euclid(DAY_S);
    let shown = format!("{} ({key})", file.display());
    if facts.from > today {
        return Finding::error(
            CHECK,
            format!("{shown} isn't valid yet."),
            "Check this machine's clock, and the time from which the certificate is valid.",
        );
    }

    if days < 0 {
        return Finding::error(
            CHECK,
            format!("{shown} expired {} ago.", counted(-days)),
            "Renew it, then send the daemon SIGHUP.",
        );
    }

    if let Some(host) = host.filter(|host| !facts.names(host)) {
        return Finding::error(
            CHECK,
            format!(
                "{shown} isn't for {host}, but for {}.",
                facts.names.join(", ")
            ),
            format!("Get one that names {host}: peers that verify certificates refuse this one."),
        );
    }

    if days < SOON {
        return Finding::warning(
            CHECK,
            format!("{shown} expires in {}.", counted(days)),
            "Renew it, then send the daemon SIGHUP.",
        );
    }

    let text = format!("{shown} is valid for {}.", counted(days));
    if days < WATCH {
        Finding::hint(CHECK, text)
    } else {
        Finding::ok(CHECK, text)
    }
}

/// Checked properties of a certificate. Times are seconds since 1970.
struct Facts {
    from: i64,
    until: i64,
    names: Vec<String>,
}

impl Facts {
    fn read(pem: &[u8]) -> Result<Self, String> {
        let mut chain = CertificateDer::pem_slice_iter(pem);
        let first = chain.next().ok_or("it holds no certificate")?;
        let der = first.map_err(|error| error.to_string())?;
        let (_, read) = X509Certificate::from_der(&der).map_err(|error| error.to_string())?;
        let named = read.subject_alternative_name().ok().flatten();
        let names = named.iter().flat_map(|named| &named.value.general_names);
        let names = names.filter_map(|name| {
            if let GeneralName::DNSName(name) = name {
                Some((*name).to_owned())
            } else {
                None
            }
        });

        Ok(Self {
            from: read.validity().not_before.timestamp(),
            until: read.validity().not_after.timestamp(),
            names: names.collect(),
        })
    }

    /// Matches a host name; a wildcard matches one label (RFC 6125 §6.4).
    fn names(&self, host: &str) -> bool {
        self.names.iter().any(|name| match name.strip_prefix("*.") {
            Some(rest) => host
                .split_once('.')
                .is_some_and(|(_, parent)| parent.eq_ignore_ascii_case(rest)),
            None => name.eq_ignore_ascii_case(host),
        })
    }
}

fn counted(days: i64) -> String {
    match days {
        1 => "1 day".into(),
        days => format!("{days} days"),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::explain::finding::Level;

    /// Makes a certificate that is valid from 2026 to the end of 2029.
    fn pem() -> tempfile::NamedTempFile {
        let mut params = rcgen::CertificateParams::new(vec!["*.example.com".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        params.not_after = rcgen::date_time_ymd(2030, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        file.write_all(pem.as_bytes()).unwrap();
        file
    }

    #[test]
    fn days_and_names_are_told() {
        let file = pem();
        let day = |days: u64| Moment::from_secs(1_893_456_000 - days * 86_400); // before 2030-01-01

        for (case, host, now, level, text) in [
            (
                "good",
                Some("sip.example.com"),
                day(400),
                Level::Ok,
                "is valid for 400 days",
            ),
            (
                "another name",
                Some("sip.example.org"),
                day(400),
                Level::Error,
                "isn't for sip.example.org",
            ),
            (
                "two labels",
                Some("a.b.example.com"),
                day(400),
                Level::Error,
                "isn't for a.b.example.com",
            ),
            ("a month", None, day(29), Level::Hint, "29 days"),
            ("soon", None, day(3), Level::Warning, "expires in 3 days"),
            ("not yet", None, day(2_000), Level::Error, "isn't valid yet"),
            (
                "over",
                None,
                Moment::from_secs(1_893_456_000 + 90_000),
                Level::Error,
                "expired 2 days ago",
            ),
        ] {
            let found = examine("sip.tls_certificate", file.path(), host, now);
            assert_eq!(found.level, level, "{case}: {found}");
            assert!(found.text.contains(text), "{case}: {found}");
        }

        let nowhere = examine(
            "sip.tls_certificate",
            Path::new("/nowhere.pem"),
            None,
            day(1),
        );

        assert_eq!(nowhere.level, Level::Error);
    }
}
