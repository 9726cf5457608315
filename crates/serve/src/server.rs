//! Starts a worker on each thread, waits for signals, and ends them.

use std::{
    fmt::Display,
    iter::Sum,
    net::SocketAddr,
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::{Arc, mpsc::channel},
    thread::JoinHandle,
    time::Duration,
};

use ringwise::{Backend, Effect, FallbackReason, Setup, net::ListenOptions};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXFSZ},
    iterator::{Handle, Signals},
};

use crate::{
    engine::EngineChoice,
    error::ServeError,
    panel::{Line, Panel, Request},
    places::{Places, Share},
    seat::{self, Listen, Seat},
};

/// One thread's loop.
pub trait Worker: Sized + 'static {
    /// What it counts; of several workers, added up.
    type Stats: Default + Clone + Sum + Display + Send + 'static;
    /// Why it ends early.
    type Error: From<ServeError> + Send + 'static;

    /// Where it listens.
    ///
    /// # Errors
    ///
    /// It cannot be found out.
    fn address(&self) -> Result<SocketAddr, Self::Error>;

    /// What its loop runs on.
    fn setup(&self) -> &Setup;

    /// Serves until it is told to drain and has; tells what it counted before it returns.
    ///
    /// # Errors
    ///
    /// It cannot go on. The other workers are then told to drain.
    fn run(self) -> Result<(), Self::Error>;
}

/// How a server is made.
pub struct Plan {
    /// Of threads, with a number behind it.
    pub name: &'static str,
    /// Where to listen; port 0 picks one, the same for all.
    pub listen: SocketAddr,
    /// A listener that somebody else opened, instead.
    pub listener: Option<OwnedFd>,
    /// Of workers.
    pub threads: u32,
    /// Open at a time, of all workers together.
    pub connections_max: usize,
    /// What moves the bytes.
    pub engine: EngineChoice,
    /// On a ring: a thread of the kernel takes what it is asked for, and sleeps when it was idle for
    /// so long (SQPOLL).
    pub sqpoll: Option<Duration>,
    /// Where a remark for the operator goes.
    pub say: Arc<dyn Fn(&str) + Send + Sync>,
}

/// Watches for the signals that a server takes; SIGHUP among them where it can reload.
///
/// # Errors
///
/// The kernel refuses.
pub fn signals(reloads: bool) -> Result<Signals, ServeError> {
    let taken: &[i32] = match reloads {
        true => &[SIGTERM, SIGINT, SIGUSR1, SIGXFSZ, SIGHUP],
        false => &[SIGTERM, SIGINT, SIGUSR1, SIGXFSZ],
    };
    Signals::new(taken).map_err(|error| ServeError::at("watching for signals", &error))
}

/// Workers that run.
pub struct Server<W: Worker> {
    address: SocketAddr,
    setup: Option<Setup>,
    workers: Vec<JoinHandle<Result<(), W::Error>>>,
    panel: Panel<W::Stats>,
    say: Arc<dyn Fn(&str) + Send + Sync>,
}

impl<W: Worker> Server<W> {
    /// Starts all workers, each made by `make` on its own thread, and waits until they listen.
    ///
    /// # Errors
    ///
    /// The address cannot be listened on, or what a worker fails with before it is up.
    pub fn start(
        plan: Plan,
        signals: &Handle,
        make: impl Fn(Seat<W::Stats>) -> Result<W, W::Error> + Clone + Send + 'static,
    ) -> Result<Server<W>, W::Error> {
        let mut server = Server {
            address: plan.listen,
            setup: None,
            workers: Vec::new(),
            panel: Panel::new(),
            say: plan.say,
        };
        let shared = plan.threads > 1;
        let mut listen = match plan.listener {
            Some(listener) => Listen::Given(listener),
            None => Listen::Address(plan.listen, ListenOptions::default().reuse_port(shared)),
        };
        if shared && let Listen::Address(address, _) = &listen {
            // With SO_REUSEPORT a port in use by another server would be shared in silence.
            seat::listen(address, &ListenOptions::default())?;
        }
        let end = Arc::new(CloseOnDrop(Some(signals.clone())));
        let places = Places::new(plan.connections_max);
        let part = plan.connections_max.div_ceil(plan.threads as usize);
        let own_most = seat::own_most(plan.connections_max, part);
        for number in 0..plan.threads {
            let (ours, theirs) =
                UnixStream::pair().map_err(|error| ServeError::at("a pair of sockets", &error))?;
            let ours = Arc::new(ours);
            let (send_stats, stats) = channel();
            let seat = Seat {
                number,
                part,
                share: Share::new(&places, &ours, own_most),
                backend: plan.engine.backend(),
                sqpoll: plan.sqpoll,
                listen: listen.another().map_err(|error| ServeError::at("a listener", &error))?,
                control: theirs,
                stats: send_stats,
            };
            let name = format!("{}-{number}", plan.name);
            let (address, setup) = server.start_worker(name, seat, &end, make.clone())?;
            server.tell_fallback(plan.engine, &setup, number);
            if number == 0 {
                server.address = address;
                if let Listen::Address(wanted, _) = &mut listen {
                    *wanted = address;
                }
                server.setup = Some(setup);
            }
            server.panel.add(Line::new(ours, stats));
        }
        Ok(server)
    }

