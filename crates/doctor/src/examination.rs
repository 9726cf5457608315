//! The order of the checks, from the kernel outwards to the device.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ringwise_measure::device::Storage;
use ringwise_measure::environment::Environment;
use ringwise_measure::{Sources, plain};

use crate::probe_file::ProbeFile;
use crate::report::{Report, SCHEMA};
use crate::ring::Ring;
use crate::{limits, machine, ring, storage, workers};

/// A path that cannot be examined at all.
#[derive(Debug)]
pub struct DoctorError {
    path: PathBuf,
    error: io::Error,
}

impl fmt::Display for DoctorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let advice = "name an existing file or directory that you may read";
        write!(f, "{}: {}; {advice}", self.path.display(), plain(&self.error))
    }
}

impl std::error::Error for DoctorError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// Examines this machine, and the file system and device under `path`.
///
/// Writes a temporary file of 4 MiB there (or beside it, if it is a file) and
/// removes it. Takes well under a second on an idle machine.
///
/// # Errors
/// Only where `path` does not exist or cannot be reached.
pub fn examine(path: &Path, sources: &Sources) -> Result<Report, DoctorError> {
    let failed = |error| DoctorError { path: path.to_path_buf(), error };
    let path = fs::canonicalize(path).map_err(failed)?;
    let metadata = fs::metadata(&path).map_err(failed)?;
    let directory = match path.parent() {
        Some(parent) if !metadata.is_dir() => parent,
        _ => &path,
    };

    let environment = Environment::read(sources);
    let storage = Storage::of(sources, &path);
    let ring = Ring::try_out();
    let file = ProbeFile::create(directory);

    let mut findings = ring::judge(&ring, &environment);
    findings.extend(limits::judge(&environment, &limits::register_memory()));
    findings.extend(storage::judge(&storage, &file));
    findings.extend(workers::examine(sources, &file));
    findings.push(ring::iopoll(&file));
    findings.extend(machine::judge(sources, &environment, &storage));
    Ok(Report { schema: SCHEMA, path, findings, environment })
}
