//! RTCP of a call: reports from its peer, and reports to it (RFC 3550 §6).

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use trunkline_sip::moment::Moment;

use super::super::rtcp::{MAX_REPORT, Rtcp, Sent};
use super::Call;

impl Call {
    /// Returns the address that RTCP of this many octets may be sent to: that of the peer, unless it is a listener of this node.
    /// The echo agent may send no more octets than it has received and not returned, so its RTCP comes out of that surplus.
    fn report_target(
        &self,
        octets: usize,
        is_listener: impl Fn(SocketAddr) -> bool,
    ) -> Option<SocketAddr> {
        let may_send = match self.is_echo() {
            true => self.surplus.covers(octets),
            false => self.is_started && (self.had_bot() || self.player.is_some()),
        };
        let to = self.session.rtcp_peer();
        to.filter(|to| may_send && !is_listener(*to))
    }

    /// Sends the peer a report, if one is due.
    pub(in super::super) fn report(
        &mut self,
        is_listener: impl Fn(SocketAddr) -> bool,
        now: Moment,
    ) {
        let (ssrc, timestamp) = self.session.stream();
        if !self.rtcp.is_due(ssrc, now) {
            return;
        }
        // The report stays due, so each tick or packet asks again until there is an address.
        let Some(to) = self.report_target(MAX_REPORT, is_listener) else {
            return;
        };

        let sent = Sent {
            ssrc,
            timestamp,
            // Both wrap (RFC 3550 §6.4.1).
            packets: self.figures.packets_sent as u32,
            octets: self.figures.octets_sent as u32,
        };

        let received = self.reception.report();
        let mut octets = [0; MAX_REPORT];
        let length = self.rtcp.write(&mut octets, &sent, received.as_ref(), now);
        self.surplus.take(length);
        // The next report makes up for a lost one.
        let _ = self.rtcp_socket().send_to(&octets[..length], to);
    }

    /// Sends RTCP BYE (RFC 3550 §6.6), if the address of the peer is known.
    pub(super) fn say_goodbye(&self, is_listener: impl Fn(SocketAddr) -> bool) {
        let mut octets = [0; MAX_REPORT];
        let length = Rtcp::write_goodbye(&mut octets, self.session.stream().0);
        if let Some(to) = self.report_target(length, is_listener) {
            // A peer that doesn't get it still learns of the end by SIP.
            let _ = self.rtcp_socket().send_to(&octets[..length], to);
        }
    }

    fn rtcp_socket(&self) -> &UdpSocket {
        self.rtcp_socket.as_deref().unwrap_or(&self.socket)
    }

    /// Handles RTCP, if it is the peer's.
    pub(in super::super) fn receive_rtcp(
        &mut self,
        octets: &[u8],
        source: SocketAddr,
        now: Moment,
    ) {
        // Only the peer may say how it hears us: a forged report would spoil the record and earn the echo a surplus.
        let is_peer = self.session.hears_rtcp(source);
        // Without audio it still shows that the peer listens.
        let was_silent = self.session.is_silent();
        self.session.notice(octets, source, now);
        self.end_silence(was_silent);
        if is_peer {
            let (ssrc, _) = self.session.stream();
            self.surplus.add(octets.len());
            self.rtcp.hear(octets, ssrc, now);
            self.figures.round_trip = self.rtcp.round_trip();
            self.figures.reported = self.rtcp.reported();
        }
    }

    /// Returns the socket of RTCP, if the call has one.
    pub(in super::super) const fn rtcp(&self) -> Option<&Arc<UdpSocket>> {
        self.rtcp_socket.as_ref()
    }

    /// Sets the socket of RTCP.
    pub(in super::super) fn set_rtcp(&mut self, socket: Option<Arc<UdpSocket>>) {
        self.rtcp_socket = socket;
    }
}
