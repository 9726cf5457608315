//! The threads that carry a session over sockets: one connects and sends, and for each connection another receives.
//!
//! Two threads, because the standard library cannot wait for a socket and for lines at the same time. Both end with
//! the client. The session has the protocol; here are connections, time limits and pauses.

use std::{
    io::{self, ErrorKind},
    net::Shutdown,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

mod backoff;
mod wire;

use backoff::Backoff;
pub(crate) use wire::Route;
use wire::{Wire, is_timeout};

use crate::{
    error::Failure,
    event::Event,
    shared::{Life, Shared},
};

/// About how much is sent at a time.
const OUTPUT_BYTES: usize = 128 << 10;
const INPUT_BYTES: usize = 16 << 10;
/// A connection that lasted so long was good, even if no line was sent.
const GOOD: Duration = Duration::from_secs(10);
/// How long the other thread may look for what the daemon said last, when sending failed.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// When the driver gives up waiting, and how it tries again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// For acknowledgements, of a client with a name.
    pub(crate) answer: Duration,
    pub(crate) pause_least: Duration,
    pub(crate) pause_most: Duration,
}

/// Nobody may wait for a thread that is gone.
struct Guard<'a>(&'a Shared);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.end(Some(Failure::Panicked));
        }
    }
}

/// Serves a client until it ends.
pub(crate) fn run(shared: &Arc<Shared>, route: &Route, patience: Patience) {
    let _guard = Guard(shared);
    #[cfg(feature = "tracing")]
    crate::recursion::keep_out();
    let mut backoff = Backoff::new(patience.pause_least, patience.pause_most);
    while !has_ended(shared) {
        let began = Instant::now();
        let failure = match Wire::connect(route) {
            Err(error) => Failure::Connect(Arc::new(error)),
            Ok(wire) => {
                let connection = Connection { shared, route, patience };
                let (failure, was_good) = connection.serve(wire);
                if was_good || began.elapsed() >= GOOD {
                    backoff.reset();
                }
                failure
            }
        };
        if has_ended(shared) {
            return;
        }
        shared.note_failure(failure.clone());
        if failure.is_final() {
            shared.end(Some(failure.clone()));
            return shared.tell(&Event::Ended { failure });
        }
        let pause = backoff.pause(&failure);
        shared.tell(&Event::Disconnected { failure, pause });
        rest(shared, pause);
    }
}

fn has_ended(shared: &Shared) -> bool {
    matches!(shared.lock().life, Life::Ended(_))
}

/// Waits for a time, or for the end of the client.
fn rest(shared: &Shared, pause: Duration) {
    let until = Instant::now() + pause;
    let mut state = shared.lock();
    while !matches!(state.life, Life::Ended(_)) && Instant::now() < until {
        state = shared.wait_for_work(state, Some(until));
    }
}

/// One connection.
struct Connection<'a> {
    shared: &'a Shared,
    route: &'a Route,
    patience: Patience,
}

