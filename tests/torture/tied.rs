//! Reserved and private peers that the operator ties to one org.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

use crate::torture::handed_over::{ASTERISK, NUMBER, Pbx, trunk};
use crate::torture::one_shard;
use trunkline_testkit::dns::{self, Record};
use trunkline_testkit::probe::Probe;
use trunkline_testkit::{Daemon, DaemonSetup, Deadline, Responder, Runtime};

/// A peer that authenticates this node by its address.
const RESERVED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 4);
/// A peer that `sip.allow_private_peers` doesn't list.
const PRIVATE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
const SOURCE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// An org that uses one peer as runtime, as outbound trunk and as destination.
struct Org<'d> {
    daemon: &'d Daemon,
    pbx: Pbx,
    probe: Probe,
    /// Its agent for the runtime; the first agent dials.
    agent: String,
}

impl Org<'_> {
    /// Stores the peer in the three places; returns the statuses of the answers.
    fn enters(&self, host: &str, port: u16) -> [u16; 3] {
        let uri = format!("sip:x@{host}:{port}");
        let runtime = json!({"runtime": {"type": "sip", "uri": uri}});
        let (runtime, _) =
            (self.daemon).change("PATCH", &format!("/phone/{}", self.agent), &runtime);

        let carrier = json!({"name": host, "host": host, "port": port, "caller_number": NUMBER});
        let path = "/phone/sip/outbound-trunks";
        let (carrier, made) = self.daemon.change("POST", path, &carrier);
        let first = &self.daemon.setup.first_agent;
        if carrier == 201 {
            let path = format!("/phone/sip/agents/{first}/outbound-trunk");
            let (status, body) =
                (self.daemon).change("PUT", &path, &json!({"trunk_id": made["id"]}));
            assert_eq!(status, 200, "{body}");
        }

        let path = format!("/phone/sip/agents/{first}/transfer-destinations");
        let create = json!({"create": {"name": host, "type": "sip", "value": uri}});
        let (destination, _) = self.daemon.change("POST", &path, &create);
        [runtime, carrier, destination]
    }

    /// Calls each of the three; the peer answers 486.
    fn calls(&self, destination: &str, reaches: bool) {
        let line = format!("X-PLATFORM-AGENT-ID: {}", self.agent);
        let status = if reaches { 486 } else { 480 };
        assert_eq!(self.probe.call("someone", &line), Some(status));

        let first = &self.daemon.setup.first_agent;
        let order = json!({"phone_agent_id": first, "phone_number": "+442071838752"});
        let (status, placed) = self.daemon.change("POST", "/phone/outbound-call", &order);
        assert_eq!(status, 201, "{placed}");
        let ended = ended(self.daemon, &placed["call_id"]);
        let reason = if reaches {
            "callee_busy"
        } else {
            "peer_not_allowed"
        };
        assert_eq!(ended["reason"], reason, "{ended}");

        self.pbx.transfers(self.daemon, destination);
        let failed = self.pbx.transferred(self.daemon, "failed");
        assert_eq!(failed["transfer"]["sip_code"] == 486, reaches, "{failed}");
    }
}

fn ended(daemon: &Daemon, call: &Value) -> Value {
    let path = format!("/phone/calls/{}", call.as_str().expect("an id"));
    let limit = std::time::Duration::from_secs(20);
    let seen = Deadline::after(limit).poll(|| {
        let shown = daemon.shown(&path);
        shown["ended_at"].is_string().then_some(shown)
    });
    seen.expect("a call that ends")
}

#[test]
fn a_tied_peer_is_called_by_its_org_alone() {
    let peers = [
        ("carrier.test", "carrier.test", Responder::busy_at(RESERVED)),
        ("127.0.0.3", "127.0.0.0/29", Responder::busy_at(PRIVATE)),
    ];
    let names = dns::serve(vec![("carrier.test", Record::Address(RESERVED))]);
    let setup = one_shard(DaemonSetup::new())
        .set("TRUNKLINE__SIP__ALLOW_PRIVATE_PEERS", "127.0.0.1,127.0.0.2")
        .set("TRUNKLINE__SIP__NAMESERVERS", &names.to_string())
        .set("TRUNKLINE__SIP__RESERVED_PEERS", "carrier.test");
    setup.dedicate(&SOURCE.to_string());
    setup.run(&["org", "create", "--name", "Other", "--json"]);
    let agent = setup.agent("Second", Runtime::new());
    let own = setup.org.clone();
    let daemon = setup.serve();
    trunk(&daemon, &json!({"transfer_way": "bridge"}));
    let org = Org {
        pbx: Pbx::calls(&daemon, "tied", ASTERISK),
        probe: Probe::new(SOURCE, daemon.sip()),
        daemon: &daemon,
        agent,
    };
    let run = |word: &str, org: &str, tied: &str| {
        daemon.setup.run(&["org", word, org, tied, "--json"]);
    };

    for (host, tied, peer) in peers {
        let port = peer.address.port();
        assert_eq!(org.enters(host, port), [400; 3], "{host}: nobody's");
        run("tie", "Other", tied);
        assert_eq!(org.enters(host, port), [400; 3], "{host}: another org's");
        run("tie", &own, tied);
        assert_eq!(org.enters(host, port), [200, 201, 201], "{host}: its own");
        daemon.setup.settle();
        org.calls(host, true);
        assert_eq!(peer.taken(), 3, "{host}");

        daemon
            .setup
            .run(&["org", "untie", &own, tied, "--yes", "--json"]);
        daemon.setup.settle();
        org.calls(host, false);
        assert_eq!(peer.taken(), 3, "{host}: another org's again");
    }

    // A tie doesn't allow this node's own listeners.
    run("tie", &own, "127.0.0.0/8");
    let (sip, http) = (daemon.sip(), daemon.setup.http);
    for own in [sip, http] {
        let statuses = org.enters(&own.ip().to_string(), own.port());
        assert_eq!(statuses, [400; 3], "{own}");
    }
}
