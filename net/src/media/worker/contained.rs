//! A panic in the work on one call ends the media of that call; the thread and its other calls go on.

use std::os::fd::AsRawFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use mio::unix::SourceFd;
use trunkline_sip::moment::Moment;

use super::Worker;
use crate::bot::BotEnd;
use crate::media::bot_leg::Scratch;
use crate::media::event::MediaEvent;

impl<C: Fn() -> Moment + Send + 'static, E: Fn(u64, MediaEvent) + Send + 'static> Worker<C, E> {
    /// Runs a step of a turn. If it panics, the call that it was working on is dropped, and reported as failed.
    pub(super) fn contain(&mut self, step: impl FnOnce(&mut Self)) {
        if catch_unwind(AssertUnwindSafe(|| step(self))).is_err() {
            tracing::error!(thread = self.index, "a panic ended the media of one call");
            // What a panic has left half changed is thrown away; should that panic too, the place is empty all the same.
            if let Some(place) = self.current {
                let _ = catch_unwind(AssertUnwindSafe(|| self.drop_call(place)));
            }
            self.scratch = Scratch::default();
        }
        self.current = None;
    }

    fn drop_call(&mut self, place: usize) {
        self.unfilter(place);
        self.wheel.remove(place);
        let Some(mut call) = self.calls.try_remove(place) else {
            return;
        };
        self.by_key.remove(&call.key);

        for socket in [Some(&call.socket), call.rtcp()].into_iter().flatten() {
            // Its port serves other calls later. A socket that isn't watched makes no events.
            let registry = self.poll.registry();
            let _ = registry.deregister(&mut SourceFd(&socket.as_raw_fd()));
        }
        self.news.push((call.key, MediaEvent::Failed));
        // Closes its connection, which ends its events.
        if let Some(bot) = call.take_bot() {
            self.meters.bot_gone(&bot.counts(), Some(BotEnd::Lost));
        }
    }
}
