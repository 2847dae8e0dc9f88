//! Async shell around the deterministic core: shards, clocks, inboxes, and the routing of a message to its shard.
//!
//! Sockets, time and the store are connected to the core here. What a message means is decided in `trunkline_calls` and
//! in the SIP endpoint, not here.

mod bots;
mod browser;
mod cancel_router;
mod challenges;
pub mod clock;
mod contacts;
mod deletion;
mod deps;
mod effect_runner;
mod erasure;
mod event_sink;
mod failed_log_ins;
mod handle;
mod inbox;
mod invite_queue;
mod invite_waits;
mod lease;
mod listener_sockets;
mod log_in_shares;
mod media_addresses;
mod media_record;
mod member_call;
mod member_invite;
mod observe;
pub mod offline_core;
mod pace;
mod peers;
mod placing;
mod prompts;
mod recording;
mod refused_peers;
mod registration_shares;
mod registrations;
mod reserved_names;
mod resolve;
mod sending;
mod settings;
mod shard;
pub mod skew;
mod spans;
mod start;
mod stored_registrations;
mod stream_opener;
mod trace_file;
mod unsynced;
mod upkeep;
mod warned_orgs;

use std::time::Duration;

use tokio::sync::watch;
use trunkline_calls::Reason;

pub use browser::{BrowserCall, BrowserCallee, BrowserCommand, BrowserEvent, BrowserOrder};
pub use deletion::Deletion;
pub use deps::EngineDeps;
pub use erasure::ErasureTask;
pub use handle::Handle;
pub use listener_sockets::{BoundListener, ListenerSockets};
pub use recording::{Recording, RecordingFault};
pub use trace_file::trace_as_pcap;

use trunkline_net::listener::tcp;

pub(crate) use crate::config::local;
use inbox::Input;
pub(crate) use media_addresses::MediaAddresses;
pub(crate) use refused_peers::refused as refused_peers;
use registration_shares::Handover;
pub(crate) use reserved_names::ReservedNames;
pub(crate) use resolve::Resolver;
pub(crate) use settings::{configured_policy, session_tokens};

/// Interval between checks whether all registrations are withdrawn.
const UNREGISTER_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Running shards of this process.
#[derive(Debug)]
pub struct Engine {
    handle: Handle,
    threads: Vec<std::thread::JoinHandle<()>>,
    handover: watch::Sender<Handover>,
    _streams: tcp::TcpListeners,
}

impl Engine {
    /// Access for the API and other parts of the daemon.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Number of calls that are up.
    pub fn calls(&self) -> usize {
        self.handle.limits.calls()
    }

    /// Refuses new calls and OPTIONS with 503 from now on. Registrations with carriers are left to other nodes.
    pub async fn drain(&self) {
        for inbox in self.handle.router.shards() {
            inbox.send(Input::Drain).await;
        }
        self.handover.send_replace(Handover::Begun);
    }

    /// Waits until other nodes have registered our trunks with carriers, or were waited for long enough, and ours are being withdrawn. Call it after
    /// [`Self::drain`].
    pub async fn handed_over(&self) {
        let mut handover = self.handover.subscribe();
        // Never fails: this engine has a sender.
        let _ = handover.wait_for(|state| *state == Handover::Done).await;
    }

    /// Ends every call.
    pub async fn hang_up_all(&self) {
        for inbox in self.handle.router.shards() {
            inbox.send(Input::HangUpAll(Reason::Draining)).await;
        }
    }

    /// Waits until our registrations with carriers are withdrawn. Call it after [`Self::handed_over`]. The caller bounds the wait: a carrier may
    /// be silent.
    pub async fn unregistered(&self) {
        while self.handle.registrations.held() > 0 {
            tokio::time::sleep(UNREGISTER_CHECK_INTERVAL).await;
        }
    }

    /// Stops the shards and waits for their threads.
    pub async fn stop(self) {
        for inbox in self.handle.router.shards() {
            inbox.send(Input::Stop).await;
        }

        let traces = self.handle.traces;
        let joined = tokio::task::spawn_blocking(move || {
            for thread in self.threads {
                if thread.join().is_err() {
                    tracing::error!("a shard's thread had panicked");
                }
            }
            // After the shards: each hands its last messages over to the traces as it ends.
            traces.finish();
        });

        if joined.await.is_err() {
            tracing::error!("waiting for the shards failed");
        }
    }
}
