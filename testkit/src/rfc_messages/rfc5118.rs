//! Our messages for the cases of RFC 5118 §4. The comment of each function names the trap.

use super::draft::{Build, Draft, OFFER};

/// Cases of RFC 5118 §4, in its order.
pub(super) const CASES: [(&str, Build); 12] = [
    ("ipv6-good", ipv6_good),
    ("ipv6-bad", ipv6_bad),
    ("port-ambiguous", port_ambiguous),
    ("port-unambiguous", port_unambiguous),
    ("via-received-param-with-delim", received_with_brackets),
    ("via-received-param-no-delim", received_without_brackets),
    ("ipv6-in-sdp", ipv6_in_sdp),
    ("mult-ip-in-header", both_families_in_vias),
    ("mult-ip-in-sdp", both_families_in_sdp),
    ("ipv4-mapped-ipv6", ipv4_mapped),
    ("ipv6-bug-abnf-3-colons", three_colons),
    ("ipv6-correct-abnf-2-colons", two_colons),
];

/// A plain request whose Via has an IPv6 address.
fn over_ipv6(name: &str, method: &str, uri: &str) -> Draft {
    Draft::request(name, method, uri).set(&format!(
        "Via: SIP/2.0/UDP [2001:db8::7:1];branch=z9hG4bK-{name}"
    ))
}

/// RFC 5118 §4.1: IPv6 references in Request-URI, Via and Contact.
fn ipv6_good(name: &str) -> Vec<u8> {
    over_ipv6(name, "REGISTER", "sip:[2001:db8::7]")
        .with("Contact: \"Q\" <sip:quentin@[2001:db8::8]>")
        .octets()
}

/// RFC 5118 §4.2: an IPv6 address without brackets, which no parser can tell from a host with a port.
fn ipv6_bad(name: &str) -> Vec<u8> {
    over_ipv6(name, "REGISTER", "sip:2001:db8::7").octets()
}

/// RFC 5118 §4.3: a port inside the brackets by mistake, so that it is the last part of the address.
fn port_ambiguous(name: &str) -> Vec<u8> {
    over_ipv6(name, "REGISTER", "sip:[2001:db8::7:5080]").octets()
}

/// RFC 5118 §4.4: the port behind the brackets.
fn port_unambiguous(name: &str) -> Vec<u8> {
    over_ipv6(name, "REGISTER", "sip:[2001:db8::7]:5080").octets()
}

/// RFC 5118 §4.5: `received` with brackets, against the grammar of RFC 3261. The BYE is of no dialog.
fn received_with_brackets(name: &str) -> Vec<u8> {
    over_ipv6(name, "BYE", "sip:[2001:db8::7]")
        .set("To: <sip:desk@example.net>;tag=of-no-dialog")
        .set(&format!(
            "Via: SIP/2.0/UDP [2001:db8::7:1];received=[2001:db8::7:2];branch=z9hG4bK-{name}"
        ))
        .octets()
}

/// RFC 5118 §4.5: `received` without brackets, as the grammar has it.
fn received_without_brackets(name: &str) -> Vec<u8> {
    over_ipv6(name, "OPTIONS", "sip:[2001:db8::7]")
        .set(&format!(
            "Via: SIP/2.0/UDP [2001:db8::7:1];received=2001:db8::7:2;branch=z9hG4bK-{name}"
        ))
        .octets()
}

/// RFC 5118 §4.6: IPv6 addresses in the SDP, without brackets there.
fn ipv6_in_sdp(name: &str) -> Vec<u8> {
    let offer = OFFER.replace("IP4 192.0.2.7", "IP6 2001:db8::7");
    over_ipv6(name, "INVITE", "sip:desk@[2001:db8::9]")
        .with("Contact: <sip:quentin@[2001:db8::8]>")
        .body("application/sdp", offer)
        .octets()
}

/// RFC 5118 §4.7: addresses of both families in the Vias. The BYE is of no dialog.
fn both_families_in_vias(name: &str) -> Vec<u8> {
    Draft::request(name, "BYE", "sip:desk@example.net")
        .set("To: <sip:desk@example.net>;tag=of-no-dialog")
        .set(&format!(
            "Via: SIP/2.0/UDP [2001:db8::7:1]:6080;branch=z9hG4bK-{name}"
        ))
        .with("Via: SIP/2.0/UDP 192.0.2.7;branch=z9hG4bK-second")
        .with("Via: SIP/2.0/TCP [2001:db8::7:2];branch=z9hG4bK-third;received=192.0.2.8")
        .octets()
}

/// RFC 5118 §4.8: media of both families in one offer.
fn both_families_in_sdp(name: &str) -> Vec<u8> {
    let offer = "v=0\r\no=- 1 1 IN IP4 pbx.example.org\r\ns=-\r\nt=0 0\r\nm=audio 30000 RTP/AVP 0\r\nc=IN IP4 192.0.2.7\r\nm=video 30002 RTP/AVP 99\r\nc=IN IP6 2001:db8::7\r\na=rtpmap:99 H264/90000\r\n";
    over_ipv6(name, "INVITE", "sip:desk@[2001:db8::9]")
        .with("Contact: <sip:quentin@[2001:db8::8]>")
        .body("application/sdp", offer)
        .octets()
}

/// RFC 5118 §4.9: IPv4-mapped IPv6 addresses in Vias, Contact and SDP.
fn ipv4_mapped(name: &str) -> Vec<u8> {
    let offer = OFFER.replace("IP4 192.0.2.7", "IP6 ::ffff:192.0.2.7");
    Draft::invite(name)
        .set(&format!(
            "Via: SIP/2.0/UDP [::ffff:192.0.2.8]:19842;branch=z9hG4bK-{name}"
        ))
        .with("Via: SIP/2.0/UDP [::ffff:192.0.2.7];branch=z9hG4bK-second")
        .set("Contact: <sip:quentin@[::ffff:192.0.2.7]>")
        .body("application/sdp", offer)
        .octets()
}

/// RFC 5118 §4.10: three colons in a row, which the grammar of RFC 3261 allows by mistake.
fn three_colons(name: &str) -> Vec<u8> {
    Draft::request(name, "OPTIONS", "sip:desk@[2001:db8:::192.0.2.7]")
        .set("To: <sip:desk@[2001:db8:::192.0.2.7]>")
        .octets()
}

/// RFC 5118 §4.10: two colons, as RFC 5954 corrects the grammar.
fn two_colons(name: &str) -> Vec<u8> {
    Draft::request(name, "OPTIONS", "sip:desk@[2001:db8::192.0.2.7]")
        .set("To: <sip:desk@[2001:db8::192.0.2.7]>")
        .octets()
}
