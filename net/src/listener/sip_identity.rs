//! Verification of the peers that this node calls on TLS: as any certificate, and by SIP identities (RFC 5922 §7.1).

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error as TlsError, SignatureScheme};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Accepts what [`WebPkiServerVerifier`] accepts, and certificates whose only proof of the name is a `sip:` URI.
#[derive(Debug)]
pub(super) struct SipServerVerifier(pub(super) Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for SipServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        let Self(by_name) = self;
        let verified =
            by_name.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);

        // The name is checked last: a certificate that fails by it has a trusted issuer, and is valid now.
        let fails_by_name = matches!(
            verified,
            Err(TlsError::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
            ))
        );
        match fails_by_name && names_domain(end_entity, server_name) {
            true => Ok(ServerCertVerified::assertion()),
            false => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.0
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.0
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Returns whether a `sip:` URI among the certificate's names is that of the domain.
fn names_domain(certificate: &CertificateDer<'_>, name: &ServerName<'_>) -> bool {
    let ServerName::DnsName(domain) = name else {
        return false;
    };
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else {
        return false;
    };
    let Ok(Some(names)) = certificate.subject_alternative_name() else {
        return false;
    };
    let mut names = names.value.general_names.iter();
    names.any(|name| match name {
        GeneralName::URI(uri) => is_domain(uri, domain.as_ref()),
        GeneralName::OtherName(..)
        | GeneralName::RFC822Name(_)
        | GeneralName::DNSName(_)
        | GeneralName::X400Address(_)
        | GeneralName::DirectoryName(_)
        | GeneralName::EDIPartyName(_)
        | GeneralName::IPAddress(_)
        | GeneralName::RegisteredID(_)
        | GeneralName::Invalid(..) => false,
    })
}

/// RFC 5922 §7.1 and §7.2: scheme and host alone, compared without regard to case; a URI with a user names no domain, and there is no wildcard.
fn is_domain(uri: &str, domain: &str) -> bool {
    let Some((scheme, host)) = uri.split_once(':') else {
        return false;
    };
    scheme.eq_ignore_ascii_case("sip") && host.eq_ignore_ascii_case(domain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_is_that_of_a_domain_by_scheme_and_host() {
        for (uri, expected) in [
            ("sip:example.com", true),
            ("SIP:Example.COM", true),
            ("sip:other.example.com", false),
            ("sip:*.com", false),
            ("sip:user@example.com", false),
            ("sips:example.com", false),
            ("https:example.com", false),
            ("example.com", false),
            ("", false),
        ] {
            assert_eq!(is_domain(uri, "example.com"), expected, "{uri}");
        }
    }
}
