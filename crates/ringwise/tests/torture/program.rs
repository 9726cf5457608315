//! A program that follows from a seed.

use std::{os::fd::OwnedFd, sync::Arc, time::Duration};

use futures::executor::block_on;
use ringwise::{
    AlignedBuf, BackendChoice, BufResult, Custom, Descriptor, ErrorKind, Local, OpenOptions,
    Operation, OwnedBuffer, OwnedBufferMut, Pending, Pool, Spare,
    fs::{self, File},
    sim::{Fault, Simulation, When},
};

use crate::{
    arrivals::Arrivals,
    content::Content,
    fate::{Fate, begin},
    length::Length,
    rings::{Place, place_of, read_write},
    traffic::{Marked, Traffic},
};

const FILE_BYTES: usize = 16 << 10;
/// A write of a bare operation has so many bytes to itself.
const SLOT_BYTES: usize = 512;
const SLOTS: usize = 256;

/// Who runs the program's futures.
enum Executor {
    /// The program's own thread.
    Own,
    #[cfg(feature = "tokio")]
    Tokio(tokio::runtime::Runtime),
}

impl Executor {
    fn run<T>(&self, program: impl Future<Output = T>) -> T {
        match self {
            Executor::Own => block_on(program),
            #[cfg(feature = "tokio")]
            Executor::Tokio(runtime) => runtime.block_on(program),
        }
    }

    /// A task that goes on by itself, and may end with its runtime.
    fn spawn(&self, _task: impl Future<Output = ()> + Send + 'static) -> bool {
        match self {
            Executor::Own => false,
            #[cfg(feature = "tokio")]
            Executor::Tokio(runtime) => {
                drop(runtime.spawn(_task));
                true
            }
        }
    }
}

/// A ring, where its files lie, and who runs its users.
fn draw_machine(seed: u64, random: &mut fastrand::Rng) -> (Place, Executor) {
    let entries = if random.bool() { 8 } else { 256 };
    let builder = Local::builder().entries(entries).registered_files(4);
    if random.bool() {
        let simulation = Simulation::builder(seed)
            .fault(Fault::Delay, When::rate(0.3))
            .fault(Fault::ShortWrite, When::rate(0.1))
            .fault(Fault::ShortRead, When::rate(0.1))
            .build();
        let ring = builder.simulation(&simulation).build_ring().unwrap();
        return (place_of("simulated", ring, Some(&simulation)), Executor::Own);
    }
    let is_ring = random.u8(..3) > 0;
    let choice = if is_ring { BackendChoice::Uring } else { BackendChoice::Classic };
    let builder = builder.backend(choice);
    #[cfg(feature = "tokio")]
    {
        let mut runtimes = [
            tokio::runtime::Builder::new_multi_thread(),
            tokio::runtime::Builder::new_current_thread(),
        ];
        if let Some(settings) = runtimes.get_mut(random.usize(..3)) {
            let runtime = settings.worker_threads(2).enable_all().build().unwrap();
            let context = runtime.enter();
            let ring = builder.build_ring().unwrap();
            drop(context);
            let name = if is_ring { "uring in tokio" } else { "classic in tokio" };
            return (place_of(name, ring, None), Executor::Tokio(runtime));
        }
    }
    let ring = builder.build_ring().unwrap();
    (place_of(if is_ring { "uring" } else { "classic" }, ring, None), Executor::Own)
}

struct Program {
    place: Place,
    random: fastrand::Rng,
    file: File,
    /// The same file past the page cache, for reads.
    direct: Option<File>,
    content: Content,
    /// Each slot is written once at most; how far that has to have come in the end.
    slots: File,
    written: Vec<Written>,
    pool: Option<Pool>,
    traffic: Traffic,
    arrivals: Arrivals,
    length: Length,
    silent: Descriptor,
    /// Keeps the pipe open.
    _writer: std::io::PipeWriter,
    /// Something was never dropped.
    has_forgotten: bool,
    names: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    Surely,
    Perhaps,
}

pub fn run(seed: u64) -> String {
    let mut random = fastrand::Rng::with_seed(seed);
    let (place, mut executor) = draw_machine(seed, &mut random);
    let name = place.name.to_owned();
    let mut program = executor.run(Program::new(place, random));
    for _ in 0..program.random.usize(1..=3) {
        executor.run(async {
            for _ in 0..program.random.usize(5..20) {
                program.step().await;
            }
        });
        if program.random.u8(..4) == 0 {
            program.spawn_and_end(&mut executor);
        }
    }
    executor.run(program.end());
    name
}

