//! What comes in whole: connections of a listener and datagrams, each of which arrives once, whatever
//! becomes of the futures that waited for it.

use std::net::SocketAddr;

use ringwise::{
    Ring,
    net::{ListenOptions, TcpListener, TcpStream, UdpSocket},
};

use crate::fate::Fate;

/// Longer than any datagram here.
const DATAGRAM_BYTES_MAX: usize = 300;

pub struct Arrivals {
    listener: TcpListener,
    /// Connected, and not accepted yet.
    clients: Vec<TcpStream>,
    socket: UdpSocket,
    sender: UdpSocket,
    /// Each datagram, and whether it was seen to be sent.
    sent: Vec<(Vec<u8>, bool)>,
    received: Vec<Vec<u8>>,
}

impl Arrivals {
    pub async fn new(ring: &Ring) -> Arrivals {
        let any = "127.0.0.1:0".parse().unwrap();
        let bind = || UdpSocket::bind(ring, &any).unwrap();
        let (socket, sender) = (bind(), bind());
        sender.connect(socket.local_address().unwrap()).await.unwrap();
        Arrivals {
            listener: TcpListener::bind(ring, &any, &ListenOptions::default()).unwrap(),
            clients: Vec::new(),
            socket,
            sender,
            sent: Vec::new(),
            received: Vec::new(),
        }
    }

    pub async fn connect(&mut self, random: &mut fastrand::Rng) {
        let (ring, address) = (self.listener.ring(), self.listener.local_address().unwrap());
        for _ in 0..random.usize(1..4) {
            self.clients.push(TcpStream::connect(ring, address).await.unwrap());
        }
    }

    pub async fn accept(&mut self, random: &mut fastrand::Rng) {
        if random.bool() {
            return self.accept_one(Fate::draw_held(random)).await;
        }
        let mut incoming = self.listener.accept_multi(random.usize(1..3));
        for _ in 0..random.usize(1..4) {
            let fate = expecting(Fate::draw_held(random), self.clients.len());
            match fate.befall(incoming.next()).await {
                Some(accepted) => greet(&mut self.clients, accepted.unwrap()).await,
                None => break,
            }
        }
    }

    async fn accept_one(&mut self, fate: Fate) {
        let fate = expecting(fate, self.clients.len());
        if let Some(accepted) = fate.befall(self.listener.accept()).await {
            greet(&mut self.clients, accepted.unwrap()).await;
        }
    }

    pub async fn send(&mut self, random: &mut fastrand::Rng) {
        let number = self.sent.len() as u32;
        let mut bytes = number.to_be_bytes().to_vec();
        bytes.extend((0..random.usize(..DATAGRAM_BYTES_MAX - 4)).map(|at| at as u8 ^ number as u8));
        let fate = Fate::draw_held(random);
        let copy = bytes.clone();
        let done = if random.bool() {
            fate.befall(self.sender.send(copy)).await
        } else {
            let to = self.socket.local_address().unwrap();
            fate.befall(self.sender.send_to(copy.into_boxed_slice(), to))
                .await
                .map(|done| done.map_buffer(Vec::from))
        };
        let is_sent = done.is_some_and(|done| {
            let (count, back) = done.unwrap();
            assert!(count == bytes.len() && back == bytes, "a datagram goes whole");
            true
        });
        self.sent.push((bytes, is_sent));
    }

    pub async fn receive(&mut self, random: &mut fastrand::Rng) {
        let fate = expecting(Fate::draw_held(random), self.missing());
        let buffer = Vec::with_capacity(DATAGRAM_BYTES_MAX);
        if random.bool() {
            if let Some(done) = fate.befall(self.socket.recv_from(buffer)).await {
                let (datagram, bytes) = done.unwrap();
                assert_eq!(datagram.from, self.sender.local_address().unwrap());
                assert!(datagram.bytes == bytes.len() && !datagram.is_truncated);
                self.received.push(bytes);
            }
        } else if let Some(done) = fate.befall(self.socket.recv(buffer)).await {
            self.received.push(done.unwrap().1);
        }
    }

    /// Datagrams that were seen to be sent and not received.
    fn missing(&self) -> usize {
        let is_missing =
            |(bytes, is_sent): &&(Vec<u8>, bool)| *is_sent && !self.received.contains(bytes);
        self.sent.iter().filter(is_missing).count()
    }

    /// All that came has arrived, and nothing twice.
    pub async fn end(mut self) {
        while !self.clients.is_empty() {
            self.accept_one(Fate::Awaited).await;
        }
        while self.missing() > 0 {
            let (_, bytes) =
                self.socket.recv(Vec::with_capacity(DATAGRAM_BYTES_MAX)).await.unwrap();
            self.received.push(bytes);
        }
        for bytes in &self.received {
            let number = u32::from_be_bytes(bytes[..4].try_into().unwrap()) as usize;
            assert!(*bytes == self.sent[number].0, "datagram {number} is not what was sent");
        }
        let count = self.received.len();
        self.received.sort_unstable();
        self.received.dedup();
        assert_eq!(self.received.len(), count, "a datagram arrived twice");
    }
}

/// Nothing may ever come where nothing is known to be under way.
fn expecting(fate: Fate, missing: usize) -> Fate {
    if fate == Fate::Awaited && missing == 0 { Fate::Dropped(2) } else { fate }
}

/// Whose connection it is that was accepted, and that it works.
async fn greet(clients: &mut Vec<TcpStream>, (accepted, from): (TcpStream, SocketAddr)) {
    let is_it = |client: &TcpStream| client.local_address().unwrap() == from;
    let client = clients.iter().position(is_it).expect("it was connected, and not accepted before");
    let client = clients.swap_remove(client);
    accepted.send_all("hello").await.unwrap();
    let (count, bytes) = client.recv(Vec::with_capacity(10)).await.unwrap();
    // A simulated kernel gives a part.
    assert!(count > 0 && b"hello".starts_with(&bytes));
}
