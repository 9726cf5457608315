//! The client of `http`: keep-alive connections in a closed loop, on a thread of its own. It knows nothing
//! of ringwise and hyper: it sends with tokio's sockets and parses heads with httparse.
//!
//! It verifies the status, the length and each byte of every answer.

use std::{
    io,
    net::SocketAddr,
    ops::Range,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use ringwise_load::ClientUse;
use ringwise_measure::{
    Sources,
    cpu::{ThreadTime, pin_current_thread},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::{JoinHandle, JoinSet},
    time::{sleep_until, timeout, timeout_at},
};

use crate::{
    engine::{Tally, unavailable},
    error::plain,
    sampling::{
        job::{Failure, Job, Until, Window},
        lane::{Counts, Lane},
    },
};

/// How long a server may take to accept all connections, and after the measured time for its last answers.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest head of an answer.
const HEAD_BYTES_MAX: usize = 4096;
/// The most fields in it.
const FIELDS_MAX: usize = 16;

/// Which server is asked for what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load<'a> {
    /// Where the server is.
    pub address: SocketAddr,
    /// Its files, and how many connections there are.
    pub job: &'a Arc<Job>,
    /// The processor of the client.
    pub processor: usize,
}

impl Load<'_> {
    /// Opens all connections, asks `begin` for the window, and asks the server until it is over. It pins the
    /// calling thread to the client's processor.
    ///
    /// # Errors
    ///
    /// [`Failure::Unavailable`] if the server fails, [`Failure::Mismatch`] if a body is wrong.
    pub(super) fn run(
        &self,
        begin: &mut dyn FnMut() -> Result<Window, Failure>,
    ) -> Result<Tally, Failure> {
        let refused = |error: io::Error| unavailable(format!("the client: {}", plain(&error)));
        pin_current_thread(&[self.processor]).map_err(refused)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(refused)?.block_on(async {
            let connections = timeout(PATIENCE, self.connect()).await;
            let connections = connections.map_err(|_| {
                let seconds = PATIENCE.as_secs();
                unavailable(format!("not all connections were accepted within {seconds} s"))
            })??;
            self.ask(connections, begin()?).await
        })
    }

    async fn connect(&self) -> Result<Vec<Connection>, Failure> {
        let mut connections = Vec::with_capacity(self.job.depth);
        for number in 0..self.job.depth {
            connections.push(Connection::open(number, self).await?);
        }
        Ok(connections)
    }

    async fn ask(&self, connections: Vec<Connection>, window: Window) -> Result<Tally, Failure> {
        let Until::Time { ns: until_ns } = window.until else {
            return Err(Failure::Io("http is measured for a time".to_owned()));
        };
        let (count, mut tasks) = (connections.len(), JoinSet::new());
        for (number, connection) in connections.into_iter().enumerate() {
            let lane = Lane::new(self.job, window, number, count);
            tasks.spawn(connection.ask_all(self.job.clone(), lane));
        }
        let from = window.instant(window.from_ns);
        let began: JoinHandle<Mark> = tokio::spawn(async move {
            sleep_until(from.into()).await;
            Mark::set()
        });
        let patience = window.instant(until_ns) + PATIENCE;
        let ended = timeout_at(patience.into(), tasks.join_all()).await;
        let used = match began.is_finished() {
            true => began.await.ok().map(|began| Mark::set().since(&began)),
            false => None,
        };
        let lanes = ended.map_err(|_| {
            unavailable(format!("a request had no answer within {} s", PATIENCE.as_secs()))
        })?;
        let lanes = lanes.into_iter().collect::<Result<Vec<Counts>, _>>()?;
        let client_bound = used.is_some_and(|used| used.is_bound());
        Ok(Tally { client_bound, ..Tally::of(self.job, &window, lanes) })
    }
}

/// A moment of the client's thread.
struct Mark {
    at: Instant,
    time: ThreadTime,
}

impl Mark {
    fn set() -> Mark {
        Mark { at: Instant::now(), time: ThreadTime::read(&Sources::default()) }
    }

    fn since(&self, earlier: &Mark) -> ClientUse {
        let elapsed_ns = self.at.duration_since(earlier.at).as_nanos() as u64;
        let cpu_ns = self.time.cpu_ns.saturating_sub(earlier.time.cpu_ns);
        let share = |ns: u64| ns as f64 / elapsed_ns.max(1) as f64;
        let waited = self.time.waited_ns.zip(&earlier.time.waited_ns);
        let waiting_share =
            waited.known().map(|(later, earlier)| share(later.saturating_sub(**earlier)));
        ClientUse { elapsed_ns, cpu_ns, busy_share: share(cpu_ns), waiting_share }
    }
}

