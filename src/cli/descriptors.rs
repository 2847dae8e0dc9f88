//! File descriptors of the daemon: the limit is raised as far as the system allows, and shared out, so that HTTP, the database and files have theirs
//! when calls have used up all others. A limit below what is configured is logged.

use std::sync::Arc;

use rustix::process::{Resource, getrlimit, setrlimit};
use trunkline_bounds::Descriptors;

use crate::config::Config;

/// SIP connections that this node opens, at most.
const OPENED: u64 = 4_096;
/// Descriptors of everything else: databases, listeners, files, webhooks.
const OTHERS: u64 = 512;
/// Part of the limit that HTTP has at most in reserve, and so everything else: a small limit is shared out.
const RESERVED_PART: u64 = 4;

/// Descriptors as they are shared out.
#[derive(Debug)]
pub(super) struct DescriptorShares {
    /// Descriptors of SIP connections, RTP sockets and WebSockets of bots.
    pub(super) of_calls: Arc<Descriptors>,
    /// HTTP connections, at most.
    pub(super) http: usize,
}

/// Raises the limit on file descriptors to the maximum, and shares them out. Logs a warning if the limit is below what the configured limits may
/// take: connections and calls beyond it would fail although those allow them.
pub(super) fn raise(config: &Config) -> DescriptorShares {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "raising the limit on open files failed");
    }

    let (needed, allowed) = (needed(config), getrlimit(Resource::Nofile).current);
    if let Some(allowed) = allowed.filter(|allowed| *allowed < needed) {
        tracing::warn!(
            allowed,
            needed,
            "this process may open fewer files than its configured limits may take: raise its limit (LimitNOFILE, ulimit -n), or lower limits.max_connections, http.max_connections or media.rtp_ports"
        );
    }

    let http = config.http.max_connections;
    match allowed {
        Some(allowed) => {
            let (of_calls, http) = shared_out(allowed, http);
            DescriptorShares {
                of_calls: Descriptors::new(of_calls),
                http,
            }
        }
        None => DescriptorShares {
            of_calls: Arc::default(),
            http,
        },
    }
}

/// Returns the descriptors of calls and those of HTTP connections, of which `configured` are wanted.
fn shared_out(allowed: u64, configured: usize) -> (u64, usize) {
    let part = allowed / RESERVED_PART;
    let http = count(configured).min(part);
    let others = OTHERS.min(part);
    (
        allowed - http - others,
        usize::try_from(http).unwrap_or(configured),
    )
}

fn count(most: usize) -> u64 {
    u64::try_from(most).unwrap_or(u64::MAX)
}

/// Returns the descriptors that the configured limits may take.
fn needed(config: &Config) -> u64 {
    let ports = &config.media.rtp_ports;
    let ports = u64::from(ports.end() - ports.start()) + 1;
    [
        count(config.limits.max_connections),
        count(config.http.max_connections),
        // A call takes two ports, and a bot's WebSocket.
        ports + ports / 2,
        OPENED,
        OTHERS,
    ]
    .into_iter()
    .fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Sources;

    #[test]
    fn what_is_configured_needs_descriptors() {
        let needed = |text: &str| {
            let file = Some(("t.toml".into(), text.to_owned()));
            let sources = Sources {
                file,
                ..Sources::default()
            };
            super::needed(&Config::load(&sources).expect("a configuration"))
        };
        for (name, text, expected) in [
            ("as it comes", "", 10_000 + 1_024 + 15_000 + OPENED + OTHERS),
            (
                "small",
                "[limits]\nmax_connections = 100\n[http]\nmax_connections = 64\n[media]\nrtp_ports = \"20000-20099\"",
                100 + 64 + 150 + OPENED + OTHERS,
            ),
        ] {
            assert_eq!(needed(text), expected, "{name}");
        }
    }

    #[test]
    fn a_reserve_is_bounded_and_a_small_limit_shared_out() {
        for (name, allowed, calls, http) in [
            ("the unit's", 262_144, 262_144 - 1_024 - OTHERS, 1_024),
            ("a shell's", 1_024, 512, 256),
            ("very small", 64, 32, 16),
        ] {
            assert_eq!(shared_out(allowed, 1_024), (calls, http), "{name}");
        }
        assert_eq!(shared_out(1_024, 64), (1_024 - 64 - 256, 64));
    }
}
