//! Asks a broker who leads the partitions of a topic and which replicas are in sync, without the seconds that one of
//! Kafka's tools takes to start.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

/// A partition as a broker knows it.
#[derive(Debug)]
pub struct Partition {
    pub number: i32,
    pub leader: i32,
    pub replicas: usize,
    pub in_sync: usize,
}

/// Returns the partitions of a topic. Nothing means that the broker does not answer, or knows no topic.
pub fn partitions(port: u16, topic: &str) -> Option<Vec<Partition>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    // Metadata, version 4, with number 0 of nobody, about one topic that is not to be created.
    let mut request = vec![0, 3, 0, 4, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 1];
    request.extend_from_slice(&(topic.len() as u16).to_be_bytes());
    request.extend_from_slice(topic.as_bytes());
    request.push(0);
    stream.write_all(&(request.len() as u32).to_be_bytes()).ok()?;
    stream.write_all(&request).ok()?;
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let mut answer = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut answer).ok()?;
    let mut answer = Answer(&answer);
    // Its number, and how long it was held back.
    answer.take(8)?;
    answer.list(|answer| {
        answer.take(4)?;
        answer.text()?;
        answer.take(4)?;
        answer.text()
    })?;
    // The cluster and its controller.
    answer.text()?;
    answer.take(4)?;
    let topics = answer.list(|answer| {
        answer.take(2)?;
        answer.text()?;
        answer.take(1)?;
        answer.list(|answer| {
            answer.take(2)?;
            let (number, leader) = (answer.number()?, answer.number()?);
            let replicas = answer.list(Answer::number)?.len();
            let in_sync = answer.list(Answer::number)?.len();
            Some(Partition { number, leader, replicas, in_sync })
        })
    })?;
    topics.into_iter().next().filter(|partitions| !partitions.is_empty())
}

struct Answer<'a>(&'a [u8]);

impl<'a> Answer<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (own, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(own)
    }

    fn number(&mut self) -> Option<i32> {
        self.take(4)?.try_into().ok().map(i32::from_be_bytes)
    }

    /// A text, which may be none.
    fn text(&mut self) -> Option<()> {
        let len = i16::from_be_bytes(self.take(2)?.try_into().ok()?);
        self.take(len.max(0) as usize).map(drop)
    }

    fn list<T>(&mut self, mut one: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        (0..self.number()?).map(|_| one(self)).collect()
    }
}
