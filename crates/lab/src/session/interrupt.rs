//! SIGINT and SIGTERM as a flag that every lane and every wait looks at.

use std::sync::{Arc, atomic::AtomicBool};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::error::{LabError, plain};

/// The flag that the signals set from now on.
///
/// # Errors
///
/// What sigaction(2) reports.
pub fn flag() -> Result<Arc<AtomicBool>, LabError> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, flag.clone())
            .map_err(|error| LabError::Failed(format!("signals: {}", plain(&error))))?;
    }
    Ok(flag)
}
