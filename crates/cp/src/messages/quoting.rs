//! Names as GNU programs print them: quoted so that a shell reads them back, in every locale.
//!
//! Two styles: [`Locale::shell`] for names of files in messages, which a user can paste, and
//! [`Locale::words`] for arguments that were not understood. Nothing here decides what is printed.

use std::env;

/// What of the environment decides how names are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Locale {
    utf8: bool,
}

impl Locale {
    /// The locale for characters, by the first of `LC_ALL`, `LC_CTYPE` and `LANG` that is set.
    pub(crate) fn from_environment() -> Locale {
        let set = ["LC_ALL", "LC_CTYPE", "LANG"].iter().filter_map(env::var_os);
        let name = set.into_iter().find(|value| !value.is_empty()).unwrap_or_default();
        let name = name.to_string_lossy().to_ascii_lowercase();
        Locale { utf8: name.ends_with("utf-8") || name.ends_with("utf8") }
    }

    /// A name in single quotes, or in double ones where that reads better; what cannot be printed
    /// as `$'\n'`.
    pub(crate) fn shell(self, name: &[u8]) -> Vec<u8> {
        if name.contains(&b'\'') && self.suits_double_quotes(name) {
            return [b"\"", name, b"\""].concat();
        }
        let mut out = vec![b'\''];
        let mut escaping = false;
        for piece in self.pieces(name) {
            match piece {
                Piece::Printable(b"'") => {
                    out.extend_from_slice(b"'\\''");
                    escaping = false;
                }
                Piece::Printable(bytes) => {
                    if escaping {
                        out.extend_from_slice(b"''");
                        escaping = false;
                    }
                    out.extend_from_slice(bytes);
                }
                Piece::Byte(byte) => {
                    if !escaping {
                        out.extend_from_slice(b"'$'");
                        escaping = true;
                    }
                    escape(byte, &mut out);
                }
            }
        }
        out.push(b'\'');
        out
    }

    /// An argument in the locale's own quotes.
    pub(crate) fn words(self, text: &[u8]) -> Vec<u8> {
        let (open, close) = if self.utf8 { ("\u{2018}", "\u{2019}") } else { ("'", "'") };
        let mut out = open.as_bytes().to_vec();
        for piece in self.pieces(text) {
            match piece {
                Piece::Printable(b"\\") => out.extend_from_slice(b"\\\\"),
                Piece::Printable(b"'") if !self.utf8 => out.extend_from_slice(b"\\'"),
                Piece::Printable(bytes) => out.extend_from_slice(bytes),
                Piece::Byte(byte) => escape(byte, &mut out),
            }
        }
        out.extend_from_slice(close.as_bytes());
        out
    }

    /// A name for a message that begins with it: bare where a shell would take it so.
    pub(crate) fn bare(self, name: &[u8]) -> Vec<u8> {
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"%+,-./@]_#~{}".contains(byte);
        let reads_back = !name.starts_with(b"#")
            && !name.starts_with(b"~")
            && name.iter().all(|byte| plain(byte) || *byte >= 0x80)
            && self.pieces(name).all(|piece| matches!(piece, Piece::Printable(_)));
        if !name.is_empty() && reads_back {
            return name.to_vec();
        }
        self.shell(name)
    }

    /// Whether only single quotes stand in the way: nothing that a shell expands within double
    /// quotes, or reads differently there.
    fn suits_double_quotes(self, name: &[u8]) -> bool {
        let mut first = true;
        self.pieces(name).all(|piece| {
            let at_start = std::mem::replace(&mut first, false);
            match piece {
                Piece::Byte(_) => false,
                Piece::Printable(&[byte]) => match byte {
                    b'#' | b'~' => at_start,
                    _ => byte.is_ascii_alphanumeric() || b" '%+,-./:]_".contains(&byte),
                },
                Piece::Printable(_) => true,
            }
        })
    }

    fn pieces(self, name: &[u8]) -> impl Iterator<Item = Piece<'_>> {
        let mut rest = name;
        std::iter::from_fn(move || {
            let &first = rest.first()?;
            let len = self.printable_len(rest);
            let (piece, after) = match len {
                0 => (Piece::Byte(first), &rest[1..]),
                len => (Piece::Printable(&rest[..len]), &rest[len..]),
            };
            rest = after;
            Some(piece)
        })
    }

    /// How many bytes the printable character at the start has; 0 where there is none.
    fn printable_len(self, bytes: &[u8]) -> usize {
        let first = bytes[0];
        if first < 0x80 {
            return usize::from((0x20..0x7f).contains(&first));
        }
        if !self.utf8 {
            return 0;
        }
        let head = &bytes[..bytes.len().min(4)];
        let valid = match str::from_utf8(head) {
            Ok(text) => text,
            Err(error) => str::from_utf8(&head[..error.valid_up_to()]).unwrap_or_default(),
        };
        match valid.chars().next() {
            Some(character) if is_printable(character) => character.len_utf8(),
            _ => 0,
        }
    }
}

enum Piece<'a> {
    /// One character.
    Printable(&'a [u8]),
    Byte(u8),
}

/// The standard library knows what it would escape; a mark that combines is escaped only where it
/// has nothing to combine with.
fn is_printable(character: char) -> bool {
    let pair: String = ['a', character].iter().collect();
    pair.escape_debug().skip(1).eq([character])
}

fn escape(byte: u8, out: &mut Vec<u8>) {
    let letter = match byte {
        7 => b'a',
        8 => b'b',
        b'\t' => b't',
        b'\n' => b'n',
        11 => b'v',
        12 => b'f',
        b'\r' => b'r',
        _ => {
            out.extend_from_slice(format!("\\{byte:03o}").as_bytes());
            return;
        }
    };
    out.extend_from_slice(&[b'\\', letter]);
}

#[cfg(test)]
mod tests {
    use super::*;

    const UTF8: Locale = Locale { utf8: true };
    const C: Locale = Locale { utf8: false };

    #[test]
    fn names_are_quoted_as_gnu_programs_do() {
        for (name, quoted) in [
            (&b"plain"[..], "'plain'"),
            (b"", "''"),
            (b"a b", "'a b'"),
            (b"it's", "\"it's\""),
            (b"'", "\"'\""),
            (b"a'b$", "'a'\\''b$'"),
            (b"no'such\"", "'no'\\''such\"'"),
            (b"a\nb", "'a'$'\\n''b'"),
            (b"\xff", "''$'\\377'"),
            ("\u{e9}".as_bytes(), "'\u{e9}'"),
            (b"\x01\xc3\xa9\x02", "''$'\\001''\u{e9}'$'\\002'"),
            (b"\n'", "''$'\\n'\\'''"),
        ] {
            assert_eq!(String::from_utf8(UTF8.shell(name)).unwrap(), quoted);
        }
        assert_eq!(C.shell("\u{e9}".as_bytes()), b"''$'\\303\\251'");
    }

    #[test]
    fn arguments_are_quoted_for_the_locale() {
        assert_eq!(UTF8.words(b"x\n"), "\u{2018}x\\n\u{2019}".as_bytes());
        assert_eq!(C.words(b"it's"), b"'it\\'s'");
    }
}