impl Program {
    async fn new(place: Place, mut random: fastrand::Rng) -> Program {
        let bytes: Vec<u8> = (0..FILE_BYTES).map(|_| random.u8(..)).collect();
        place.write("file", &bytes);
        place.write("slots", &vec![0; SLOTS * SLOT_BYTES]);
        let file = place.open("file", read_write()).await;
        let direct = OpenOptions::new().read(true).direct(true);
        let direct = File::open(&place.ring, place.path("file"), direct).await.ok();
        let slots = place.open("slots", read_write()).await;
        let (silent, writer) = std::io::pipe().unwrap();
        Program {
            file,
            direct,
            content: Content::new(&bytes),
            slots,
            written: Vec::new(),
            pool: place.ring.register_pool(3, 4096).await.ok(),
            traffic: Traffic::new(&place.ring, random.bool().then(|| place.path("socket"))).await,
            arrivals: Arrivals::new(&place.ring).await,
            length: Length::new(place.create("length").await),
            silent: Descriptor::from(OwnedFd::from(silent)),
            _writer: writer,
            has_forgotten: false,
            names: 0,
            place,
            random,
        }
    }

    async fn step(&mut self) {
        match self.random.u8(..20) {
            0..=2 => self.write().await,
            3 | 4 => self.read().await,
            5 => self.chain().await,
            6 => self.wait_for_writes().await,
            7 => self.bare_writes().await,
            8 => self.bare_operations().await,
            9 => self.wait_for_nothing().await,
            10 => self.names().await,
            11 => self.register().await,
            12 => self.traffic.send(&mut self.random).await,
            13 => self.traffic.receive(&mut self.random).await,
            14 => self.arrivals.connect(&mut self.random).await,
            15 => self.arrivals.accept(&mut self.random).await,
            16 => self.arrivals.send(&mut self.random).await,
            17 => self.arrivals.receive(&mut self.random).await,
            18 => self.length.change(&mut self.random).await,
            _ => self.length.settle().await,
        }
    }

    /// Bytes for a write, and where.
    fn draw_bytes(&mut self) -> (usize, Vec<u8>) {
        let range = self.content.range(&mut self.random, 3000);
        let fill = self.random.u8(..);
        let bytes = (0..range.len()).map(|at| fill.wrapping_add(at as u8)).collect();
        (range.start, bytes)
    }

    fn took(&mut self, at: usize, bytes: &[u8], count: Option<usize>) {
        match count {
            Some(count) => self.content.write(at, &bytes[..count]),
            None => self.content.may_write(at, bytes),
        }
    }

    async fn write(&mut self) {
        let (at, bytes) = self.draw_bytes();
        let fate = Fate::draw_held(&mut self.random);
        let copy = bytes.clone();
        let count = match self.random.u8(..8) {
            0 => self.write_one(copy, at, fate).await,
            1 => self.write_one(copy.into_boxed_slice(), at, fate).await,
            2 => self.write_one(Arc::<[u8]>::from(copy), at, fate).await,
            3 => self.write_one(Custom(Marked(copy.into())), at, fate).await,
            4 => {
                let padded = [&[9, 9, 9][..], &copy].concat();
                self.write_one(padded.part(3..), at, fate).await
            }
            5 => {
                let mut aligned = AlignedBuf::zeroed(copy.len(), 512);
                aligned.copy_from_slice(&copy);
                self.write_one(aligned, at, fate).await
            }
            #[cfg(feature = "bytes")]
            6 => self.write_one(bytes::Bytes::from(copy), at, fate).await,
            _ => match self.pool.as_ref().and_then(Pool::take) {
                Some(mut lease) => {
                    lease[..copy.len()].copy_from_slice(&copy);
                    self.write_one(lease.part(..copy.len()), at, fate).await
                }
                None => self.write_one(copy.part(..), at, fate).await,
            },
        };
        self.took(at, &bytes, count);
    }

    /// How much was written, if that is known.
    async fn write_one<B: OwnedBuffer>(
        &mut self,
        bytes: B,
        at: usize,
        fate: Fate,
    ) -> Option<usize> {
        let (file, len) = (&self.file, bytes.as_ref().len());
        let offset = at as u64;
        let all = |done: Option<BufResult<(), B>>| {
            done.map(|done| {
                let ((), back) = done.unwrap();
                assert_eq!(back.as_ref().len(), len, "the buffer comes back as it was");
                len
            })
        };
        match self.random.u8(..4) {
            0 => {
                let done = fate.befall(file.write_at(bytes, offset)).await;
                done.map(|done| done.unwrap().0)
            }
            1 => all(fate.befall(file.write_all_at(bytes, offset)).await),
            2 => all(fate.befall(file.write_durable_at(bytes, offset)).await),
            _ => {
                let done = fate.befall(file.write_vectored_at(vec![bytes], offset)).await;
                done.map(|done| done.unwrap().0)
            }
        }
    }

