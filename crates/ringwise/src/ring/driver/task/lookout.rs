//! A thread that keeps tasks from waiting for a task that computes.
//!
//! When several results are ready, one task is woken at a time, and it wakes the next when it takes
//! its result (`ring/hub/turns.rs`). The driver has its next turn when a thread of the runtime
//! looks at the runtime's epoll. If the woken task computes and the runtime's other threads sleep
//! outside of that epoll, neither happens. So this thread looks every two milliseconds while tasks
//! are held back. If no task had a turn since the last look, it wakes all of them at once, and that
//! wakes the runtime's other threads.
//!
//! The thread also watches whether the driver's task runs after it was woken (`summons.rs`). While
//! the task does not, the thread takes the driver's turns.
//!
//! The thread starts when the driver is first woken. It sleeps while the driver is not woken and no
//! results are held back.

use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread::Builder as ThreadBuilder,
    time::Duration,
};

use super::summons::{Coming, Summons};
use crate::ring::{
    contained::wake,
    hub::{Hub, turns::Held},
};

/// The time between two looks. A task that is held back waits for two of them at most.
const INTERVAL: Duration = Duration::from_millis(2);
/// The number of looks without a task held back after which the thread sleeps. It does not sleep
/// sooner, since waking it has a cost.
const IDLE_LOOKS: u32 = 16;
/// The stack of the thread: wakers and drops of buffers run users' code.
const STACK_BYTES: usize = 2 << 20;

/// Takes a turn of the driver.
pub(super) type StandIn = Box<dyn Fn(&Arc<Hub>) + Send + Sync>;

/// The state of the thread; see the header.
#[derive(Default)]
pub(super) struct Lookout {
    /// Whether the thread looks, or is about to.
    is_looking: AtomicBool,
    state: Mutex<State>,
    called: Condvar,
    pub(super) summons: Summons,
    stand_in: OnceLock<StandIn>,
}

#[derive(Default)]
struct State {
    has_thread: bool,
    has_ended: bool,
}

impl Lookout {
    fn lock(&self) -> MutexGuard<'_, State> {
        crate::sync::lock(&self.state)
    }

    /// From now on calls `stand_in` while the driver's task is late.
    pub(super) fn stand_in_by(&self, stand_in: StandIn) {
        // Only the first call counts, since a ring has one driver.
        let _ = self.stand_in.set(stand_in);
    }

    /// Starts to look because results are held back or the driver was woken, unless the thread
    /// already does.
    pub(super) fn look(self: &Arc<Self>, hub: &Arc<Hub>) {
        if self.is_looking.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut state = self.lock();
        if state.has_thread || state.has_ended {
            self.called.notify_one();
            return;
        }
        let (lookout, hub) = (self.clone(), Arc::downgrade(hub));
        let thread = ThreadBuilder::new().name("ringwise-lookout".into()).stack_size(STACK_BYTES);
        // If no thread can be started, the next results try again.
        state.has_thread = thread.spawn(move || lookout.run(&hub)).is_ok();
        self.is_looking.store(state.has_thread, Ordering::Release);
    }

    /// Ends the thread. The driver is gone, and holds nobody back.
    pub(super) fn end(&self) {
        self.lock().has_ended = true;
        self.called.notify_one();
    }

    fn run(&self, hub: &Weak<Hub>) {
        while self.wait() {
            let Some(hub) = hub.upgrade() else { return };
            self.look_until_idle(&hub);
        }
    }

    /// Waits until it is called. Returns false at the end.
    fn wait(&self) -> bool {
        let waits =
            |state: &mut State| !state.has_ended && !self.is_looking.load(Ordering::Acquire);
        let state = self.called.wait_while(self.lock(), waits);
        !state.unwrap_or_else(PoisonError::into_inner).has_ended
    }

    fn look_until_idle(&self, hub: &Arc<Hub>) {
        let mut turn = hub.turn();
        // A wake-up of the driver that was followed needs no second look.
        let mut idle = IDLE_LOOKS - 1;
        while idle < IDLE_LOOKS && !self.lock().has_ended {
            std::thread::sleep(INTERVAL);
            idle = match (self.look_at_driver(hub), look_at_tasks(hub, &mut turn)) {
                (_, true) => 0,
                (true, false) => idle,
                (false, false) => idle + 1,
            };
        }
        self.is_looking.swap(false, Ordering::AcqRel);
        // Whoever called before this found the thread looking, and did not wake it.
        if self.look_at_driver(hub) | look_at_tasks(hub, &mut turn) {
            self.is_looking.store(true, Ordering::Release);
        }
    }

    /// Takes a turn of the driver if its task is late. Returns whether the task was woken.
    fn look_at_driver(&self, hub: &Arc<Hub>) -> bool {
        let coming = self.summons.look();
        if coming == Coming::Late
            && let Some(stand_in) = self.stand_in.get()
        {
            stand_in(hub);
        }
        coming != Coming::Not
    }
}

