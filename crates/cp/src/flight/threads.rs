//! Threads that copy files by system calls, a file each.
//!
//! Bounded: as many jobs wait for a thread as there are threads; who brings one more waits.

use std::{
    sync::{
        Arc, Mutex,
        mpsc::{self, Receiver, Sender},
    },
    thread,
};

use crate::{
    data,
    job::{Job, Outcome},
    way::Way,
};

/// The threads. They end when this is dropped, after the jobs that they have.
#[derive(Debug)]
pub(crate) struct Threads {
    most: usize,
    started: usize,
    busy: usize,
    jobs: Sender<(Job, Way)>,
    queue: Arc<Mutex<Receiver<(Job, Way)>>>,
    done: Receiver<Outcome>,
    done_sender: Sender<Outcome>,
}

impl Threads {
    pub(crate) fn new(most: usize) -> Threads {
        let (jobs, queue) = mpsc::channel();
        let (done_sender, done) = mpsc::channel();
        let queue = Arc::new(Mutex::new(queue));
        Threads { most, started: 0, busy: 0, jobs, queue, done, done_sender }
    }

    /// Hands a job to a thread; gives what ended meanwhile.
    pub(crate) fn start(&mut self, job: Job, way: Way) -> Vec<Outcome> {
        let mut ended = Vec::new();
        if self.busy >= 2 * self.most {
            ended = self.wait();
        }
        if self.started < self.most && self.started <= self.busy {
            self.start_thread();
        }
        if self.started == 0 {
            // No thread is to be had: this one does it.
            let moved = data::copy(&job, way);
            ended.push(job.end(moved));
            return ended;
        }
        self.busy += 1;
        self.jobs.send((job, way)).expect("the queue is held here too");
        ended.extend(self.take());
        ended
    }

    /// Waits until at least one job ended.
    pub(crate) fn wait(&mut self) -> Vec<Outcome> {
        if self.busy == 0 {
            return Vec::new();
        }
        let first = self.done.recv().expect("a sender is held here too");
        self.busy -= 1;
        let mut ended = vec![first];
        ended.extend(self.take());
        ended
    }

    fn take(&mut self) -> Vec<Outcome> {
        let ended: Vec<Outcome> = self.done.try_iter().collect();
        self.busy -= ended.len();
        ended
    }

    fn start_thread(&mut self) {
        let (queue, done) = (self.queue.clone(), self.done_sender.clone());
        let body = move || {
            loop {
                let next = queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).recv();
                let Ok((job, way)) = next else { return };
                let moved = data::copy(&job, way);
                if done.send(job.end(moved)).is_err() {
                    return;
                }
            }
        };
        if thread::Builder::new().name("cp".into()).spawn(body).is_ok() {
            self.started += 1;
        }
    }
}
