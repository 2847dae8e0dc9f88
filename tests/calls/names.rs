//! Calls to runtimes whose name servers fail.

use std::net::Ipv4Addr;

use trunkline_testkit::dns::{Fault, Faulty, Record};
use trunkline_testkit::probe::{Busy, Probe};
use trunkline_testkit::{Daemon, House};

const CALLER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A daemon whose first agent runs at a name, the server of that name, and the runtime, which answers 486.
struct Named {
    daemon: Daemon,
    names: Faulty,
    runtime: Busy,
}

impl Named {
    fn start(fault: Fault) -> Self {
        let runtime = Busy::start();
        let local = Record::Address(Ipv4Addr::LOCALHOST);
        let names = Faulty::serve(vec![("bot.test", local)], fault);
        let nameservers = names.address.to_string();
        let house = House::new().set("TRUNKLINE__SIP__NAMESERVERS", &nameservers);
        house.dedicate(&CALLER.to_string());
        let uri = format!("sip:x@bot.test:{}", runtime.address.port());
        house.runtime(&house.first_agent, &uri);
        Self {
            daemon: house.serve(),
            names,
            runtime,
        }
    }

    /// The final answer to a call.
    fn call(&self) -> Option<u16> {
        let agent = &self.daemon.house.first_agent;
        Probe::new(CALLER, self.daemon.sip())
            .call("someone", &format!("X-PLATFORM-AGENT-ID: {agent}"))
    }
}

/// RFC 8305 §3: the addresses that have come are used, and those that may never come aren't waited for.
#[test]
fn a_name_server_that_drops_ipv6_questions_loses_no_call() {
    let named = Named::start(Fault::DropsAaaa);
    assert_eq!(named.call(), Some(486), "{}", named.daemon.log());
    assert_eq!(named.runtime.taken(), 1);
}

/// RFC 8767: what was answered before serves.
#[test]
fn a_known_name_is_called_while_its_name_server_is_silent() {
    let named = Named::start(Fault::Silent);
    assert_eq!(named.call(), Some(486));
    named.names.begin_to_fail();
    assert_eq!(named.call(), Some(486), "{}", named.daemon.log());
    assert_eq!(named.call(), Some(486));
    assert_eq!(named.runtime.taken(), 3);
}

/// RFC 9520: the failure is remembered for seconds, so the next call neither waits nor asks.
#[test]
fn a_failure_of_a_name_server_is_remembered() {
    let named = Named::start(Fault::Fails);
    named.names.begin_to_fail();
    assert_eq!(named.call(), Some(480));
    let asked = named.names.asked();
    assert!(asked > 0);
    assert_eq!(named.call(), Some(480));
    assert_eq!(named.names.asked(), asked);
    assert_eq!(named.runtime.taken(), 0);
}
