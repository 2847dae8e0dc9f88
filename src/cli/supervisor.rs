//! Notices to systemd (sd_notify(3), `Type=notify`): that the daemon is ready, reloads or ends, and, for `WatchdogSec=`, that its shards
//! and media threads still run. Without systemd they do nothing.

use sd_notify::NotifyState;

use crate::engine::Handle;

/// Reports that the daemon is ready: it answers SIP and HTTP, and has read the journal of the last run.
pub(super) fn ready() {
    notify(&[NotifyState::Ready]);
}

/// Reports that the daemon drains its calls and ends.
pub(super) fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// Reports that certificates are read again, until the next [`ready`]. `Type=notify-reload` needs the time as well.
pub(super) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "notifying systemd of the reload failed"),
    }
}

/// Notifies the watchdog twice per interval, as long as every shard and media thread runs its turns. If one hangs, the notifications stop and systemd restarts the
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
                "a shard or a media thread hangs: systemd restarts the daemon unless it answers again"
            ),
        }
    }
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "notifying systemd failed");
    }
}
