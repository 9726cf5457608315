//! `fs::Cursor` under the stream traits of tokio and of futures, and `fs::Chunks`, on every kind of ring.
//!
//! RINGWISE_SEEDS: how many random programs are made of each kind (100 unless set).

use crate::rings;
use std::{io::SeekFrom, pin::Pin};

use crate::rings::{Place, places, simulated};
use fastrand::Rng;
use futures::{StreamExt, executor::block_on, future::poll_immediate};
use ringwise::{
    Error, ErrorKind, Opcode,
    fs::{Chunks, Cursor, File},
    sim::{Fault, Simulation, When},
};

fn seeds() -> u64 {
    std::env::var("RINGWISE_SEEDS").map_or(100, |text| text.parse().unwrap())
}

fn bytes(random: &mut Rng, most: usize) -> Vec<u8> {
    (0..random.usize(1..=most)).map(|_| random.u8(..)).collect()
}

/// What a program does through the one or the other trait; the model is in `run`.
trait Stream {
    async fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize>;
    async fn write(&mut self, from: &[u8]) -> std::io::Result<usize>;
    async fn flush(&mut self) -> std::io::Result<()>;
    async fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64>;
    fn position(&self) -> u64;
}

macro_rules! stream {
    ($name:ident, $($trait:ident)::+) => {
        struct $name(Cursor);

        impl Stream for $name {
            async fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
                use $($trait)::+::AsyncReadExt;
                AsyncReadExt::read(&mut self.0, into).await
            }

            async fn write(&mut self, from: &[u8]) -> std::io::Result<usize> {
                use $($trait)::+::AsyncWriteExt;
                AsyncWriteExt::write(&mut self.0, from).await
            }

            async fn flush(&mut self) -> std::io::Result<()> {
                use $($trait)::+::AsyncWriteExt;
                AsyncWriteExt::flush(&mut self.0).await
            }

            async fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
                use $($trait)::+::AsyncSeekExt;
                AsyncSeekExt::seek(&mut self.0, to).await
            }

            fn position(&self) -> u64 {
                self.0.position()
            }
        }
    };
}

stream!(Tokio, tokio::io);
stream!(Futures, futures::io);

/// A model of the file and of the position in it.
struct Model {
    content: Vec<u8>,
    position: usize,
}

impl Model {
    fn write(&mut self, bytes: &[u8]) {
        let end = self.position + bytes.len();
        if self.content.len() < end {
            self.content.resize(end, 0);
        }
        self.content[self.position..end].copy_from_slice(bytes);
        self.position = end;
    }

    fn rest(&self) -> &[u8] {
        self.content.get(self.position..).unwrap_or_default()
    }

    /// A position within or a little behind the file, and how a seek may name it.
    fn seek(&mut self, random: &mut Rng) -> SeekFrom {
        let old = self.position as i64;
        self.position = random.usize(..self.content.len() + 20);
        let new = self.position as i64;
        match random.u8(..3) {
            0 => SeekFrom::Start(new as u64),
            1 => SeekFrom::Current(new - old),
            _ => SeekFrom::End(new - self.content.len() as i64),
        }
    }
}

async fn step(stream: &mut impl Stream, model: &mut Model, random: &mut Rng) {
    match random.u8(..10) {
        0..4 => {
            let mut into = vec![0; random.usize(..3000)];
            let count = stream.read(&mut into).await.unwrap();
            assert_eq!(into[..count], model.rest()[..count]);
            assert_eq!(count == 0, into.is_empty() || model.rest().is_empty());
            model.position += count;
        }
        // It is dropped where it would wait.
        4 => {
            let mut into = [0; 100];
            if let Some(count) = poll_immediate(Box::pin(stream.read(&mut into))).await {
                let count = count.unwrap();
                assert_eq!(into[..count], model.rest()[..count]);
                model.position += count;
            }
        }
        5..8 => {
            let bytes = bytes(random, 3000);
            let count = stream.write(&bytes).await.unwrap();
            model.write(&bytes[..count]);
        }
        8 => stream.flush().await.unwrap(),
        _ => {
            let to = model.seek(random);
            assert_eq!(stream.seek(to).await.unwrap(), model.position as u64);
            let wrong = SeekFrom::Current(-1 - model.position as i64);
            let wrong = stream.seek(wrong).await.unwrap_err();
            assert_eq!(wrong.kind(), std::io::ErrorKind::InvalidInput);
        }
    }
    assert_eq!(stream.position(), model.position as u64);
}

