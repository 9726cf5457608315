//! Starts a worker on each thread, waits for signals, and ends the workers.

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
use ringwise_measure::plain_text;
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

/// The loop of one thread.
pub trait Worker: Sized + 'static {
    /// The statistics of a worker. Those of several workers are added up.
    type Stats: Default + Clone + Sum + Display + Send + 'static;
    /// The reason why a worker ends early.
    type Error: From<ServeError> + Send + 'static;

    /// Returns the address of the listener.
    ///
    /// # Errors
    ///
    /// The address cannot be found.
    fn address(&self) -> Result<SocketAddr, Self::Error>;

    /// Returns the setup of the worker's loop.
    fn setup(&self) -> &Setup;

    /// Serves until it was told to drain and has drained. Before it returns, it sends its statistics.
    ///
    /// # Errors
    ///
    /// The worker cannot continue. The other workers are then told to drain.
    fn run(self) -> Result<(), Self::Error>;
}

/// The settings of a server.
pub struct Plan {
    /// The name of the threads. A number follows it.
    pub name: &'static str,
    /// The address to listen on. For port 0 the kernel picks a port, the same for all workers.
    pub listen: SocketAddr,
    /// A listener that another program opened. It replaces `listen`.
    pub listener: Option<OwnedFd>,
    /// The number of workers.
    pub threads: u32,
    /// The most open connections of all workers together.
    pub connections_max: usize,
    /// The interface that moves the bytes.
    pub engine: EngineChoice,
    /// On a ring: a kernel thread submits, and sleeps after this idle time (SQPOLL).
    pub sqpoll: Option<Duration>,
    /// Receives messages for the operator.
    pub say: Arc<dyn Fn(&str) + Send + Sync>,
}

/// Starts watching for the signals that a server handles. With `reloads` these include SIGHUP.
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

/// Running workers.
pub struct Server<W: Worker> {
    address: SocketAddr,
    setup: Option<Setup>,
    workers: Vec<JoinHandle<Result<(), W::Error>>>,
    panel: Panel<W::Stats>,
    say: Arc<dyn Fn(&str) + Send + Sync>,
}

impl<W: Worker> Server<W> {
    /// Starts all workers and waits until they listen. `make` builds each worker on its own thread.
    ///
    /// # Errors
    ///
    /// Listening on the address failed, or a worker failed before it listened.
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
            // With SO_REUSEPORT the kernel would silently share a port that another server uses.
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

    /// Reports that a worker does not run on the requested interface. It reports the first worker, and others if their
    /// message differs, because limits may have room for some workers only.
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
            // The thread that waits for signals learns of the end of workers. It learns of a failure at once. It learns
            // of a drain when the last worker has ended, because a second signal may come until then.
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
            // The worker failed before it listened.
            let ended = thread.join().unwrap_or_else(|_| Err(panicked().into()));
            return Err(ended.err().unwrap_or_else(|| ServeError::new("a thread ended").into()));
        };
        self.workers.push(thread);
        told
    }

    /// Returns the address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Describes the interface in a word or two, with the reason if it is not the requested one.
    pub fn engine(&self) -> String {
        let setup = self.setup.as_ref().expect("a server has at least one worker");
        match (setup.backend(), setup.sqpoll()) {
            (Backend::Uring, Effect::Effective) => "io_uring with SQPOLL".to_owned(),
            (Backend::Uring, Effect::Ineffective(reason)) => {
                format!("io_uring without SQPOLL ({reason})")
            }
            (Backend::Uring, _) => "io_uring".to_owned(),
            _ => "epoll".to_owned(),
        }
    }

    /// Returns the panel, which sends requests to the workers.
    pub fn panel(&self) -> Panel<W::Stats> {
        self.panel.clone()
    }

    /// Serves until a signal ends it. `reload` is called for SIGHUP.
    ///
    /// # Errors
    ///
    /// The error with which a worker ended.
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
                // The write that was too long reports the error itself (setrlimit(2)).
                SIGXFSZ => {}
                _ => self.panel.tell_all(Request::Drain),
            }
            if self.workers.iter().all(JoinHandle::is_finished) {
                break;
            }
        }
        self.join()
    }

    /// Waits for all workers, and reports their statistics.
    fn join(self) -> Result<(), W::Error> {
        // If one worker failed, the others drain too.
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

/// Describes why a worker does not run on the requested interface, if that is so.
fn fallback(
    engine: EngineChoice,
    reason: Option<&FallbackReason>,
    sqpoll: &Effect,
) -> Option<String> {
    match (reason, sqpoll) {
        (Some(reason), _) if engine == EngineChoice::Auto => {
            Some(format!("on epoll: {}", plain_text(&reason.to_string())))
        }
        (None, Effect::Ineffective(reason)) => {
            Some(format!("without SQPOLL: {}", plain_text(reason)))
        }
        _ => None,
    }
}

fn panicked() -> ServeError {
    ServeError::new("a thread panicked")
}

/// Ends the wait for signals when it is dropped, if it still has their handle.
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
    fn a_missing_feature_is_reported() {
        let refused = Effect::Ineffective("the kernel refused".to_owned());
        let told = |engine, reason, sqpoll| fallback(engine, reason, sqpoll).unwrap_or_default();
        let (auto, lacks) = (EngineChoice::Auto, Some(&FallbackReason::Lacks("waits")));
        assert_eq!(told(auto, None, &Effect::Effective), "");
        assert_eq!(told(auto, None, &refused), "without SQPOLL: the kernel refused");
        assert_eq!(told(EngineChoice::Uring, None, &refused), "without SQPOLL: the kernel refused");
        // There is only one reason: without a ring there is no SQPOLL thread.
        assert!(told(auto, lacks, &refused).starts_with("on epoll: the kernel's io_uring lacks"));
        assert_eq!(told(EngineChoice::Epoll, Some(&FallbackReason::Chosen), &refused), "");
    }
}
