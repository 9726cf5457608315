//! Requests of io_uring on their way to be operations.
//!
//! The tracepoints name a request by its address in the kernel. They tell neither its offset nor its length: both come
//! from what the page cache or the direct path is seen to do while the request is submitted.

use std::{cell::Cell, collections::HashMap};

use super::{Assembly, PAGE_BYTES, REQUESTS_MAX, Watch, outcome};
use crate::{
    descriptor::OpenFile,
    model::{FileId, Interface, Kind, Operation, Outcome, Source},
    recorder::event::Event,
};

/// A completion is followed by more of the same request (`IORING_CQE_F_MORE`).
const MORE: u32 = 1 << 1;

/// A completion that only gives a buffer back (`IORING_CQE_F_NOTIF`).
const NOTIFICATION: u32 = 1 << 3;

/// Requests in flight.
#[derive(Debug, Default)]
pub(super) struct Requests {
    in_flight: HashMap<u64, Request>,
    /// The request that each thread is submitting.
    submitting: HashMap<u32, u64>,
    were_seen: bool,
}

#[derive(Debug)]
pub(super) struct Request {
    pid: u32,
    tid: u32,
    kind: Kind,
    descriptor: Option<i32>,
    begin_ns: u64,
    pub(super) watch: Watch,
}

impl Requests {
    pub(super) fn were_seen(&self) -> bool {
        self.were_seen
    }

    /// Completions were lost.
    pub(super) fn forget(&mut self) {
        self.in_flight.clear();
        self.submitting.clear();
    }

    pub(super) fn being_submitted(&mut self, tid: u32) -> Option<&mut Request> {
        self.in_flight.get_mut(self.submitting.get(&tid)?)
    }

    /// The kernel tells the pages of a read that is tried again in the thread that submitted another one last. It then
    /// completes the read: so that one was meant, and not the last one.
    fn completed(&mut self, tid: u32, request: u64, watch: &Watch) {
        let Some(last) = self.submitting.get(&tid).copied() else { return };
        let was_tried_again = watch.wanted.is_none() && watch.direct.is_none();
        if last == request {
            self.submitting.remove(&tid);
        } else if was_tried_again {
            self.submitting.remove(&tid);
            if let Some(last) = self.in_flight.get_mut(&last) {
                last.watch.wanted = None;
            }
        }
    }

    pub(super) fn submission_ended(&mut self, tid: u32) {
        if !self.submitting.is_empty() {
            self.submitting.remove(&tid);
        }
    }
}

impl Assembly {
    pub(super) fn ring_event(&mut self, event: Event, (time_ns, pid, tid): (u64, u32, u32)) {
        match event {
            Event::RingSubmit { request, opcode } => {
                self.requests.were_seen = true;
                self.requests.submitting.remove(&tid);
                if changes_descriptors(opcode) {
                    self.questions.processes.insert(pid);
                }
                let Some(kind) = kind(opcode) else { return };
                if self.requests.in_flight.len() >= REQUESTS_MAX {
                    self.end.unseen_requests += 1;
                    return;
                }
                let (descriptor, watch) = (None, Watch::default());
                let new = Request { pid, tid, kind, descriptor, begin_ns: time_ns, watch };
                self.requests.submitting.insert(tid, request);
                match self.requests.in_flight.insert(request, new) {
                    // Its completion was lost, or the program did not want one.
                    Some(_) => self.end.unseen_requests += 1,
                    None => self.in_flight.begin(),
                }
            }
            Event::RingFile { request, descriptor } => {
                if let Some(request) = self.requests.in_flight.get_mut(&request) {
                    request.descriptor = Some(descriptor);
                }
            }
            Event::RingComplete { request, result, flags } if flags & NOTIFICATION == 0 => {
                let Some(done) = self.requests.in_flight.remove(&request) else { return };
                self.requests.completed(tid, request, &done.watch);
                self.ring_operation(&done, outcome(i64::from(result)), time_ns);
                if flags & MORE != 0 {
                    let again = Request { begin_ns: time_ns, watch: Watch::default(), ..done };
                    self.requests.in_flight.insert(request, again);
                } else {
                    self.in_flight.end();
                }
            }
            _ => {}
        }
    }

    pub(super) fn end_requests(&mut self, time_ns: u64) {
        let mut left: Vec<_> = std::mem::take(&mut self.requests.in_flight).into_iter().collect();
        left.sort_by_key(|(address, request)| (request.begin_ns, *address));
        for (_, request) in left {
            self.ring_operation(&request, Outcome::Unfinished, time_ns);
        }
    }

