//! Resistance of a media thread to floods on its sockets.

use trunkline_sip::moment::Moment;

use mio::Token;

use super::Worker;
use crate::media::allowance::Flood;
use crate::media::event::MediaEvent;
use crate::media::tokens::Socket;

impl<C: Fn() -> Moment + Send + 'static, E: Fn(u64, MediaEvent) + Send + 'static> Worker<C, E> {
    /// Acts against a flood on a call's RTP socket. Returns whether the socket is still read.
    pub(super) fn resist(&mut self, place: usize, flood: Flood, now: Moment) -> bool {
        let token = Socket::Rtp(place).token();
        if let Flood::OtherThan(expected) = flood
            && let Some((call, socket)) = self.socket(token)
        {
            let key = call.key;
            let filtered = self.floods.filter(&socket, &expected, key, token, now);
            if filtered.is_ok() {
                return true;
            }
        }
        self.pause(token, now);
        false
    }

    pub(super) fn unfilter(&mut self, place: usize) {
        let token = Socket::Rtp(place).token();
        if let Some((call, socket)) = self.socket(token) {
            let key = call.key;
            self.floods.unfilter(&socket, key, token);
        }
    }

    pub(super) fn pause(&mut self, token: Token, now: Moment) {
        if let Some((call, socket)) = self.socket(token) {
            let key = call.key;
            let registry = self.poll.registry();
            self.floods.pause(registry, &socket, key, token, now);
        }
    }

    pub(super) fn hear_again(&mut self, now: Moment) {
        while let Some(measure) = self.floods.next_over(now) {
            // The place may hold another call by now.
            let known = self.socket(measure.token);
            if let Some((_, socket)) = known.filter(|(call, _)| call.key == measure.key) {
                measure.end(self.poll.registry(), &socket);
            }
        }
    }
}
