//! A PBX behind the NAT of a Linux router, made of network namespaces. It registers over UDP and is called after the router's mapping would have
//! expired. The echo agent is heard through the router.
//!
//! The test runs itself again inside the namespaces: `the_outside` serves the daemon, `the_inside` is the PBX.

use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::calls::ways_out;
use trunkline_testkit::not_run;
use trunkline_testkit::talker::{Rtp, Talker, offer};
use trunkline_testkit::{Credentials, Daemon, DaemonSetup, Deadline, Pbx, tools};

/// One family's addresses. The daemon sees the router in the PBX's place.
struct Family {
    name: &'static str,
    daemon: IpAddr,
    router: IpAddr,
    gateway: IpAddr,
    pbx: IpAddr,
    /// Prefix length of each link.
    prefix: u8,
}

const FAMILIES: [Family; 2] = [
    Family {
        name: "IPv4",
        daemon: IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1)),
        router: IpAddr::V4(Ipv4Addr::new(203, 0, 113, 2)),
        gateway: IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1)),
        pbx: IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2)),
        prefix: 24,
    },
    Family {
        name: "IPv6",
        daemon: IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
        router: IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2)),
        gateway: IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1)),
        pbx: IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2)),
        prefix: 64,
    },
];

/// Lifetime of the router's mappings, in seconds.
const REMEMBERED: u64 = 3;
const PATIENCE: Duration = Duration::from_secs(20);
/// Longer than a mapping lives, and the call that is ordered after it has expired.
const LISTENS: Duration = Duration::from_secs(3 * REMEMBERED + 6);

/// Variables that pass the setting to the two processes.
const FAMILY: &str = "BEHIND_NAT_FAMILY";
const PBX_NAMESPACE: &str = "BEHIND_NAT_PBX";
const KEEP_ALIVE: &str = "BEHIND_NAT_KEEP_ALIVE";
const DAEMON: &str = "BEHIND_NAT_DAEMON";
const NUMBER: &str = "BEHIND_NAT_NUMBER";
const USERNAME: &str = "BEHIND_NAT_USERNAME";
const PASSWORD: &str = "BEHIND_NAT_PASSWORD";

/// Line that the PBX prints.
const WAS_CALLED: &str = "the PBX was called and hung up";
const WAS_HEARD: &str = "the echo agent was heard";

#[test]
fn a_pbx_behind_a_router_is_called_after_its_mapping_would_have_died() {
    if let Some(network) = network() {
        // Without keep-alives the mapping expires: else the second call would prove nothing.
        network.round("IPv4", "600", false);
        network.round("IPv4", "1", true);
    }
}

#[test]
fn a_pbx_behind_an_ipv6_router_is_called_after_its_mapping_would_have_died() {
    let Some(network) = network() else {
        return;
    };
    if !Path::new("/proc/sys/net/ipv6").exists() {
        not_run::note("this kernel has no IPv6");
        return;
    }
    network.round("IPv6", "1", true);
}

/// Builds the network; prints a notice and returns `None` where the machine can't.
fn network() -> Option<Network> {
    if !tools(&["ip", "nft", "nsenter", "unshare"]) {
        return None;
    }
    match Network::is_allowed() {
        Ok(()) => Some(Network::build()),
        Err(refusal) => {
            not_run::note(&format!("no network namespace with NAT: {refusal}"));
            None
        }
    }
}

