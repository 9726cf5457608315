//! Log daemons: how each is set up, by a configuration in the run's own directory, and started. No
//! service of the system is touched.

use std::{
    net::{SocketAddr, TcpListener},
    process::Command,
};

use super::{
    plan::{Guarantee, LogGroup, LogServer, LogSwitches, Transport},
    rsyslog,
    scratch::Scratch,
};
use crate::{
    error::plain,
    sampling::job::{Failure, NOT_HERE},
    workload::under_load::server::{Announced, Processors, Server, own},
};

/// Where Debian and others keep daemons, which is not in everyone's path.
const SYSTEM_DIRECTORIES: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];

/// For how long a ring's thread spins: as in the lab's other rows of it.
const SQPOLL_IDLE: &str = "10ms";

/// What a daemon is set up for.
pub(super) struct Setting<'a> {
    pub(super) group: LogGroup,
    /// Of this project's daemon.
    pub(super) switches: LogSwitches,
    /// Where it stores.
    pub(super) scratch: &'a Scratch,
    pub(super) connections: usize,
}

/// A daemon that is running.
#[derive(Debug)]
pub(super) struct Daemon {
    pub server: Server,
}

impl Daemon {
    /// Starts a daemon with an empty store.
    ///
    /// # Errors
    ///
    /// [`Failure::Unavailable`], with what it said.
    pub(super) fn start(
        server: &LogServer,
        setting: &Setting<'_>,
        processors: Processors,
    ) -> Result<Daemon, Failure> {
        let unavailable = Failure::Unavailable;
        let &Setting { group, scratch, connections, .. } = setting;
        let (command, announced) = match server {
            LogServer::Target { address, .. } => {
                let server = Server::running(*address, processors.server)?;
                return Ok(Daemon { server });
            }
            LogServer::Uring | LogServer::UringSqpoll | LogServer::Epoll => {
                (logd(server, setting), Announced::Printed)
            }
            LogServer::Rsyslog(input) => {
                let address = free_address().map_err(unavailable)?;
                let command = rsyslog::command(*input, group, scratch, address, connections);
                (command, Announced::At(address))
            }
            LogServer::SyslogNg => {
                let address = free_address().map_err(unavailable)?;
                let command = syslog_ng(group.guarantee, scratch, address, connections);
                (command, Announced::At(address))
            }
        };
        let command = command.map_err(unavailable)?;
        Server::start(command, processors.server, announced).map(|server| Daemon { server })
    }

    /// Ends it: what it had to say.
    pub(super) fn end(self) -> String {
        self.server.end()
    }
}

fn logd(server: &LogServer, setting: &Setting<'_>) -> Result<Command, String> {
    let &Setting { group, switches, scratch, connections } = setting;
    let mut command = own()?;
    command.args(["logd", "--listen", "127.0.0.1:0", "--threads", "1", "--engine"]);
    command.arg(if *server == LogServer::Epoll { "epoll" } else { "uring" });
    if *server == LogServer::UringSqpoll {
        command.args(["--sqpoll", SQPOLL_IDLE]);
    }
    command.args(["--ack", group.guarantee.name(), "--dir"]).arg(scratch.stored());
    command.args(["--max-connections", &(connections + 64).to_string()]);
    command.args(switches.flags());
    // Segments that are not ended within a sample, so that what is compared is the taking.
    command.args(["--segment-size", "64g"]);
    if group.transport == Transport::Tls {
        scratch.certify()?;
        command.arg("--tls-cert").arg(scratch.certificate());
        command.arg("--tls-key").arg(scratch.key());
    }
    Ok(command)
}

/// Lines as they came, into one file; what it cannot write yet it does not read.
fn syslog_ng(
    guarantee: Guarantee,
    scratch: &Scratch,
    address: SocketAddr,
    connections: usize,
) -> Result<Command, String> {
    let sync = if guarantee == Guarantee::Durable { " fsync(yes)" } else { "" };
    let sessions = connections + 64;
    let port = address.port();
    let file = scratch.stored().join("lines");
    let text = format!(
        "@version: 3.35\n\
         options {{ flush-lines(1000); log-msg-size(1048576); stats-freq(0); use-dns(no); }};\n\
         source lines {{ network(ip(\"127.0.0.1\") port({port}) transport(\"tcp\") \
           flags(no-parse) max-connections({sessions}) log-fetch-limit(1000) \
           log-iw-size({})); }};\n\
         destination stored {{ file(\"{}\" template(\"$MSG\\n\") log-fifo-size({}){sync}); }};\n\
         log {{ source(lines); destination(stored); flags(flow-control); }};\n",
        sessions * 1000,
        file.display(),
        sessions * 1000
    );
    let configuration = scratch.file("syslog-ng.conf");
    scratch.write(&configuration, &text)?;
    let mut command = program("syslog-ng")?;
    command.args(["--foreground", "--no-caps", "-f"]).arg(configuration);
    command.arg("--persist-file").arg(scratch.file("syslog-ng.persist"));
    command.arg("--pidfile").arg(scratch.file("syslog-ng.pid"));
    command.arg("--control").arg(scratch.file("syslog-ng.ctl"));
    Ok(command)
}

/// A program by its name, in the path or where daemons are.
pub(super) fn program(name: &str) -> Result<Command, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain(SYSTEM_DIRECTORIES.map(Into::into));
    let found = directories.map(|directory| directory.join(name)).find(|path| path.is_file());
    found.map(Command::new).ok_or_else(|| format!("{NOT_HERE}{name} is not installed"))
}

/// An address that nobody listens at, for daemons that cannot choose one.
fn free_address() -> Result<SocketAddr, String> {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .map_err(|error| format!("looking for a free port: {}", plain(&error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What one engine has and the other has not would be compared, and not the interface.
    #[test]
    fn both_engines_are_switched_alike() {
        let directory = tempfile::tempdir().unwrap();
        let scratch = Scratch::make(directory.path()).unwrap();
        let group = LogGroup {
            transport: Transport::Plain,
            guarantee: Guarantee::Durable,
            offered_per_s: None,
        };
        let flags = |server: &LogServer, switches| {
            let setting = Setting { group, switches, scratch: &scratch, connections: 1 };
            let command = logd(server, &setting).unwrap();
            let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
            words.filter(|word| *word != "uring" && *word != "epoll").collect::<Vec<_>>()
        };
        let switched = LogSwitches { batch: Some(1) };
        let of_ring = flags(&LogServer::Uring, switched);
        assert_eq!(of_ring, flags(&LogServer::Epoll, switched));
        assert!(switched.flags().iter().all(|flag| of_ring.contains(flag)), "{of_ring:?}");
        let by_itself = flags(&LogServer::Uring, LogSwitches::default());
        assert_eq!(by_itself.len() + 1, of_ring.len(), "{by_itself:?}");
    }
}
