//! SIGINT and SIGTERM as a flag that every wait looks at.

use std::sync::{Arc, atomic::AtomicBool};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::error::{LoadError, plain};

/// The flag that the signals set from now on.
pub(crate) fn flag() -> Result<Arc<AtomicBool>, LoadError> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, flag.clone())
            .map_err(|error| LoadError::Failed(format!("signals: {}", plain(&error))))?;
    }
    Ok(flag)
}
