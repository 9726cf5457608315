//! Starts a worker on each thread, waits for signals, prints what was counted.

use std::{
    fs::File,
    io::Write,
    net::SocketAddr,
    os::unix::net::UnixStream,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use ringwise::{Backend, net, net::ListenOptions};
use rustix::fs::{FlockOperation, flock};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1},
    iterator::{Handle, Signals},
};

use crate::{
    args::{EngineChoice, Options, ServeArgs},
    descriptors,
    error::LogdError,
    stats::Stats,
    worker::{DRAIN, Live, Order, RELOAD, TELL, Worker},
};

/// How long statistics are waited for: a worker answers between two turns.
const ANSWER_TIME: Duration = Duration::from_secs(2);

/// Serves until a signal ends it.
pub(crate) fn serve(args: &ServeArgs, out: &mut impl Write) -> Result<(), LogdError> {
    let options = args.decide()?;
    if args.check {
        return writeln!(out, "the options are right").map_err(|error| LogdError::output(&error));
    }
    let connections_max = descriptors::make_room(options.connections, options.threads)?;
    let _lock = lock(&options.directory)?;
    let failed = |what: &str, error: std::io::Error| LogdError::Failed(format!("{what}: {error}"));
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGUSR1, SIGHUP])
        .map_err(|error| failed("watching for signals", error))?;
    let mut server = Server::start(&options, connections_max, &signals.handle())?;
    let told = writeln!(out, "listening on {}", server.address).and_then(|()| out.flush());
    told.map_err(|error| LogdError::output(&error))?;
    for signal in signals.forever() {
        match signal {
            SIGUSR1 => eprintln!("ringwise: logd: {}", server.ask()),
            SIGHUP => server.reload(args, &options),
            _ => server.tell_all(DRAIN),
        }
        if server.has_ended() {
            break;
        }
    }
    server.join()
}

/// Makes the directory if it is not there, durably, and takes it for this daemon alone.
fn lock(directory: &Path) -> Result<File, LogdError> {
    if !directory.is_dir() {
        std::fs::create_dir_all(directory).map_err(|error| LogdError::on(directory, &error))?;
        // Its name, and those of all above it that may be new.
        let absolute =
            directory.canonicalize().map_err(|error| LogdError::on(directory, &error))?;
        for above in absolute.ancestors().skip(1) {
            // What cannot be opened was not made here.
            if let Ok(above) = File::open(above) {
                above.sync_all().map_err(|error| LogdError::on(directory, &error))?;
            }
        }
    }
    let path = directory.join("lock");
    let file = File::options().write(true).create(true).truncate(false).open(&path);
    let file = file.map_err(|error| LogdError::on(&path, &error))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
        LogdError::Failed(format!("{}: another daemon stores there", directory.display()))
    })?;
    Ok(file)
}

struct Server {
    address: SocketAddr,
    workers: Vec<JoinHandle<Result<(), LogdError>>>,
    controls: Vec<UnixStream>,
    live: Arc<Mutex<Live>>,
    stats: Receiver<Stats>,
    is_draining: bool,
}

impl Server {
    fn start(
        options: &Options,
        connections_max: usize,
        signals: &Handle,
    ) -> Result<Server, LogdError> {
        let (send_stats, stats) = channel();
        let mut server = Server {
            address: options.listen,
            workers: Vec::new(),
            controls: Vec::new(),
            live: Arc::new(Mutex::new(options.live.clone())),
            stats,
            is_draining: false,
        };
        let shared = options.threads > 1;
        if shared {
            // With SO_REUSEPORT a port in use by another server would be shared in silence.
            net::listen_tcp(&options.listen, &ListenOptions::default())
                .map_err(LogdError::failed)?;
        }
        let listen = ListenOptions::default().reuse_port(shared);
        let share = connections_max.div_ceil(options.threads as usize);
        for _ in 0..options.threads {
            server.start_worker(options, share, &listen, &send_stats, signals)?;
        }
        Ok(server)
    }

