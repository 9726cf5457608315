//! Starts a worker on each thread, waits for signals, prints what was counted.

use std::{
    io::Write,
    net::SocketAddr,
    os::unix::net::UnixStream,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use ringwise::{Backend, net, net::ListenOptions};
use signal_hook::{
    consts::{SIGINT, SIGTERM, SIGUSR1},
    iterator::{Handle, Signals},
};

use crate::{
    args::Args,
    descriptors,
    error::EchoError,
    stats::Stats,
    worker::{DRAIN, Order, TELL, Worker, control},
};

/// How long statistics are waited for: a worker answers between two turns.
const ANSWER_TIME: Duration = Duration::from_secs(2);

/// Serves until a signal ends it.
///
/// # Errors
///
/// The address cannot be listened on, the engine is not to be had, or a limit is too low.
pub fn run(args: &Args, out: &mut impl Write) -> Result<(), EchoError> {
    let connections_max = descriptors::make_room(args.max_connections, args.threads)?;
    let failed = |what: &str, error: std::io::Error| EchoError::new(format!("{what}: {error}"));
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGUSR1])
        .map_err(|error| failed("watching for signals", error))?;
    let mut server = Server::start(args, connections_max, &signals.handle())?;
    let told = writeln!(out, "listening on {}", server.address).and_then(|()| out.flush());
    told.map_err(|error| failed("standard output", error))?;
    for signal in signals.forever() {
        match signal {
            SIGUSR1 => eprintln!("ringwise: echo: {}", server.ask()),
            _ => server.tell_all(DRAIN),
        }
        if server.has_ended() {
            break;
        }
    }
    server.join()
}

struct Server {
    address: SocketAddr,
    workers: Vec<JoinHandle<Result<(), EchoError>>>,
    controls: Vec<UnixStream>,
    stats: Receiver<Stats>,
    is_draining: bool,
}

impl Server {
    fn start(args: &Args, connections_max: usize, signals: &Handle) -> Result<Server, EchoError> {
        let (send_stats, stats) = channel();
        let mut server = Server {
            address: args.listen,
            workers: Vec::new(),
            controls: Vec::new(),
            stats,
            is_draining: false,
        };
        let shared = args.threads > 1;
        if shared {
            // With SO_REUSEPORT a port in use by another server would be shared in silence.
            net::listen_tcp(&args.listen, &ListenOptions::default())
                .map_err(|error| EchoError::new(error.to_string()))?;
        }
        let options = ListenOptions::default().reuse_port(shared);
        let end = Arc::new(CloseOnDrop(Some(signals.clone())));
        let share = connections_max.div_ceil(args.threads as usize);
        for _ in 0..args.threads {
            server.start_worker(args, share, &options, &send_stats, &end)?;
        }
        Ok(server)
    }

    /// Starts a thread and waits until it listens.
    fn start_worker(
        &mut self,
        args: &Args,
        connections_max: usize,
        options: &ListenOptions,
        stats: &Sender<Stats>,
        end: &Arc<CloseOnDrop>,
    ) -> Result<(), EchoError> {
        let failed = |what: &str, error: std::io::Error| EchoError::new(format!("{what}: {error}"));
        let (ours, theirs) = control().map_err(|error| failed("a pair of sockets", error))?;
        let order = Order {
            engine: args.engine,
            spin: args.spin,
            drain: args.drain,
            connections_max,
            control: theirs,
            stats: stats.clone(),
        };
        let (send_ready, ready) = channel();
        let (address, options, end) = (self.address, options.clone(), Arc::clone(end));
        let name = format!("echo-{}", self.workers.len());
        let work = move || {
            // Whatever ends the worker, the thread that waits for signals hears of it: a failure at
            // once, a drain when it is the last's, for until then a second signal may come.
            let mut failure = CloseOnDrop(end.0.clone());
            let worker = Worker::new(order, &address, &options)?;
            let told = worker.address().map(|address| (address, worker.setup().clone()));
            let is_up = told.is_ok();
            let _ = send_ready.send(told);
            if is_up {
                worker.run()?;
            }
            failure.0 = None;
            drop(end);
            Ok(())
        };
        let thread = std::thread::Builder::new().name(name).spawn(work);
        let thread = thread.map_err(|error| failed("starting a thread", error))?;
        let Ok(told) = ready.recv() else {
            // It failed before it was up.
            let ended = thread.join().unwrap_or_else(|_| Err(EchoError::new("a thread panicked")));
            return Err(ended.err().unwrap_or_else(|| EchoError::new("a thread ended early")));
        };
        let (address, setup) = told?;
        if self.workers.is_empty() {
            self.address = address;
            if setup.backend() == Backend::Classic
                && let Some(reason) = setup.fallback().filter(|_| args.engine.is_auto())
            {
                eprintln!("ringwise: echo: on epoll: {reason}");
            }
        }
        self.workers.push(thread);
        self.controls.push(ours);
        Ok(())
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
    fn join(mut self) -> Result<(), EchoError> {
        // One that failed takes the others with it.
        if !self.is_draining {
            self.tell_all(DRAIN);
        }
        let mut result = Ok(());
        for worker in std::mem::take(&mut self.workers) {
            let ended = worker.join().unwrap_or_else(|_| Err(EchoError::new("a thread panicked")));
            result = result.and(ended);
        }
        let stats: Stats = self.stats.try_iter().sum();
        eprintln!("ringwise: echo: {stats}");
        result
    }
}

/// Ends the wait for signals, where it still has their handle.
struct CloseOnDrop(Option<Handle>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        if let Some(signals) = &self.0 {
            signals.close();
        }
    }
}
