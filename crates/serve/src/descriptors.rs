//! Raises the limit of open descriptors as far as possible, and reports an error if that is not enough.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::ServeError;

/// Descriptors that every server has besides its connections: standard streams and signals, and for each thread a
/// listener, a ring, an epoll set, a way to wake it, its files, and some spare ones.
fn beside(threads: u32) -> u64 {
    32 + 16 * u64::from(threads)
}

/// The number of connections without `--max-connections`.
const DEFAULT_MAX: u64 = 10_000;

/// Raises the limit as needed, and returns how many connections may be open. `more` is the number of further
/// descriptors that this server needs besides those of every server.
///
/// # Errors
///
/// The hard limit has no room for so many connections, or for any, or the limit cannot be raised.
pub fn make_room(asked: Option<u32>, threads: u32, more: u64) -> Result<usize, ServeError> {
    let beside = beside(threads) + more;
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.unwrap_or(u64::MAX);
    let room = hard.saturating_sub(beside);
    let connections = match asked {
        Some(asked) if u64::from(asked) > room => {
            return Err(ServeError::new(format!(
                "--max-connections {asked} needs {} open descriptors and the hard limit is {hard}: \
                 raise it (ulimit -Hn, LimitNOFILE=) or ask for at most {room}",
                u64::from(asked) + beside
            )));
        }
        Some(asked) => u64::from(asked),
        None => DEFAULT_MAX.min(room),
    };
    if connections == 0 {
        return Err(ServeError::new(format!(
            "the hard limit of {hard} open descriptors leaves none for connections: raise it \
             (ulimit -Hn, LimitNOFILE=)"
        )));
    }
    let needed = connections + beside;
    if limit.current.is_some_and(|current| current < needed) {
        let raised = Rlimit { current: Some(needed), maximum: limit.maximum };
        setrlimit(Resource::Nofile, raised).map_err(|errno| {
            ServeError::new(format!("raising the limit of open descriptors to {needed}: {errno}"))
        })?;
    }
    Ok(connections as usize)
}
