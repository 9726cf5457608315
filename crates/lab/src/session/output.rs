//! Standard output.

use std::io::Write;

use crate::error::LabError;

/// Writes a text and flushes it.
pub(crate) fn say(out: &mut dyn Write, text: &str) -> Result<(), LabError> {
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| LabError::output(&error))
}
