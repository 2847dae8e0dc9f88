//! Reasons of failed TLS handshakes with peers that this node calls, in words, and a limit of one log line per hour for the same reason.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::{CertificateError, Error as TlsError};
use trunkline_sip::header::text::printable;
use trunkline_sip::moment::Moment;

/// Interval between two log lines for the same peer and reason.
const AGAIN: Duration = Duration::from_secs(3_600);
/// Most peers and reasons that are remembered. While as many are, further failures aren't logged.
const MOST: usize = 1_024;
/// Most characters of a reason, since the peer chooses the names in its certificate.
const LONGEST: usize = 200;

/// Returns the reason of a failed handshake with a peer that had to prove `name`.
pub(super) fn reason(error: &io::Error, name: &str) -> Arc<str> {
    let inner = error.get_ref();
    let tls = inner.and_then(|inner| inner.downcast_ref::<TlsError>());
    let reason = match tls {
        Some(TlsError::InvalidCertificate(fault)) => certificate(fault, name),
        Some(TlsError::AlertReceived(alert)) => format!("it refuses with the alert {alert:?}"),
        Some(fault) => format!("the handshake failed: {fault}"),
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            "it closed the connection during the handshake".to_owned()
        }
        None => error.to_string(),
    };

    let shown: String = printable(&reason).chars().take(LONGEST).collect();
    shown.into()
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the library adds faults")]
fn certificate(fault: &CertificateError, name: &str) -> String {
    match fault {
        CertificateError::NotValidForName => {
            format!("its certificate doesn't prove {name}")
        }
        CertificateError::NotValidForNameContext { presented, .. } if presented.is_empty() => {
            format!("its certificate doesn't prove {name}")
        }
        CertificateError::NotValidForNameContext { presented, .. } => {
            // rustls writes names as in `DnsName("a.example")`.
            let name_alone = |name: &String| {
                let inner = name.split_once('(').map_or(&**name, |(_, inner)| inner);
                inner.trim_end_matches(')').trim_matches('"').to_owned()
            };
            let names: Vec<_> = presented.iter().map(name_alone).collect();
            let names = names.join(", ");
            format!("its certificate doesn't prove {name}: it is for {names}")
        }

        CertificateError::UnknownIssuer => {
            "its certificate comes from an authority that isn't trusted here".to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate isn't valid yet".to_owned()
        }
        other => format!("its certificate can't be verified: {other}"),
    }
}

/// Peers that failed verification, each with the time of its last log line.
#[derive(Debug, Default)]
pub(super) struct Unverified(Mutex<HashMap<(SocketAddr, Arc<str>), Moment>>);

impl Unverified {
    /// Returns true if this failure has to be logged, and records that it was logged. False while too many others are remembered.
    pub(super) fn is_news(&self, peer: SocketAddr, reason: &Arc<str>, now: Moment) -> bool {
        let Self(said) = self;
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() >= MOST {
            said.retain(|_, at| now.since(*at) < AGAIN);
        }
        let known = said.get(&(peer, Arc::clone(reason)));
        if known.is_some_and(|at| now.since(*at) < AGAIN) || said.len() >= MOST {
            return false;
        }
        said.insert((peer, Arc::clone(reason)), now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_says_the_same_once_an_hour() {
        let unverified = Unverified::default();
        let (one, two) = (([192, 0, 2, 1], 5061).into(), ([192, 0, 2, 2], 5061).into());
        let start = Moment::from_secs(1_790_000_000);
        let (wrong, old): (Arc<str>, Arc<str>) = ("wrong".into(), "old".into());
        for (case, peer, reason, after, expected) in [
            ("the first time", one, &wrong, 0, true),
            ("again", one, &wrong, 30, false),
            ("another reason", one, &old, 30, true),
            ("another peer", two, &wrong, 30, true),
            ("just before an hour", one, &wrong, 3_599, false),
            ("an hour later", one, &wrong, 3_600, true),
        ] {
            let now = start + Duration::from_secs(after);
            assert_eq!(unverified.is_news(peer, reason, now), expected, "{case}");
        }
    }

    #[test]
    fn a_reason_names_what_the_certificate_is_for() {
        let wrong = CertificateError::NotValidForNameContext {
            expected: rustls::pki_types::ServerName::try_from("a.test").expect("a name"),
            presented: vec!["DnsName(\"b.test\")".to_owned(), "x\r\ny".to_owned()],
        };
        let fault = io::Error::other(TlsError::InvalidCertificate(wrong));
        let said = reason(&fault, "a.test");
        let expected = "its certificate doesn't prove a.test: it is for b.test, x\\r\\ny";
        assert_eq!(&*said, expected);
        let endless = io::Error::other("x".repeat(1_000));
        assert_eq!(reason(&endless, "a.test").len(), LONGEST);
    }
}
