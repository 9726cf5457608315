//! What `log` compares: log daemons, by what they promise, and under which load.

use std::{fmt, net::SocketAddr};

use serde::Serialize;

use crate::{
    args::Args,
    error::LabError,
    plan::{
        rate::{self, Auto, offered_text},
        scale::Scale,
        typed::{add_targets, connections, length, list, number, unknown},
    },
};

/// The most connections at a time.
const CONNECTIONS_MAX: u64 = 99_999;
/// The shortest line that the load can make.
const LENGTH_MIN: u64 = 40;

/// What `log` compares.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogPlan {
    /// The daemons.
    pub servers: Vec<LogServer>,
    /// Connections that send.
    pub connections: Vec<usize>,
    /// Bytes of a line, its end included.
    pub line_bytes: usize,
    /// What is compared with each other in one interleaved run.
    pub groups: Vec<LogGroup>,
    /// When as many lines as are taken are followed by a fixed rate that they give.
    pub auto: Auto,
    /// How this project's daemon works, on every engine alike.
    pub switches: LogSwitches,
}

/// How `ringwise logd` works, on a ring as on classic calls, so that what is compared is the interface.
/// Without a value: as it does by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSwitches {
    /// Results of operations that are looked at before the next are asked for.
    pub batch: Option<u64>,
}

/// Daemons of one guarantee under one load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LogGroup {
    /// How lines come.
    pub transport: Transport,
    /// What is true of a line that the sender may forget.
    pub guarantee: Guarantee,
    /// Lines per second that are offered over all connections; none is as many as are taken.
    pub offered_per_s: Option<u64>,
}

/// How lines come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// TCP.
    Plain,
    /// TLS over TCP.
    Tls,
}

/// What is true of a line that the sender may forget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Guarantee {
    /// Nothing.
    None,
    /// The kernel has it.
    Written,
    /// It is synced.
    Durable,
}

/// A log daemon.
#[derive(Clone, Debug, PartialEq)]
pub enum LogServer {
    /// `ringwise logd` on a ring.
    Uring,
    /// The same with a thread of the kernel that takes what the ring is asked for.
    UringSqpoll,
    /// `ringwise logd` on classic calls.
    Epoll,
    /// rsyslog, by one of its inputs, into a file.
    Rsyslog(RsyslogInput),
    /// syslog-ng, from TCP into a file.
    SyslogNg,
    /// One that is running already.
    Target {
        /// What it is called.
        name: String,
        /// Where it is.
        address: SocketAddr,
    },
}

/// An input of rsyslog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RsyslogInput {
    /// The general one for TCP.
    Imtcp,
    /// The one for plain TCP on Linux.
    Imptcp,
    /// RELP, which acknowledges.
    Relp,
}

impl LogServer {
    /// The daemons that are compared where none is named.
    pub const DEFAULT: [LogServer; 7] = [
        LogServer::Uring,
        LogServer::Epoll,
        LogServer::Rsyslog(RsyslogInput::Imtcp),
        LogServer::Rsyslog(RsyslogInput::Imptcp),
        LogServer::Rsyslog(RsyslogInput::Relp),
        LogServer::SyslogNg,
        LogServer::UringSqpoll,
    ];
    /// The same where half a minute has to do.
    pub const QUICK: [LogServer; 3] =
        [LogServer::Uring, LogServer::Epoll, LogServer::Rsyslog(RsyslogInput::Imtcp)];
    const NAMES: &str =
        "uring, epoll, rsyslog-imtcp, rsyslog-imptcp, rsyslog-relp, syslog-ng, uring+sqpoll";

    fn parse(text: &str) -> Result<LogServer, LabError> {
        let found = LogServer::DEFAULT.into_iter().find(|server| server.to_string() == text);
        found.ok_or_else(|| unknown("--engines", text, LogServer::NAMES))
    }

    /// Whether it can be set up to give this guarantee over this transport, and so belongs to the
    /// group. What cannot acknowledge stands with those that do where its sender may forget a line
    /// for another reason: it syncs what it stores.
    pub fn belongs_to(&self, group: LogGroup) -> bool {
        match self {
            LogServer::Uring | LogServer::UringSqpoll | LogServer::Epoll => true,
            LogServer::Target { .. } => group.transport == Transport::Plain,
            LogServer::Rsyslog(RsyslogInput::Relp) => {
                group.transport == Transport::Plain && group.guarantee != Guarantee::None
            }
            LogServer::Rsyslog(RsyslogInput::Imtcp) => group.guarantee != Guarantee::Written,
            LogServer::Rsyslog(_) | LogServer::SyslogNg => {
                group.transport == Transport::Plain && group.guarantee != Guarantee::Written
            }
        }
    }
}

impl fmt::Display for LogServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LogServer::Uring => "uring",
            LogServer::UringSqpoll => "uring+sqpoll",
            LogServer::Epoll => "epoll",
            LogServer::Rsyslog(RsyslogInput::Imtcp) => "rsyslog-imtcp",
            LogServer::Rsyslog(RsyslogInput::Imptcp) => "rsyslog-imptcp",
            LogServer::Rsyslog(RsyslogInput::Relp) => "rsyslog-relp",
            LogServer::SyslogNg => "syslog-ng",
            LogServer::Target { name, .. } => name,
        })
    }
}

