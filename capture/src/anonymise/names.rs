//! Replacements of addresses, names, Call-IDs and numbers: the same value always gets the same replacement, and no two values share one.
//! The first values of each kind are numbered, for readability; all others get a keyed hash or permutation. Memory is bounded.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::shuffle::{Domain, Shuffle};

/// Maximum number of names of a kind that get a number.
const NUMBERED: usize = 16_384;
/// Digits at the end of a phone number that name the subscriber. The national and the international form end alike.
const SUBSCRIBER: usize = 7;
/// Maximum number of digits before the subscriber's that are replaced. A longer text isn't a phone number.
const AREA: usize = 18;

/// The replacements so far.
#[derive(Debug)]
pub(super) struct Names {
    public: Shuffle,
    private: Shuffle,
    v6_addresses: Kind,
    hosts: Kind,
    users: Kind,
    call_ids: Kind,
    subscribers: HashMap<u32, Shuffle>,
    areas: HashMap<u32, Shuffle>,
}

impl Default for Names {
    fn default() -> Self {
        Self {
            public: Shuffle::new(Domain::Public),
            private: Shuffle::new(Domain::Private),
            v6_addresses: Kind::default(),
            hosts: Kind::default(),
            users: Kind::default(),
            call_ids: Kind::default(),
            subscribers: HashMap::new(),
            areas: HashMap::new(),
        }
    }
}

/// Names of one kind. Stored as hashes, so that long names take no more memory.
#[derive(Debug, Default)]
struct Kind {
    numbers: HashMap<u128, u32>,
    keys: [RandomState; 2],
}

/// Replacement of a name.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
enum Label {
    Number(u32),
    /// 96 bits, so that a collision of two names is out of the question.
    Hash(u128),
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Hash(hash) => write!(f, "{hash:024x}"),
        }
    }
}

impl Kind {
    fn label(&mut self, name: &str) -> Label {
        let [high, low] = self.keys.each_ref().map(|key| key.hash_one(name));
        let hash = (u128::from(high) << 64) | u128::from(low);
        if let Some(number) = self.numbers.get(&hash) {
            return Label::Number(*number);
        }
        match u32::try_from(self.numbers.len() + 1) {
            Ok(number) if self.numbers.len() < NUMBERED => {
                self.numbers.insert(hash, number);
                Label::Number(number)
            }
            Ok(_) | Err(_) => Label::Hash(hash >> 32),
        }
    }
}