async fn run(place: &Place, seed: u64) {
    let mut random = Rng::with_seed(seed);
    let content = bytes(&mut random, 10_000);
    place.write("file", &content);
    let cursor = Cursor::with_capacity(place.create("file").await, random.usize(1..4000));
    let mut model = Model { content, position: 0 };
    if random.bool() {
        steps(&mut Tokio(cursor), &mut model, &mut random).await;
    } else {
        steps(&mut Futures(cursor), &mut model, &mut random).await;
    }
    assert!(place.read("file") == model.content, "{}: seed {seed}", place.name);
}

async fn steps(stream: &mut impl Stream, model: &mut Model, random: &mut Rng) {
    for _ in 0..60 {
        step(stream, model, random).await;
    }
    stream.flush().await.unwrap();
}

#[test]
fn random_programs_do_what_a_model_does() {
    for place in places() {
        for seed in 0..seeds() {
            block_on(run(&place, seed));
        }
    }
}

/// A read that nobody waits for any more takes nothing from the next one, and a seek takes place.
#[test]
fn dropped_reads_and_seeks_lose_nothing() {
    use tokio::io::{AsyncReadExt, AsyncSeekExt};
    for place in places() {
        block_on(async {
            let content: Vec<u8> = (0..50_000_u32).map(|at| at as u8).collect();
            place.write("file", &content);
            let mut cursor = Cursor::with_capacity(place.create("file").await, 1000);
            for at in 0..50 {
                drop(poll_immediate(Box::pin(cursor.read(&mut [0; 10]))).await);
                let here = cursor.position() as usize;
                let mut into = [0; 900];
                cursor.read_exact(&mut into).await.unwrap();
                assert_eq!(into[..], content[here..here + 900], "{}: {at}", place.name);
                drop(poll_immediate(Box::pin(cursor.seek(SeekFrom::End(-1000 * at)))).await);
                let read = cursor.read_exact(&mut into[..1]).await;
                assert_eq!(read.is_ok(), at > 0, "{}: {at}", place.name);
                let wanted = content.len() - 1000 * at as usize + usize::from(at > 0);
                assert_eq!(cursor.position() as usize, wanted, "{}: {at}", place.name);
                cursor.seek(SeekFrom::Start(at as u64)).await.unwrap();
            }
        });
    }
}

/// A seek of futures' trait is called again with the same words until it is over. Other words are another seek, which
/// took place of the first.
#[cfg(feature = "futures-io")]
#[test]
fn a_seek_comes_after_one_that_was_dropped() {
    use futures::AsyncSeekExt;
    for place in places() {
        block_on(async {
            place.write("file", &[1; 1000]);
            let mut cursor = Cursor::new(place.create("file").await);
            drop(poll_immediate(Box::pin(cursor.seek(SeekFrom::End(-100)))).await);
            assert_eq!(cursor.seek(SeekFrom::Current(7)).await.unwrap(), 907, "{}", place.name);
            // The same words go on.
            drop(poll_immediate(Box::pin(cursor.seek(SeekFrom::End(-10)))).await);
            assert_eq!(cursor.seek(SeekFrom::End(-10)).await.unwrap(), 990, "{}", place.name);
            // One that cannot be is told by the next, unless it was over at once.
            let told = match poll_immediate(Box::pin(cursor.seek(SeekFrom::End(-2000)))).await {
                Some(sought) => sought,
                None => cursor.seek(SeekFrom::Start(5)).await,
            };
            let told = told.unwrap_err();
            assert_eq!(told.kind(), std::io::ErrorKind::InvalidInput, "{}", place.name);
            assert_eq!(cursor.seek(SeekFrom::Start(5)).await.unwrap(), 5, "{}", place.name);
        });
    }
}

/// More than a socket holds.
const MUCH: usize = 1 << 20;

/// A cursor over a file without positions.
fn over(place: &Place, file: impl Into<std::os::fd::OwnedFd>) -> Cursor {
    Cursor::with_capacity(File::from_std(&place.ring, file.into().into()), MUCH)
}

