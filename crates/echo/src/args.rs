//! The arguments of `ringwise echo`.

use std::{net::SocketAddr, time::Duration};

use ringwise_measure::quantity::parse_duration;
use ringwise_serve::EngineChoice;

/// Echo what is received, on io_uring or on epoll by the same rules
///
/// The server prints "listening on IP:PORT" as soon as it accepts connections. After SIGTERM or SIGINT it accepts and
/// receives nothing more, sends back what it has received, and ends. After SIGUSR1 it prints statistics.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Listen on this address; port 0 lets the kernel choose one
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:12345", value_parser = address)]
    pub listen: SocketAddr,

    /// Use this interface of the kernel; "uring" fails if there is no io_uring, "auto" then uses epoll and says why
    #[arg(long, value_enum, default_value_t = EngineChoice::Auto)]
    pub engine: EngineChoice,

    /// Poll for this long before sleeping, in microseconds or as a time such as 50us; 0 sleeps at once. Polls become
    /// rare if they find nothing. If the client runs on the same processor, the server yields between polls. For a
    /// single connection, a poll receives and sends by plain syscalls, without io_uring or epoll
    #[arg(long, value_name = "USEC", default_value = "50", value_parser = parse_spin)]
    pub spin: Duration,

    /// Run this many threads, each with its own listener and loop (SO_REUSEPORT)
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=256))]
    pub threads: u32,

    /// Accept at most this many connections at a time, over all threads; others wait in the kernel's queue
    /// [default: 10000, or fewer if the limit of open descriptors is lower]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_connections: Option<u32>,

    /// Close a connection if its peer has not answered the kernel for this time, for example after a power loss
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = parse_patience)]
    pub patience: Duration,

    /// Wait at most this long at the end for the last answers to be sent
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_time)]
    pub drain: Duration,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "expected IP:PORT, such as 127.0.0.1:12345".to_owned())
}

/// A bare number is in microseconds.
fn parse_spin(text: &str) -> Result<Duration, String> {
    /// Longer is a core burnt for nothing.
    const SPIN_MAX: Duration = Duration::from_millis(10);
    let time = match text.parse::<u64>() {
        Ok(microseconds) => Duration::from_micros(microseconds),
        Err(_) => parse_time(text)?,
    };
    if time > SPIN_MAX {
        return Err("expected at most 10ms".to_owned());
    }
    Ok(time)
}

fn parse_patience(text: &str) -> Result<Duration, String> {
    /// The kernel's own limits: keepalive counts in seconds, up to 32767 (tcp(7)).
    const ACCEPTED: std::ops::RangeInclusive<Duration> =
        Duration::from_secs(2)..=Duration::from_secs(8 * 3600);
    let time = parse_time(text)?;
    ACCEPTED.contains(&time).then_some(time).ok_or_else(|| "expected 2s to 480m".to_owned())
}

fn parse_time(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_spin_is_in_microseconds() {
        assert_eq!(parse_spin("50"), Ok(Duration::from_micros(50)));
        assert_eq!(parse_spin("1ms"), Ok(Duration::from_millis(1)));
        assert_eq!(parse_spin("0"), Ok(Duration::ZERO));
        assert_eq!(parse_spin("1s"), Err("expected at most 10ms".to_owned()));
        assert!(parse_spin("-1").is_err());
    }

    #[test]
    fn patience_is_what_the_kernel_takes() {
        assert_eq!(parse_patience("2"), Ok(Duration::from_secs(2)));
        assert_eq!(parse_patience("480m"), Ok(Duration::from_secs(28_800)));
        assert_eq!(parse_patience("1999ms"), Err("expected 2s to 480m".to_owned()));
        assert!(parse_patience("481m").is_err() && parse_patience("x").is_err());
    }
}
