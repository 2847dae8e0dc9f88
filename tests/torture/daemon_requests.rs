//! Set-up and reads for attack tests: a second tenant, metrics, memory.

use std::time::Duration;

use serde_json::Value;
use trunkline_bench::process;

use trunkline_testkit::process::Deadline;
use trunkline_testkit::{Credentials, Daemon, DaemonSetup, Peer, http};

/// Far beyond the usual time, since other tests share the machine.
const LIMIT: Duration = Duration::from_secs(30);

/// Binds a port and makes it the first agent's runtime.
pub(crate) fn runtime(setup: &DaemonSetup) -> Peer {
    let peer = Peer::new(setup.sip).tagged("runtime");
    let uri = format!("sip:{{agent_id}}@{}", peer.own);
    setup.runtime(&setup.first_agent, &uri);
    peer
}

/// Returns the further lines of such a peer's 2xx.
pub(crate) fn accepting(at: &Peer) -> String {
    format!(
        "Contact: <sip:peer@{}>\r\nContent-Type: application/sdp\r\n",
        at.own
    )
}

/// Another org with an agent, a number and a trunk.
#[derive(Debug)]
pub(crate) struct Neighbour {
    pub(crate) org: String,
    pub(crate) agent: String,
    pub(crate) credentials: Credentials,
    pub(crate) key: String,
}

impl Neighbour {
    pub(crate) fn of(setup: &DaemonSetup, number: &str) -> Self {
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        let org = text(&setup.run(&["org", "create", "--name", "Neighbour", "--json"])["id"]);
        let agent = setup.run(&[
            "agent", "create", "--org", &org, "--name", "Other", "--json",
        ]);
        setup.run(&[
            "number",
            "add",
            number,
            "--org",
            &org,
            "--verified",
            "--json",
        ]);
        let trunk = setup.run(&["trunk", "create", "--org", &org, "--json"]);
        let key = setup.run(&["key", "create", "--org", &org, "--json"]);

        Self {
            org,
            agent: text(&agent["id"]),
            credentials: Credentials {
                username: text(&trunk["auth_username"]),
                password: text(&trunk["auth_password"]),
            },
            key: text(&key["api_key"]),
        }
    }

    /// Returns its calls, read with its own key.
    pub(crate) fn calls(&self, daemon: &Daemon) -> Value {
        http::json(daemon.setup.http, "/phone/calls", &self.key)["items"].take()
    }
}

/// Returns the sum of a metric over its labels.
pub(crate) fn metric(daemon: &Daemon, name: &str) -> f64 {
    let (status, body) =
        http::get(daemon.setup.http, "/metrics", None).expect("metrics are served");
    assert_eq!(status, 200, "{body}");
    let values = body.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        rest.starts_with(['{', ' '])
            .then(|| rest.rsplit(' ').next()?.parse::<f64>().ok())
            .flatten()
    });
    values.sum()
}

/// Returns anonymous memory in KiB.
pub(crate) fn memory(daemon: &Daemon) -> u64 {
    process::memory(daemon.process.id())
        .expect("the daemon runs")
        .anonymous
        / 1024
}

/// Repeats the check until it returns a value; counters are published twice a second.
pub(crate) fn until<T>(ask: impl FnMut() -> Option<T>) -> T {
    Deadline::after(LIMIT).poll(ask).expect("within the limit")
}
