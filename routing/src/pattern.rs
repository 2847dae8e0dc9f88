//! Matches digits against the expressions of libphonenumber's data, without compiling them.
//!
//! The data has 1,400 of them, of which a call needs a few of any country: compiled, they would take time on a call's path and keep megabytes.
//! They consist of digits, classes, groups, alternatives and counts alone, so one pass over the text with a set of positions decides them, in
//! time linear in both. `country`'s test reads all of them.

/// Set of positions in a row of digits: bit n is the position behind n digits.
type Positions = u64;

/// Most digits that are matched.
const MOST_DIGITS: usize = 63;

/// Returns whether all the digits match.
pub(crate) fn is_match(pattern: &str, digits: &str) -> bool {
    digits.len() <= MOST_DIGITS && ends(pattern, digits) >> digits.len() & 1 == 1
}

/// Returns the lengths of all beginnings of the digits that match, the longest first.
pub(crate) fn beginnings(pattern: &str, digits: &str) -> impl Iterator<Item = usize> {
    let ends = match digits.len() <= MOST_DIGITS {
        true => ends(pattern, digits),
        false => 0,
    };
    (0..=digits.len())
        .rev()
        .filter(move |end| ends >> end & 1 == 1)
}

fn ends(pattern: &str, digits: &str) -> Positions {
    let mut matcher = Matcher {
        pattern: pattern.as_bytes(),
        at: 0,
        places: [0; 10],
    };
    for (at, octet) in digits.bytes().enumerate() {
        if let Some(places) = matcher
            .places
            .get_mut(usize::from(octet.wrapping_sub(b'0')))
        {
            *places |= 1 << at;
        }
    }
    let ends = matcher.alternatives(1);
    // Otherwise it has a sign that no expression of the data has today, and matches nothing.
    match matcher.peek() {
        None => ends,
        Some(_) => 0,
    }
}

struct Matcher<'a> {
    pattern: &'a [u8],
    at: usize,
    /// The positions before each occurrence of a digit, by digit.
    places: [Positions; 10],
}

