//! Servers as processes of their own: started on their processor, asked where they listen, and
//! ended whatever happens.

use std::{
    io::{BufRead, BufReader, Read},
    net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use ringwise_measure::{
    Sources,
    cpu::{ForeignProcess, allowed_cpus, listening_process, pin_current_thread},
};
use rustix::process::{Pid, Signal, kill_process};

use crate::{error::plain, sampling::job::Failure};

/// How long a server may take to say where it listens.
const START_TIME: Duration = Duration::from_secs(10);
/// How long it may take to end when it is asked to.
const END_TIME: Duration = Duration::from_secs(3);
/// The address of a server that has not said it.
const NOWHERE: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));
/// What a server prints before its address.
const LISTENING: &str = "listening on ";

/// Which processors the two sides have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Processors {
    pub server: usize,
    pub load: usize,
}

impl Processors {
    pub(crate) fn choose() -> Processors {
        let allowed = allowed_cpus().unwrap_or_default();
        let server = allowed.first().copied().unwrap_or(0);
        Processors { server, load: allowed.get(1).copied().unwrap_or(server) }
    }

    /// What is to be said of them.
    pub(crate) fn note(self) -> String {
        if self.server == self.load {
            return "one processor for servers and load: figures say little".to_owned();
        }
        format!("servers on processor {}, load on processor {}", self.server, self.load)
    }
}

/// A server that is running.
#[derive(Debug)]
pub(crate) struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    /// Its process. None: on another machine, or not to be seen.
    pub pid: Option<u32>,
    child: Option<Child>,
    errors: Option<JoinHandle<String>>,
}

/// How it is known that a server listens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Announced {
    /// It prints "listening on ADDRESS".
    Printed,
    /// It takes connections at an address that it was told.
    At(SocketAddr),
}

impl Server {
    /// Starts a server on a processor.
    ///
    /// # Errors
    ///
    /// [`Failure::Unavailable`], with what it said.
    pub(crate) fn start(
        mut command: Command,
        processor: usize,
        announced: Announced,
    ) -> Result<Server, Failure> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = spawn_on(processor, &mut command).map_err(Failure::Unavailable)?;
        let errors = child.stderr.take().map(|mut errors| {
            // It ends with the server.
            thread::spawn(move || {
                let mut told = Vec::new();
                let _ = errors.read_to_end(&mut told);
                String::from_utf8_lossy(&told).into_owned()
            })
        });
        let mut server =
            Server { address: NOWHERE, pid: Some(child.id()), child: Some(child), errors };
        let listening = match announced {
            Announced::Printed => server.listening_on(),
            Announced::At(address) => server.answers_at(address),
        };
        match listening {
            Ok(address) => {
                server.address = address;
                Ok(server)
            }
            Err(reason) => {
                let told = server.end();
                let line = told.lines().find(|line| !line.trim().is_empty());
                Err(Failure::Unavailable(line.map_or(reason, str::to_owned)))
            }
        }
    }

    /// One that is running already: it is only looked for.
    ///
    /// # Errors
    ///
    /// [`Failure::Unavailable`] where it runs on other processors.
    pub(crate) fn running(address: SocketAddr, processor: usize) -> Result<Server, Failure> {
        let pid = match address.ip().is_loopback() {
            true => listening_process(&Sources::default(), address.port()).known().copied(),
            false => None,
        };
        if let Some(reason) = pid.and_then(|pid| misplaced(pid, processor)) {
            return Err(Failure::Unavailable(reason));
        }
        Ok(Server { address, pid, child: None, errors: None })
    }

    /// Waits for the line that says where it listens, or for its end.
    fn listening_on(&mut self) -> Result<SocketAddr, String> {
        let out = self.child.as_mut().and_then(|child| child.stdout.take());
        let Some(out) = out else { return Err("it has no output".to_owned()) };
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
            Ok(None) => Err("it ended without a word".to_owned()),
            Err(_) => Err(format!("it did not listen within {} s", START_TIME.as_secs())),
        }
    }

    /// Waits until it takes connections, or for its end.
    fn answers_at(&mut self, address: SocketAddr) -> Result<SocketAddr, String> {
        let started = Instant::now();
        while started.elapsed() < START_TIME {
            if TcpStream::connect_timeout(&address, START_TIME).is_ok() {
                return Ok(address);
            }
            if self.child.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None))) {
                return Err("it ended without a word".to_owned());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Err(format!("it did not listen within {} s", START_TIME.as_secs()))
    }

    /// Ends it: what it had to say on standard error.
    pub(crate) fn end(mut self) -> String {
        self.stop();
        let errors = self.errors.take();
        errors.and_then(|errors| errors.join().ok()).unwrap_or_default()
    }

    /// Asks it to end, and makes it where it does not.
    fn stop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
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

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// This program, as a server of its own.
pub(crate) fn own() -> Result<Command, String> {
    let path = std::env::current_exe();
    path.map(Command::new).map_err(|error| format!("this program: {}", plain(&error)))
}

/// Why a server that is running already cannot be compared: on the processor of the load it would
/// be woken without a wake-up of another processor, which is most of a round's time.
fn misplaced(pid: u32, processor: usize) -> Option<String> {
    let allowed = ForeignProcess::processors(&Sources::default(), pid);
    let list = allowed.known().filter(|list| **list != processor.to_string())?;
    Some(format!(
        "it may run on processors {list}, the other servers run on {processor}: pin it with \
         taskset -acp {processor} {pid}"
    ))
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