    async fn read(&mut self) {
        let range = self.content.range(&mut self.random, 3000);
        let (at, len) = (range.start, range.len());
        let fate = Fate::draw(&mut self.random);
        self.has_forgotten |= matches!(fate, Fate::Forgotten(_));
        let is_forgotten = matches!(fate, Fate::Forgotten(_));
        match self.random.u8(..7) {
            0 => self.read_one(vec![0; len], at, fate, Vec::clone).await,
            1 => self.read_one(Vec::with_capacity(len), at, fate, Vec::clone).await,
            2 => {
                let mut bytes = Vec::with_capacity(len + 3);
                bytes.extend([7; 3]);
                let read = |spare: &Spare<Vec<u8>>| {
                    assert_eq!(spare.0[..3], [7; 3]);
                    spare.0[3..].to_vec()
                };
                self.read_one(bytes.spare(), at, fate, read).await;
            }
            3 => {
                let marked = Custom(Marked(vec![0; len].into()));
                self.read_one(marked, at, fate, |Custom(marked)| marked.0.to_vec()).await;
            }
            4 => {
                let aligned = AlignedBuf::zeroed(len, 512);
                self.read_one(aligned, at, fate, |bytes| bytes.to_vec()).await;
            }
            5 => {
                let part = vec![9; len + 5].part(2..2 + len);
                self.read_one(part, at, fate, |part| part.as_ref().to_vec()).await;
            }
            _ => {
                let lease = self.pool.as_ref().and_then(Pool::take);
                let Some(lease) = lease.filter(|_| !is_forgotten) else { return };
                let part = lease.part(..len);
                self.read_one(part, at, fate, |part| part.as_ref().to_vec()).await;
            }
        }
    }

    async fn read_one<B: OwnedBufferMut>(
        &mut self,
        buffer: B,
        at: usize,
        fate: Fate,
        bytes_of: impl Fn(&B) -> Vec<u8>,
    ) {
        let file = match &self.direct {
            Some(direct) if self.random.u8(..4) == 0 => direct,
            _ => &self.file,
        };
        let offset = at as u64;
        let read = match self.random.u8(..3) {
            0 => fate.befall(file.read_at(buffer, offset)).await,
            1 => {
                let done = fate.befall(file.read_exact_at(buffer, offset)).await;
                done.map(|done| done.map(|()| usize::MAX))
            }
            _ => {
                let done = fate.befall(file.read_vectored_at(vec![buffer], offset)).await;
                done.map(|done| done.map_buffer(|mut buffers| buffers.pop().unwrap()))
            }
        };
        if let Some(done) = read {
            let (count, buffer) = done.unwrap();
            let bytes = bytes_of(&buffer);
            self.content.check(at, &bytes[..count.min(bytes.len())], "read");
        }
    }

    async fn chain(&mut self) {
        let (at, bytes) = self.draw_bytes();
        let (second_at, second) = self.draw_bytes();
        let fate = Fate::draw_held(&mut self.random);
        let len = bytes.len();
        let chain = self.file.chain().write_at(bytes.clone(), at as u64).sync_data();
        let chain = chain.read_at(Vec::with_capacity(len), at as u64);
        let chain = chain.write_at(second.clone(), second_at as u64).sync_all();
        // What another future has begun and nobody waits for is done before the chain begins.
        match fate.befall(chain.run()).await {
            Some(steps) => {
                self.content.write(at, &bytes);
                let mut steps = steps.into_iter();
                let (write, sync, read) = (steps.next(), steps.next(), steps.next());
                assert_eq!(write.unwrap().result.unwrap(), len);
                sync.unwrap().result.unwrap();
                let read = read.unwrap();
                assert_eq!(read.result.as_ref().unwrap(), &len);
                self.content.check(at, &read.into_buffer::<Vec<u8>>(), "chain");
                assert!(steps.all(|step| step.result.is_ok()));
                self.content.write(second_at, &second);
            }
            None => {
                self.content.may_write(at, &bytes);
                self.content.may_write(second_at, &second);
            }
        }
    }

    async fn wait_for_writes(&mut self) {
        match self.random.u8(..3) {
            0 => self.file.sync_data().await.unwrap(),
            1 => self.file.sync_all().await.unwrap(),
            _ => self.file.settled().await.unwrap(),
        }
        let bytes = self.file.read_to_end().await.unwrap();
        self.content.settle(&bytes);
        assert!(self.place.read("file") == bytes);
    }

