//! `[integrations.booking]`: the tour-booking platform that orgs connect to.

use super::http::base_url;
use super::section::Section;

/// Services of third parties.
#[derive(Clone, Debug)]
pub struct IntegrationsConfig {
    /// The booking platform, if this deployment has one.
    pub booking: Option<BookingConfig>,
}

/// Booking platform. Its credentials are checked when an org is created.
#[derive(Clone, Debug)]
pub struct BookingConfig {
    /// Key of the platform in an org's integrations.
    pub key: Box<str>,
    /// Base URL of its API, without a trailing slash.
    pub base_url: Box<str>,
    /// Path of the request that checks credentials: it lists the companies that they give access to.
    pub probe_path: Box<str>,
    /// Name of the header with the application key.
    pub app_key_header: Box<str>,
    /// Name of the header with the user key.
    pub user_key_header: Box<str>,
}

impl IntegrationsConfig {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let mut booking = section.inner("booking", "integrations.booking");
        let read = BookingConfig::read(&mut booking);
        section.faults.extend(booking.finish());
        Self { booking: read }
    }
}

impl BookingConfig {
    /// URL of the request that checks credentials.
    pub fn probe(&self) -> String {
        format!("{}{}", self.base_url, self.probe_path)
    }

    /// Reads the section; `None` without a base URL.
    fn read(section: &mut Section<'_>) -> Option<Self> {
        let address = base_url(section, "base_url");
        // All keys are read, even without a base URL: one that isn't read is reported as unknown.
        let booking = Self {
            key: section.text("key").as_deref().unwrap_or("booking").into(),
            base_url: address.clone().unwrap_or_default(),
            probe_path: probe_path(section),
            app_key_header: header(section, "app_key_header", "X-API-App"),
            user_key_header: header(section, "user_key_header", "X-API-User"),
        };

        if address.is_some() && booking.probe().parse::<axum::http::Uri>().is_err() {
            section.refuse_key(
                "base_url",
                format!("{:?} is not a URL that can be requested", booking.probe()),
            );
        }

        address.map(|_| booking)
    }
}

fn probe_path(section: &mut Section<'_>) -> Box<str> {
    let path = section.text("probe_path");
    let path = path.unwrap_or_else(|| "/companies/".to_owned());
    let visible = path.bytes().all(|octet| octet.is_ascii_graphic());
    if !path.starts_with('/') || !visible || path.contains('#') {
        section.refuse_key(
            "probe_path",
            format!("{path:?} is not a path that begins with a slash"),
        );
    }
    path.into()
}

/// Reads the name of a header (RFC 9110 §5.1).
fn header(section: &mut Section<'_>, key: &'static str, usual: &str) -> Box<str> {
    let name = section.text(key);
    let name = name.unwrap_or_else(|| usual.to_owned());
    let token = |octet: u8| octet.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&octet);
    if !name.bytes().all(token) {
        section.refuse_key(key, format!("{name:?} is not a header name"));
    }
    name.into()
}
