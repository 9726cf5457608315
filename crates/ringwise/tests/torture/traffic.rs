//! A connection whose messages are in a log: what was sent with success arrives once and in order, what
//! was dropped arrives in full or not at all.

use std::{path::PathBuf, time::Duration};

use ringwise::{
    BufResult, BufferGroup, Custom, ErrorKind, Operation, OwnedBuffer, OwnedBufferMut, Ring,
    StableBytes, StableBytesMut,
    net::{ListenOptions, Shutdown, TcpListener, TcpStream, UnixListener, UnixStream},
};

use crate::fate::Fate;

/// So much is under way at most: less than any socket takes.
const UNDER_WAY_MAX: usize = 16 << 10;

pub struct Traffic {
    ring: Ring,
    sender: Socket,
    receiver: Socket,
    group: Option<BufferGroup>,
    /// Each message, and whether it was seen to be sent.
    log: Vec<(Vec<u8>, bool)>,
    received: Vec<u8>,
}

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// The same of either.
macro_rules! with {
    ($socket:expr, $stream:ident => $what:expr) => {
        match $socket {
            Socket::Tcp($stream) => $what,
            Socket::Unix($stream) => $what,
        }
    };
}

/// A buffer of a user's own that is overwritten when it is freed.
pub struct Marked(pub Box<[u8]>);

// SAFETY: a box stays where it is when it is moved.
unsafe impl StableBytes for Marked {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

// SAFETY: the same, and nobody else has it.
unsafe impl StableBytesMut for Marked {
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Drop for Marked {
    fn drop(&mut self) {
        self.0.fill(0xDD);
    }
}

impl Traffic {
    pub async fn new(ring: &Ring, unix: Option<PathBuf>) -> Traffic {
        let (sender, receiver) = match unix {
            Some(path) => {
                let listener = UnixListener::bind(ring, &path).unwrap();
                let sender = UnixStream::connect(ring, &path).await.unwrap();
                (Socket::Unix(sender), Socket::Unix(listener.accept().await.unwrap()))
            }
            None => {
                let any = "127.0.0.1:0".parse().unwrap();
                let listener = TcpListener::bind(ring, &any, &ListenOptions::default()).unwrap();
                let address = listener.local_address().unwrap();
                let sender = TcpStream::connect(ring, address).await.unwrap();
                (Socket::Tcp(sender), Socket::Tcp(listener.accept().await.unwrap().0))
            }
        };
        let group = ring.buffer_group(4, 512).await.ok();
        let (log, received) = (Vec::new(), Vec::new());
        Traffic { ring: ring.clone(), sender, receiver, group, log, received }
    }

    /// Bytes that were seen to be sent and not received.
    fn missing(&self) -> usize {
        let sent: usize =
            self.log.iter().filter(|(_, is_sent)| *is_sent).map(|(bytes, _)| bytes.len()).sum();
        sent.saturating_sub(self.received.len())
    }

    pub async fn send(&mut self, random: &mut fastrand::Rng) {
        let under_way: usize = self.log.iter().map(|(bytes, _)| bytes.len()).sum();
        if under_way.saturating_sub(self.received.len()) > UNDER_WAY_MAX {
            return;
        }
        let number = self.log.len() as u32;
        let mut bytes = number.to_be_bytes().to_vec();
        bytes.extend((0..random.usize(..1500)).map(|at| (at as u8) ^ (number as u8)));
        let fate = Fate::draw_held(random);
        let copy = bytes.clone();
        if random.u8(..7) == 0 {
            bytes.truncate(self.send_bare(copy, random.u8(..4)).await);
            return self.log.push((bytes, true));
        }
        let is_sent = with!(&self.sender, stream => match random.u8(..6) {
            0 => sent(fate.befall(stream.send_all(copy)).await),
            1 => sent(fate.befall(stream.send_all(copy.into_boxed_slice())).await),
            2 => {
                let shared: std::sync::Arc<[u8]> = copy.into();
                sent(fate.befall(stream.send_all(shared)).await)
            }
            3 => {
                let padded = [&[9, 9][..], &copy, &[9]].concat();
                let part = padded.part(2..2 + copy.len());
                sent(fate.befall(stream.send_all(part)).await)
            }
            4 => {
                let marked = Custom(Marked(copy.into_boxed_slice()));
                let send = stream.send_all_deadline(marked, Duration::from_secs(30));
                sent(fate.befall(send).await)
            }
            _ => {
                let (head, tail) = copy.split_at(4);
                let parts = vec![head.to_vec(), tail.to_vec()];
                sent(fate.befall(stream.send_all_vectored(parts)).await)
            }
        });
        self.log.push((bytes, is_sent));
    }