impl LogSwitches {
    fn new(args: &Args) -> Result<LogSwitches, LabError> {
        Ok(LogSwitches { batch: number("--batch", args.batch.as_deref(), 1, u32::MAX.into())? })
    }

    /// The daemon's flags for them.
    pub fn flags(self) -> Vec<String> {
        self.batch.map(|count| format!("--batch={count}")).into_iter().collect()
    }
}

impl Transport {
    const NAMES: &str = "plain, tls";

    fn parse(text: &str) -> Result<Transport, LabError> {
        match text {
            "plain" => Ok(Transport::Plain),
            "tls" => Ok(Transport::Tls),
            _ => Err(unknown("--transport", text, Transport::NAMES)),
        }
    }
}

impl Guarantee {
    /// The name, as it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Guarantee::None => "none",
            Guarantee::Written => "written",
            Guarantee::Durable => "durable",
        }
    }

    fn parse(text: &str) -> Result<Guarantee, LabError> {
        let all = [Guarantee::None, Guarantee::Written, Guarantee::Durable];
        let found = all.into_iter().find(|guarantee| guarantee.name() == text);
        found.ok_or_else(|| unknown("--guarantee", text, "none, written, durable"))
    }
}

impl fmt::Display for LogGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transport = match self.transport {
            Transport::Plain => "plain",
            Transport::Tls => "TLS",
        };
        let guarantee = match self.guarantee {
            Guarantee::None => "no acknowledgement",
            Guarantee::Written => "acknowledged when written",
            Guarantee::Durable => "acknowledged when durable",
        };
        match self.offered_per_s {
            Some(rate) => {
                write!(f, "{transport}, {guarantee}, {}", offered_text(rate, "lines"))
            }
            None => write!(f, "{transport}, {guarantee}, as many lines as are taken"),
        }
    }
}

impl LogGroup {
    /// In a few words, for a sentence that has the rate.
    pub fn short(self) -> String {
        let guarantee = match self.guarantee {
            Guarantee::None => "no acknowledgement",
            Guarantee::Written => "written",
            Guarantee::Durable => "durable",
        };
        let transport = if self.transport == Transport::Tls { ", TLS" } else { "" };
        format!("{guarantee}{transport}")
    }
}

impl LogPlan {
    /// What the suite measures: unless it is the full one, the two that a verdict is about, where
    /// each line is durable before it is acknowledged, at a rate at which they do not write more than
    /// the quick suite may: what the lines cost.
    pub(super) fn of_suite(args: &Args, scale: Scale) -> Result<LogPlan, LabError> {
        let typed = |text: &str| Some(text.to_owned());
        // What takes longest to begin: handshakes, and a thousand connections.
        let connections = if scale == Scale::Quick { "64" } else { "64,2000" };
        let transport = if scale == Scale::Quick { "plain" } else { "plain,tls" };
        let (connections, transport) = (typed(connections), typed(transport));
        if scale == Scale::Full {
            // The whole matrix is `log --full`.
            return LogPlan::new(&Args { full: false, connections, transport, ..args.clone() });
        }
        let (engines, guarantee) = (typed("uring,epoll"), typed("durable"));
        let rate = typed("50000");
        LogPlan::new(&Args {
            quick: true,
            engines,
            guarantee,
            rate,
            connections,
            transport,
            ..args.clone()
        })
    }