#[test]
#[ignore = "run in a namespace by the tests above"]
fn the_outside() {
    let interval = given(KEEP_ALIVE);
    let family = family(&given(FAMILY));
    let setup = DaemonSetup::on(family.daemon)
        .set("TRUNKLINE__SIP__KEEP_ALIVE_S", &interval)
        .set("TRUNKLINE__SIP__T1_MS", "60");
    setup.dedicate(&family.router.to_string());
    let daemon = setup.serve();
    let namespace = given(PBX_NAMESPACE).parse().expect("a number");
    let Credentials { username, password } = daemon.credentials();
    let mut inside = Held(
        again("the_inside", namespace)
            .env(FAMILY, family.name)
            .env(DAEMON, daemon.sip().to_string())
            .env(NUMBER, &daemon.setup.first_number)
            .env(USERNAME, username)
            .env(PASSWORD, password)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the test runs again"),
    );

    let source = Deadline::after(PATIENCE).poll(|| {
        let shown = registration(&daemon);
        shown["source"].as_str()?.parse::<SocketAddr>().ok()
    });
    let source = source.unwrap_or_else(|| panic!("the PBX registers: {}", daemon.log()));
    assert_eq!(source.ip(), family.router, "a NAT stands between");
    std::thread::sleep(Duration::from_secs(3 * REMEMBERED));
    assert_eq!(registration(&daemon)["reachable"], true);
    ways_out::call_registered(&daemon);

    let said = inside.output();
    let was_called = said.contains(WAS_CALLED);
    assert!(said.contains(WAS_HEARD), "{said}");

    let call = Deadline::after(PATIENCE)
        .poll(|| {
            let page = daemon.shown("/phone/calls?direction=outbound");
            let call = page["items"].get(0)?.clone();
            call["ended_at"].is_string().then_some(call)
        })
        .expect("the call ends");
    let ended = (call["status"].as_str(), call["reason"].as_str());
    match was_called {
        true => assert_eq!(ended.0, Some("completed"), "{call}"),
        false => assert_eq!(ended, (Some("failed"), Some("trunk_unreachable")), "{call}"),
    }

    let shown = registration(&daemon);
    assert_eq!(shown["reachable"], was_called, "{shown}");
    print!("{said}");
}

#[test]
#[ignore = "run in a namespace by the tests above"]
fn the_inside() {
    let daemon: SocketAddr = given(DAEMON).parse().expect("an address");
    let own = family(&given(FAMILY)).pbx;
    let credentials = Credentials {
        username: given(USERNAME),
        password: given(PASSWORD),
    };

    // The PBX's SDP names an address that isn't routable outside.
    let rtp = Rtp::new(own);
    let (_call, answer) = Talker::call(own, daemon, &given(NUMBER), &offer(rtp.address()));
    assert_eq!(answer.status(), Some(200), "{answer:?}");
    let media = answer.media();
    assert_eq!(media.ip(), daemon.ip(), "{answer:?}");
    assert_eq!(rtp.converse(media), Some(media));
    println!("{WAS_HEARD}");

    let mut pbx = Pbx::udp_from(own, daemon, credentials);
    let contact = format!("Contact: <sip:pbx@{}>\r\nExpires: 600\r\n", pbx.address());
    assert_eq!(pbx.register(&contact).status(), Some(200));

    let heard = pbx.answer_within(LISTENS);
    let calls = ["INVITE", "ACK", "BYE"];
    if calls
        .iter()
        .all(|method| heard.iter().any(|came| came.is_request(method)))
    {
        println!("{WAS_CALLED}");
    } else {
        println!("heard {heard:?}");
    }
}

fn registration(daemon: &Daemon) -> Value {
    daemon.shown("/phone/sip/inbound-trunk")["registrations"]
        .get(0)
        .cloned()
        .unwrap_or_default()
}

fn family(name: &str) -> &'static Family {
    let found = FAMILIES.iter().find(|family| family.name == name);
    found.expect("one of the families")
}

fn given(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("no {name}"))
}

/// Runs one of these tests again, in the namespace that this process holds.
fn again(test: &str, namespace: u32) -> Command {
    let mut command = Command::new("nsenter");
    command
        .args(["--target", &namespace.to_string(), "--net"])
        .arg(std::env::current_exe().expect("this test"))
        .args([
            &format!("calls::behind_nat::{test}"),
            "--exact",
            "--ignored",
            "--nocapture",
        ])
        .stdin(Stdio::null());
    command
}

/// A child that is killed when it is dropped.
struct Held(Child);

