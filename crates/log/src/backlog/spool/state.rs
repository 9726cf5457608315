//! The file `state` of a spool: what a later program has to know that is no line.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Write as _},
    path::Path,
};

use super::{super::numbering::Numbering, lock};
use crate::error::SetupError;

const FIRST: &str = "ringwise-log spool 1";

/// What the file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// Lines up to this one are acknowledged; later ones may be.
    pub(super) acknowledged: u64,
    /// The client's name, whose lines the numbering counts; empty without one.
    name: String,
    pub(super) numbering: Option<Numbering>,
}

impl State {
    /// Reads it; a directory without one is new.
    pub(super) fn read(directory: &Path) -> Result<State, SetupError> {
        let path = directory.join("state");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(State::default()),
            Err(error) => return Err(SetupError::Spool(path, error)),
        };
        let damaged = || SetupError::SpoolDamaged(path, "the checksum is wrong".to_owned());
        State::parse(&text).ok_or_else(damaged)
    }

    fn parse(text: &str) -> Option<State> {
        let (body, sum) = text.trim_end().rsplit_once("checksum ")?;
        if u32::from_str_radix(sum, 16).ok()? != crc32fast::hash(body.as_bytes()) {
            return None;
        }
        let (mut state, mut directory) = (State::default(), String::new());
        let mut lines = body.lines();
        lines.next().filter(|line| *line == FIRST)?;
        for line in lines {
            match line.split_once(' ')? {
                ("acknowledged", number) => state.acknowledged = number.parse().ok()?,
                ("name", name) => name.clone_into(&mut state.name),
                ("offset", number) => {
                    let offset = number.parse().ok()?;
                    state.numbering = Some(Numbering { offset, directory: String::new() });
                }
                ("directory", name) => name.clone_into(&mut directory),
                _ => return None,
            }
        }
        if let Some(numbering) = &mut state.numbering {
            numbering.directory = directory;
        }
        Some(state)
    }

    /// The same for a client of this name. What another name's numbers are says nothing about its own.
    pub(super) fn of(mut self, name: &str) -> State {
        if self.name != name {
            name.clone_into(&mut self.name);
            self.numbering = None;
        }
        self
    }

    /// Replaces the file, durably.
    pub(super) fn write(&self, directory: &Path) -> io::Result<()> {
        let mut text = format!("{FIRST}\nacknowledged {}\nname {}\n", self.acknowledged, self.name);
        if let Some(Numbering { offset, directory }) = &self.numbering {
            text += &format!("offset {offset}\ndirectory {directory}\n");
        }
        text += &format!("checksum {:0>8x}\n", crc32fast::hash(text.as_bytes()));
        let new = directory.join("state.new");
        let mut file = File::create(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        drop(file);
        fs::rename(&new, directory.join("state"))?;
        lock::sync_directory(directory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_changed_is_not() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(State::read(directory.path()).unwrap(), State::default());
        for (offset, counting) in [(None, ""), (Some(-3), ""), (Some(i128::from(u64::MAX)), "ab01")]
        {
            let numbering =
                offset.map(|offset| Numbering { offset, directory: counting.to_owned() });
            let state = State { acknowledged: 17, name: "web-1".to_owned(), numbering };
            state.write(directory.path()).unwrap();
            assert_eq!(State::read(directory.path()).unwrap(), state);
            assert_eq!(state.clone().of("web-1"), state);
            assert_eq!(state.clone().of("web-2").numbering, None);
        }
        let path = directory.path().join("state");
        let text = fs::read_to_string(&path).unwrap();
        for changed in [text.replace("17", "18"), text[..text.len() - 3].to_owned(), String::new()]
        {
            fs::write(&path, changed).unwrap();
            let error = State::read(directory.path()).unwrap_err();
            assert!(matches!(error, SetupError::SpoolDamaged(..)), "{error}");
        }
    }
}
