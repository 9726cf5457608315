//! What `http` compares: servers, where their bodies come from, and under which load.

use std::fmt;

use serde::Serialize;

use crate::{
    args::Args,
    error::LabError,
    plan::typed::{connections, length, list, unknown, usage},
    results::row::RowKind,
};

/// The most connections at a time. A server has as many sockets and as many open files, and most systems
/// limit a process to 1024 descriptors.
const CONNECTIONS_MAX: u64 = 256;

/// What `http` compares.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpPlan {
    /// The servers.
    pub servers: Vec<HttpServer>,
    /// Where the bodies come from.
    pub bodies: Vec<Bodies>,
    /// Connections at a time.
    pub connections: Vec<usize>,
    /// Bytes of a body.
    pub lengths: Vec<usize>,
}

/// Where the bodies of a server come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bodies {
    /// The server's memory.
    Memory,
    /// Files, which are in the page cache.
    Files,
}

/// An HTTP server: hyper in tokio, and who moves the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpServer {
    /// Sockets and files of tokio.
    Tokio,
    /// Sockets of tokio, files of ringwise on a ring.
    RingFiles,
    /// Sockets and files of ringwise on a ring.
    Ring,
    /// Sockets and files of ringwise on classic syscalls.
    Classic,
}

impl Bodies {
    const NAMES: &str = "memory, files";

    /// Reads a name.
    pub(super) fn parse(text: &str) -> Result<Bodies, LabError> {
        match text {
            "memory" => Ok(Bodies::Memory),
            "files" => Ok(Bodies::Files),
            _ => Err(unknown("--bodies", text, Bodies::NAMES)),
        }
    }
}

impl fmt::Display for Bodies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Bodies::Memory => "memory",
            Bodies::Files => "files",
        })
    }
}

impl HttpServer {
    const ALL: [HttpServer; 4] =
        [HttpServer::Tokio, HttpServer::RingFiles, HttpServer::Ring, HttpServer::Classic];
    const NAMES: &str = "tokio, tokio+ringwise-files, ringwise, ringwise-classic";

    /// Reads a name.
    pub(super) fn parse(text: &str) -> Result<HttpServer, LabError> {
        let found = HttpServer::ALL.into_iter().find(|server| server.to_string() == text);
        found.ok_or_else(|| unknown("--engines", text, HttpServer::NAMES))
    }

    /// Whether the server differs from all others if its bodies come from there.
    fn serves(self, bodies: Bodies) -> bool {
        (self, bodies) != (HttpServer::RingFiles, Bodies::Memory)
    }
}

impl fmt::Display for HttpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HttpServer::Tokio => "tokio",
            HttpServer::RingFiles => "tokio+ringwise-files",
            HttpServer::Ring => "ringwise",
            HttpServer::Classic => "ringwise-classic",
        })
    }
}

impl HttpPlan {
    /// Checks what was typed.
    ///
    /// # Errors
    ///
    /// [`LabError::Usage`], which names the value and what is accepted.
    pub(super) fn new(args: &Args) -> Result<HttpPlan, LabError> {
        // In the suite it is enough for a verdict. The rest is for `lab http`.
        let is_short = args.workload.is_none() && !args.full;
        let servers = match args.engines.as_deref() {
            Some(text) => list(text, HttpServer::parse)?,
            None if is_short => HttpServer::ALL[..2].to_vec(),
            None => HttpServer::ALL.to_vec(),
        };
        let bodies = match args.bodies.as_deref() {
            Some(text) => list(text, Bodies::parse)?,
            None if is_short => vec![Bodies::Files],
            None => vec![Bodies::Memory, Bodies::Files],
        };
        let counts = match args.connections.as_deref() {
            Some(text) => text,
            None if args.full => "1,16,128",
            None => "16",
        };
        let lengths = match args.length.as_deref() {
            Some(text) => text,
            None if is_short => "64k",
            None => "1k,64k,1m",
        };
        let plan = HttpPlan {
            servers,
            bodies,
            connections: connections(counts, CONNECTIONS_MAX)?,
            lengths: list(lengths, |text| length(text, 1))?,
        };
        match plan.bodies.iter().find(|&&bodies| plan.contestants(bodies).is_empty()) {
            Some(bodies) => {
                let what = format!("{}: does not differ from tokio", HttpServer::RingFiles);
                Err(usage("--engines", format!("{what} with --bodies {bodies}: name another")))
            }
            None => Ok(plan),
        }
    }

