//! Notices to systemd (sd_notify(3), `Type=notify`): that the daemon is ready, reloads or ends, and, for `WatchdogSec=`, that its shards
//! still turn. Without systemd nothing of this does anything.

use sd_notify::NotifyState;

use crate::engine::Handle;

/// Says that SIP and HTTP are answered: the journal of the last run is read by then.
pub(super) fn ready() {
    notify(&[NotifyState::Ready]);
}

/// Says that calls are drained, and the daemon ends.
pub(super) fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// Reports that files are read again, until the next [`ready`]. `Type=notify-reload` needs the time as well.
pub(super) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "systemd isn't told of the reload"),
    }
}

/// Notifies the watchdog twice per interval, as long as every shard runs its turns. If one hangs, the notifications stop and systemd restarts the
/// daemon.
pub(super) async fn watch(engine: Handle) {
    let Some(interval) = sd_notify::watchdog_enabled() else {
        return;
    };
    let mut ticks = tokio::time::interval(interval / 2);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match engine.turns().await {
            Ok(()) => notify(&[NotifyState::Watchdog]),
            Err(_) => tracing::error!(
                restart_after_s = interval.as_secs(),
                "a shard has no turn: systemd restarts the daemon unless it comes back"
            ),
        }
    }
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "systemd can't be told");
    }
}
