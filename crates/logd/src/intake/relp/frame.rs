//! Frames of RELP: `TXNR SP COMMAND SP DATALEN [SP DATA] LF`.

/// The most digits of a number, and letters of a command.
const DIGITS_MAX: usize = 9;
const LETTERS_MAX: usize = 32;

/// A frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    /// The number of its transaction, by which it is answered.
    pub(super) txnr: u32,
    pub(super) command: &'a [u8],
    pub(super) data: &'a [u8],
}

/// What bytes begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parsed<'a> {
    /// A frame of so many bytes.
    Whole(Frame<'a>, usize),
    /// The beginning of one, which has at least so many bytes; exactly, if that is more than a header has.
    Part { txnr: u32, bytes: usize },
}

/// What stands before a space, and the rest. None: its end has not come.
type Split<'a, T> = Option<(T, &'a [u8])>;

/// Parses the frame that bytes begin with. A frame of more than `most` bytes is never whole, however many have come.
///
/// # Errors
///
/// No frame begins so.
pub(super) fn parse(bytes: &[u8], most: usize) -> Result<Parsed<'_>, &'static str> {
    let part = |txnr, bytes| Ok(Parsed::Part { txnr, bytes });
    let more = bytes.len() + 1;
    let Some((txnr, rest)) = number(bytes, b" ", "a frame begins with no number")? else {
        return part(0, more);
    };
    if txnr == 0 {
        return Err("a frame has the number 0");
    }
    let Some((command, rest)) = command(rest)? else { return part(txnr, more) };
    let Some((length, rest)) = number(rest, b" \n", "a frame has no length")? else {
        return part(txnr, more);
    };
    let length = length as usize;
    let (has_data, rest) = (rest[0] == b' ', &rest[1..]);
    if !has_data && length > 0 {
        return Err("a frame ends before its data");
    }
    let data_start = bytes.len() - rest.len();
    // An empty frame ends with its length. Some clients send a space before its end all the same.
    let end = if has_data { data_start + length } else { data_start - 1 };
    match bytes.get(end).filter(|_| end < most) {
        None => part(txnr, end + 1),
        Some(b'\n') => {
            let data = if has_data { &bytes[data_start..end] } else { b"" };
            Ok(Parsed::Whole(Frame { txnr, command, data }, end + 1))
        }
        Some(_) => Err("a frame does not end where it should"),
    }
}

/// A number, and what begins with one of these bytes behind it. None: its end has not come.
fn number<'a>(
    bytes: &'a [u8],
    ends: &[u8],
    why: &'static str,
) -> Result<Split<'a, u32>, &'static str> {
    let end = bytes.iter().take(DIGITS_MAX + 1).position(|byte| !byte.is_ascii_digit());
    let Some(end) = end else {
        return if bytes.len() > DIGITS_MAX { Err(why) } else { Ok(None) };
    };
    let (digits, rest) = bytes.split_at(end);
    if digits.is_empty() || !ends.contains(&rest[0]) {
        return Err(why);
    }
    let number = digits.iter().fold(0, |number, digit| number * 10 + u32::from(digit - b'0'));
    Ok(Some((number, if ends.len() == 1 { &rest[1..] } else { rest })))
}

/// A command, and what is behind its space. None: its end has not come.
fn command(bytes: &[u8]) -> Result<Split<'_, &[u8]>, &'static str> {
    let end = bytes.iter().take(LETTERS_MAX + 1).position(|byte| !byte.is_ascii_alphabetic());
    match end {
        None if bytes.len() <= LETTERS_MAX => Ok(None),
        Some(end) if end > 0 && bytes[end] == b' ' => Ok(Some((&bytes[..end], &bytes[end + 1..]))),
        _ => Err("a frame has no command"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_whole_at_its_end_and_not_before() {
        for (text, data) in [
            ("1 open 0\n", ""),
            ("1 open 0 \n", ""),
            ("1 open 5 a\nb c\n", "a\nb c"),
            ("999999999 serverclose 1 \n\n", "\n"),
        ] {
            let bytes = text.as_bytes();
            let Ok(Parsed::Whole(frame, used)) = parse(bytes, 1000) else { panic!("{text:?}") };
            assert_eq!((frame.data, used), (data.as_bytes(), bytes.len()), "{text:?}");
            for end in 0..bytes.len() {
                let Ok(Parsed::Part { bytes: least, .. }) = parse(&bytes[..end], 1000) else {
                    panic!("{text:?} up to {end}")
                };
                assert!((end + 1..=bytes.len()).contains(&least), "{text:?} up to {end}: {least}");
            }
            // What is behind it does not matter.
            let longer = [bytes, b"x"].concat();
            assert_eq!(parse(&longer, 1000), Ok(Parsed::Whole(frame, used)));
        }
        assert_eq!(parse(b"7 syslog 500 x", 1000), Ok(Parsed::Part { txnr: 7, bytes: 514 }));
        assert_eq!(parse(b"7 syslog 1 x\n", 12), Ok(Parsed::Part { txnr: 7, bytes: 13 }));
    }

    #[test]
    fn what_is_no_frame_is_known_at_its_first_wrong_byte() {
        for (right, wrong) in [
            ("", "x"),
            ("", " "),
            ("", "\n"),
            ("1", "\n"),
            ("123456789", "0"),
            ("0", " "),
            ("1 ", "1"),
            ("1 ", " "),
            ("1 abcdefghijklmnopqrstuvwxyzabcdef", "g"),
            ("1 open", "\n"),
            ("1 open ", "x"),
            ("1 open 123456789", "0"),
            ("1 open 1", "\n"),
            ("1 open 1 x", "y"),
            ("1 open 0 ", "y"),
        ] {
            let parse = |text: &str| {
                parse(text.as_bytes(), 1000).map(|parsed| matches!(parsed, Parsed::Part { .. }))
            };
            assert_eq!(parse(right), Ok(true), "{right:?}");
            assert!(parse(&format!("{right}{wrong}")).is_err(), "{right:?}{wrong:?}");
        }
    }
}