    /// Checks what was typed.
    pub(super) fn new(args: &Args) -> Result<LogPlan, LabError> {
        let mut servers = match args.engines.as_deref() {
            Some(text) => list(text, LogServer::parse)?,
            None if args.quick => LogServer::QUICK.to_vec(),
            None => LogServer::DEFAULT.to_vec(),
        };
        add_targets(&mut servers, &args.target, |name, address| LogServer::Target {
            name,
            address,
        })?;
        // Scale: what half a minute has room for, what some minutes have, and all.
        let scaled = |quick, default, full| match (args.quick, args.full) {
            (true, _) => quick,
            (_, true) => full,
            _ => default,
        };
        let counts = args.connections.as_deref();
        let counts = counts.unwrap_or(scaled("64", "64", "1,64,2000"));
        let transports = args.transport.as_deref().unwrap_or(scaled("plain", "plain", "plain,tls"));
        let guarantees = args.guarantee.as_deref();
        let guarantees = guarantees.unwrap_or(scaled(
            "none,durable",
            "none,written,durable",
            "none,written,durable",
        ));
        let (rates, auto) = match args.rate.as_deref() {
            Some(text) => rate::loads(text)?,
            None if args.quick => (vec![None], Auto::IfClientBound),
            // A fixed rate is among these.
            None => rate::loads(if args.full { "200000,max" } else { "50000,max" })?,
        };
        let line_bytes = length(args.length.as_deref().unwrap_or("150"), LENGTH_MIN)?;
        let mut groups = Vec::new();
        for transport in list(transports, Transport::parse)? {
            for guarantee in list(guarantees, Guarantee::parse)? {
                let of =
                    |&offered_per_s: &Option<u64>| LogGroup { transport, guarantee, offered_per_s };
                groups.extend(rates.iter().map(of));
            }
        }
        let connections = connections(counts, CONNECTIONS_MAX)?;
        let switches = LogSwitches::new(args)?;
        Ok(LogPlan { servers, connections, line_bytes, groups, auto, switches })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(change: impl FnOnce(&mut Args)) -> Result<LogPlan, LabError> {
        let mut args = Args::default();
        change(&mut args);
        LogPlan::new(&args)
    }

    #[test]
    fn scales_are_as_documented() {
        let default = plan(|_| ()).unwrap();
        assert_eq!((default.groups.len(), &default.connections[..]), (6, &[64][..]));
        let full = plan(|args| args.full = true).unwrap();
        assert_eq!((full.groups.len(), full.connections.len(), full.line_bytes), (12, 3, 150));
        let quick = plan(|args| args.quick = true).unwrap();
        assert!(quick.groups.len() == 2 && quick.groups[0].offered_per_s.is_none());
        assert_eq!(
            [default.auto, full.auto, quick.auto],
            [Auto::Never, Auto::Never, Auto::IfClientBound]
        );
        let typed = plan(|args| args.rate = Some("auto".into())).unwrap();
        assert!(typed.auto == Auto::Always && typed.groups[0].offered_per_s.is_none());
    }

    /// TLS and 2,000 connections were in no suite.
    #[test]
    fn the_larger_suites_have_tls_and_many_connections() {
        let of = |scale| LogPlan::of_suite(&Args::default(), scale).unwrap();
        let has = |plan: &LogPlan| {
            let has_tls = plan.groups.iter().any(|group| group.transport == Transport::Tls);
            (plan.groups.len(), has_tls, plan.connections.clone())
        };
        assert_eq!(has(&of(Scale::Quick)), (1, false, vec![64]));
        assert_eq!(has(&of(Scale::Standard)), (2, true, vec![64, 2000]));
        assert_eq!(has(&of(Scale::Full)), (12, true, vec![64, 2000]));
    }

    #[test]
    fn a_daemon_stands_where_its_guarantee_is() {
        let group =
            |guarantee| LogGroup { transport: Transport::Plain, guarantee, offered_per_s: None };
        let relp = LogServer::Rsyslog(RsyslogInput::Relp);
        let names = |guarantee| {
            let all = LogServer::DEFAULT.into_iter();
            let found = all.filter(|server| server.belongs_to(group(guarantee)));
            found.map(|server| server.to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(Guarantee::Written), "uring epoll rsyslog-relp uring+sqpoll");
        let over_tls = |guarantee| LogGroup { transport: Transport::Tls, ..group(guarantee) };
        let imtcp = LogServer::Rsyslog(RsyslogInput::Imtcp);
        let stands = [Guarantee::None, Guarantee::Written, Guarantee::Durable]
            .map(|guarantee| imtcp.belongs_to(over_tls(guarantee)));
        assert_eq!(stands, [true, false, true], "it speaks TLS, and acknowledges nothing");
        let unacknowledged = "uring epoll rsyslog-imtcp rsyslog-imptcp syslog-ng uring+sqpoll";
        assert_eq!(names(Guarantee::None), unacknowledged);
        assert!(
            !relp.belongs_to(LogGroup { transport: Transport::Tls, ..group(Guarantee::Durable) })
        );
    }

    #[test]
    fn switches_are_the_daemons_flags() {
        assert_eq!(plan(|_| ()).unwrap().switches.flags(), Vec::<String>::new());
        let switched = plan(|args| args.batch = Some("1".into()));
        assert_eq!(switched.unwrap().switches.flags(), ["--batch=1"]);
    }

    #[test]
    fn what_cannot_be_meant_is_one_line() {
        let refused = |change: fn(&mut Args)| plan(change).unwrap_err().to_string();
        for (text, parts) in [
            (
                refused(|a| a.engines = Some("nginx".into())),
                ["--engines: invalid value 'nginx': expected", "rsyslog-imtcp"],
            ),
            (
                refused(|a| a.guarantee = Some("maybe".into())),
                ["--guarantee: invalid value 'maybe'", "durable"],
            ),
            (
                refused(|a| a.transport = Some("udp".into())),
                ["--transport: invalid value 'udp'", "plain, tls"],
            ),
            (
                refused(|a| a.rate = Some("0".into())),
                ["--rate: invalid value '0'", "1 to 100000000, max or auto"],
            ),
            (
                refused(|a| a.length = Some("39".into())),
                ["--length: invalid value '39'", "40 to 16m"],
            ),
            (
                refused(|a| a.batch = Some("0".into())),
                ["--batch: invalid value '0'", "1 to 4294967295"],
            ),
            (
                refused(|a| a.target = vec!["x".into()]),
                ["--target: invalid value 'x'", "NAME=IP:PORT"],
            ),
            (refused(|a| a.target = vec!["epoll=[::1]:8".into()]), ["--target", "taken"]),
        ] {
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        }
    }
}