/// The bytes were taken while the write of the other was in flight. They were lost if the cursor was dropped then.
#[test]
fn a_write_takes_nothing_before_an_older_one_has_ended() {
    use std::io::Read;
    use tokio::io::AsyncWriteExt;
    for place in rings::real_places() {
        const FULL: usize = 64 << 10;
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        std::io::Write::write_all(&mut writer, &[0; FULL]).unwrap();
        block_on(async {
            let mut first = over(&place, writer);
            first.write_all(b"first, ").await.unwrap();
            let mut second = Cursor::new(first.get_ref().clone());
            drop(first);
            {
                let write = poll_immediate(Box::pin(second.write(b"second"))).await;
                assert!(write.is_none(), "{}: {write:?}", place.name);
            }
            let read = std::thread::spawn(move || {
                let mut bytes = Vec::new();
                reader.read_to_end(&mut bytes).unwrap();
                bytes
            });
            assert_eq!(second.write(b"second").await.unwrap(), 6);
            drop(second);
            let bytes = read.join().unwrap();
            assert_eq!(bytes[FULL..], *b"first, second", "{}", place.name);
        });
    }
}

/// A pipe, a terminal or a socket has no positions: a seek said otherwise and threw away what was read ahead.
#[test]
fn a_pipe_has_no_positions() {
    use std::io::Write;
    use tokio::io::{AsyncReadExt, AsyncSeekExt};
    for place in rings::real_places() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"first, second").unwrap();
        drop(writer);
        block_on(async {
            let mut cursor = over(&place, reader);
            let mut bytes = [0; 5];
            cursor.read_exact(&mut bytes).await.unwrap();
            for to in [SeekFrom::Start(0), SeekFrom::Current(0), SeekFrom::End(0)] {
                let refused = cursor.seek(to).await.unwrap_err();
                assert_eq!(refused.raw_os_error(), Some(libc::ESPIPE), "{}: {to:?}", place.name);
                #[cfg(feature = "futures-io")]
                {
                    let refused = futures::AsyncSeekExt::seek(&mut cursor, to).await.unwrap_err();
                    assert_eq!(refused.raw_os_error(), Some(libc::ESPIPE), "{}", place.name);
                }
            }
            assert_eq!(cursor.position(), 0);
            let mut rest = String::new();
            cursor.read_to_string(&mut rest).await.unwrap();
            assert_eq!((&bytes, &*rest), (b"first", ", second"), "{}", place.name);
        });
    }
}

/// A write threw away what was read ahead, and cancelled a read in flight.
#[test]
fn both_directions_of_a_terminal_are_independent() {
    use std::io::{Read, Write};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    for place in rings::real_places() {
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        block_on(async {
            theirs.write_all(b"first, second").unwrap();
            let mut cursor = over(&place, ours);
            let mut bytes = [0; 5];
            cursor.read_exact(&mut bytes).await.unwrap();
            cursor.write_all(b"question").await.unwrap();
            let mut rest = [0; 8];
            cursor.read_exact(&mut rest).await.unwrap();
            assert_eq!((&bytes, &rest), (b"first", b", second"), "{}", place.name);

            // In two tasks, as a program has them that reads and writes a terminal.
            let (mut reader, mut writer) = tokio::io::split(cursor);
            let mut answer = [0; 6];
            let read = reader.read_exact(&mut answer);
            let ask = async {
                writer.write_all(b"?").await.unwrap();
                writer.flush().await.unwrap();
                let mut asked = [0; 9];
                theirs.read_exact(&mut asked).unwrap();
                assert_eq!(&asked, b"question?");
                theirs.write_all(b"answer").unwrap();
            };
            let (read, ()) = futures::future::join(read, ask).await;
            assert_eq!((read.unwrap(), &answer), (6, b"answer"), "{}", place.name);

            // The other end reads nothing, so a write waits. A read does not wait for it.
            let (mut cursor, much) = (reader.unsplit(writer), vec![7; MUCH]);
            assert_eq!(cursor.write(&much).await.unwrap(), MUCH);
            theirs.write_all(b"more").unwrap();
            cursor.read_exact(&mut answer[..4]).await.unwrap();
            assert_eq!(&answer[..4], b"more", "{}", place.name);
            let drain = std::thread::spawn(move || {
                theirs.read_exact(&mut vec![0; MUCH]).unwrap();
                theirs
            });
            cursor.flush().await.unwrap();
            drop(drain.join().unwrap());
        });
    }
}

