//! A peer that isn't there: audio that is withheld from it, a port that nobody has bound, and its silence.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use trunkline_sip::moment::Moment;

use super::Call;
use crate::media::timeline::MediaStepKind;

impl Call {
    /// Notes that a message with our tag has come from the IP address that signals.
    pub(in super::super) const fn prove(&mut self) {
        self.session.prove();
    }

    /// Notes that a packet to `address` came back, since no socket is bound there.
    pub(in super::super) fn note_unreachable(&mut self, address: SocketAddr, now: Moment) {
        if self.session.note_unreachable(address) {
            self.shared.note(MediaStepKind::Unreachable(address), now);
        }
    }

    /// Notes that audio of the agent isn't sent, once for each address.
    pub(super) fn note_withheld(&mut self, now: Moment) {
        let from = self.session.withholds_from();
        if let Some(address) = from.filter(|_| from != self.withheld_from) {
            self.withheld_from = from;
            self.shared.note(MediaStepKind::Withheld(address), now);
        }
    }

    /// Ends a silence that was reported, if the packet that was just taken is the peer's.
    pub(super) fn end_silence(&mut self, was_silent: bool) {
        if was_silent && !self.session.is_silent() {
            self.is_back = true;
            self.shared.write_silence(false);
        }
    }

    /// Returns whether the peer is heard again after a silence that was reported; true once.
    pub(in super::super) const fn take_back(&mut self) -> bool {
        std::mem::replace(&mut self.is_back, false)
    }

    /// Returns the IP address that was learnt since the last call of this function, and the trunk of the call.
    pub(in super::super) fn take_new_ip(&mut self) -> Option<(u128, IpAddr)> {
        let ip = self.new_ip.take()?;
        Some((self.session.trunk()?, ip))
    }

    /// Returns the IP address that signals, and the time for which a peer that should be heard has been silent. `None` if its silence isn't
    /// reported.
    pub(in super::super) fn silence(&self, now: Moment) -> Option<(IpAddr, Duration)> {
        self.session.silence(now)
    }

    /// Lets the clock of the peer's silence stand still for `time`. Takes a report back, and returns whether there was one: what is asked because
    /// of it would have no answer.
    pub(in super::super) fn postpone_silence(&mut self, time: Duration, now: Moment) -> bool {
        self.session.postpone_silence(time);
        let was_reported = self.session.is_silent();
        if was_reported {
            self.session.withdraw_silence(now);
            self.shared.write_silence(false);
        }
        was_reported
    }
}
