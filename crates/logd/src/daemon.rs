//! What is around the threads: the directory's lock, what may be read again, the end.

use std::{
    fs::{File, Permissions},
    io::{self, Write},
    net::{SocketAddr, TcpListener},
    os::{
        fd::OwnedFd,
        unix::fs::{OpenOptionsExt, PermissionsExt},
    },
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use listenfd::ListenFd;
use ringwise_serve::{Panel, Plan, Request, Server, make_room, signals};
use rustix::fs::{FlockOperation, flock};
use signal_hook::iterator::Handle;

use crate::{
    args::{Options, ServeArgs},
    clients::{names::Names, tenants::Tenants},
    disk::{
        keeper::{self, Copies, Keeper, Tray},
        segment::reading::reader,
        space::Floor,
        storage::{Shared, end_others},
    },
    error::LogdError,
    guarantee::Guarantee,
    intake::{self, Intake},
    live::Live,
    monitoring::{
        http, log,
        monitor::{Facts, Monitor},
        stats::Stats,
    },
    ship::{
        fleet::{Fleet, Shipping},
        progress::Streams,
    },
    upload::{
        progress::Uploads,
        uploader::{Uploader, Uploading},
    },
    worker::{Order, Worker},
};

/// Serves until a signal ends it.
pub(crate) fn serve(args: &ServeArgs, out: &mut impl Write) -> Result<(), LogdError> {
    let options = args.decide(None)?;
    serve_with(args, &options, out).map_err(|error| options.sources.blame(error))
}

fn serve_with(args: &ServeArgs, options: &Options, out: &mut impl Write) -> Result<(), LogdError> {
    let more = descriptors_beside(options);
    let connections_max = make_room(options.connections, options.threads, more)?;
    Worker::check_room(connections_max, options.threads)?;
    if args.check {
        return tell_check(out, options.threads, connections_max);
    }
    log::set_form(options.log);
    // Before anything is written: a limit on the size of files is a signal too.
    let signals = signals(true)?;
    let plan = plan(options, connections_max)?;
    let _lock = lock(&options.directory).map_err(|error| error.of("--dir"))?;
    let streams = options.threads + u32::from(options.intakes().next().is_some());
    end_others(&options.directory, streams)?;
    let (shipping, shipped) = shipping(options)?;
    let (uploading, uploads) = uploading(options)?;
    let copies = Copies { shipped: shipped.clone(), uploads: uploads.clone() };
    let live = Arc::new(Mutex::new(options.live.clone()));
    let (names, tenants) = remembered(options)?;
    let keeper = keep(options, &live, (&names, &tenants), copies)?;
    let tray = (keeper.tray(), shipped.clone());
    let order = order(options, tray, &live, (names, tenants.clone()));
    let http = listen("--http", options.http)?;
    let ports = intake_ports(options)?;
    let own = order.clone();
    let server = Server::start(plan, &signals.handle(), move |seat| Worker::new(seat, &order))?;
    let panel = server.panel();
    let intake = start_intake(options, (own, ports), (&panel, signals.handle()))?;
    let facts = Facts {
        directory: options.directory.clone(),
        address: server.address().to_string(),
        guarantee: options.guarantee.name(),
        engine: server.engine(),
        tenants,
        shipped,
        uploads,
    };
    let fleet = shipping.map(Shipping::start).transpose()?;
    let uploader = uploading.map(Uploading::start).transpose()?;
    let monitor = Monitor::new(panel.clone(), facts);
    // All threads before the first request, which takes one: the last there may be, and who has none
    // of its own ends.
    if http.is_some() || std::env::var_os("NOTIFY_SOCKET").is_some() {
        monitor.start()?;
    }
    let page = |listener| http::start(listener, monitor.clone(), live.clone());
    let http = http.map(page).transpose()?;
    let taking = intake.as_ref().map(Intake::told).unwrap_or_default();
    let told = tell(out, server.address(), http, &taking);
    told.map_err(|error| LogdError::output(&error))?;
    monitor.tell_ready();
    let served = server.serve(signals, || reload(args, options, &live, &panel));
    let taken = intake.map_or(Ok(()), Intake::finish);
    Fleet::finish(fleet, options.drain);
    Uploader::finish(uploader);
    served.and(taken).and(keeper.finish())
}

/// What the server for lines needs.
fn plan(options: &Options, connections_max: usize) -> Result<Plan, LogdError> {
    Ok(Plan {
        name: "logd",
        listen: options.listen,
        listener: given_listener()?,
        threads: options.threads,
        connections_max,
        engine: options.engine,
        sqpoll: options.sqpoll,
        say: Arc::new(|remark| log::remark("server", remark)),
    })
}

/// Listens on the address of an option, if there is one, and takes nothing yet.
fn listen(option: &str, address: Option<SocketAddr>) -> Result<Option<TcpListener>, LogdError> {
    let bind = |address| {
        let bound = TcpListener::bind(address);
        bound.map_err(|error| LogdError::listening(option, address, &error))
    };
    address.map(bind).transpose()
}

/// Listens on the ports of the intake.
fn intake_ports(options: &Options) -> Result<Vec<(intake::Protocol, TcpListener)>, LogdError> {
    let mut ports = Vec::new();
    for (option, protocol, address) in options.intakes() {
        ports.extend(listen(option, Some(address))?.map(|listener| (protocol, listener)));
    }
    Ok(ports)
}

/// What is shipped, if anything is, and how far.
fn shipping(options: &Options) -> Result<(Option<Shipping>, Option<Arc<Streams>>), LogdError> {
    let Some(kafka) = options.kafka.clone() else { return Ok((None, None)) };
    let shipping = Shipping::new(&options.directory, kafka)?;
    let streams = shipping.streams();
    Ok((Some(shipping), Some(streams)))
}

/// What is uploaded, if anything is, and how far.
fn uploading(options: &Options) -> Result<(Option<Uploading>, Option<Arc<Uploads>>), LogdError> {
    let Some(place) = &options.upload else { return Ok((None, None)) };
    let uploading = Uploading::new(&options.directory, place)?;
    let uploads = uploading.uploads();
    Ok((Some(uploading), Some(uploads)))
}

/// Starts the thread that looks after segments. It keeps those that are not shipped or uploaded.
fn keep(
    options: &Options,
    live: &Arc<Mutex<Live>>,
    (names, tenants): (&Arc<Names>, &Arc<Tenants>),
    copies: Copies,
) -> Result<Keeper, LogdError> {
    if let Some(shipped) =
        copies.shipped.as_ref().filter(|_| options.guarantee == Guarantee::Replicated)
    {
        names.wait_for(shipped.clone());
    }
    let (directory, live) = (&options.directory, live.clone());
    Keeper::start(directory, live, tenants.clone(), names.clone(), copies)
}

/// What all threads are built from.
fn order(
    options: &Options,
    (tray, shipped): (Tray, Option<Arc<Streams>>),
    live: &Arc<Mutex<Live>>,
    (names, tenants): (Arc<Names>, Arc<Tenants>),
) -> Order {
    let storage = Shared {
        directory: options.directory.clone(),
        guarantee: options.guarantee,
        names,
        tray,
        floor: Arc::new(Mutex::new(Floor::new(&options.directory))),
        shipped,
    };
    Order { storage, drain: options.drain, live: live.clone(), tenants, addresses: Arc::default() }
}

/// Takes lines by other protocols, if that was asked for, until the daemon drains. If they cannot be stored any more, the
/// daemon ends.
fn start_intake(
    options: &Options,
    (order, ports): (Order, Vec<(intake::Protocol, TcpListener)>),
    (panel, signals): (&Panel<Stats>, Handle),
) -> Result<Option<Intake>, LogdError> {
    if ports.is_empty() {
        return Ok(None);
    }
    let order = intake::Order {
        ports,
        parts: intake::Parts {
            storage: order.storage,
            live: order.live,
            tenants: order.tenants,
            addresses: order.addresses,
            stream: options.threads,
        },
        backend: options.engine.backend(),
        threads: options.threads,
        connections_max: options.intake_connections as usize,
        drain: options.drain,
    };
    let intake = Intake::start(order, move || signals.close())?;
    let counts = intake.counts();
    panel.add_beside(move |until| counts.ask(until));
    let panel = panel.clone();
    intake.end_when(move || panel.is_draining());
    Ok(Some(intake))
}

/// The names of clients and the bytes of tenants that the segments have. They are read before anybody is
/// listened to, and of all streams: a client may come back on another thread.
fn remembered(options: &Options) -> Result<(Arc<Names>, Arc<Tenants>), LogdError> {
    let names = Names::of(&options.directory)?;
    for mark in reader::names(&options.directory)? {
        names.restore(&mark);
    }
    let tenants = Tenants::new(&options.tenants);
    if tenants.are_named() {
        for bytes in reader::by_tenant(&options.directory)? {
            tenants.found(&tenants.shares(bytes));
        }
    }
    Ok((Arc::new(names), Arc::new(tenants)))
}

/// Prints what `--check` found right.
fn tell_check(out: &mut impl Write, threads: u32, connections: usize) -> Result<(), LogdError> {
    let told = writeln!(out, "the options are right: {threads} threads, {connections} connections");
    told.map_err(|error| LogdError::output(&error))
}

/// Prints where it listens.
fn tell(
    out: &mut impl Write,
    address: SocketAddr,
    http: Option<SocketAddr>,
    taking: &[String],
) -> io::Result<()> {
    writeln!(out, "listening on {address}")?;
    for line in taking {
        writeln!(out, "{line}")?;
    }
    if let Some(address) = http {
        writeln!(out, "status page on http://{address}/")?;
    }
    out.flush()
}

/// Descriptors that it has beside what any server has: of segments that wait for their seal, of which
/// each thread ends up to two after it saw that one more may, of requests for its page, and of the intake's.
fn descriptors_beside(options: &Options) -> u64 {
    let ports = options.intakes().count() as u64;
    let streams = u64::from(options.threads) + ports.min(1);
    let requests = http::REQUESTS_MAX as u64 + ports * u64::from(options.intake_connections);
    let readers = options.http.map_or(0, |_| http::readers_descriptors(streams));
    let segments = keeper::WAITING_MAX as u64 + 2 * streams;
    // A thread that ships reads two files, stores the cursor and has up to four connections.
    let shipping = if options.kafka.is_some() { 8 * streams } else { 0 };
    // The thread that uploads has a runtime, a file of a segment and of the store, and a few connections.
    let uploading = if options.upload.is_some() { 16 } else { 0 };
    2 * segments + requests + readers + shipping + uploading
}

/// Reads the options again and takes over those that may change.
fn reload(args: &ServeArgs, before: &Options, live: &Mutex<Live>, panel: &Panel<Stats>) {
    let options = match args.decide(Some(before.threads)) {
        Ok(options) => options,
        Err(error) => {
            return log::remark("reload", format_args!("not reloaded: {error}"));
        }
    };
    let fixed = changed_for_a_restart(before, &options);
    if !fixed.is_empty() {
        let names = fixed.join(", ");
        log::remark("reload", format_args!("{names}: changed, and needs a restart"));
    }
    let mut new = options.live;
    let mut live = live.lock().unwrap_or_else(PoisonError::into_inner);
    if new.tls.is_some() != live.tls.is_some() {
        // The certificate of the last reload, not that of the start.
        new.tls = live.tls.clone();
    }
    *live = new;
    drop(live);
    panel.tell_all(Request::Reload);
    log::remark("reload", "reloaded");
}

/// The options that are not what they were, and stay what they were until a restart.
fn changed_for_a_restart(before: &Options, after: &Options) -> Vec<&'static str> {
    let all = [
        ("listen", before.listen != after.listen),
        ("dir", before.directory != after.directory),
        ("ack", before.guarantee != after.guarantee),
        ("engine", before.engine != after.engine),
        ("sqpoll", before.sqpoll != after.sqpoll),
        ("threads", before.threads != after.threads),
        ("max-connections", before.connections != after.connections),
        ("drain", before.drain != after.drain),
        ("log", before.log != after.log),
        ("http", before.http != after.http),
        ("http-intake", before.http_intake != after.http_intake),
        ("relp-intake", before.relp_intake != after.relp_intake),
        ("fluent-intake", before.fluent_intake != after.fluent_intake),
        ("intake-connections", before.intake_connections != after.intake_connections),
        ("tenant", before.tenants != after.tenants),
        ("kafka", before.kafka != after.kafka),
        ("upload", before.upload != after.upload),
        ("whether there is TLS", before.live.tls.is_some() != after.live.tls.is_some()),
    ];
    all.into_iter().filter_map(|(name, has_changed)| has_changed.then_some(name)).collect()
}

