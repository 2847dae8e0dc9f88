//! Table of the treatment of each header and parameter.

/// Treatment of a header's value.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Treatment {
    /// Names and URIs are replaced.
    Address,
    /// Only addresses are replaced.
    Protocol,
    /// A protocol and parameters (RFC 3326).
    Reason,
    /// The name of a program, which may contain a hardware address.
    Program,
    Via,
    CallId,
    Digest,
    Warning,
    /// A phrase or code, which stays if it names nobody.
    Phrase,
    /// Letters and digits are blanked.
    Blank,
}

const ADDRESS: [&str; 16] = [
    "From",
    "To",
    "Contact",
    "P-Asserted-Identity",
    "P-Preferred-Identity",
    "P-Called-Party-ID",
    "Remote-Party-ID",
    "Diversion",
    "History-Info",
    "Refer-To",
    "Referred-By",
    "Reply-To",
    "Route",
    "Record-Route",
    "Path",
    "Service-Route",
];
const PROTOCOL: [&str; 31] = [
    "CSeq",
    "Max-Forwards",
    "Content-Length",
    "Content-Type",
    "Content-Disposition",
    "Content-Encoding",
    "Content-Language",
    "Allow",
    "Supported",
    "Require",
    "Proxy-Require",
    "Unsupported",
    "Session-Expires",
    "Min-SE",
    "Expires",
    "Min-Expires",
    "RSeq",
    "RAck",
    "Date",
    "Accept",
    "Accept-Encoding",
    "Accept-Language",
    "Event",
    "Allow-Events",
    "Subscription-State",
    "Retry-After",
    "Timestamp",
    "MIME-Version",
    "Privacy",
    "Refer-Sub",
    "P-Early-Media",
];

/// Returns the treatment of a header; an unknown one is blanked.
pub(super) fn treatment(name: &str) -> Treatment {
    if is_in(&ADDRESS, name) {
        Treatment::Address
    } else if is_in(&PROTOCOL, name) {
        Treatment::Protocol
    } else if is_in(&["Reason"], name) {
        Treatment::Reason
    } else if is_in(&["User-Agent", "Server"], name) {
        Treatment::Program
    } else if is_in(&["Via"], name) {
        Treatment::Via
    } else if is_in(
        &["Call-ID", "Replaces", "In-Reply-To", "Target-Dialog"],
        name,
    ) {
        Treatment::CallId
    } else if is_in(
        &[
            "Authorization",
            "Proxy-Authorization",
            "WWW-Authenticate",
            "Proxy-Authenticate",
        ],
        name,
    ) {
        Treatment::Digest
    } else if is_in(&["Warning"], name) {
        Treatment::Warning
    } else if is_in(&["X-Trunkline-Reason"], name) {
        Treatment::Phrase
    } else {
        Treatment::Blank
    }
}

/// Parameters of URIs and headers whose values identify nobody.
const PARAMETERS: [&str; 34] = [
    "alias",
    "branch",
    "cause",
    "counter",
    "early-only",
    "expires",
    "from-tag",
    "ftag",
    "index",
    "limit",
    "line",
    "local-tag",
    "lr",
    "method",
    "nat",
    "ob",
    "outbound",
    "party",
    "privacy",
    "q",
    "r2",
    "reason",
    "refresher",
    "reg-id",
    "remote-tag",
    "rinstance",
    "rport",
    "screen",
    "tag",
    "to-tag",
    "transport",
    "ttl",
    "user",
    "x-nat",
];

/// Returns whether a parameter's value identifies nobody.
pub(super) fn is_impersonal(parameter: &str) -> bool {
    is_in(&PARAMETERS, parameter)
}

/// Returns whether a list has a name, ignoring case.
pub(super) fn is_in(names: &[&str], name: &str) -> bool {
    names.iter().any(|known| known.eq_ignore_ascii_case(name))
}
