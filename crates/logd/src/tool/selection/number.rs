//! Compares numbers by their exact value, however they are written: 1e3, 1000 and 1000.0 are equal.

/// A number of JSON as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Number(String);

impl Number {
    /// Takes a number that is valid JSON.
    pub(super) fn new(text: &str) -> Number {
        Number(text.to_owned())
    }

    /// Whether bytes begin with a number of this value.
    pub(super) fn begins(&self, bytes: &[u8]) -> bool {
        let is_of_number =
            |byte: &&u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
        let token = &bytes[..bytes.iter().take_while(is_of_number).count()];
        if token == self.0.as_bytes() {
            return true;
        }
        let own = Decimal::new(self.0.as_bytes());
        own.is_some_and(|own| Decimal::new(token).is_some_and(|other| own.equals(&other)))
    }
}

/// A number without zeros at its ends: its digits, times ten to the power of the exponent.
struct Decimal<'a> {
    is_negative: bool,
    /// The digits before the point and those after it.
    digits: [&'a [u8]; 2],
    exponent: i64,
}

impl Decimal<'_> {
    /// Returns nothing for what is no number, and for an exponent of more than 18 digits. Such numbers are equal only
    /// if they are written alike: a line long enough to write one in another way would not be stored.
    fn new(token: &[u8]) -> Option<Decimal<'_>> {
        let (is_negative, token) = match token.strip_prefix(b"-") {
            Some(rest) => (true, rest),
            None => (false, token),
        };
        let (mantissa, power) = split_at(token, |byte| matches!(byte, b'e' | b'E'));
        let (mut whole, fraction) = split_at(mantissa, |byte| *byte == b'.');
        let mut fraction = fraction.unwrap_or_default();
        if whole.is_empty() || !whole.iter().chain(fraction).all(u8::is_ascii_digit) {
            return None;
        }
        let after_point = fraction.len() as i64;
        let mut dropped = drop_zeros(&mut fraction);
        if fraction.is_empty() {
            dropped += drop_zeros(&mut whole);
        }
        whole = without_leading_zeros(whole);
        if whole.is_empty() {
            fraction = without_leading_zeros(fraction);
        }
        if whole.is_empty() && fraction.is_empty() {
            return Some(Decimal { is_negative: false, digits: [&[], &[]], exponent: 0 });
        }
        let exponent = exponent_of(power)?.checked_sub(after_point)?.checked_add(dropped)?;
        Some(Decimal { is_negative, digits: [whole, fraction], exponent })
    }

    fn equals(&self, other: &Decimal<'_>) -> bool {
        self.is_negative == other.is_negative
            && self.exponent == other.exponent
            && self.digits.iter().copied().flatten().eq(other.digits.iter().copied().flatten())
    }
}

/// Splits bytes at the first that is one of some, which is left out.
fn split_at(bytes: &[u8], is_it: impl Fn(&u8) -> bool) -> (&[u8], Option<&[u8]>) {
    match bytes.iter().position(is_it) {
        Some(at) => (&bytes[..at], Some(&bytes[at + 1..])),
        None => (bytes, None),
    }
}

fn exponent_of(power: Option<&[u8]>) -> Option<i64> {
    let Some(power) = power else { return Some(0) };
    let (sign, digits) = match power {
        [b'-', digits @ ..] => (-1, digits),
        [b'+', digits @ ..] | digits => (1, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digits = without_leading_zeros(digits);
    if digits.len() > 18 {
        return None;
    }
    Some(sign * digits.iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0')))
}

/// Drops zeros at the end, and returns how many there were.
fn drop_zeros(digits: &mut &[u8]) -> i64 {
    let len = digits.iter().rposition(|digit| *digit != b'0').map_or(0, |last| last + 1);
    let dropped = digits.len() - len;
    *digits = &digits[..len];
    dropped as i64
}

fn without_leading_zeros(digits: &[u8]) -> &[u8] {
    &digits[digits.iter().take_while(|digit| **digit == b'0').count()..]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn are_equal(first: &str, second: &str) -> bool {
        let found = Number::new(first).begins(second.as_bytes());
        assert_eq!(found, Number::new(second).begins(first.as_bytes()), "{first} {second}");
        found
    }

    #[test]
    fn a_value_has_many_forms() {
        for form in ["1000", "1e3", "1E+3", "1000.0", "0.1e4", "10.00e+002", "1000000e-3"] {
            assert!(are_equal("1000", form), "{form}");
            assert!(!are_equal("1001", form) && !are_equal("-1000", form), "{form}");
        }
        for form in ["0", "-0", "0.0", "-0.00e5", "0e999999999999999999999"] {
            assert!(are_equal("0", form), "{form}");
        }
        // As numbers of 64 bits these would be equal.
        assert!(!are_equal("12345678901234567890", "12345678901234567891"));
        assert!(!are_equal("0.1", "0.1000000000000000000000000001"));
        assert!(are_equal("12345678901234567890", "1234567890123456789e1"));
        assert!(are_equal("0.00012", "12e-5") && are_equal("1.02", "102e-2"));
        assert!(!are_equal("1e999999999999999999999", "1e999999999999999999998"));
        assert!(are_equal("1e999999999999999999999", "1e999999999999999999999"));
    }

    #[test]
    fn what_is_no_number_equals_none() {
        for bytes in ["", "-", "e5", ".5", "1.2.3", "1e", "1e+-3", "x", "\"1\""] {
            assert!(!Number::new("1").begins(bytes.as_bytes()), "{bytes}");
        }
    }

    proptest! {
        /// Any number is equal to itself, with its point elsewhere.
        #[test]
        fn the_place_of_the_point_does_not_matter(
            digits in "[1-9][0-9]{0,30}", power in -400_i64..400, zeros in 0_usize..5, up in 0_i64..40,
        ) {
            let padded = format!("{digits}{}e{}", "0".repeat(zeros), power - zeros as i64);
            let moved = format!("0.{}{digits}E{}", "0".repeat(up as usize), power + up + digits.len() as i64);
            let plain = format!("{digits}e{power}");
            prop_assert!(are_equal(&plain, &padded), "{} {}", plain, padded);
            prop_assert!(are_equal(&padded, &moved), "{} {}", padded, moved);
            let other = format!("{digits}e{}", power + 1);
            prop_assert!(!are_equal(&padded, &other), "{} {}", padded, other);
        }
    }
}