    /// Bytes of the next slot that nobody has written to.
    fn next_slot(&self) -> Option<(u64, Vec<u8>)> {
        let number = self.written.len();
        let bytes = vec![number as u8 | 1; SLOT_BYTES];
        (number < SLOTS).then_some(((number * SLOT_BYTES) as u64, bytes))
    }

    /// Writes that go through the operations themselves: what was submitted is written, whatever becomes
    /// of its future.
    async fn bare_writes(&mut self) {
        let slots = self.slots.descriptor().clone();
        let mut operations = Vec::new();
        for _ in 0..self.random.usize(1..4) {
            let Some((offset, bytes)) = self.next_slot() else { break };
            self.written.push(Written::Surely);
            let write = match self.random.u8(..3) {
                0 => Operation::write_at(&slots, bytes, offset),
                1 => Operation::write_at(&slots, Arc::<[u8]>::from(bytes), offset),
                _ => {
                    let (head, tail) = bytes.split_at(100);
                    let parts = vec![head.to_vec().into(), tail.to_vec().into()];
                    Operation::write_vectored_at(&slots, parts, offset)
                }
            };
            operations.push(write);
        }
        let ring = &self.place.ring;
        // A simulated kernel cuts writes short, and a bare operation is not repaired.
        let is_whole = !self.place.is_simulated();
        let first = self.written.len() - operations.len();
        let entry = self.random.u8(..3);
        // One operation by itself is handed in when its future is looked at.
        let is_lazy = entry == 0;
        let pending: Vec<Pending> = match entry {
            0 => operations.into_iter().map(|operation| ring.submit(operation)).collect(),
            1 => ring.submit_all(operations),
            _ => ring.submit_linked(operations),
        };
        if !is_whole {
            self.written[first..].fill(Written::Perhaps);
        }
        for (number, pending) in (first..).zip(pending) {
            let fate = Fate::draw(&mut self.random);
            if is_lazy && fate.never_looks() {
                self.written[number] = Written::Perhaps;
            }
            self.has_forgotten |= matches!(fate, Fate::Forgotten(_));
            if let Some(done) = fate.befall(pending).await
                && is_whole
            {
                assert_eq!(done.result().unwrap(), SLOT_BYTES);
            }
        }
    }

    /// What has no effect, through every entry.
    async fn bare_operations(&mut self) {
        let count = self.random.usize(1..5);
        let operations: Vec<Operation> = (0..count).map(|_| self.draw_operation()).collect();
        let ring = &self.place.ring;
        let pending: Vec<Pending> = match self.random.u8(..3) {
            0 => operations.into_iter().map(|operation| ring.submit(operation)).collect(),
            1 => ring.submit_all(operations),
            _ => ring.submit_linked(operations),
        };
        for pending in pending {
            let fate = Fate::draw(&mut self.random);
            self.has_forgotten |= matches!(fate, Fate::Forgotten(_));
            if let Some(done) = fate.befall(pending).await
                && let Err(error) = done.result()
            {
                // A member behind one that was cancelled, or that met the end of the file.
                assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
            }
        }
    }

    fn draw_operation(&mut self) -> Operation {
        let offset = self.random.u64(..FILE_BYTES as u64);
        let file = self.file.descriptor();
        match self.random.u8(..7) {
            0 => Operation::nop(),
            1 => Operation::timeout(Duration::from_micros(self.random.u64(..500))),
            2 => Operation::statx(self.place.path("file")),
            3 => Operation::open(self.place.path("file"), OpenOptions::new().read(true)),
            4 => Operation::read_at(file, Custom(Marked(vec![0; 100].into())), offset),
            5 => Operation::read_vectored_at(
                file,
                vec![vec![0; 9].into(), vec![0; 9].into()],
                offset,
            ),
            _ => Operation::sync_data(self.slots.descriptor()),
        }
    }

    /// Something that never comes is given up, at its deadline or by its user.
    async fn wait_for_nothing(&mut self) {
        let read = Operation::read_at(&self.silent, vec![0; 64], 0);
        let pending = self.place.ring.submit(read);
        if self.random.bool() {
            let after = Duration::from_micros(self.random.u64(..2000));
            let done = pending.deadline(after).await;
            assert_eq!(done.result().unwrap_err().kind(), ErrorKind::TimedOut);
            assert_eq!(done.into_buffer().unwrap().as_slice().len(), 64);
        } else {
            let looks = self.random.u32(..3);
            assert!(Fate::Dropped(looks).befall(pending).await.is_none());
        }
    }