impl Names {
    pub(super) fn address(&mut self, address: IpAddr) -> IpAddr {
        let canonical = address.to_canonical();
        if canonical.is_unspecified() || canonical.is_loopback() {
            return address;
        }

        match address {
            IpAddr::V4(v4) => self.v4(v4).into(),
            IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
                Some(v4) => self.v4(v4).to_ipv6_mapped().into(),
                None => self.v6(v6).into(),
            },
        }
    }

    fn v4(&mut self, address: Ipv4Addr) -> Ipv4Addr {
        if let Some(place) = private_place(address) {
            return private_at(self.private.of(place));
        }
        // The domain ends at 32 bits, so the address itself is never shown.
        let shown = u32::try_from(self.public.of(address.to_bits().into()));
        shown.map_or(address, Ipv4Addr::from_bits)
    }

    /// Returns an address of the documentation network (RFC 3849), or of a private one (RFC 4193) for a private or link-local address.
    fn v6(&mut self, address: Ipv6Addr) -> Ipv6Addr {
        let is_private = address.is_unique_local() || address.is_unicast_link_local();
        let network: u128 = if is_private {
            0xfd00 << 112
        } else {
            0x2001_0db8 << 96
        };
        let place = match self.v6_addresses.label(&address.to_string()) {
            Label::Number(number) => number.into(),
            // The highest bit keeps hashes apart from numbers.
            Label::Hash(hash) => hash | (1 << 95),
        };
        Ipv6Addr::from_bits(network | place)
    }

    /// Replaces a host name, or an address with or without brackets.
    pub(super) fn host(&mut self, host: &str) -> String {
        if let Ok(address) = host.parse::<IpAddr>() {
            return self.address(address).to_string();
        }

        if let Some(inner) = host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            && let Ok(address) = inner.parse::<IpAddr>()
        {
            return format!("[{}]", self.address(address));
        }

        let is_impersonal = ["", "localhost", "anonymous.invalid"]
            .iter()
            .any(|known| known.eq_ignore_ascii_case(host));
        if is_impersonal {
            return host.to_owned();
        }

        let label = self.hosts.label(&host.to_ascii_lowercase());
        format!("host-{label}.invalid")
    }

    /// Replaces a number, or a person's name.
    pub(super) fn user(&mut self, user: &str) -> String {
        let is_number = user.bytes().any(|octet| octet.is_ascii_digit())
            && user
                .bytes()
                .all(|octet| octet.is_ascii_digit() || b"+-.()* ".contains(&octet));
        if is_number {
            return self.number(user);
        }
        if user.is_empty() || user.eq_ignore_ascii_case("anonymous") {
            return user.to_owned();
        }
        format!("user-{}", self.users.label(user))
    }

    pub(super) fn call_id(&mut self, id: &str) -> String {
        format!("call-{}@anonymous.invalid", self.call_ids.label(id))
    }

    /// Replaces the digits of a number. Keeps its length, all other characters, and the digits that show its form: two of the country code
    /// behind `+` or `00`, or the national `0`. The last seven digits are the subscriber's, those before them the area's.
    pub(super) fn number(&mut self, number: &str) -> String {
        // The digits are `kept`, then the area's, then the subscriber's from `tail` on.
        let digits: String = number.chars().filter(char::is_ascii_digit).collect();
        let kept = match (number.starts_with('+'), digits.as_bytes()) {
            (true, _) => 2,
            (false, [b'0', b'0', ..]) => 4,
            (false, [b'0', ..]) => 1,
            (false, _) => 0,
        };

        let tail = digits.len() - digits.len().min(SUBSCRIBER);
        let kept = kept.min(tail);
        if tail - kept > AREA {
            return format!("user-{}", self.users.label(number));
        }

        let area = exchange(&mut self.areas, Domain::Area, &digits[kept..tail]);
        let subscriber = exchange(&mut self.subscribers, Domain::Subscriber, &digits[tail..]);
        let mut shown = digits[..kept]
            .chars()
            .chain(area.chars())
            .chain(subscriber.chars());

        number
            .chars()
            .filter_map(|char| match char {
                char if char.is_ascii_digit() => shown.next(),
                char => Some(char),
            })
            .collect()
    }
}

/// Replaces digits by as many others, from the domain of that length; none by none.
fn exchange(
    shuffles: &mut HashMap<u32, Shuffle>,
    domain: fn(u32) -> Domain,
    digits: &str,
) -> String {
    let (Ok(length), Ok(value)) = (u32::try_from(digits.len()), digits.parse::<u64>()) else {
        return String::new();
    };
    let shuffle = shuffles
        .entry(length)
        .or_insert_with(|| Shuffle::new(domain(length)));
    format!("{:0width$}", shuffle.of(value), width = digits.len())
}

/// Returns the index of a private address among all private ones.
fn private_place(address: Ipv4Addr) -> Option<u64> {
    let value = u64::from(address.to_bits());
    match address.octets() {
        [10, ..] => Some(value - (10 << 24)),
        [172, 16..=31, ..] => Some((1 << 24) + value - (((172 << 8) + 16) << 16)),
        [192, 168, ..] => Some((1 << 24) + (1 << 20) + value - (((192 << 8) + 168) << 16)),
        _ => None,
    }
}