impl Held {
    /// Waits until the process has succeeded, and returns its output.
    fn output(&mut self) -> String {
        let mut said = String::new();
        let stdout = self.0.stdout.as_mut().expect("it is piped");
        stdout.read_to_string(&mut said).expect("text");
        let status = self.0.wait().expect("it ends");
        assert!(status.success(), "{said}");
        said
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Three namespaces, each held by a process that sleeps: the daemon's, the router's, the PBX's. They have no names, so the kernel removes them with
/// their last process, however the test ends.
struct Network {
    outside: Held,
    router: Held,
    pbx: Held,
}

impl Network {
    /// Checks that this process may make a namespace, a link and a NAT in it.
    fn is_allowed() -> Result<(), String> {
        let output = Command::new("unshare")
            .args(["--net", "sh", "-ec"])
            .arg(
                "ip link add wan type veth peer name lan
                 nft add table inet nat
                 nft 'add chain inet nat out { type nat hook postrouting priority 100; }'
                 nft 'add rule inet nat out oifname wan masquerade'
                 echo 3 > /proc/sys/net/netfilter/nf_conntrack_udp_timeout",
            )
            .stdin(Stdio::null())
            .output()
            .expect("unshare runs");

        let said = String::from_utf8_lossy(&output.stderr);
        match output.status.success() {
            true => Ok(()),
            false => Err(said.trim().to_owned()),
        }
    }

    /// Builds two links, joined by a router that replaces the PBX's address by its own.
    fn build() -> Self {
        let network = Self {
            outside: namespace(),
            router: namespace(),
            pbx: namespace(),
        };
        let (outside, pbx) = (network.outside.0.id(), network.pbx.0.id());
        network.in_router(&format!(
            "ip link add wan type veth peer name eth0 netns {outside}
             ip link add lan type veth peer name eth0 netns {pbx}
             ip link set wan up
             ip link set lan up
             nft add table inet nat
             nft 'add chain inet nat out {{ type nat hook postrouting priority 100; }}'
             nft 'add rule inet nat out oifname wan masquerade'
             nft add table inet between
             nft 'add chain inet between forward {{ type filter hook forward priority 0; policy drop; }}'
             nft 'add rule inet between forward iifname lan accept'
             nft 'add rule inet between forward ct state established,related accept'
             echo {REMEMBERED} > /proc/sys/net/netfilter/nf_conntrack_udp_timeout
             echo {REMEMBERED} > /proc/sys/net/netfilter/nf_conntrack_udp_timeout_stream"
        ));

        for end in [outside, pbx] {
            inside(end, "ip link set lo up\nip link set eth0 up");
        }
        network
    }

    fn in_router(&self, commands: &str) {
        inside(self.router.0.id(), commands);
    }

    /// Gives both ends addresses of this family.
    fn address(&self, family: &Family) {
        let add = |address: IpAddr, device: &str| {
            // No other host could have the address.
            let nodad = if address.is_ipv6() { "nodad" } else { "" };
            let prefix = family.prefix;
            format!("ip address replace {address}/{prefix} dev {device} {nodad}\n")
        };

        let forwarding = match family.daemon {
            IpAddr::V4(_) => "ipv4/ip_forward",
            IpAddr::V6(_) => "ipv6/conf/all/forwarding",
        };

        self.in_router(&format!(
            "{}{}echo 1 > /proc/sys/net/{forwarding}",
            add(family.router, "wan"),
            add(family.gateway, "lan")
        ));
        inside(self.outside.0.id(), &add(family.daemon, "eth0"));

        let route = format!("ip route replace default via {}", family.gateway);
        inside(
            self.pbx.0.id(),
            &format!("{}{route}", add(family.pbx, "eth0")),
        );
    }

    /// Runs a daemon with this keep-alive interval (seconds), and a PBX that registers and waits until the router would have dropped its mapping.
    fn round(&self, name: &str, interval: &str, is_called: bool) {
        self.address(family(name));
        let output = again("the_outside", self.outside.0.id())
            .env(FAMILY, name)
            .env(PBX_NAMESPACE, self.pbx.0.id().to_string())
            .env(KEEP_ALIVE, interval)
            .output()
            .expect("the test runs again");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && said.contains(WAS_CALLED) == is_called,
            "{name}, asked every {interval} s: {said}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

/// Starts a process in a network namespace of its own.
fn namespace() -> Held {
    let child = Command::new("unshare")
        .args(["--net", "sleep", "300"])
        .stdin(Stdio::null())
        .spawn();
    let child = Held(child.expect("unshare runs"));
    let of = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net")).ok();
    let (own, id) = (of("self"), child.0.id().to_string());
    let has_moved = || {
        let held = of(&id).filter(|held| Some(held) != own.as_ref());
        held.map(drop)
    };
    let moved = Deadline::after(PATIENCE).poll(has_moved);
    moved.expect("a network namespace");
    child
}

/// Runs commands in a namespace, each of which must succeed.
fn inside(namespace: u32, commands: &str) {
    let output = Command::new("nsenter")
        .args(["--target", &namespace.to_string(), "--net", "sh", "-ec"])
        .arg(commands)
        .stdin(Stdio::null())
        .output()
        .expect("nsenter runs");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{commands}: {complaint}");
}
