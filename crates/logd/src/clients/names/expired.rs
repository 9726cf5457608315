//! The names that expired, in a file of the directory.
//!
//! A client that comes back with an expired name would send its lines again from the first, since its number is
//! forgotten. So an expired name is never given out again. The file has one JSON object a line; memory has only
//! a hash of each name, so a million of them take about 20 MB. It does not decide which names expire.

use std::{
    collections::{HashSet, hash_map::RandomState},
    fs::File,
    hash::BuildHasher as _,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use super::Mark;
use crate::error::LogdError;

/// Names that may expire. When as many have, further ones stay known.
pub(super) const EXPIRED_MAX: usize = 1_000_000;

const FILE: &str = "expired-names";

/// Names that nobody gets any more.
#[derive(Debug, Default)]
pub(super) struct Expired {
    hashes: HashSet<u64>,
    /// Keyed at random, so that nobody can make a name that has another's hash.
    hasher: RandomState,
}

impl Expired {
    /// Reads the file of a directory.
    pub(super) fn read(directory: &Path) -> Result<Expired, LogdError> {
        let path = directory.join(FILE);
        let mut expired = Expired::default();
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(expired),
            Err(error) => return Err(LogdError::on(&path, &error)),
        };
        for line in bytes.split(|&byte| byte == b'\n') {
            // A line that a crash left unfinished is of a name that is still known.
            let record = serde_json::from_slice::<Value>(line).ok();
            if let Some(name) = record.as_ref().and_then(|record| record["name"].as_str()) {
                expired.add(name);
            }
        }
        Ok(expired)
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.hashes.contains(&self.hasher.hash_one(key))
    }

    pub(super) fn add(&mut self, key: &str) {
        self.hashes.insert(self.hasher.hash_one(key));
    }

    /// How many more may expire.
    pub(super) fn room(&self) -> usize {
        EXPIRED_MAX.saturating_sub(self.hashes.len())
    }
}

/// Where expired names are recorded.
#[derive(Debug)]
pub(super) struct Ledger(PathBuf);

impl Ledger {
    pub(super) fn new(directory: &Path) -> Ledger {
        Ledger(directory.to_owned())
    }

    /// Records names durably. After an error none of them is recorded, as far as the disk allows: a name that is still
    /// known must not be refused after the next start.
    pub(super) fn record(&self, marks: &[Mark]) -> io::Result<()> {
        // The first line break ends what a crash may have left unfinished.
        let mut text = String::from("\n");
        for mark in marks {
            let record =
                json!({ "name": &*mark.name, "lines": mark.line, "last_ms": mark.time_ms });
            text.push_str(&format!("{record}\n"));
        }
        let mut file = File::options().append(true).create(true).open(self.0.join(FILE))?;
        let before = file.metadata()?.len();
        let recorded = file
            .write_all(text.as_bytes())
            .and_then(|()| file.sync_data())
            .and_then(|()| File::open(&self.0)?.sync_all());
        if recorded.is_err() {
            // The first error says more.
            let _ = file.set_len(before).and_then(|()| file.sync_data());
        }
        recorded
    }
}
