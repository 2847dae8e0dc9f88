//! Periodic work of the engine that belongs to no call: it follows the wall clock and returns memory after a load.

use std::sync::Weak;
use std::time::Duration;

use trunkline_calls::core::live::LiveCalls;
use trunkline_sip::auth::NonceWindow;
use trunkline_store::Store;

use super::clock;
use crate::{jobs, memory};

/// Steps of the wall clock beyond this are logged.
const LOGGED_STEP: Duration = Duration::from_secs(1);

/// Follows the wall clock, once a second.
pub(super) async fn follow_wall_clock() {
    let mut turns = jobs::WALL_CLOCK.ticks();

    loop {
        turns.tick().await;
        let Some(micros) = clock::follow() else {
            continue;
        };

        let size = Duration::from_micros(micros.unsigned_abs());
        if size > LOGGED_STEP {
            let direction = if micros > 0 { "forward" } else { "back" };
            tracing::warn!(
                seconds = size.as_secs(),
                direction,
                "the wall clock was set, or the machine was suspended: new calls are recorded with the new time; calls that are up and timers are not affected"
            );
        }
    }
}

/// Minimum time between two releases of memory; what is released has to be allocated again.
const MIN_INTERVAL: Duration = Duration::from_secs(10);

/// Forgets expired nonces once a second and releases memory after a load, so that memory use follows the load down.
pub(super) async fn sweep(window: Weak<NonceWindow>, live: Weak<LiveCalls>, store: Store) {
    let mut turns = jobs::MEMORY.ticks();
    let mut was_busy = false;
    let mut rested_at = None;
    loop {
        turns.tick().await;
        let (Some(window), Some(live)) = (window.upgrade(), live.upgrade()) else {
            return;
        };
        let now = clock::now();
        window.sweep(now);
        was_busy |= !live.is_empty() || !window.is_empty();

        let may_rest = rested_at.is_none_or(|at| now.since(at) >= MIN_INTERVAL);
        if was_busy && may_rest && live.is_empty() && window.is_empty() {
            live.rest();
            store.rest();
            memory::come_to_rest();
            was_busy = false;
            rested_at = Some(now);
        }
    }
}