    /// Says where a worker does not run on what it was to: of the first, and of others where it is
    /// another thing, since limits may have room for some and not for all.
    fn tell_fallback(&self, engine: EngineChoice, setup: &Setup, number: u32) {
        let told = |setup: &Setup| fallback(engine, setup.fallback(), setup.sqpoll());
        match (told(setup), &self.setup) {
            (Some(remark), None) => (self.say)(&remark),
            (Some(remark), Some(first)) if told(first).as_ref() != Some(&remark) => {
                (self.say)(&format!("thread {number}: {remark}"));
            }
            _ => {}
        }
    }

    /// Starts a thread and waits until it listens.
    fn start_worker(
        &mut self,
        name: String,
        seat: Seat<W::Stats>,
        end: &Arc<CloseOnDrop>,
        make: impl Fn(Seat<W::Stats>) -> Result<W, W::Error> + Send + 'static,
    ) -> Result<(SocketAddr, Setup), W::Error> {
        let (send_ready, ready) = channel();
        let end = Arc::clone(end);
        let work = move || {
            // Whatever ends the worker, the thread that waits for signals hears of it: a failure at
            // once, a drain when it is the last's, for until then a second signal may come.
            let mut failure = CloseOnDrop(end.0.clone());
            let worker = make(seat)?;
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
        let thread = thread.map_err(|error| ServeError::of_thread("that serves", &error))?;
        let Ok(told) = ready.recv() else {
            // It failed before it was up.
            let ended = thread.join().unwrap_or_else(|_| Err(panicked().into()));
            return Err(ended.err().unwrap_or_else(|| ServeError::new("a thread ended").into()));
        };
        self.workers.push(thread);
        told
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it runs on, in a word or two, and why it does not have what was asked for.
    pub fn engine(&self) -> String {
        let setup = self.setup.as_ref().expect("it has at least one worker");
        match (setup.backend(), setup.sqpoll()) {
            (Backend::Uring, Effect::Effective) => "io_uring with SQPOLL".to_owned(),
            (Backend::Uring, Effect::Ineffective(reason)) => {
                format!("io_uring without SQPOLL ({reason})")
            }
            (Backend::Uring, _) => "io_uring".to_owned(),
            _ => "epoll".to_owned(),
        }
    }

    /// What asks its workers.
    pub fn panel(&self) -> Panel<W::Stats> {
        self.panel.clone()
    }

    /// Serves until a signal ends it; `reload` is called for SIGHUP.
    ///
    /// # Errors
    ///
    /// What a worker ended with.
    pub fn serve(self, mut signals: Signals, mut reload: impl FnMut()) -> Result<(), W::Error> {
        for signal in signals.forever() {
            match signal {
                SIGUSR1 => {
                    let (counted, silent) = self.panel.ask();
                    let sum: W::Stats = counted.into_iter().sum();
                    (self.say)(&sum.to_string());
                    if silent > 0 {
                        (self.say)(&format!("{silent} threads did not answer in time"));
                    }
                }
                SIGHUP => reload(),
                // The write that was too far says so (setrlimit(2)).
                SIGXFSZ => {}
                _ => self.panel.tell_all(Request::Drain),
            }
            if self.workers.iter().all(JoinHandle::is_finished) {
                break;
            }
        }
        self.join()
    }

    /// Waits for all workers, and says what they counted.
    fn join(self) -> Result<(), W::Error> {
        // One that failed takes the others with it.
        if !self.panel.is_draining() {
            self.panel.tell_all(Request::Drain);
        }
        let mut result = Ok(());
        for worker in self.workers {
            let ended = worker.join().unwrap_or_else(|_| Err(panicked().into()));
            result = result.and(ended);
        }
        (self.say)(&self.panel.told().to_string());
        result
    }
}

/// What is to be said where it does not run on what it was to.
fn fallback(
    engine: EngineChoice,
    reason: Option<&FallbackReason>,
    sqpoll: &Effect,
) -> Option<String> {
    match (reason, sqpoll) {
        (Some(reason), _) if engine == EngineChoice::Auto => Some(format!("on epoll: {reason}")),
        (None, Effect::Ineffective(reason)) => Some(format!("without SQPOLL: {reason}")),
        _ => None,
    }
}

fn panicked() -> ServeError {
    ServeError::new("a thread panicked")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_and_is_not_there_is_told() {
        let refused = Effect::Ineffective("the kernel refused".to_owned());
        let told = |engine, reason, sqpoll| fallback(engine, reason, sqpoll).unwrap_or_default();
        let (auto, lacks) = (EngineChoice::Auto, Some(&FallbackReason::Lacks("waits")));
        assert_eq!(told(auto, None, &Effect::Effective), "");
        assert_eq!(told(auto, None, &refused), "without SQPOLL: the kernel refused");
        assert_eq!(told(EngineChoice::Uring, None, &refused), "without SQPOLL: the kernel refused");
        // One reason: what is not on a ring has no thread of one.
        assert!(told(auto, lacks, &refused).starts_with("on epoll: the kernel's io_uring lacks"));
        assert_eq!(told(EngineChoice::Epoll, Some(&FallbackReason::Chosen), &refused), "");
    }
}
