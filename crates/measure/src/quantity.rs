//! Sizes and durations as people type and read them.
//!
//! Typed sizes are whole numbers with k, m, g or t (powers of 1024). Typed durations are whole numbers with us, ms, s,
//! m, h or d. The error for any other input lists the accepted forms.

use std::fmt;
use std::time::Duration;

/// An invalid size or duration. Its text says why, on one line, without the value: a caller puts the option and the
/// value before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuantityError(Reason);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// Not a number with a known unit. It holds the accepted forms.
    Form(&'static str),
    /// More than fits into 64 bits. It holds the largest accepted value.
    TooLarge(&'static str),
}

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Reason::Form(accepted) => write!(f, "expected {accepted}"),
            Reason::TooLarge(most) => write!(f, "too large: expected at most {most}"),
        }
    }
}

impl std::error::Error for QuantityError {}

/// Reads a size in bytes: `4096`, `4k`, `100m`, `10g`, in either case.
///
/// # Errors
/// Returns an error for any other text, and for a size that does not fit into 64 bits.
pub fn parse_size(text: &str) -> Result<u64, QuantityError> {
    let form = QuantityError(Reason::Form(
        "a whole number of bytes, or one with k, m, g or t (powers of 1024), such as 4k",
    ));
    let (digits, unit) = split(text);
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        "t" => 1 << 40,
        _ => return Err(form),
    };
    product(digits, factor, form, "16777215t")
}

/// Reads a duration: `50us`, `10ms`, `5s`, `2m`, `3h`, `7d`; a bare number is seconds.
///
/// # Errors
/// Returns an error for any other text, and for a duration whose microseconds do not fit into 64 bits.
pub fn parse_duration(text: &str) -> Result<Duration, QuantityError> {
    let form = QuantityError(Reason::Form(
        "a whole number with us, ms, s, m (minutes), h or d, such as 10ms, or of seconds",
    ));
    let (digits, unit) = split(text);
    let microseconds = match unit.to_ascii_lowercase().as_str() {
        "us" => 1,
        "ms" => 1_000,
        "s" | "" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        _ => return Err(form),
    };
    product(digits, microseconds, form, "213503982d").map(Duration::from_micros)
}

/// Splits a text into its leading digits and the rest.
fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// Multiplies the number by its unit. Without digits it gives the accepted forms, and if the product has more than 64
/// bits the largest accepted value.
fn product(
    digits: &str,
    unit: u64,
    form: QuantityError,
    most: &'static str,
) -> Result<u64, QuantityError> {
    if digits.is_empty() {
        return Err(form);
    }
    let number = digits.parse().ok().and_then(|number: u64| number.checked_mul(unit));
    number.ok_or(QuantityError(Reason::TooLarge(most)))
}

/// Formats a size as a user would type it: `4k`, `100m`, `3000`. [`parse_size`] gives the same size again.
pub fn size_text(bytes: u64) -> String {
    for (unit, factor) in [("g", 1u64 << 30), ("m", 1 << 20), ("k", 1 << 10)] {
        if bytes >= factor && bytes.is_multiple_of(factor) {
            return format!("{}{unit}", bytes / factor);
        }
    }
    bytes.to_string()
}

/// Formats a size for people: `512 B`, `4.0 KiB`, `9.8 GiB`.
pub fn bytes_text(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut scaled = bytes as f64 / 1024.0;
    let mut unit = 0;
    // A size that rounds up to 1024.0 KiB is printed as 1.0 MiB.
    while scaled >= 1023.95 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    format!("{scaled:.1} {}", UNITS[unit])
}

/// Formats a duration as a user would type it: `50us`, `10ms`, `5s`, `2m`. [`parse_duration`] gives the same duration
/// again, in whole microseconds.
pub fn duration_text(duration: Duration) -> String {
    let microseconds = duration.as_micros();
    for (unit, factor) in [("m", 60_000_000), ("s", 1_000_000), ("ms", 1_000)] {
        if microseconds >= factor && microseconds.is_multiple_of(factor) {
            return format!("{}{unit}", microseconds / factor);
        }
    }
    format!("{microseconds}us")
}