impl Matcher<'_> {
    /// Returns the next octet, behind the blanks that the data has for legibility.
    fn peek(&mut self) -> Option<u8> {
        while self
            .pattern
            .get(self.at)
            .is_some_and(u8::is_ascii_whitespace)
        {
            self.at += 1;
        }
        self.pattern.get(self.at).copied()
    }

    fn takes(&mut self, wanted: u8) -> bool {
        let is_next = self.peek() == Some(wanted);
        self.at += usize::from(is_next);
        is_next
    }

    fn alternatives(&mut self, from: Positions) -> Positions {
        let mut reached = self.sequence(from);
        while self.takes(b'|') {
            reached |= self.sequence(from);
        }
        reached
    }

    fn sequence(&mut self, from: Positions) -> Positions {
        let mut reached = from;
        while matches!(self.peek(), Some(b'0'..=b'9' | b'[' | b'(' | b'\\')) {
            if reached == 0 {
                // Most alternatives end at their first digits.
                self.skip_sequence();
                break;
            }
            reached = self.repeated(reached);
        }
        reached
    }

    /// Goes to the end of the sequence: to the bar or the parenthesis behind it.
    fn skip_sequence(&mut self) {
        let mut open = 0_usize;
        while let Some(octet) = self.pattern.get(self.at) {
            match octet {
                b'(' => open += 1,
                b'|' | b')' if open == 0 => return,
                b')' => open -= 1,
                _ => {}
            }
            self.at += 1;
        }
    }

    /// An atom with its count, if it has one.
    fn repeated(&mut self, from: Positions) -> Positions {
        let atom = self.at;
        let mut reached = self.atom(from);
        let Some((least, most)) = self.count() else {
            return reached;
        };
        let end = self.at;

        let mut all = if least == 0 { from } else { 0 };
        for times in 1..=most {
            if reached == 0 {
                break;
            }
            if times > 1 {
                self.at = atom;
                reached = self.atom(reached);
            }
            if times >= least {
                all |= reached;
            }
        }
        self.at = end;
        all
    }

    fn atom(&mut self, from: Positions) -> Positions {
        let next = self.peek();
        self.at += 1;
        match next {
            Some(b'(') => {
                if self.takes(b'?') {
                    self.takes(b':');
                }
                let reached = self.alternatives(from);
                self.takes(b')');
                reached
            }
            Some(b'[') => {
                let class = self.class();
                self.step(from, class)
            }
            // `\d` is the only escape.
            Some(b'\\') => {
                self.takes(b'd');
                self.step(from, 0x3ff)
            }
            Some(digit) => (from & self.places[usize::from(digit - b'0')]) << 1,
            None => 0,
        }
    }

    /// A class, as the set of its digits.
    fn class(&mut self) -> u16 {
        let (mut class, mut last) = (0, b'0');
        while let Some(octet) = self.peek() {
            self.at += 1;
            match octet {
                b']' => break,
                b'-' => {
                    let end = self.peek().unwrap_or(last);
                    self.at += 1;
                    for digit in last..=end {
                        class |= Self::bit(digit);
                    }
                }
                digit => {
                    class |= Self::bit(digit);
                    last = digit;
                }
            }
        }
        class
    }

    fn bit(octet: u8) -> u16 {
        let digit = octet.wrapping_sub(b'0');
        if digit < 10 { 1 << digit } else { 0 }
    }

    /// The positions behind one digit of the class.
    fn step(&self, from: Positions, class: u16) -> Positions {
        let digits = self.places.iter().enumerate();
        let matching = digits.filter(|(digit, _)| class >> digit & 1 == 1);
        let places = matching.fold(0, |all, (_, places)| all | places);
        (from & places) << 1
    }

    /// The count behind an atom: `?`, `{n}` or `{n,m}`.
    fn count(&mut self) -> Option<(u32, u32)> {
        if self.takes(b'?') {
            return Some((0, 1));
        }
        if !self.takes(b'{') {
            return None;
        }
        let least = self.number();
        let most = if self.takes(b',') {
            self.number()
        } else {
            least
        };
        self.takes(b'}');
        Some((least, most))
    }

    fn number(&mut self) -> u32 {
        let mut number = 0;
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            self.at += 1;
            number = (number * 10 + u32::from(digit - b'0')).min(99);
        }
        number
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_expression_decides_all_digits_and_their_beginnings() {
        for (pattern, digits, whole, begins) in [
            ("12", "12", true, &[2][..]),
            ("12", "123", false, &[2]),
            ("1|12|3", "123", false, &[2, 1]),
            ("0[0-3]\\d", "0044", false, &[3]),
            ("00(?:30|5[09]|[126-9]?)", "00852", false, &[3, 2]),
            ("(?: 1 | 2 ) [3-57]{2}", "237", true, &[3]),
            ("(1\\d?){2,3}", "1121", true, &[4, 3, 2]),
            ("", "1", false, &[0]),
            ("\\d{5,14}", "1234", false, &[]),
            ("1+", "1", false, &[]),
        ] {
            assert_eq!(is_match(pattern, digits), whole, "{pattern}: {digits}");
            let found: Vec<_> = beginnings(pattern, digits).collect();
            assert_eq!(found, begins, "{pattern}: {digits}");
        }
    }

    fn pattern() -> impl Strategy<Value = String> {
        let leaf = prop_oneof!["[0-9]", Just("\\d".to_owned()), "\\[[0-4][0-4]-[5-9]\\]"];
        leaf.prop_recursive(4, 24, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 1..4).prop_map(|parts| parts.concat()),
                prop::collection::vec(inner.clone(), 1..4)
                    .prop_map(|parts| format!("(?:{})", parts.join("|"))),
                (inner.clone(), 0..3_u8, 0..3_u8).prop_map(|(part, least, more)| format!(
                    "(?:{part}){{{least},{}}}",
                    least + more
                )),
                inner.prop_map(|part| format!("(?:{part})?")),
            ]
        })
    }

    proptest! {
        #[test]
        fn it_agrees_with_the_regex_crate(pattern in pattern(), digits in "[0-9]{0,8}") {
            let whole = regex::Regex::new(&format!("^(?:{pattern})$")).expect("an expression");
            prop_assert_eq!(is_match(&pattern, &digits), whole.is_match(&digits));
        }
    }
}
