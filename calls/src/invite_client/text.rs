//! Words of an INVITE that its peer and its purpose decide. Call-ID, CSeq, tag, session and credentials are the client's.

use trunkline_sip::wire::print::Head;

use crate::proofs::Proofs;
use crate::target::Target;

/// Words of an INVITE.
pub(crate) trait InviteText {
    /// Max-Forwards.
    fn hops(&self) -> u8;
    /// From without its tag; `own_host` is our own on the flow that it leaves by.
    fn from(&self, own_host: &str) -> Vec<u8>;
    /// To.
    fn to(&self) -> Vec<u8>;
    /// Methods for this peer.
    fn allow(&self) -> &'static [u8];
    /// Extensions.
    fn supported(&self) -> &'static [u8];
    /// Writes all further lines, and `said` among them.
    fn write_rest(&self, head: &mut Head<'_>, said: &Said<'_>);
    /// The SDP, or what else the body is.
    fn body(&self) -> &[u8];
}

/// Parts of an INVITE that the client has decided.
#[derive(Debug)]
pub(crate) struct Said<'a> {
    /// From without its tag.
    pub(crate) from: &'a [u8],
    pub(crate) target: &'a Target,
    /// Authorization and Proxy-Authorization, to be written at their place.
    pub(crate) proofs: &'a Proofs,
}
