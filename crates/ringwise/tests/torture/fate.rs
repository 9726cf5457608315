//! What becomes of a future.

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind, set_hook, take_hook},
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use futures::future::poll_fn;

/// What a test panics with on purpose.
struct Expected;

/// Panics that are part of a program print nothing.
pub fn silence_expected_panics() {
    let told = take_hook();
    set_hook(Box::new(move |panic| {
        if !panic.payload().is::<Expected>() {
            told(panic);
        }
    }));
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Awaited,
    /// After so many looks at it.
    Dropped(u32),
    /// The same, by a panic.
    Panicked(u32),
    /// The same, and never dropped.
    Forgotten(u32),
}

impl Fate {
    pub fn draw(random: &mut fastrand::Rng) -> Fate {
        match random.u8(..10) {
            0..=5 => Fate::Awaited,
            6 | 7 => Fate::Dropped(random.u32(..4)),
            8 => Fate::Panicked(random.u32(..3)),
            _ => Fate::Forgotten(random.u32(..3)),
        }
    }

    /// Of what must not be forgotten, since others wait for its turn to end.
    pub fn draw_held(random: &mut fastrand::Rng) -> Fate {
        match Fate::draw(random) {
            Fate::Forgotten(looks) => Fate::Dropped(looks),
            fate => fate,
        }
    }

    /// Its future is given up before it was looked at.
    pub fn never_looks(self) -> bool {
        matches!(self, Fate::Dropped(0) | Fate::Panicked(0) | Fate::Forgotten(0))
    }

    /// Gives what came of it, if that is known.
    pub async fn befall<F: Future>(self, future: F) -> Option<F::Output> {
        let mut future = Box::pin(future);
        match self {
            Fate::Awaited => Some(future.await),
            Fate::Dropped(looks) => look(&mut future, looks).await,
            Fate::Panicked(looks) => {
                let done = look(&mut future, looks).await;
                let ends = catch_unwind(AssertUnwindSafe(move || {
                    let _held = future;
                    resume_unwind(Box::new(Expected));
                }));
                assert!(ends.is_err());
                done
            }
            Fate::Forgotten(looks) => {
                let done = look(&mut future, looks).await;
                std::mem::forget(future);
                done
            }
        }
    }
}

async fn look<F: Future>(future: &mut Pin<Box<F>>, looks: u32) -> Option<F::Output> {
    for at in 0..looks {
        if at > 0 {
            std::thread::sleep(Duration::from_micros(20));
        }
        let seen = poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => Poll::Ready(None),
        });
        if let Some(done) = seen.await {
            return Some(done);
        }
    }
    None
}

/// Looks at a future once, with a waker that is nobody's.
pub fn begin<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> bool {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
}
