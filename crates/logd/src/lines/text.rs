//! Strings of JSON, of any bytes.

/// Appends a string.
pub(crate) fn quote(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, text).expect("strings are JSON, and a vector takes all of it");
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
