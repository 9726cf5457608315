//! The limit of open connections of all threads together.
//!
//! The kernel spreads connections over threads by their addresses, and not evenly. If each thread had a fixed share,
//! some connections would wait at one thread while others had free places. This module does not accept: a door does. A
//! door that found no free place is woken when there may be one.

use std::{
    io::Write,
    os::unix::net::UnixStream,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

/// Wakes a worker without a request. The worker then takes a turn.
pub(crate) const WAKE: u8 = b'w';

/// The places of a server.
#[derive(Debug)]
pub(crate) struct Places {
    most: usize,
    taken: AtomicUsize,
    doors: Mutex<Vec<Arc<Bell>>>,
}

/// Wakes a door.
#[derive(Debug)]
struct Bell {
    /// The panel's end of the socket. It is gone when the panel is.
    control: Weak<UnixStream>,
    is_waiting: AtomicBool,
}

impl Places {
    pub(crate) fn new(most: usize) -> Arc<Places> {
        Arc::new(Places { most, taken: AtomicUsize::new(0), doors: Mutex::default() })
    }

    fn doors(&self) -> MutexGuard<'_, Vec<Arc<Bell>>> {
        self.doors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn free(&self) -> usize {
        self.most - self.taken.load(Ordering::SeqCst)
    }

    fn take(&self) -> bool {
        let more = |taken| (taken < self.most).then_some(taken + 1);
        self.taken.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    fn give_back(&self) {
        // A door waits only after it has seen that all places were taken, so none waits if some were free.
        if self.taken.fetch_sub(1, Ordering::SeqCst) < self.most {
            return;
        }
        for door in self.doors().iter() {
            if door.is_waiting.swap(false, Ordering::SeqCst)
                && let Some(control) = door.control.upgrade()
            {
                // A worker that has ended lets no connection in.
                let _ = (&*control).write_all(&[WAKE]);
            }
        }
    }
}

/// The places as one door sees them.
#[derive(Debug)]
pub(crate) struct Share {
    places: Arc<Places>,
    bell: Arc<Bell>,
    /// The places that this door has taken.
    own: usize,
    own_most: usize,
}

impl Share {
    /// Makes the share of a door that is woken over `control` and has room for `own_most` connections.
    pub(crate) fn new(places: &Arc<Places>, control: &Arc<UnixStream>, own_most: usize) -> Share {
        let control = Arc::downgrade(control);
        let bell = Arc::new(Bell { control, is_waiting: AtomicBool::new(false) });
        places.doors().push(bell.clone());
        Share { places: places.clone(), bell, own: 0, own_most }
    }

    /// Returns the most places that this door may take.
    pub(crate) fn own_most(&self) -> usize {
        self.own_most
    }

    /// Lowers the most places that this door may take.
    pub(crate) fn limit(&mut self, own_most: usize) {
        self.own_most = self.own_most.min(own_most);
    }

    /// Returns the number of places that this door has taken.
    pub(crate) fn own(&self) -> usize {
        self.own
    }

    /// Counts the free places. If there are none, the worker will be woken when there may be.
    pub(crate) fn room(&self) -> usize {
        let own = self.own_most - self.own;
        if own == 0 {
            // Only the worker itself can free its own places.
            return 0;
        }
        let free = self.places.free();
        if free > 0 {
            return free.min(own);
        }
        // After this store, any worker that returns a place sees that this one waits. So the free places are counted
        // again.
        self.bell.is_waiting.store(true, Ordering::SeqCst);
        self.places.free().min(own)
    }

    /// Takes a place if there is one.
    pub(crate) fn take(&mut self) -> bool {
        let is_taken = self.own < self.own_most && self.places.take();
        self.own += usize::from(is_taken);
        is_taken
    }

    /// Returns a place.
    pub(crate) fn give_back(&mut self) {
        self.own -= 1;
        self.places.give_back();
    }
}

impl Drop for Share {
    /// Returns the places of a worker that failed.
    fn drop(&mut self) {
        (0..self.own).for_each(|_| self.places.give_back());
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn share(places: &Arc<Places>, own_most: usize) -> (Share, Arc<UnixStream>, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let ours = Arc::new(ours);
        (Share::new(places, &ours, own_most), ours, theirs)
    }

    fn was_woken(control: &mut UnixStream) -> usize {
        control.read(&mut [0; 16]).unwrap_or(0)
    }

    #[test]
    fn one_may_have_all_places_and_the_others_are_woken_once() {
        let places = Places::new(3);
        let (mut first, _ours, _) = share(&places, 3);
        let (mut second, _ours, mut control) = share(&places, 3);
        assert!((0..3).all(|_| first.take()));
        assert!(!first.take() && !second.take() && second.room() == 0 && second.room() == 0);
        assert_eq!(was_woken(&mut control), 0);
        first.give_back();
        first.give_back();
        assert_eq!(was_woken(&mut control), 1);
        assert!(second.room() > 0 && second.take() && second.take() && second.room() == 0);
        assert_eq!((first.own(), second.own()), (1, 2));
        // This worker failed.
        drop(first);
        assert_eq!(was_woken(&mut control), 1);
        assert!(second.take() && second.room() == 0);
    }

    #[test]
    fn places_for_which_one_has_no_room_are_left_to_the_others() {
        let places = Places::new(3);
        let (mut first, _ours, mut control) = share(&places, 1);
        let (mut second, _ours, _) = share(&places, 3);
        assert!(first.take() && !first.take() && first.room() == 0);
        assert!(second.take() && second.take() && !second.take());
        second.give_back();
        // This worker has no room, so it is not woken.
        assert_eq!(was_woken(&mut control), 0);
    }

    /// Threads take and return places as fast as they can. None may sleep while there is a free place.
    #[test]
    fn no_wake_is_lost() {
        let places = Places::new(2);
        let work = |mut share: Share, mut control: UnixStream| {
            control.set_nonblocking(false).unwrap();
            control.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
            for _ in 0..20_000 {
                while !share.take() {
                    if share.room() == 0 {
                        control.read_exact(&mut [0]).expect("a waiting thread is woken");
                    }
                }
                std::thread::yield_now();
                share.give_back();
            }
        };
        let shares: Vec<_> = (0..4).map(|_| share(&places, 2)).collect();
        std::thread::scope(|scope| {
            for (share, ours, control) in shares {
                scope.spawn(move || {
                    work(share, control);
                    drop(ours);
                });
            }
        });
        assert_eq!(places.taken.load(Ordering::SeqCst), 0);
    }
}