    /// Starts a thread and waits until it listens.
    fn start_worker(
        &mut self,
        options: &Options,
        connections_max: usize,
        listen: &ListenOptions,
        stats: &Sender<Stats>,
        signals: &Handle,
    ) -> Result<(), LogdError> {
        let failed =
            |what: &str, error: std::io::Error| LogdError::Failed(format!("{what}: {error}"));
        let (ours, theirs) =
            UnixStream::pair().map_err(|error| failed("a pair of sockets", error))?;
        let order = Order {
            number: self.workers.len() as u32,
            backend: options.backend(),
            directory: options.directory.clone(),
            guarantee: options.guarantee,
            drain: options.drain,
            connections_max,
            live: self.live.clone(),
            control: theirs,
            stats: stats.clone(),
        };
        let (send_ready, ready) = channel();
        let (address, listen, signals) = (self.address, listen.clone(), signals.clone());
        let name = format!("logd-{}", self.workers.len());
        let work = move || {
            // Whatever ends the worker, the thread that waits for signals hears of it.
            let _end = CloseOnDrop(signals);
            let worker = Worker::new(order, &address, &listen)?;
            let told = worker.address().map(|address| (address, worker.setup().clone()));
            let is_up = told.is_ok();
            let _ = send_ready.send(told);
            if is_up { worker.run() } else { Ok(()) }
        };
        let thread = std::thread::Builder::new().name(name).spawn(work);
        let thread = thread.map_err(|error| failed("starting a thread", error))?;
        let Ok(told) = ready.recv() else {
            // It failed before it was up.
            let ended = thread.join().unwrap_or_else(|_| Err(panicked()));
            return Err(ended
                .err()
                .unwrap_or_else(|| LogdError::Failed("a thread ended early".to_owned())));
        };
        let (address, setup) = told?;
        if self.workers.is_empty() {
            self.address = address;
            if setup.backend() == Backend::Classic
                && let Some(reason) =
                    setup.fallback().filter(|_| options.engine == EngineChoice::Auto)
            {
                eprintln!("ringwise: logd: on epoll: {reason}");
            }
        }
        self.workers.push(thread);
        self.controls.push(ours);
        Ok(())
    }

    /// Reads the options again and takes over those that may change.
    fn reload(&mut self, args: &ServeArgs, before: &Options) {
        let options = match args.decide() {
            Ok(options) => options,
            Err(error) => {
                return eprintln!("ringwise: logd: not reloaded: {error}");
            }
        };
        if options.listen != before.listen
            || options.directory != before.directory
            || options.guarantee != before.guarantee
            || options.engine != before.engine
            || options.threads != before.threads
            || options.connections != before.connections
            || options.drain != before.drain
        {
            eprintln!(
                "ringwise: logd: listen, dir, ack, engine, threads, max-connections and drain \
                 change with a restart only"
            );
        }
        let mut live = options.live;
        live.limits.budget_all =
            live.limits.budget_all * options.threads as usize / before.threads as usize;
        *self.live.lock().unwrap_or_else(PoisonError::into_inner) = live;
        self.tell_all(RELOAD);
        eprintln!("ringwise: logd: reloaded");
    }

    /// Asks every worker for the same thing. One that has ended does not hear it.
    fn tell_all(&mut self, what: u8) {
        self.is_draining |= what == DRAIN;
        for control in &mut self.controls {
            let _ = control.write_all(&[what]);
        }
    }

    /// What all workers have counted.
    fn ask(&mut self) -> Stats {
        self.tell_all(TELL);
        let answers = self.controls.iter().map(|_| self.stats.recv_timeout(ANSWER_TIME));
        answers.map_while(Result::ok).sum()
    }

    fn has_ended(&self) -> bool {
        self.workers.iter().all(JoinHandle::is_finished)
    }

    /// Waits for all workers, and prints what they counted.
    fn join(mut self) -> Result<(), LogdError> {
        // One that failed takes the others with it.
        if !self.is_draining {
            self.tell_all(DRAIN);
        }
        let mut result = Ok(());
        for worker in std::mem::take(&mut self.workers) {
            let ended = worker.join().unwrap_or_else(|_| Err(panicked()));
            result = result.and(ended);
        }
        let stats: Stats = self.stats.try_iter().sum();
        eprintln!("ringwise: logd: {stats}");
        result
    }
}

fn panicked() -> LogdError {
    LogdError::Failed("a thread panicked".to_owned())
}

/// Ends the wait for signals.
struct CloseOnDrop(Handle);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}
