//! Takes a command line apart as getopt_long(3) does: short flags in groups, long ones by any
//! beginning that is theirs alone, flags between operands unless `POSIXLY_CORRECT` is set.

use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
};

/// Whether a flag has a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    Nothing,
    /// In the same word only: `--flag=value`.
    Maybe,
    Value,
}

/// A flag and its spellings.
#[derive(Debug)]
pub(crate) struct Flag<Id> {
    pub(crate) long: Option<&'static str>,
    pub(crate) short: Option<char>,
    takes: Takes,
    id: Id,
    /// Whether GNU cp has it, so that its abbreviations go before others.
    gnu: bool,
}

impl<Id> Flag<Id> {
    pub(crate) const fn gnu(
        long: &'static str,
        short: Option<char>,
        takes: Takes,
        id: Id,
    ) -> Flag<Id> {
        Flag { long: Some(long), short, takes, id, gnu: true }
    }

    pub(crate) const fn short(short: char, takes: Takes, id: Id) -> Flag<Id> {
        Flag { long: None, short: Some(short), takes, id, gnu: true }
    }

    pub(crate) const fn own(long: &'static str, takes: Takes, id: Id) -> Flag<Id> {
        Flag { long: Some(long), short: None, takes, id, gnu: false }
    }
}

/// The words, and how far they were read.
#[derive(Debug)]
pub(crate) struct Scanner<Id: 'static> {
    flags: &'static [Flag<Id>],
    words: VecDeque<OsString>,
    /// What is left of a group of short flags.
    group: VecDeque<u8>,
    operands: Vec<OsString>,
    stop_at_operand: bool,
}

type Found<Id> = Option<(Id, Option<OsString>)>;

impl<Id: Copy + PartialEq> Scanner<Id> {
    pub(crate) fn new(
        flags: &'static [Flag<Id>],
        words: Vec<OsString>,
        stop_at_operand: bool,
    ) -> Scanner<Id> {
        let (group, operands) = (VecDeque::new(), Vec::new());
        Scanner { flags, words: words.into(), group, operands, stop_at_operand }
    }

    /// The next flag and its value, or why there is none; nothing at the end.
    pub(crate) fn next_flag(&mut self) -> Result<Found<Id>, Vec<u8>> {
        loop {
            if let Some(letter) = self.group.pop_front() {
                return self.short(letter).map(Some);
            }
            let Some(word) = self.words.pop_front() else { return Ok(None) };
            match word.as_bytes() {
                b"--" => {
                    self.operands.extend(self.words.drain(..));
                    return Ok(None);
                }
                [b'-', b'-', long @ ..] => return self.long(long).map(Some),
                [b'-', group @ ..] if !group.is_empty() => self.group.extend(group),
                _ => {
                    self.operands.push(word);
                    if self.stop_at_operand {
                        self.operands.extend(self.words.drain(..));
                        return Ok(None);
                    }
                }
            }
        }
    }

    pub(crate) fn into_operands(self) -> Vec<OsString> {
        self.operands
    }

    fn short(&mut self, letter: u8) -> Result<(Id, Option<OsString>), Vec<u8>> {
        let flag = self.flags.iter().find(|flag| flag.short == Some(char::from(letter)));
        let Some(flag) = flag else {
            return Err([b"invalid option -- '", &[letter][..], b"'"].concat());
        };
        if flag.takes != Takes::Value {
            return Ok((flag.id, None));
        }
        if !self.group.is_empty() {
            return Ok((flag.id, Some(OsString::from_vec(self.group.drain(..).collect()))));
        }
        match self.words.pop_front() {
            Some(value) => Ok((flag.id, Some(value))),
            None => Err([b"option requires an argument -- '", &[letter][..], b"'"].concat()),
        }
    }

    fn long(&mut self, word: &[u8]) -> Result<(Id, Option<OsString>), Vec<u8>> {
        let mut parts = word.splitn(2, |byte| *byte == b'=');
        let name = parts.next().unwrap_or_default();
        let value = parts.next().map(|value| OsStr::from_bytes(value).to_owned());
        let flag = self.find(name)?;
        let spelt = flag.long.unwrap_or_default();
        match (flag.takes, value) {
            (Takes::Nothing, Some(_)) => {
                Err(format!("option '--{spelt}' doesn't allow an argument").into_bytes())
            }
            (Takes::Value, None) => match self.words.pop_front() {
                Some(value) => Ok((flag.id, Some(value))),
                None => Err(format!("option '--{spelt}' requires an argument").into_bytes()),
            },
            (_, value) => Ok((flag.id, value)),
        }
    }

    fn find(&self, name: &[u8]) -> Result<&'static Flag<Id>, Vec<u8>> {
        let long = |flag: &&Flag<Id>| flag.long.is_some_and(|long| long.as_bytes() == name);
        if let Some(flag) = self.flags.iter().find(long) {
            return Ok(flag);
        }
        for gnu in [true, false] {
            let fits: Vec<&Flag<Id>> = (self.flags.iter().filter(|flag| flag.gnu == gnu))
                .filter(|flag| flag.long.is_some_and(|long| long.as_bytes().starts_with(name)))
                .collect();
            match &fits[..] {
                [] => {}
                [first, others @ ..] if others.iter().all(|flag| flag.id == first.id) => {
                    return Ok(first);
                }
                _ => {
                    let names = fits.iter().filter_map(|flag| flag.long);
                    let list: String = names.map(|long| format!(" '--{long}'")).collect();
                    let text = [b"option '--", name, b"' is ambiguous; possibilities:"].concat();
                    return Err([text, list.into_bytes()].concat());
                }
            }
        }
        Err([b"unrecognized option '--", name, b"'"].concat())
    }
}
