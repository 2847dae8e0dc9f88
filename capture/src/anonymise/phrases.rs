//! Phrases that name nobody: the standard reason phrases of SIP, the standard texts of Warning (RFC 3261 §20.43), and the names of causes
//! in ISDN (ITU-T Q.850), as servers write them in a Reason header.

use trunkline_sip::wire::print::reason_phrase;

const PHRASES: [&str; 62] = [
    // Warning.
    "Incompatible network protocol",
    "Incompatible network address formats",
    "Incompatible transport protocol",
    "Incompatible bandwidth units",
    "Media type not available",
    "Incompatible media format",
    "Attribute not understood",
    "Session description parameter not understood",
    "Multicast not available",
    "Unicast not available",
    "Insufficient bandwidth",
    "SIPS Not Allowed",
    "SIPS Required",
    // Reason.
    "Call completed elsewhere",
    "Preemption",
    "Session timer expired",
    "RTP Timeout",
    "Request Timeout",
    "Timeout",
    "Unallocated number",
    "No route to specified transit network",
    "No route to destination",
    "Send special information tone",
    "Channel unacceptable",
    "Normal clearing",
    "Normal call clearing",
    "User busy",
    "No user responding",
    "No user response",
    "No answer from user",
    "No answer",
    "Subscriber absent",
    "Call rejected",
    "Number changed",
    "Redirection to new destination",
    "Exchange routing error",
    "Non-selected user clearing",
    "Destination out of order",
    "Invalid number format",
    "Facility rejected",
    "Response to STATUS ENQUIRY",
    "Normal, unspecified",
    "Normal unspecified",
    "No circuit/channel available",
    "Network out of order",
    "Normal temporary failure",
    "Temporary failure",
    "Switching equipment congestion",
    "Access information discarded",
    "Requested circuit/channel not available",
    "Resource unavailable, unspecified",
    "Bearer capability not authorized",
    "Bearer capability not presently available",
    "Bearer capability not implemented",
    "Service or option not available, unspecified",
    "Service or option not implemented, unspecified",
    "Incompatible destination",
    "Recovery on timer expiry",
    "Protocol error, unspecified",
    "Interworking, unspecified",
    "Originator cancel",
    "Attended transfer",
];

/// Returns whether a text is one of `own`, or a standard phrase, whatever its case, with `_` or blanks between its words.
pub(super) fn is_impersonal_phrase(text: &str, own: &[&'static str]) -> bool {
    let text = text.trim();
    let words = text.replace('_', " ");
    let mut standard = (100..700).map(reason_phrase).chain(PHRASES);
    own.contains(&text) || standard.any(|phrase| phrase.eq_ignore_ascii_case(&words))
}
