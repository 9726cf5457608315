//! rsyslog, set up for one run: an input, and a file that lines go to as they came.
//!
//! With RELP the input hands each batch to the file itself (a direct queue), so that a line is
//! acknowledged when it was written, and synced where that is asked for. The others have a queue of its
//! usual kind, no longer than is stored in an instant. TLS is what its general input has by a driver
//! that is a package of its own; it takes any client, as the other daemons of these rows do.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use super::{
    daemon::program,
    plan::{Guarantee, LogGroup, RsyslogInput, Transport},
    scratch::Scratch,
};
use crate::error::plain;

/// Drivers for TLS, the one that takes less CPU time first: by 2 %, 23.2 µs a line and 23.8 µs (medians of
/// three runs each, 40,000 lines a second of 150 B over 64 connections, rsyslog 8.2302).
const DRIVERS: [&str; 2] = ["gtls", "ossl"];

/// Where its modules are; on some systems in one directory for each architecture.
const LIBRARIES: [&str; 3] = ["/usr/lib", "/usr/lib64", "/usr/local/lib"];

/// How it is started for a run.
///
/// # Errors
///
/// It, or what it needs, is not installed, or the files cannot be written.
pub(super) fn command(
    input: RsyslogInput,
    group: LogGroup,
    scratch: &Scratch,
    address: SocketAddr,
    connections: usize,
) -> Result<Command, String> {
    let mut command = program("rsyslogd")?;
    let tls = match group.transport {
        Transport::Plain => Tls::default(),
        Transport::Tls => Tls::new(scratch, driver(&libraries())?)?,
    };
    let work = scratch.file("work");
    fs::create_dir(&work).map_err(|error| format!("rsyslog's directory: {}", plain(&error)))?;
    let sync = group.guarantee == Guarantee::Durable;
    let text = configuration(input, sync, &tls, scratch, (address.port(), connections));
    let configuration = scratch.file("rsyslog.conf");
    scratch.write(&configuration, &text)?;
    command.args(["-n", "-i"]).arg(scratch.file("rsyslog.pid"));
    command.arg("-f").arg(configuration);
    Ok(command)
}

/// What a configuration says of TLS; nothing where lines come as they are.
#[derive(Default)]
struct Tls {
    global: String,
    module: String,
}

impl Tls {
    fn new(scratch: &Scratch, driver: &str) -> Result<Tls, String> {
        scratch.certify()?;
        let (certificate, key) = (scratch.certificate(), scratch.key());
        let (certificate, key) = (certificate.display(), key.display());
        Ok(Tls {
            global: format!(
                " defaultNetstreamDriverCAFile=\"{certificate}\" \
                 defaultNetstreamDriverCertFile=\"{certificate}\" \
                 defaultNetstreamDriverKeyFile=\"{key}\""
            ),
            module: format!(
                " streamDriver.name=\"{driver}\" streamDriver.mode=\"1\" \
                 streamDriver.authMode=\"anon\""
            ),
        })
    }
}

/// The configuration for a port and a number of connections.
fn configuration(
    input: RsyslogInput,
    is_synced: bool,
    tls: &Tls,
    scratch: &Scratch,
    (port, connections): (u16, usize),
) -> String {
    let sync = if is_synced { "on" } else { "off" };
    let sessions = connections + 64;
    let (module, listener, queue) = match input {
        RsyslogInput::Imtcp => (
            // Its queue of connections that wait is a tenth of its sessions; 8.2302 cannot be told more.
            format!("module(load=\"imtcp\" maxSessions=\"{}\"{})", 10 * sessions, tls.module),
            format!("input(type=\"imtcp\" address=\"127.0.0.1\" port=\"{port}\" ruleset=\"all\")"),
            "queue.type=\"FixedArray\" queue.size=\"10000\" queue.dequeueBatchSize=\"1024\"",
        ),
        RsyslogInput::Imptcp => (
            "module(load=\"imptcp\" threads=\"1\")".to_owned(),
            format!(
                "input(type=\"imptcp\" address=\"127.0.0.1\" port=\"{port}\" ruleset=\"all\" \
                 socketBacklog=\"1024\")"
            ),
            "queue.type=\"FixedArray\" queue.size=\"10000\" queue.dequeueBatchSize=\"1024\"",
        ),
        RsyslogInput::Relp => (
            "module(load=\"imrelp\" ruleset=\"all\")".to_owned(),
            format!("input(type=\"imrelp\" address=\"127.0.0.1\" port=\"{port}\")"),
            "queue.type=\"Direct\"",
        ),
    };
    let file = scratch.stored().join("lines");
    format!(
        "global(workDirectory=\"{}\" maxMessageSize=\"16m\" \
         parser.escapeControlCharactersOnReceive=\"off\"{})\n\
         {module}\n\
         template(name=\"raw\" type=\"string\" string=\"%rawmsg%\\n\")\n\
         ruleset(name=\"all\" {queue}) {{\n  \
           action(type=\"omfile\" file=\"{}\" template=\"raw\" sync=\"{sync}\" \
                  ioBufferSize=\"64k\" flushOnTXEnd=\"on\" asyncWriting=\"off\")\n\
         }}\n\
         {listener}\n",
        scratch.file("work").display(),
        tls.global,
        file.display()
    )
}

/// Directories that it may have its modules in.
fn libraries() -> Vec<PathBuf> {
    let in_each = |library: &str| {
        let entries = fs::read_dir(library).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).chain([library.into()]).collect::<Vec<_>>()
    };
    LIBRARIES.iter().flat_map(|library| in_each(library)).map(|path| path.join("rsyslog")).collect()
}

/// The first driver for TLS that is there.
fn driver(libraries: &[PathBuf]) -> Result<&'static str, String> {
    let is_there = |driver: &&str| {
        let module = format!("lmnsd_{driver}.so");
        libraries.iter().any(|library: &PathBuf| Path::exists(&library.join(&module)))
    };
    DRIVERS.into_iter().find(is_there).ok_or_else(|| {
        "rsyslog has no driver for TLS here (packages rsyslog-openssl, rsyslog-gnutls)".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_for_tls_is_looked_for_where_modules_are() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let libraries = [path("none"), path("rsyslog")];
        let error = driver(&libraries).unwrap_err();
        assert!(error.contains("rsyslog-gnutls"), "{error}");
        fs::create_dir(path("rsyslog")).unwrap();
        fs::write(path("rsyslog/lmnsd_ossl.so"), "").unwrap();
        assert_eq!(driver(&libraries), Ok("ossl"));
        fs::write(path("rsyslog/lmnsd_gtls.so"), "").unwrap();
        assert_eq!(driver(&libraries), Ok("gtls"));
    }

    /// What it says of TLS is all that differs, so that the rows can be compared.
    #[test]
    fn over_tls_it_is_set_up_as_without() {
        let directory = tempfile::tempdir().unwrap();
        let scratch = Scratch::make(directory.path()).unwrap();
        let text = |tls: &Tls| configuration(RsyslogInput::Imtcp, true, tls, &scratch, (7, 3));
        let tls = Tls::new(&scratch, "ossl").unwrap();
        let with = text(&tls);
        assert!(with.contains("streamDriver.name=\"ossl\" streamDriver.mode=\"1\""), "{with}");
        assert!(with.contains("key.pem") && scratch.key().exists(), "{with}");
        let without = with.replace(&tls.global, "").replace(&tls.module, "");
        assert_eq!(without, text(&Tls::default()));
    }
}
