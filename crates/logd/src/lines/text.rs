//! Strings of JSON, of any bytes, and numbers.

/// Appends a string.
pub(crate) fn quote(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, text).expect("strings are JSON, and a vector takes all of it");
}

/// Appends a number. JSON has none that is infinite, or none at all: those are strings, as protobuf writes them.
pub(crate) fn write_double(value: f64, out: &mut Vec<u8>) {
    match value {
        _ if value.is_nan() => quote("NaN", out),
        f64::INFINITY => quote("Infinity", out),
        f64::NEG_INFINITY => quote("-Infinity", out),
        _ => serde_json::to_writer(out, &value).expect("a finite number is JSON"),
    }
}

/// Appends a string of two hexadecimal digits for each byte.
pub(crate) fn quote_hex(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.reserve(2 * bytes.len() + 2);
    out.push(b'"');
    for byte in bytes {
        out.push(DIGITS[usize::from(byte >> 4)]);
        out.push(DIGITS[usize::from(byte & 15)]);
    }
    out.push(b'"');
}
