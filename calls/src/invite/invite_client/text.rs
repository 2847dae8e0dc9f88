//! Parts of an INVITE that depend on its peer and its purpose. The client sets Call-ID, CSeq, tag, session and credentials.

use trunkline_sip::wire::print::Head;

use crate::core::traced::SecretHeaders;
use crate::parts::target::Target;
use crate::trust::digest_answers::DigestAnswers;

/// Text of an INVITE.
pub(crate) trait InviteText {
    /// Max-Forwards.
    fn hops(&self) -> u8;
    /// From without its tag; `own_host` is our host on the flow of the INVITE.
    fn from(&self, own_host: &str) -> Vec<u8>;
    /// To.
    fn to(&self) -> Vec<u8>;
    /// Methods for this peer.
    fn allow(&self) -> &'static [u8];
    /// Extensions.
    fn supported(&self) -> &'static [u8];
    /// Writes all further lines, among them those of `said`.
    fn write_rest(&self, head: &mut Head<'_>, said: &ClientParts<'_>);
    /// The body: in most cases an SDP.
    fn body(&self) -> &[u8];
    /// Headers among those lines that may be credentials.
    fn secrets(&self) -> SecretHeaders {
        SecretHeaders::default()
    }
}

/// Parts of an INVITE set by the client.
#[derive(Debug)]
pub(crate) struct ClientParts<'a> {
    /// From without its tag.
    pub(crate) from: &'a [u8],
    pub(crate) target: &'a Target,
    /// Authorization and Proxy-Authorization, to be written at their position.
    pub(crate) digest_answers: &'a DigestAnswers,
}
