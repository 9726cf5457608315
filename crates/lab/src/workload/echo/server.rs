//! Echo servers as processes of their own: started on their processor, asked where they listen,
//! and ended whatever happens.

use std::{
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use ringwise_measure::{
    Sources,
    cpu::{listening_process, pin_current_thread},
};
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    error::plain,
    job::Failure,
    plan::{EchoServer, Spin},
};

/// How long a server may take to say where it listens.
const START_TIME: Duration = Duration::from_secs(10);
/// How long it may take to end when it is asked to.
const END_TIME: Duration = Duration::from_secs(3);
/// What a server prints before its address.
const LISTENING: &str = "listening on ";

/// The usual echo server of node; it ends with the lab.
const NODE: &str = "\
const server = require('net').createServer((socket) => {
  socket.on('error', () => {});
  socket.setNoDelay(true);
  socket.pipe(socket);
});
server.listen({ host: '127.0.0.1', port: 0, backlog: 4096 }, () => {
  console.log('listening on 127.0.0.1:' + server.address().port);
});
process.stdin.on('end', () => process.exit()).resume();
";

/// A server that is running.
#[derive(Debug)]
pub(super) struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    /// Its process. None: on another machine, or not to be seen.
    pub pid: Option<u32>,
    child: Option<Child>,
}

impl Server {
    /// Starts a server on a processor. One that is running already is only looked for.
    ///
    /// # Errors
    ///
    /// [`Failure::Unavailable`], with what it said.
    pub(super) fn start(
        server: &EchoServer,
        processor: usize,
        connections: usize,
    ) -> Result<Server, Failure> {
        if let EchoServer::Target { address, .. } = server {
            let pid = match address.ip().is_loopback() {
                true => listening_process(&Sources::default(), address.port()).known().copied(),
                false => None,
            };
            return Ok(Server { address: *address, pid, child: None });
        }
        let mut command = command(server, connections).map_err(Failure::Unavailable)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = spawn_on(processor, &mut command).map_err(Failure::Unavailable)?;
        match listening_on(&mut child) {
            Ok(address) => Ok(Server { address, pid: Some(child.id()), child: Some(child) }),
            Err(reason) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(Failure::Unavailable(reason))
            }
        }
    }
}

impl Drop for Server {
    /// Asks it to end, and makes it where it does not.
    fn drop(&mut self) {
        let Some(child) = &mut self.child else { return };
        if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let asked = Instant::now();
        while matches!(child.try_wait(), Ok(None)) && asked.elapsed() < END_TIME {
            thread::sleep(Duration::from_millis(2));
        }
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn command(server: &EchoServer, connections: usize) -> Result<Command, String> {
    let own = || {
        let path = std::env::current_exe();
        path.map(Command::new).map_err(|error| format!("this program: {}", plain(&error)))
    };
    let builtin = |name: &str| {
        let mut command = own()?;
        command.args(["lab", "--child-server", name]);
        Ok(command)
    };
    let echo = |engine: &str, spin: Option<&str>| {
        let mut command = own()?;
        command.args(["echo", "--listen", "127.0.0.1:0", "--threads", "1", "--engine", engine]);
        // The first connection of some clients is a trial.
        command.args(["--max-connections", &(connections + 64).to_string()]);
        command.args(spin.into_iter().flat_map(|spin| ["--spin", spin]));
        Ok(command)
    };
    match server {
        EchoServer::Uring(Spin::Default) => echo("uring", None),
        EchoServer::Uring(Spin::On) => echo("uring", Some("50")),
        EchoServer::Uring(Spin::Off) => echo("uring", Some("0")),
        EchoServer::Epoll => echo("epoll", None),
        EchoServer::Tokio => builtin("tokio"),
        EchoServer::Blocking => builtin("blocking"),
        EchoServer::Node => {
            let mut command = Command::new("node");
            command.args(["-e", NODE]);
            Ok(command)
        }
        EchoServer::Target { .. } => unreachable!("it is running already"),
    }
}

/// Spawns from a thread that is pinned, since a process inherits the processors of the thread that
/// makes it (sched_setaffinity(2)).
fn spawn_on(processor: usize, command: &mut Command) -> Result<Child, String> {
    let spawn = || {
        pin_current_thread(&[processor])
            .map_err(|error| format!("processor {processor}: {}", plain(&error)))?;
        let program = command.get_program().to_string_lossy().into_owned();
        command.spawn().map_err(|error| format!("running {program}: {}", plain(&error)))
    };
    let spawned = thread::scope(|scope| scope.spawn(spawn).join());
    spawned.unwrap_or_else(|_| Err("starting it panicked".to_owned()))
}

/// Waits for the line that says where it listens, or for what it says instead.
fn listening_on(child: &mut Child) -> Result<SocketAddr, String> {
    let Some(out) = child.stdout.take() else { return Err("it has no output".to_owned()) };
    let (say, said) = mpsc::channel();
    // It ends with the server, whose later lines nobody reads.
    thread::spawn(move || {
        let mut lines = BufReader::new(out).lines().map_while(Result::ok);
        let _ = say.send(lines.find_map(|line| {
            line.strip_prefix(LISTENING).and_then(|address| address.trim().parse().ok())
        }));
        lines.for_each(drop);
    });
    match said.recv_timeout(START_TIME) {
        Ok(Some(address)) => Ok(address),
        Ok(None) => {
            let mut told = String::new();
            let _ = child.stderr.take().map(|mut errors| errors.read_to_string(&mut told));
            let line = told.lines().find(|line| !line.trim().is_empty());
            Err(line.map_or_else(|| "it ended without a word".to_owned(), str::to_owned))
        }
        Err(_) => Err(format!("it did not listen within {} s", START_TIME.as_secs())),
    }
}
