//! Rounds of a media thread over all its calls, and the errors that the network reports.

use std::time::Duration;

use mio::Token;
use trunkline_sip::fault::Unreachable;
use trunkline_sip::moment::Moment;

use super::Worker;
use crate::listener::next_unreachable;
use crate::media::event::MediaEvent;
use crate::media::outages::{self, ThreadCalls};
use crate::media::tokens::Socket;

impl<C: Fn() -> Moment + Send + 'static, E: Fn(u64, MediaEvent) + Send + 'static> Worker<C, E> {
    /// Reads the error queue of a call's RTP socket: an audio stream that reaches no socket stops.
    pub(super) fn read_errors(&mut self, token: Token) {
        let Some((_, socket)) = self.socket(token) else {
            return;
        };
        let now = (self.clock)();
        while let Ok(Some(entry)) = next_unreachable(&socket) {
            if let Some((address, Unreachable::Port)) = entry
                && let Socket::Rtp(place) = Socket::of(token)
                && let Some(call) = self.calls.get_mut(place)
            {
                call.note_unreachable(address, now);
            }
        }
    }

    /// Reports silent calls. `passed` is the time since the last round.
    pub(super) fn make_round(&mut self, passed: Duration, now: Moment) {
        let mut counted = ThreadCalls::default();
        for (place, call) in &self.calls {
            self.current = Some(place);
            if let Some((peer, silence)) = call.silence(now) {
                counted.add(peer, silence);
            }
        }
        let failed = self.ports.outages.share(self.index, counted);
        for (place, call) in &mut self.calls {
            self.current = Some(place);
            // More than half of the peer's calls are silent, so that its network has failed.
            let is_outage = call.silence(now).is_some_and(|(peer, silence)| {
                silence >= outages::SILENT && failed.contains(&peer.to_canonical())
            });
            if is_outage {
                if call.postpone_silence(passed, now) {
                    self.news.push((call.key, MediaEvent::Heard));
                }
            } else if call.report_silence(now) {
                self.news.push((call.key, MediaEvent::Silent));
            }
        }
        self.current = None;
        self.closing_links.make_round(now);
        self.publish();
        if self.index == 0 {
            self.ports.shrink();
        }
    }

    fn publish(&mut self) {
        self.meters.packets(&std::mem::take(&mut self.packets));
        if self.index == 0 {
            metrics::gauge!("trunkline_media_calls").set(self.ports.open_calls() as f64);
            metrics::gauge!("trunkline_media_sockets").set(self.ports.bound() as f64);
        }
    }
}