impl Connection<'_> {
    /// Serves it until it fails; says whether it was good for something.
    fn serve(&self, mut wire: Wire) -> (Failure, bool) {
        let receiving = match self.begin(&wire) {
            Ok(receiving) => receiving,
            Err(error) => return (broken(error), false),
        };
        thread::scope(|scope| {
            let receiver = thread::Builder::new().name("ringwise-log-in".to_owned());
            let receiver = receiver.spawn_scoped(scope, || self.receive(receiving));
            let receiver = match receiver {
                Ok(receiver) => receiver,
                Err(error) => return (broken(error), false),
            };
            let sent = self.send(&mut wire);
            if matches!(sent, Failure::Connection(_)) {
                // The daemon may have said why.
                let _ = wire.stream().shutdown(Shutdown::Write);
                self.wait_for_last_words();
            }
            let _ = wire.stream().shutdown(Shutdown::Both);
            let was_good = receiver.join().unwrap_or(false);
            let told = self.shared.lock().broken.take();
            (told.filter(|told| !matches!(told, Failure::Closed)).unwrap_or(sent), was_good)
        })
    }

    /// Prepares the session; gives the half that receives.
    fn begin(&self, wire: &Wire) -> io::Result<Wire> {
        let tick = self.patience.answer.min(self.route.timeout) / 4;
        wire.stream().set_read_timeout(Some(tick.max(Duration::from_millis(1))))?;
        let (receiving, socket) = (wire.half()?, wire.stream().try_clone()?);
        let mut state = self.shared.lock();
        (state.broken, state.is_tls_waiting, state.heard) = (None, false, Instant::now());
        if let Some(session) = state.session() {
            session.connected();
            state.socket = Some(socket);
        }
        Ok(receiving)
    }

    fn wait_for_last_words(&self) {
        let until = Instant::now() + LAST_WORDS;
        let mut state = self.shared.lock();
        while state.broken.is_none() && state.session().is_some() && Instant::now() < until {
            state = self.shared.wait_for_work(state, Some(until));
        }
    }

    /// Sends what there is, until the connection fails or the client ends.
    fn send(&self, wire: &mut Wire) -> Failure {
        let mut out = Vec::new();
        loop {
            out.clear();
            let mut state = self.shared.lock();
            loop {
                if let Some(failure) = &state.broken {
                    return failure.clone();
                }
                let is_tls_waiting = std::mem::take(&mut state.is_tls_waiting);
                let Some(session) = state.session() else { return Failure::Closed };
                if session.has_output() {
                    let was_owed = session.awaits_answer();
                    if let Err(failure) = session.output(&mut out, OUTPUT_BYTES) {
                        return failure;
                    }
                    if !was_owed {
                        state.heard = Instant::now();
                    }
                    break;
                }
                if is_tls_waiting {
                    break;
                }
                state = self.shared.wait_for_work(state, None);
            }
            drop(state);
            if let Err(error) = wire.send(&out) {
                return broken(error);
            }
        }
    }

    /// Receives until the connection fails, which the other thread finds; says whether it was good.
    fn receive(&self, mut wire: Wire) -> bool {
        let _guard = Guard(self.shared);
        #[cfg(feature = "tracing")]
        crate::recursion::keep_out();
        let mut buffer = vec![0; INPUT_BYTES];
        let mut was_good = false;
        let failure = loop {
            match wire.receive(&mut buffer) {
                Ok(0) => break Failure::Closed,
                Ok(length) => match self.take(&buffer[..length]) {
                    Ok(has_progressed) => was_good |= has_progressed,
                    Err(failure) => break failure,
                },
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_timeout(&error) => {
                    if let Some(failure) = self.silence() {
                        break failure;
                    }
                }
                Err(error) => break broken(error),
            }
            if wire.wants_to_send() {
                self.shared.lock().is_tls_waiting = true;
                self.shared.notify_driver();
            }
        };
        self.shared.lock().broken = Some(failure);
        self.shared.notify_driver();
        // The other thread may wait for the daemon to read.
        let _ = wire.stream().shutdown(Shutdown::Both);
        was_good
    }

    /// Gives the session what came; says whether lines are acknowledged by it.
    fn take(&self, bytes: &[u8]) -> Result<bool, Failure> {
        let mut state = self.shared.lock();
        state.heard = Instant::now();
        let Some(session) = state.session() else { return Err(Failure::Closed) };
        let was_open = session.stats().is_connected;
        let taken = session.input(bytes);
        let events = session.events();
        let is_new = !was_open && session.stats().is_connected;
        let is_told = is_new || !events.is_empty();
        if is_told {
            // Who waits for lines is told of them first.
            state.is_telling = true;
            drop(state);
            if is_new {
                self.shared.note_connection();
            }
            events.iter().for_each(|event| self.shared.tell(event));
            state = self.shared.lock();
            state.is_telling = false;
        }
        if is_told || matches!(taken, Ok(true)) {
            self.shared.progressed(state);
        }
        taken
    }

    /// Whether the daemon has owed an answer for too long. Without a name a new connection would store lines twice.
    fn silence(&self) -> Option<Failure> {
        let mut state = self.shared.lock();
        let silent = state.heard.elapsed();
        let session = state.session()?;
        let limit = match session.awaits_greeting() {
            true => self.route.timeout,
            false if session.has_name() && session.awaits_answer() => self.patience.answer,
            false => return None,
        };
        (silent >= limit).then_some(Failure::Silent(silent))
    }
}

fn broken(error: io::Error) -> Failure {
    Failure::Connection(Arc::new(error))
}
