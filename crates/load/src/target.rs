//! Where the server is: a name becomes the one address that answers.

use std::{
    io,
    net::{SocketAddr, TcpStream, ToSocketAddrs},
    time::Duration,
};

use crate::error::{LoadError, plain};

/// How long an address of several may take to answer.
const TRIAL_TIME: Duration = Duration::from_secs(5);

/// The address of `HOST:PORT`, which came with `flag`. Of several, the first that takes a
/// connection.
pub(crate) fn resolve(flag: &str, name: &str) -> Result<SocketAddr, LoadError> {
    if let Ok(address) = name.parse() {
        return Ok(address);
    }
    let is_complete = name
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    if !is_complete {
        let expected = "expected HOST:PORT, such as 127.0.0.1:12345 or [::1]:12345";
        let text = format!("{flag}: invalid value '{name}': {expected}");
        return Err(LoadError::Usage(text));
    }
    let found = name.to_socket_addrs().map_err(|error| {
        let reason = plain(&error);
        LoadError::Failed(format!("{flag} {name}: the name does not resolve: {reason}"))
    })?;
    first_to_answer(name, &found.collect::<Vec<_>>())
}

fn first_to_answer(name: &str, found: &[SocketAddr]) -> Result<SocketAddr, LoadError> {
    let mut last = (None, io::Error::from(io::ErrorKind::AddrNotAvailable));
    for &address in found {
        // A single one is found to be silent by the run itself.
        if found.len() == 1 {
            return Ok(address);
        }
        match TcpStream::connect_timeout(&address, TRIAL_TIME) {
            Ok(_) => return Ok(address),
            Err(error) => last = (Some(address), error),
        }
    }
    let (address, error) = last;
    let address = address.map_or_else(|| name.to_owned(), |address| format!("{name} ({address})"));
    Err(LoadError::Failed(connecting(&address, &error)))
}

/// Why a connection could not be made, and what to do.
pub(crate) fn connecting(address: &str, error: &io::Error) -> String {
    let advice = match error.kind() {
        io::ErrorKind::ConnectionRefused => "; start a server there, or name another address",
        // connect(2): all ports of the range are in use, those in TIME_WAIT included.
        io::ErrorKind::AddrNotAvailable => {
            ": no local port is left; lower --rate or the number of connections, or widen \
             net.ipv4.ip_local_port_range"
        }
        _ => "",
    };
    format!("connecting to {address}: {}{advice}", plain(error))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn numbers_are_taken_as_they_are() {
        assert_eq!(resolve("--address", "127.0.0.1:7").unwrap(), "127.0.0.1:7".parse().unwrap());
        assert_eq!(resolve("--address", "[::1]:7").unwrap(), "[::1]:7".parse().unwrap());
    }

    #[test]
    fn what_is_no_address_is_wrong_usage() {
        for name in ["", "localhost", ":80", "host:", "host:http", "host:70000"] {
            let error = resolve("--address", name).unwrap_err();
            assert_eq!(error.exit_status(), 2, "{name}");
            assert!(error.to_string().contains("expected HOST:PORT"), "{error}");
        }
    }

    #[test]
    fn of_several_the_one_that_answers() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let open = listener.local_addr().unwrap();
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert_eq!(first_to_answer("both:1", &[closed, open]).unwrap(), open);
        let error = first_to_answer("none:1", &[closed, closed]).unwrap_err().to_string();
        assert!(error.contains("Connection refused") && error.contains("none:1"), "{error}");
        assert!(first_to_answer("nothing:1", &[]).is_err());
    }
}