/// A connection that stays open.
struct Connection {
    number: usize,
    stream: TcpStream,
    body_bytes: usize,
    /// The request for each file.
    requests: Vec<String>,
    /// The last answer, and room for bytes that do not belong to one.
    answer: Vec<u8>,
}

impl Connection {
    async fn open(number: usize, load: &Load<'_>) -> Result<Connection, Failure> {
        let Load { address, job, .. } = load;
        let failed = |error: io::Error| {
            let hint = match error.kind() {
                io::ErrorKind::AddrNotAvailable => {
                    ": no port is free, wait a minute or use fewer --connections"
                }
                _ => "",
            };
            unavailable(format!("connection {number} to {address}: {}{hint}", plain(&error)))
        };
        let stream = TcpStream::connect(address).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let request = |file: u64| format!("GET /{file} HTTP/1.1\r\nhost: {address}\r\n\r\n");
        Ok(Connection {
            number,
            stream,
            body_bytes: job.block_bytes,
            requests: job.files.iter().map(|file| request(file.number)).collect(),
            answer: vec![0; HEAD_BYTES_MAX + job.block_bytes],
        })
    }

    async fn ask_all(mut self, job: Arc<Job>, mut lane: Lane) -> Result<Counts, Failure> {
        while let Some(request) = lane.next_request() {
            let began_ns = lane.clock();
            lane.begin(1, began_ns);
            let answered = self.ask(request.file).await;
            let ended_ns = lane.clock();
            let result = match answered {
                Ok(body) => lane.complete(request, began_ns, ended_ns, &self.answer[body]),
                Err(text) => Err(unavailable(format!("connection {}: {text}", self.number))),
            };
            if result.is_err() {
                job.failed.store(true, Ordering::Relaxed);
                result?;
            }
        }
        Ok(lane.into_counts())
    }

    /// Asks for a file. Returns where its body is in the answer.
    async fn ask(&mut self, file: usize) -> Result<Range<usize>, String> {
        let sent = self.stream.write_all(self.requests[file].as_bytes()).await;
        sent.map_err(|error| format!("sending: {}", plain(&error)))?;
        let (mut filled, mut head) = (0, None);
        loop {
            let received = self.stream.read(&mut self.answer[filled..]).await;
            match received.map_err(|error| format!("receiving: {}", plain(&error)))? {
                0 => return Err(format!("closed after {filled} bytes of an answer")),
                count => filled += count,
            }
            if head.is_none() {
                head = head_bytes(&self.answer[..filled], self.body_bytes)?;
            }
            let Some(start) = head else { continue };
            let end = start + self.body_bytes;
            if filled > end {
                return Err(format!("{} bytes more than the content-length", filled - end));
            }
            if filled == end {
                return Ok(start..end);
            }
        }
    }
}