    fn ring_operation(&mut self, request: &Request, outcome: Outcome, time_ns: u64) {
        let Request { pid, tid, kind, descriptor, begin_ns, watch } = *request;
        let open = descriptor.and_then(|number| self.descriptors.get(pid, number));
        let open = open.map(Cell::get).unwrap_or_default();
        if let Some(number) = descriptor.filter(|_| open.file.is_none()) {
            self.questions.descriptors.insert((pid, number));
        }
        let identity = watch.direct.or(watch.wanted).map(|(identity, _, _)| identity);
        let by_identity = || self.file_of(identity?, watch.direct.is_some());
        let file = open.file.or_else(by_identity);
        let is_sync = matches!(kind, Kind::Sync | Kind::DataSync);
        let outcome = match outcome {
            Outcome::Done { .. } if is_sync => Outcome::Done { bytes: 0 },
            other => other,
        };
        let is_direct = watch.direct.is_some() || open.flags.is_direct;
        // A read whose pages were not there at once waited for those that its submission asked for.
        let has_waited = watch.wanted.is_none();
        let has_missed = watch.has_missed || has_waited && watch.may_have_missed;
        let seen = Watch { has_waited, has_missed, ..watch };
        // A registered file has no descriptor, and the pages say that it has a page cache.
        let has_cache = open.has_cache || identity.is_some();
        let mut flags = open.flags;
        flags.is_direct |= is_direct;
        let open = OpenFile { has_cache, flags, ..open };
        let source = if is_direct && matches!(outcome, Outcome::Done { bytes: 1.. }) {
            Source::Device
        } else {
            self.source(kind, &open, (&seen, outcome))
        };
        let operation = Operation {
            thread: self.thread(pid, tid),
            file,
            target: None,
            kind,
            offset: offset(&watch, outcome),
            asked_bytes: match watch.direct {
                _ if is_sync => Some(0),
                direct => direct.map(|(_, _, bytes)| bytes),
            },
            outcome,
            begin_ns: self.since_began(begin_ns),
            duration_ns: time_ns.saturating_sub(begin_ns),
            is_direct,
            source,
            interface: Interface::IoUring,
            computed_ns: None,
        };
        self.add(operation);
    }

    /// The only file of this device and number that is open in this way.
    fn file_of(&self, identity: super::Identity, is_direct: bool) -> Option<FileId> {
        let mut files =
            self.identities.get(&identity)?.iter().filter(|(_, direct)| *direct == is_direct);
        match (files.next(), files.next()) {
            (Some((file, _)), None) => Some(*file),
            _ => None,
        }
    }
}

/// The offset of a direct operation, or of a buffered read of whole pages.
fn offset(watch: &Watch, outcome: Outcome) -> Option<u64> {
    if let Some((_, offset, _)) = watch.direct {
        return Some(offset);
    }
    let (_, first, last) = watch.wanted?;
    let Outcome::Done { bytes } = outcome else { return None };
    let pages = last.checked_sub(first)?.checked_add(1)?;
    (pages.checked_mul(PAGE_BYTES)? == bytes).then(|| first * PAGE_BYTES)
}

/// OPENAT, CLOSE, OPENAT2: the tracepoints do not tell which descriptor.
fn changes_descriptors(opcode: u8) -> bool {
    matches!(opcode, 18 | 19 | 28)
}

/// The operations that count (`enum io_uring_op` in linux/io_uring.h).
fn kind(opcode: u8) -> Option<Kind> {
    match opcode {
        // READV, READ_FIXED, READ, READ_MULTISHOT, READV_FIXED
        1 | 4 | 22 | 49 | 60 => Some(Kind::Read),
        // WRITEV, WRITE_FIXED, WRITE, WRITEV_FIXED
        2 | 5 | 23 | 61 => Some(Kind::Write),
        // FSYNC; the tracepoint does not tell whether it syncs only data.
        3 => Some(Kind::Sync),
        // SYNC_FILE_RANGE
        8 => Some(Kind::DataSync),
        // SENDMSG, SEND, SEND_ZC, SENDMSG_ZC
        9 | 26 | 47 | 48 => Some(Kind::Send),
        // RECVMSG, RECV, RECV_ZC
        10 | 27 | 58 => Some(Kind::Receive),
        // SPLICE
        30 => Some(Kind::Copy),
        _ => None,
    }
}