    async fn names(&mut self) {
        self.names += 1;
        let (ring, number) = (self.place.ring.clone(), self.names);
        let path = |name: &str| self.place.path(&format!("{name}-{number}"));
        let (one, other, directory) = (path("one"), path("other"), path("directory"));
        let program = async {
            fs::write(&ring, &one, "contents").await.unwrap();
            fs::rename(&ring, &one, &other).await.unwrap();
            fs::hard_link(&ring, &other, &one).await.unwrap();
            assert_eq!(fs::read(&ring, &one).await.unwrap(), b"contents");
            fs::remove_file(&ring, &one).await.unwrap();
            let gone = fs::metadata(&ring, &one).await.unwrap_err();
            assert_eq!(gone.kind(), ErrorKind::NotFound);
            fs::create_dir(&ring, &directory).await.unwrap();
            fs::remove_dir(&ring, &directory).await.unwrap();
            assert_eq!(fs::metadata(&ring, &other).await.unwrap().len(), 8);
        };
        let fate = Fate::draw_held(&mut self.random);
        fate.befall(program).await;
    }

    async fn register(&mut self) {
        let ring = self.place.ring.clone();
        let fate = Fate::draw_held(&mut self.random);
        match self.random.u8(..3) {
            0 => {
                let file = self.file.descriptor().clone();
                let registered = fate.befall(async { ring.register_file(&file).await }).await;
                if let Some(Ok(registered)) = registered {
                    let read = Operation::read_at(registered, vec![0; 50], 10);
                    let done = ring.submit(read).await;
                    let count = done.result().unwrap();
                    let buffer = done.into_buffer().unwrap();
                    self.content.check(10, &buffer.as_slice()[..count], "registered");
                    ring.unregister_file(registered).await.unwrap();
                }
            }
            1 => drop(fate.befall(async { ring.register_pool(2, 100).await }).await),
            _ => drop(fate.befall(async { ring.buffer_group(2, 100).await }).await),
        }
    }

    /// Tasks of a runtime that ends before they do; the ring goes on without it.
    fn spawn_and_end(&mut self, executor: &mut Executor) {
        for _ in 0..self.random.usize(..6) {
            let ring = self.place.ring.clone();
            let Some((offset, bytes)) = self.next_slot() else { break };
            let write = Operation::write_at(self.slots.descriptor(), bytes, offset);
            let read = Operation::read_at(&self.silent, vec![0; 10], 0);
            let is_spawned = executor.spawn(async move {
                let mut waits = Box::pin(ring.submit(read));
                // A ring that has ended refuses it at once.
                let is_over = begin(&mut waits);
                drop(ring.submit(write).await);
                if !is_over {
                    waits.await.result().unwrap_err();
                }
            });
            if is_spawned {
                self.written.push(Written::Perhaps);
            }
        }
        let old = std::mem::replace(executor, Executor::Own);
        #[cfg(feature = "tokio")]
        if let Executor::Tokio(runtime) = old {
            if self.random.bool() {
                runtime.shutdown_background();
            } else {
                drop(runtime);
            }
        }
        #[cfg(not(feature = "tokio"))]
        drop(old);
    }

    /// Ends the ring: what was done is there.
    async fn end(self) {
        let Program { place, file, slots, mut content, written, pool, .. } = self;
        self.traffic.end().await;
        self.arrivals.end().await;
        let mut length = self.length;
        length.settle().await;
        drop(length);
        file.settled().await.unwrap();
        let waiting = place.ring.stats().waiting_for_room;
        assert_eq!(waiting, 0, "operations wait for room");
        drop((self.direct, slots));
        place.ring.shutdown(Duration::from_secs(20)).await.unwrap();
        content.settle(&place.read("file"));
        drop(file);
        let bytes = place.read("slots");
        for (number, slot) in bytes.chunks(SLOT_BYTES).enumerate() {
            let whole = slot.iter().all(|byte| *byte == number as u8 | 1);
            let none = slot.iter().all(|byte| *byte == 0);
            match written.get(number) {
                Some(Written::Surely) => assert!(whole, "write {number} is not there"),
                Some(Written::Perhaps) => {}
                None => assert!(none, "slot {number} was written by nobody"),
            }
        }
        if let Some(pool) = pool {
            assert_eq!(pool.available(), 3, "a lease has not come back");
        }
        if !self.has_forgotten {
            let stats = place.ring.stats();
            assert_eq!(stats.submitted, stats.delivered + stats.reclaimed, "{stats:?}");
            assert_eq!((stats.local.in_flight, stats.local.waiting), (0, 0), "{stats:?}");
        }
    }
}