    /// The servers that are compared with such bodies, each with its role. What the documentation
    /// recommends is the subject: the files of ringwise, and without files its sockets.
    pub(super) fn contestants(&self, bodies: Bodies) -> Vec<(HttpServer, RowKind)> {
        let servers = self.servers.iter().copied().filter(|server| server.serves(bodies));
        let ours = [HttpServer::RingFiles, HttpServer::Ring, HttpServer::Classic];
        let subject = ours.into_iter().find(|own| servers.clone().any(|server| server == *own));
        let kind = |server| match server {
            HttpServer::Tokio => RowKind::Rival,
            server if Some(server) == subject => RowKind::Subject,
            _ => RowKind::Variant,
        };
        servers.map(|server| (server, kind(server))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(change: impl FnOnce(&mut Args)) -> Result<HttpPlan, LabError> {
        let mut args = Args { workload: Some("http".to_owned()), ..Args::default() };
        change(&mut args);
        HttpPlan::new(&args)
    }

    fn set(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn by_name_it_is_all_and_in_the_suite_enough_for_a_verdict() {
        let named = plan(|_| {}).unwrap();
        assert_eq!(named.bodies, [Bodies::Memory, Bodies::Files]);
        assert_eq!(
            (&named.lengths[..], &named.connections[..]),
            (&[1 << 10, 64 << 10, 1 << 20][..], &[16][..])
        );
        assert_eq!(named.contestants(Bodies::Memory).len(), 3);
        assert_eq!(named.contestants(Bodies::Files).len(), 4);
        let suite = plan(|args| args.workload = None).unwrap();
        assert_eq!(
            (&suite.bodies[..], &suite.lengths[..]),
            (&[Bodies::Files][..], &[64 << 10][..])
        );
        assert_eq!(suite.servers, [HttpServer::Tokio, HttpServer::RingFiles]);
        assert_eq!(plan(|args| args.full = true).unwrap().connections, [1, 16, 128]);
    }

    #[test]
    fn the_subject_is_what_is_recommended_of_what_is_there() {
        let subject = |engines: &str, bodies| {
            let plan =
                plan(|args| (args.engines, args.bodies) = (set(engines), set("files"))).unwrap();
            let all = plan.contestants(bodies);
            let found = all.into_iter().find(|(_, kind)| *kind == RowKind::Subject);
            found.map(|(server, _)| server)
        };
        let all = HttpServer::NAMES;
        assert_eq!(subject(all, Bodies::Files), Some(HttpServer::RingFiles));
        assert_eq!(subject(all, Bodies::Memory), Some(HttpServer::Ring));
        assert_eq!(subject("tokio,ringwise-classic", Bodies::Files), Some(HttpServer::Classic));
        assert_eq!(subject("tokio", Bodies::Files), None);
    }

    #[test]
    fn bad_input_is_named_with_what_is_accepted() {
        let refused = |change: fn(&mut Args)| plan(change).unwrap_err().to_string();
        for (text, parts) in [
            (
                refused(|a| a.engines = set("axum")),
                ["--engines: invalid value 'axum'", "tokio+ringwise-files"],
            ),
            (
                refused(|a| a.bodies = set("disk")),
                ["--bodies: invalid value 'disk'", "memory, files"],
            ),
            (
                refused(|a| a.connections = set("257")),
                ["--connections: invalid value '257'", "1 to 256"],
            ),
            (refused(|a| a.length = set("17m")), ["--length: invalid value '17m'", "1 to 16m"]),
            (refused(|a| a.length = set("0")), ["--length: invalid value '0'", "1 to 16m"]),
            (refused(|a| a.length = set("x")), ["--length: invalid value 'x'", "k, m, g or t"]),
            (
                refused(|a| a.engines = set("tokio+ringwise-files")),
                ["--engines tokio+ringwise-files: does not differ", "--bodies memory"],
            ),
        ] {
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        }
    }
}
