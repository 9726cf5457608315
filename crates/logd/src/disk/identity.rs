//! The random name of a directory: `directory.id`.
//!
//! With the stream and the line it names each line that is sent to Kafka, and it begins the names of uploaded segments.
//! Clients with a name are told it, so that they know whose numbers of their lines they are told. It stays when segments
//! are removed.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::Path,
};

use super::replacement;
use crate::error::LogdError;

const NAME: &str = "directory.id";
const BYTES: usize = 8;

/// Returns the random name of a directory, which is made if there is none.
///
/// # Errors
///
/// The file cannot be read or written, or has no name.
pub(crate) fn of(directory: &Path) -> Result<String, LogdError> {
    let path = directory.join(NAME);
    match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut bytes = [0; BYTES];
            let source = Path::new("/dev/urandom");
            let read = File::open(source).and_then(|mut file| file.read_exact(&mut bytes));
            read.map_err(|error| LogdError::on(source, &error))?;
            let id = format!("{:016x}", u64::from_be_bytes(bytes));
            replacement::write(directory, NAME, format!("{id}\n").as_bytes())?;
            Ok(id)
        }
        Err(error) => Err(LogdError::on(&path, &error)),
        Ok(text) => {
            let id = text.trim_end();
            let wrong = "it does not contain 16 hexadecimal digits; restore it, or remove it, and ship.cursor \
                         if there is one, to ship all stored lines under a new name";
            is_identity(id)
                .then(|| id.to_owned())
                .ok_or_else(|| LogdError::Failed(format!("{}: {wrong}", path.display())))
        }
    }
}

/// Whether this is the name of a directory.
pub(crate) fn is_identity(name: &str) -> bool {
    name.len() == 2 * BYTES && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_keeps_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let name = of(directory.path()).unwrap();
        assert_eq!(of(directory.path()).unwrap(), name);
        let other = tempfile::tempdir().unwrap();
        assert_ne!(of(other.path()).unwrap(), name);
        for text in ["", "123", "0123456789abcdeg\n"] {
            fs::write(directory.path().join(NAME), text).unwrap();
            let error = of(directory.path()).unwrap_err().to_string();
            assert!(error.contains("16 hexadecimal digits"), "{error}");
        }
    }
}