/// The listener that systemd opened for this process, if it did: the first of them.
fn given_listener() -> Result<Option<OwnedFd>, LogdError> {
    let failed =
        |error: &io::Error| LogdError::Failed(format!("the socket of LISTEN_FDS: {error}"));
    let mut given = ListenFd::from_env();
    if given.len() > 1 {
        return Err(LogdError::Failed(format!(
            "LISTEN_FDS has {} sockets, but logd serves one; configure one address",
            given.len()
        )));
    }
    let Some(listener) = given.take_tcp_listener(0).map_err(|error| failed(&error))? else {
        return Ok(None);
    };
    // A ring waits for it inside the kernel; classic calls set it again.
    listener.set_nonblocking(false).map_err(|error| failed(&error))?;
    Ok(Some(listener.into()))
}

/// Makes the directory if it is not there, durably, and takes it for this daemon alone.
pub(crate) fn lock(directory: &Path) -> Result<File, LogdError> {
    if !directory.is_dir() {
        let made = std::fs::create_dir_all(directory);
        made.map_err(|error| LogdError::making(directory, &error))?;
        // Its name, and those of all above it that may be new.
        let absolute =
            directory.canonicalize().map_err(|error| LogdError::on(directory, &error))?;
        for above in absolute.ancestors().skip(1) {
            // What cannot be opened was not made here.
            if let Ok(above) = File::open(above) {
                above.sync_all().map_err(|error| LogdError::on(directory, &error))?;
            }
        }
    }
    let path = directory.join("lock");
    // Who can open it can lock it, and keep the daemon from its start.
    let own = 0o600;
    let made = File::options().write(true).create(true).truncate(false).mode(own).open(&path);
    let made = made.map_err(|error| LogdError::on(&path, &error))?;
    if let Err(error) = made.set_permissions(Permissions::from_mode(own)) {
        let path = path.display();
        log::remark("lock", format_args!("{path}: other users may lock it: {error}"));
    }
    // Held for reading: whoever has to make the file system read-only can. NFS wants it for writing (flock(2)).
    let mut file = File::open(&path).map_err(|error| LogdError::on(&path, &error))?;
    let mut locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
    if locked == Err(rustix::io::Errno::BADF) {
        file = made;
        locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
    }
    locked.map_err(|error| match error {
        rustix::io::Errno::WOULDBLOCK => LogdError::Failed(format!(
            "{}: another daemon uses this directory; stop it, or name another directory",
            directory.display()
        )),
        error => LogdError::on(&path, &error.into()),
    })?;
    Ok(file)
}