/// Wakes the tasks that are held back if none of them had a turn since the last look. Returns
/// whether there are any.
fn look_at_tasks(hub: &Hub, turn: &mut u64) -> bool {
    let held = hub.look_after(turn);
    let is_needed = !matches!(held, Held::Nobody);
    if let Held::Back(wakers) = held {
        wakers.into_iter().for_each(|waker| wake(Some(waker)));
    }
    is_needed
}

#[cfg(all(not(ringwise_loom), test))]
mod tests {
    use std::{
        sync::mpsc::{self, Receiver, Sender},
        task::{Wake, Waker},
        time::Instant,
    };

    use super::*;
    use crate::{
        flight::completion::Completion,
        op::Operation,
        ring::hub::{
            order::Admission,
            turns::{By, Spread},
        },
        settings::stats::Stats,
    };

    struct Told(Mutex<Sender<()>>);

    impl Wake for Told {
        fn wake(self: Arc<Self>) {
            let _ = self.0.lock().unwrap().send(());
        }
    }

    /// Makes a hub with this many results of the driver, which has woken one task.
    fn with_results(count: usize) -> (Arc<Hub>, Receiver<()>) {
        let hub = Arc::new(Hub::new());
        hub.let_callers_hand_over(true);
        let (tell, told) = mpsc::channel();
        let waker = Waker::from(Arc::new(Told(Mutex::new(tell))));
        let mut results = Vec::new();
        for _ in 0..count {
            let Admission::Taken(key, _) = hub.submit(Operation::nop(), waker.clone()) else {
                panic!("it is open")
            };
            results.push((key, Completion::refused(Operation::nop(), 0)));
        }
        assert!(hub.keep(By::Driver, &mut results, Vec::new(), Stats::default()));
        let (first, others_wait) = hub.begin_turn(Spread::InTurn);
        assert!(first.len() == 1 && others_wait);
        first.into_iter().for_each(Waker::wake);
        (hub, told)
    }

    #[test]
    fn nobody_waits_for_one_that_computes() {
        let (hub, told) = with_results(6);
        let lookout = Arc::new(Lookout::default());
        let start = Instant::now();
        lookout.look(&hub);
        for _ in 0..6 {
            told.recv_timeout(Duration::from_secs(10)).unwrap();
        }
        assert!(start.elapsed() >= INTERVAL, "the tasks get time for their turns first");
        lookout.end();
    }

    #[test]
    fn its_thread_ends_with_the_driver() {
        let (hub, told) = with_results(2);
        let lookout = Arc::new(Lookout::default());
        lookout.look(&hub);
        for _ in 0..2 {
            told.recv_timeout(Duration::from_secs(10)).unwrap();
        }
        lookout.end();
        let start = Instant::now();
        while Arc::strong_count(&lookout) > 1 {
            assert!(start.elapsed() < Duration::from_secs(10), "the thread is still there");
            std::thread::yield_now();
        }
    }
}
