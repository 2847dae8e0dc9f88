//! File descriptors of the daemon: the limit is raised as far as the system allows, and one that is below what is configured is logged.

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::config::Config;

/// SIP connections that this node opens, at most.
const OPENED: u64 = 4_096;
/// Descriptors of everything else: databases, listeners, files, webhooks.
const OTHERS: u64 = 512;

/// Raises the limit on file descriptors to the maximum. Logs a warning if that is below what the configured limits may take: connections and
/// calls beyond it would fail although the limits allow them.
pub(super) fn raise(config: &Config) {
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
}

/// Returns the descriptors that the configured limits may take.
fn needed(config: &Config) -> u64 {
    let ports = &config.media.rtp_ports;
    let ports = u64::from(ports.end() - ports.start()) + 1;
    let count = |most: usize| u64::try_from(most).unwrap_or(u64::MAX);
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
}