/// Formats a latency for people, with three significant figures: `87 ns`, `12.3 µs`, `4.56 ms`, `1.20 s`.
pub fn latency_text(nanoseconds: f64) -> String {
    const UNITS: [&str; 4] = ["ns", "µs", "ms", "s"];
    if !nanoseconds.is_finite() {
        return "-".to_owned();
    }
    let mut scaled = nanoseconds;
    let mut unit = 0;
    while scaled.abs() >= 999.5 && unit + 1 < UNITS.len() {
        scaled /= 1000.0;
        unit += 1;
    }
    let decimals = match scaled.abs() {
        _ if unit == 0 => 0,
        size if size < 9.995 => 2,
        size if size < 99.95 => 1,
        _ => 0,
    };
    format!("{scaled:.decimals$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4k", 4096),
            ("4K", 4096),
            ("100m", 104_857_600),
            ("10g", 10 << 30),
            ("2t", 2 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn errors_list_the_accepted_sizes() {
        for text in ["", "k", "4kb", "4 k", "-1", "1.5g", "4\u{212a}"] {
            assert_eq!(
                parse_size(text).unwrap_err().to_string(),
                "expected a whole number of bytes, or one with k, m, g or t (powers of 1024), such as 4k",
                "{text}"
            );
        }
    }

    #[test]
    fn a_quantity_of_more_than_64_bits_is_too_large() {
        for text in ["99999999999g", "18446744073709551616", "16777216t"] {
            let reason = parse_size(text).unwrap_err().to_string();
            assert_eq!(reason, "too large: expected at most 16777215t", "{text}");
        }
        assert_eq!(parse_size("16777215t"), Ok(16_777_215 << 40));
        for text in ["999999999999999999m", "213503983d"] {
            let reason = parse_duration(text).unwrap_err().to_string();
            assert_eq!(reason, "too large: expected at most 213503982d", "{text}");
        }
        assert!(parse_duration("213503982d").is_ok());
    }

    #[test]
    fn durations_are_read() {
        for (text, microseconds) in [
            ("50us", 50),
            ("10ms", 10_000),
            ("5s", 5_000_000),
            ("2m", 120_000_000),
            ("60", 60_000_000),
            ("3h", 10_800_000_000),
            ("7D", 604_800_000_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_micros(microseconds)), "{text}");
        }
        for text in ["", "s", "5w", "1.5s", "5 s", "-5s"] {
            assert_eq!(
                parse_duration(text).unwrap_err().to_string(),
                "expected a whole number with us, ms, s, m (minutes), h or d, such as 10ms, or of seconds",
                "{text}"
            );
        }
    }

    #[test]
    fn typed_forms_read_back() {
        for bytes in [0, 1, 1023, 1024, 3000, 4096, 1 << 20, 3 << 29, u64::MAX] {
            assert_eq!(parse_size(&size_text(bytes)), Ok(bytes));
        }
        for microseconds in [0, 1, 999, 1000, 1_500_000, 60_000_000, 61_000_000] {
            let duration = Duration::from_micros(microseconds);
            assert_eq!(parse_duration(&duration_text(duration)), Ok(duration));
        }
    }

    #[test]
    fn read_forms_never_round_into_the_next_unit() {
        assert_eq!(bytes_text(1023), "1023 B");
        assert_eq!(bytes_text(1024 * 1024 - 1), "1.0 MiB");
        assert_eq!(bytes_text(10 << 30), "10.0 GiB");
        assert_eq!(bytes_text(u64::MAX), "16.0 EiB");
        assert_eq!(latency_text(87.4), "87 ns");
        assert_eq!(latency_text(999.6), "1.00 µs");
        assert_eq!(latency_text(12_345.0), "12.3 µs");
        assert_eq!(latency_text(999_600.0), "1.00 ms");
        assert_eq!(latency_text(4.2e12), "4200 s");
        assert_eq!(latency_text(f64::NAN), "-");
    }
}