    /// Through an operation itself, when what was given up before is sent: it is on nobody's lane.
    /// Gives how much was sent.
    async fn send_bare(&self, bytes: Vec<u8>, way: u8) -> usize {
        let socket = with!(&self.sender, stream => {
            stream.flush().await.unwrap();
            stream.descriptor().clone()
        });
        let quiet = self.ring.submit(Operation::send_quiet(&socket, bytes.clone())).await;
        assert_eq!(quiet.result().unwrap_err().kind(), ErrorKind::Unsupported);
        let len = bytes.len();
        let send = match way {
            0 => Operation::send(&socket, bytes),
            1 => Operation::send_all(&socket, bytes),
            2 => Operation::send_all_vectored(&socket, vec![bytes.into()]),
            _ => Operation::send_zero_copy(&socket, bytes),
        };
        let count = self.ring.submit(send).await.result().unwrap();
        assert!(way == 0 || count == len);
        count
    }

    pub async fn receive(&mut self, random: &mut fastrand::Rng) {
        let mut fate = Fate::draw_held(random);
        if fate == Fate::Awaited && self.missing() == 0 {
            // Nothing may ever come.
            fate = Fate::Dropped(2);
        }
        let len = random.usize(1..2000);
        with!(&self.receiver, stream => match random.u8(..6) {
            0 => self.take(fate.befall(stream.recv(vec![0; len])).await),
            1 => self.take(fate.befall(stream.recv(Vec::with_capacity(len))).await),
            2 => self.take(fate.befall(stream.recv(Vec::with_capacity(len).spare())).await),
            3 => {
                let marked = Custom(Marked(vec![0; len].into()));
                self.take(fate.befall(stream.recv(marked)).await);
            }
            4 => {
                let two = vec![vec![0; len / 2], vec![0; len - len / 2]];
                let received = fate.befall(stream.recv_vectored(two)).await;
                self.take(received.map(|received| received.map_buffer(|parts| parts.concat())));
            }
            _ => self.receive_many(fate, random.usize(1..4)).await,
        });
    }

    async fn receive_many(&mut self, fate: Fate, pieces: usize) {
        let mut missing = self.missing();
        let Some(group) = &self.group else { return };
        let mut many = with!(&self.receiver, stream => stream.recv_multi(group, 2));
        for _ in 0..pieces {
            match fate.befall(many.next()).await {
                Some(Some(piece)) => {
                    let piece = piece.unwrap();
                    self.received.extend(piece.selected());
                    missing = missing.saturating_sub(piece.selected().len());
                }
                Some(None) | None => break,
            }
            if missing == 0 {
                break;
            }
        }
    }

    fn take<B: AsBytes>(&mut self, done: Option<BufResult<usize, B>>) {
        if let Some(BufResult(result, buffer)) = done {
            let count = result.unwrap();
            self.received.extend(&buffer.bytes_of()[..count]);
        }
    }

    /// Ends the connection, and compares what arrived with the log.
    pub async fn end(mut self) {
        with!(&self.sender, stream => stream.shutdown(Shutdown::Write).await.unwrap());
        loop {
            let received = with!(&self.receiver, stream => stream.recv(vec![0; 4096]).await);
            let (count, bytes) = received.unwrap();
            if count == 0 {
                break;
            }
            self.received.extend(&bytes[..count]);
        }
        let mut rest = &self.received[..];
        for (number, (bytes, is_sent)) in self.log.iter().enumerate() {
            match rest.strip_prefix(&bytes[..]) {
                Some(behind) => rest = behind,
                None => assert!(!is_sent, "message {number} was sent and has not arrived whole"),
            }
        }
        assert!(rest.is_empty(), "{} bytes arrived that nobody sent", rest.len());
        with!(self.sender, stream => stream.close().await.unwrap());
        with!(self.receiver, stream => stream.close().await.unwrap());
    }
}

fn sent<B>(done: Option<BufResult<(), B>>) -> bool {
    done.map(BufResult::unwrap).is_some()
}

/// What was received, behind whatever it came in.
trait AsBytes {
    fn bytes_of(&self) -> &[u8];
}

impl AsBytes for Vec<u8> {
    fn bytes_of(&self) -> &[u8] {
        self
    }
}

impl AsBytes for ringwise::Spare<Vec<u8>> {
    fn bytes_of(&self) -> &[u8] {
        &self.0
    }
}

impl AsBytes for Custom<Marked> {
    fn bytes_of(&self) -> &[u8] {
        self.0.bytes()
    }
}
