//! A load generator as a user runs it, and the small servers that it is run against.

use std::{
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::OwnedFd,
    process::{Command, Output},
    sync::{Arc, PoisonError, RwLock},
    thread,
};

use rustix::net::{self, AddressFamily, SocketType};
use serde_json::Value;

use super::conform::conform;

/// A server that does this with each connection, by the connection's number.
pub fn server(serve: impl Fn(usize, TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let (serve, stream) = (serve.clone(), stream.unwrap());
            stream.set_nodelay(true).unwrap();
            thread::spawn(move || serve(number, stream));
        }
    });
    address
}

/// An address where nobody listens. No other test gets it while the descriptor is open.
pub fn closed_port() -> (OwnedFd, SocketAddr) {
    let bound = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    net::bind(&bound, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = net::getsockname(&bound).unwrap().try_into().unwrap();
    (bound, address)
}

/// A generator: its name, the flag that takes the server, and what its documents look like.
#[derive(Clone, Copy)]
pub struct Generator {
    name: &'static str,
    flag: &'static str,
    schema: &'static str,
    is_alone: bool,
}

pub const ECHO: Generator = Generator {
    name: "echo",
    flag: "--address",
    schema: include_str!("../../../../docs/reference/schema/load-echo-1.json"),
    is_alone: false,
};

pub const LOG: Generator = Generator {
    name: "log",
    flag: "--target",
    schema: include_str!("../../../../docs/reference/schema/load-log-1.json"),
    is_alone: false,
};

/// Held for writing by a generator that runs alone, and for reading by all others.
static RUNNING: RwLock<()> = RwLock::new(());

impl Generator {
    /// The same, with no other generator beside it: for tests about time.
    pub fn alone(self) -> Generator {
        Generator { is_alone: true, ..self }
    }

    pub fn command(&self, address: impl ToString, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringwise"));
        command.args(["load", self.name, self.flag, &address.to_string()]);
        command.args(arguments.split_whitespace());
        command
    }

    pub fn run(&self, address: impl ToString, arguments: &str) -> Output {
        let mut command = self.command(address, arguments);
        if self.is_alone {
            let _alone = RUNNING.write().unwrap_or_else(PoisonError::into_inner);
            return command.output().unwrap();
        }
        let _beside_others = RUNNING.read().unwrap_or_else(PoisonError::into_inner);
        command.output().unwrap()
    }

    /// The document that a run prints, which is what the schema says.
    #[track_caller]
    pub fn document(&self, output: &Output) -> Value {
        let text = String::from_utf8_lossy(&output.stderr);
        let document: Value = serde_json::from_slice(&output.stdout).expect(&text);
        let schema: Value = serde_json::from_str(self.schema).unwrap();
        conform(&document, &schema, &schema, "$");
        document
    }

    /// The document of a run that has to be good.
    #[track_caller]
    pub fn good(&self, address: impl ToString, arguments: &str) -> Value {
        let output = self.run(address, &format!("{arguments} --json"));
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments}: {told}");
        let result = self.document(&output);
        assert_eq!((&result["errors"], &result["partial"]), (&0.into(), &false.into()));
        assert_eq!(result["sent"], result["received"]);
        assert!(result["ops_per_s"].as_f64().unwrap() > 0.0, "{result:#}");
        result
    }
}

/// The only line on standard error of a run that failed, without the command's name.
#[track_caller]
pub fn error_line(output: &Output, status: i32) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(status), "{text}");
    let line = text.strip_suffix('\n').unwrap_or(&text);
    assert!(!line.contains('\n'), "not one line: {text}");
    let line = line.strip_prefix("ringwise: ").unwrap_or_else(|| panic!("{text}"));
    // Words that cannot be read are told before there is a generator.
    line.strip_prefix("load: ").unwrap_or(line).to_owned()
}

pub fn latency_ns(result: &Value, which: &str) -> u64 {
    result["latency_ns"][which].as_u64().unwrap()
}