#[test]
fn lines_and_copies_run_over_it() {
    use tokio::io::{AsyncBufReadExt, AsyncSeekExt};
    for place in places() {
        block_on(async {
            let text: String = (0..20_000).map(|number| format!("line {number}\n")).collect();
            place.write("from", text.as_bytes());
            let mut from = Cursor::new(place.create("from").await);
            let mut to = Cursor::with_capacity(place.create("to").await, 5000);
            assert_eq!(tokio::io::copy(&mut from, &mut to).await.unwrap(), text.len() as u64);
            assert!(place.read("to") == text.as_bytes(), "{}", place.name);
            to.rewind().await.unwrap();
            let (mut lines, mut number) = (AsyncBufReadExt::lines(to), 0);
            while let Some(line) = lines.next_line().await.unwrap() {
                assert_eq!(line, format!("line {number}"));
                number += 1;
            }
            assert_eq!(number, 20_000, "{}", place.name);
        });
    }
}

/// The write itself has been answered before, so whatever comes next tells.
/// The task waited for tokio to wake it, and tokio for its thread, on which the other executor polled.
#[cfg(feature = "tokio")]
#[test]
fn another_executor_may_poll_on_a_thread_of_a_runtime() {
    for place in places() {
        place.write("much", &vec![7; 4 << 20]);
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let (ring, path) = (place.ring.clone(), place.path("much"));
        let (told, answer) = std::sync::mpsc::channel();
        runtime.spawn(async move {
            let options = ringwise::OpenOptions::new().read(true);
            let read = async {
                let mut cursor = Cursor::new(File::open(&ring, &path, options).await.unwrap());
                let mut bytes = Vec::new();
                tokio::io::AsyncReadExt::read_to_end(&mut cursor, &mut bytes).await.unwrap();
                bytes.len()
            };
            told.send(block_on(read)).unwrap();
        });
        let read = answer.recv_timeout(std::time::Duration::from_secs(20));
        // A runtime whose thread waits for ever cannot be waited for.
        runtime.shutdown_background();
        assert_eq!(read, Ok(4 << 20), "{}", place.name);
    }
}

#[test]
fn a_failed_write_is_reported_by_the_next_operation() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    for asks in 0..3 {
        let simulation = Simulation::builder(asks)
            .fault(Fault::Io, When::nth(1).of(Opcode::Write))
            .fault(Fault::Delay, When::rate(1.0).of(Opcode::Write))
            .build();
        let place = simulated(&simulation);
        block_on(async {
            let mut cursor = Cursor::new(place.create("file").await);
            cursor.write_all(b"lost").await.unwrap();
            let told = match asks {
                0 => cursor.flush().await,
                1 => cursor.read(&mut [0; 4]).await.map(drop),
                _ => cursor.write(b"more").await.map(drop),
            };
            assert_eq!(told.unwrap_err().raw_os_error(), Some(libc::EIO), "{asks}");
            cursor.flush().await.unwrap();
        });
    }
}

async fn collect(chunks: &mut Chunks) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(chunk) = chunks.next().await {
        all.push(chunk.unwrap());
    }
    assert!(chunks.next().await.is_none());
    all
}

#[test]
fn chunks_are_the_range_of_the_file() {
    for place in places() {
        for seed in 0..seeds() {
            let mut random = Rng::with_seed(seed);
            let content = bytes(&mut random, 30_000);
            place.write("file", &content);
            let start = random.usize(..content.len() + 10);
            let end = if random.bool() { usize::MAX } else { start + random.usize(..40_000) };
            let (chunk_bytes, in_flight) = (random.usize(1..5000), random.usize(..9));
            let all = block_on(async {
                let file = place.create("file").await;
                collect(&mut file.chunks(start as u64..end as u64, chunk_bytes, in_flight)).await
            });
            let part = &content[start.min(content.len())..end.min(content.len())];
            assert!(all.concat() == part, "{}: seed {seed}", place.name);
            let short = all.iter().rev().skip(1).filter(|chunk| chunk.len() != chunk_bytes);
            assert_eq!(short.count(), 0, "{}: seed {seed}", place.name);
        }
    }
}

