//! CSeq (RFC 3261 §20.16): a number below 2^31 and the method.

use crate::method::Method;

/// A CSeq value.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct CSeq {
    /// Below 2^31.
    pub number: u32,
    /// The method; the token itself stays in the message.
    pub method: Method,
}

/// Not a CSeq value.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a CSeq")]
pub struct NotACSeq;

impl CSeq {
    /// Reads a value; also returns the method's token.
    ///
    /// # Errors
    /// No number, a number of 2^31 or more, no method, or text behind the method.
    pub fn parse(value: &[u8]) -> Result<(Self, &[u8]), NotACSeq> {
        let value = value.trim_ascii();
        let digits = value
            .iter()
            .take_while(|octet| octet.is_ascii_digit())
            .count();
        let number = number(&value[..digits]).ok_or(NotACSeq)?;
        let rest = &value[digits..];
        let token = rest.trim_ascii();
        if rest.len() == token.len()
            || token.is_empty()
            || token.iter().any(u8::is_ascii_whitespace)
        {
            return Err(NotACSeq);
        }

        Ok((
            Self {
                number,
                method: Method::from_token(token),
            },
            token,
        ))
    }
}

fn number(digits: &[u8]) -> Option<u32> {
    // 2^31 has ten digits. More would let the sum overflow.
    if digits.is_empty() || digits.len() > 10 {
        return None;
    }
    let number = digits
        .iter()
        .fold(0u64, |number, digit| number * 10 + u64::from(digit - b'0'));
    u32::try_from(number)
        .ok()
        .filter(|number| *number < 1 << 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read() {
        type Read = Option<(u32, Method)>;
        let cases: [(&[u8], Read); 8] = [
            (b"1 INVITE", Some((1, Method::Invite))),
            (b"  0009   BYE ", Some((9, Method::Bye))),
            (b"2147483647 FOO", Some((2_147_483_647, Method::Other))),
            (b"2147483648 INVITE", None),
            (b"36893488147419103232 REGISTER", None),
            (b"1INVITE", None),
            (b"INVITE", None),
            (b"1 INVITE x", None),
        ];

        for (value, expected) in cases {
            let read = CSeq::parse(value)
                .ok()
                .map(|(cseq, _)| (cseq.number, cseq.method));
            assert_eq!(read, expected, "{}", String::from_utf8_lossy(value));
        }
    }
}