/// Returns the private address of an index.
fn private_at(place: u64) -> Ipv4Addr {
    let place = u32::try_from(place).unwrap_or(0);
    let (of_172, of_192) = (1 << 24, (1 << 24) + (1 << 20));
    Ipv4Addr::from_bits(match place {
        place if place < of_172 => (10 << 24) + place,
        place if place < of_192 => (((172 << 8) + 16) << 16) + (place - of_172),
        place => (((192 << 8) + 168) << 16) + (place - of_192),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_number_keeps_its_form_and_stays_the_same_subscriber() {
        let mut names = Names::default();
        for (number, expected) in [
            ("+442071838750", "+440005550001"),
            ("00442071838750", "00440005550001"),
            ("02071838750", "00005550001"),
            ("+442071838751", "+440005550002"),
            ("+441611838750", "+440015550001"),
            ("+44 (20) 7183-8750", "+44 (00) 0555-0001"),
            ("1006", "0001"),
            ("1007", "0002"),
            ("*100", "*001"),
            ("100", "001"),
        ] {
            assert_eq!(names.user(number), expected, "{number}");
        }

        assert_eq!(names.user(&"1".repeat(300)), "user-1");
    }

    #[test]
    fn private_addresses_are_counted_and_found_again() {
        for address in [
            "10.0.0.0",
            "10.255.255.255",
            "172.16.0.0",
            "172.31.255.255",
            "192.168.0.0",
            "192.168.255.255",
        ] {
            let address: Ipv4Addr = address.parse().unwrap();
            let place = private_place(address).unwrap();
            assert!(Domain::Private.contains(place), "{address}");
            assert_eq!(private_at(place), address);
        }

        for address in ["9.255.255.255", "11.0.0.0", "172.32.0.0", "192.169.0.0"] {
            assert_eq!(private_place(address.parse().unwrap()), None, "{address}");
        }
    }

    #[test]
    fn an_address_stays_private_or_public() {
        let mut names = Names::default();
        for place in 0..40_000_u32 {
            for network in [10 << 24, ((172 << 8) + 16) << 16, 8 << 24] {
                let address = Ipv4Addr::from_bits(network + place);
                let IpAddr::V4(shown) = names.address(address.into()) else {
                    panic!("{address} is another kind");
                };
                assert_eq!(address.is_private(), shown.is_private(), "{address}");
            }
        }

        for (address, expected) in [
            ("fd12::7", "fd00::1"),
            ("2001:4860::8888", "2001:db8::2"),
            ("fd12::7", "fd00::1"),
            ("::1", "::1"),
            ("::ffff:127.0.0.1", "::ffff:127.0.0.1"),
        ] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(names.address(address).to_string(), expected);
        }
    }

    /// More of each kind than are numbered.
    #[test]
    fn no_two_values_share_a_replacement() {
        let mut names = Names::default();
        let count = 3 * u32::try_from(NUMBERED).unwrap();
        let kinds: [fn(&mut Names, u32) -> String; 5] = [
            |names, place| names.host(&format!("pbx-{place}.example.com")),
            |names, place| names.user(&format!("alice {place}")),
            |names, place| names.call_id(&format!("{place}@h")),
            |names, place| names.number(&format!("+49301{place:07}")),
            |names, place| names.host(&format!("2600::{place:x}")),
        ];
        for kind in kinds {
            let shown: Vec<String> = (0..count).map(|place| kind(&mut names, place)).collect();
            let distinct: HashSet<&String> = shown.iter().collect();
            assert_eq!(distinct.len(), shown.len(), "{}", shown[0]);
            for place in [0, NUMBERED, shown.len() - 1] {
                let again = kind(&mut names, u32::try_from(place).unwrap());
                assert_eq!(again, shown[place], "the same replacement again");
            }
        }

        for kind in [
            &names.hosts,
            &names.users,
            &names.call_ids,
            &names.v6_addresses,
        ] {
            assert_eq!(kind.numbers.len(), NUMBERED);
        }
    }
}