/// The reads behind a short one have left a gap, and are made anew.
#[test]
fn chunks_have_no_gap_after_a_short_read() {
    for seed in 0..seeds() {
        let simulation = Simulation::builder(seed)
            .fault(Fault::ShortRead, When::rate(0.3).of(Opcode::Read))
            .build();
        let place = simulated(&simulation);
        let content = bytes(&mut Rng::with_seed(seed), 30_000);
        place.write("file", &content);
        let all = block_on(async {
            let file = place.create("file").await;
            collect(&mut file.chunks(0..u64::MAX, 1000, 4)).await
        });
        assert!(all.concat() == content, "seed {seed}");
    }
}

/// As many as were asked for, and none behind the end of the file.
#[test]
fn reads_go_ahead_of_the_caller() {
    let place = simulated(&Simulation::builder(1).build());
    block_on(async {
        place.write("file", &[1; 100_000]);
        let file = place.create("file").await;
        let reads = || place.ring.stats().submitted;
        let before = reads();
        let mut chunks = file.chunks(0..100_000, 10_000, 4);
        assert_eq!(chunks.next().await.unwrap().unwrap().len(), 10_000);
        // The length, the first chunk, and four more.
        assert_eq!(reads() - before, 6);
        collect(&mut chunks).await;
        assert_eq!(reads() - before, 11);
        let mut small = file.chunks(90_000..u64::MAX, 10_000, 4);
        collect(&mut small).await;
        assert_eq!(reads() - before, 14);
    });
}

#[test]
fn chunks_of_a_file_that_is_cut_or_grows() {
    for place in places() {
        block_on(async {
            place.write("file", &[1; 50_000]);
            let file = place.create("file").await;
            let mut chunks = file.chunks(0..u64::MAX, 1000, 3);
            for _ in 0..10 {
                assert_eq!(chunks.next().await.unwrap().unwrap(), [1; 1000]);
            }
            file.set_len(20_500).await.unwrap();
            let rest = collect(&mut chunks).await.concat().len();
            assert!((10_500..=13_500).contains(&rest), "{}: {rest}", place.name);
            let mut chunks = file.chunks(0..u64::MAX, 20_000, 3);
            chunks.next().await.unwrap().unwrap();
            file.write_all_at(vec![2; 30_000], 20_500).await.0.unwrap();
            let rest = collect(&mut chunks).await.concat().len();
            assert_eq!(rest, 30_500, "{}", place.name);
        });
    }
}

#[test]
fn chunks_end_with_the_first_error() {
    let simulation = Simulation::builder(1).fault(Fault::Io, When::nth(3).of(Opcode::Read)).build();
    let place = simulated(&simulation);
    block_on(async {
        place.write("file", &[1; 50_000]);
        let file = place.create("file").await;
        let found: Vec<Result<Vec<u8>, Error>> = file.chunks(0..50_000, 10_000, 4).collect().await;
        let (error, before) = found.split_last().unwrap();
        assert!(before.len() < 5 && before.iter().all(Result::is_ok));
        assert_eq!(error.as_ref().unwrap_err().errno(), libc::EIO);
        // A file that cannot be read: its length is known, and no chunk comes.
        let simulation = Simulation::builder(1).build();
        let place = simulated(&simulation);
        place.write("file", &[1; 100]);
        let file = place.open("file", ringwise::OpenOptions::new().write(true)).await;
        let mut chunks = Box::pin(file.chunks(0..100, 10, 2));
        let refused = Pin::new(&mut *chunks).next().await.unwrap().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::BadDescriptor, "{refused}");
        assert!(chunks.next().await.is_none());
    });
}

/// A file without a length, as those of /proc.
#[test]
fn chunks_of_a_file_without_a_length() {
    for place in rings::real_places() {
        block_on(async {
            let options = ringwise::OpenOptions::new().read(true);
            let file = File::open(&place.ring, "/proc/self/maps", options).await.unwrap();
            let text = collect(&mut file.chunks(0..u64::MAX, 500, 4)).await.concat();
            assert!(text.ends_with(b"\n") && text.len() > 1000, "{}", place.name);
        });
    }
}