/// The length of the head of an answer, if all of it is there.
fn head_bytes(answer: &[u8], body_bytes: usize) -> Result<Option<usize>, String> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut response = httparse::Response::new(&mut fields);
    let parsed = response.parse(answer).map_err(|error| format!("no HTTP answer: {error}"))?;
    let httparse::Status::Complete(bytes) = parsed else {
        let is_long = answer.len() >= HEAD_BYTES_MAX;
        return if is_long {
            Err("the head of an answer does not end".to_owned())
        } else {
            Ok(None)
        };
    };
    if response.code != Some(200) {
        let code = response.code.unwrap_or(0);
        return Err(format!("answered with status {code}, expected 200"));
    }
    let lengths = || {
        response.headers.iter().filter(|field| field.name.eq_ignore_ascii_case("content-length"))
    };
    let length = lengths().next().and_then(|field| std::str::from_utf8(field.value).ok());
    match length.and_then(|text| text.parse::<usize>().ok()) {
        Some(length) if length == body_bytes && lengths().count() == 1 => Ok(Some(bytes)),
        Some(length) => Err(format!("answered with {length} bytes, expected {body_bytes}")),
        None => Err("answered without a content-length".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpListener,
        sync::atomic::AtomicBool,
        thread,
    };

    use super::*;
    use crate::{
        sampling::job::{Cache, Extent, Pattern, Timing},
        testing,
        workload::http::site::Site,
    };

    const BODY_BYTES: usize = 9000;

    /// Makes a wrong answer of an honest one.
    type Tamper = fn(Vec<u8>) -> Vec<u8>;

    /// A server that answers from the third request on as `tamper` makes of an honest answer.
    fn asked(tamper: Tamper) -> Result<Tally, Failure> {
        let parent = tempfile::tempdir().unwrap();
        let site = Site::make(parent.path(), 1, BODY_BYTES, &AtomicBool::new(false)).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let directory = site.path().to_owned();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut bytes = [0; 512];
            for served in 0.. {
                let Ok(count @ 1..) = stream.read(&mut bytes) else { return };
                let text = std::str::from_utf8(&bytes[..count]).unwrap();
                let name = text.split_whitespace().nth(1).unwrap().trim_start_matches('/');
                let body = std::fs::read(directory.join(name)).unwrap();
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                let honest = [head.as_bytes(), &body].concat();
                let answer = if served < 2 { honest.clone() } else { tamper(honest.clone()) };
                let is_short = answer.len() < honest.len();
                if stream.write_all(&answer).is_err() || is_short {
                    return;
                }
            }
        });
        let job = Arc::new(Job {
            files: site.files().clone(),
            block_bytes: BODY_BYTES,
            depth: 1,
            pattern: Pattern::Sequential,
            cache: Cache::Warm,
            ..testing::job()
        });
        let timing = Timing {
            warm_up: Duration::from_millis(5),
            extent: Extent::Time(Duration::from_millis(60)),
        };
        let load = Load { address, job: &job, processor: 0 };
        // The test's own thread is not to be pinned.
        let tally = thread::scope(|scope| {
            let client = || load.run(&mut || Ok(Window::beginning_now(timing)));
            scope.spawn(client).join().unwrap()
        });
        server.join().unwrap();
        tally
    }

    #[test]
    fn honest_answers_are_counted() {
        let tally = asked(|answer| answer).unwrap();
        let counts = &tally.counts;
        assert!(counts.operations > 2 && counts.issued == counts.completed, "{counts:?}");
        assert_eq!(counts.bytes, counts.operations * BODY_BYTES as u64);
        assert_eq!(tally.latency.count(), counts.operations);
    }

    #[test]
    fn a_body_that_differs_in_one_byte_is_noticed() {
        fn flipped(mut answer: Vec<u8>, from_end: usize) -> Vec<u8> {
            let place = answer.len() - from_end;
            answer[place] ^= 1;
            answer
        }
        let failures = [
            asked(|answer| flipped(answer, 1)),
            asked(|answer| flipped(answer, 5000)),
            asked(|answer| flipped(answer, BODY_BYTES)),
        ];
        for failure in failures {
            let failure = failure.unwrap_err();
            assert!(matches!(failure, Failure::Mismatch(_)), "{failure}");
        }
    }

    #[test]
    fn an_answer_that_is_no_whole_200_is_told() {
        fn replaced(answer: Vec<u8>, from: &str, to: &str) -> Vec<u8> {
            let at = answer.windows(from.len()).position(|part| part == from.as_bytes()).unwrap();
            [&answer[..at], to.as_bytes(), &answer[at + from.len()..]].concat()
        }
        let cases: [(Tamper, &str); 7] = [
            (|answer| replaced(answer, "200 OK", "500 Oh"), "status 500, expected 200"),
            (|answer| replaced(answer, ": 9000", ": 9001"), "9001 bytes, expected 9000"),
            (|answer| replaced(answer, "Length", "Lengtx"), "without a content-length"),
            (|answer| replaced(answer, "HTTP/1.1", "XTTP/1.1"), "no HTTP answer: "),
            (|answer| answer[..answer.len() - 1].to_vec(), "bytes of an answer"),
            (|answer| [&answer[..], b"x"].concat(), "1 bytes more than the content-length"),
            (|_| Vec::new(), "closed after 0 bytes"),
        ];
        for (tamper, expected) in cases {
            let text = asked(tamper).unwrap_err().to_string();
            assert!(text.starts_with("connection 0: ") && text.contains(expected), "{text}");
        }
    }

    #[test]
    fn nobody_there_is_told_with_the_address() {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let job = Arc::new(testing::job());
        let load = Load { address, job: &job, processor: 0 };
        let run = || load.run(&mut || unreachable!("nobody was there"));
        let failure = thread::scope(|scope| scope.spawn(run).join().unwrap()).unwrap_err();
        let text = failure.to_string();
        assert_eq!(text, format!("connection 0 to {address}: Connection refused"));
    }
}
