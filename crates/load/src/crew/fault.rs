//! What can be wrong with a connection, in words.

use std::{fmt, io, net::SocketAddr};

use crate::{error::plain, target::connecting};

/// What was wrong with a connection.
#[derive(Debug)]
pub(crate) enum Fault {
    /// It could not be made, which is not about one connection among others.
    Connecting(String),
    /// The other side closed it, or a syscall on it failed.
    Broken(String),
    /// The other side did what it must not do, or nothing.
    Wrong(String),
}

impl Fault {
    pub(crate) fn connecting(address: SocketAddr, error: &io::Error) -> Fault {
        Fault::Connecting(connecting(&address.to_string(), error))
    }

    /// A failed syscall; `progress` says how far the connection came.
    pub(crate) fn of_call(what: &str, error: &io::Error, progress: &str) -> Fault {
        Fault::Broken(format!("{what}: {} ({progress})", plain(error)))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Fault::Connecting(text) | Fault::Broken(text) | Fault::Wrong(text)) = self;
        f.write_str(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_to_look_at() {
        let refused = io::Error::from_raw_os_error(111);
        let text = Fault::connecting("127.0.0.1:1".parse().unwrap(), &refused).to_string();
        assert_eq!(
            text,
            "connecting to 127.0.0.1:1: Connection refused; start a server there, or name another address"
        );
    }
}
