//! Brokers of Apache Kafka on loopback, in KRaft mode: started, paused, killed, and read by Kafka's own consumer.
//!
//! Each has a plain listener, and one with TLS that wants a login.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufRead, BufReader},
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use crate::metadata::partitions;

/// How long a broker may take to start, or to be elected.
pub const PATIENCE: Duration = Duration::from_secs(240);
pub const TOPIC: &str = "logs";
/// Who may log in.
pub const USER: &str = "logd";
pub const PASSWORD: &str = "pass=word";

/// Where Maven puts the jars of the version in `RINGWISE_KAFKA`, or of 4.1.0. They stay for the next run.
fn jars() -> PathBuf {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let version = std::env::var("RINGWISE_KAFKA").unwrap_or_else(|_| "4.1.0".to_owned());
    let directory = format!("{}/kafka-jars-{version}", env!("CARGO_TARGET_TMPDIR"));
    let directory = PathBuf::from(directory);
    if !directory.is_dir() {
        let part = directory.with_extension("part");
        let mut maven = Command::new("mvn");
        maven.args(["-q", "-B", "-f", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kafka/pom.xml")]);
        maven.args(["dependency:copy-dependencies", &format!("-Dkafka.version={version}")]);
        maven.arg(format!("-DoutputDirectory={}", part.display()));
        let status = maven.status().expect("mvn: install maven and a JDK of Java 17");
        assert!(status.success(), "mvn: {status}");
        fs::rename(part, &directory).unwrap();
    }
    directory
}

fn java(class: &str) -> Command {
    let mut command = Command::new("java");
    command.args([
        "-Xmx300m",
        "-XX:+UseSerialGC",
        "-cp",
        &format!("{}/*", jars().display()),
        class,
    ]);
    command
}

/// Runs one of Kafka's tools; gives what it prints.
#[track_caller]
fn tool(class: &str, arguments: &[&str]) -> Result<String, String> {
    let output = java(class).args(arguments).output().expect("java: install a JDK of Java 17");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(format!("{class}: {}{}", text(&output.stdout), text(&output.stderr))),
    }
}

/// A record as Kafka's console consumer prints it.
#[derive(Debug)]
pub struct Record {
    pub partition: u32,
    pub time_ms: u64,
    pub origin: String,
    pub stream: u32,
    pub line: usize,
    pub tenant: Option<String>,
    pub value: String,
}

/// Brokers that are killed at the end.
pub struct Cluster {
    directory: tempfile::TempDir,
    ports: Vec<u16>,
    brokers: Vec<Option<Child>>,
}

impl Cluster {
    /// Starts brokers with a topic of so many partitions.
    pub fn start(count: usize, partitions: u32) -> Cluster {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let held: Vec<TcpListener> =
            (0..3 * count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let ports = held.iter().map(|held| held.local_addr().unwrap().port()).collect();
        drop(held);
        let brokers = (0..count).map(|_| None).collect();
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        fs::write(directory.path().join("ca.pem"), made.cert.pem()).unwrap();
        let pair = made.signing_key.serialize_pem() + &made.cert.pem();
        fs::write(directory.path().join("broker.pem"), pair).unwrap();
        let mut cluster = Cluster { directory, ports, brokers };
        for number in 0..count {
            cluster.format(number);
            cluster.launch(number);
        }
        let (replicas, partitions) = (count.to_string(), partitions.to_string());
        let least = if count > 1 { "2" } else { "1" };
        cluster.until_done("a topic", || {
            let config = format!("min.insync.replicas={least}");
            let create = ["--create", "--topic", TOPIC, "--partitions", &partitions];
            let replicas = ["--replication-factor", &replicas, "--config", &config];
            cluster.topics(&[&create[..], &replicas].concat())
        });
        cluster.until_done("a progress topic", || {
            let config = format!("min.insync.replicas={least}");
            let name = format!("{TOPIC}-progress");
            let create = ["--create", "--topic", &name, "--partitions", "1"];
            let replicas = ["--replication-factor", &replicas, "--config", &config];
            let compact = ["--config", "cleanup.policy=compact"];
            cluster.topics(&[&create[..], &replicas, &compact].concat())
        });
        cluster
    }

    /// The authority that signed the brokers' certificate.
    pub fn authority(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// The addresses of all brokers where they want TLS and a login.
    pub fn secure_addresses(&self) -> String {
        self.list(2 * self.count()..3 * self.count())
    }

    fn list(&self, ports: std::ops::Range<usize>) -> String {
        let ports = self.ports[ports].iter();
        ports.map(|port| format!("127.0.0.1:{port}")).collect::<Vec<_>>().join(",")
    }

    pub fn count(&self) -> usize {
        self.brokers.len()
    }

    /// The addresses of all brokers, for `--kafka`.
    pub fn addresses(&self) -> String {
        self.list(0..self.count())
    }

    fn format(&self, number: usize) {
        let count = self.count();
        let (own, secure) = (self.ports[number], self.ports[2 * count + number]);
        let controllers = &self.ports[count..2 * count];
        let voters = controllers.iter().enumerate();
        let voters = voters.map(|(id, port)| format!("{id}@127.0.0.1:{port}")).collect::<Vec<_>>();
        let least = if count > 1 { 2 } else { 1 };
        let module = "org.apache.kafka.common.security";
        let scram = format!("{module}.scram.ScramLoginModule required;");
        let properties = format!(
            "process.roles=broker,controller\nnode.id={number}\n\
             controller.quorum.voters={}\ncontroller.listener.names=CONTROLLER\n\
             listeners=PLAINTEXT://127.0.0.1:{own},CONTROLLER://127.0.0.1:{},SECURE://127.0.0.1:{secure}\n\
             advertised.listeners=PLAINTEXT://127.0.0.1:{own},SECURE://127.0.0.1:{secure}\n\
             listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL\n\
             listener.name.secure.ssl.keystore.type=PEM\nlistener.name.secure.ssl.keystore.location={}\n\
             listener.name.secure.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512\n\
             listener.name.secure.plain.sasl.jaas.config={module}.plain.PlainLoginModule required \
             user_{USER}=\"{PASSWORD}\";\n\
             listener.name.secure.scram-sha-256.sasl.jaas.config={scram}\n\
             listener.name.secure.scram-sha-512.sasl.jaas.config={scram}\n\
             log.dirs={}\noffsets.topic.replication.factor={count}\noffsets.topic.num.partitions=1\n\
             transaction.state.log.replication.factor={count}\ntransaction.state.log.min.isr={least}\n\
             transaction.state.log.num.partitions=3\nauto.create.topics.enable=false\n",
            voters.join(","),
            controllers[number],
            self.directory.path().join("broker.pem").display(),
            self.directory.path().join(format!("data-{number}")).display(),
        );
        let file = self.properties(number);
        fs::write(&file, properties).unwrap();
        let logins = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
            .map(|name| format!("{name}=[name={USER},password={PASSWORD}]"));
        let logins = ["--add-scram", &logins[0], "--add-scram", &logins[1]];
        let own = ["format", "-t", "AAAAAAAAAAAAAAAAAAAAAA", "-c", file.to_str().unwrap()];
        tool("kafka.tools.StorageTool", &[&own[..], &logins].concat()).unwrap();
    }

    fn properties(&self, number: usize) -> PathBuf {
        self.directory.path().join(format!("broker-{number}.properties"))
    }

    /// Starts a broker that does not run.
    pub fn launch(&mut self, number: usize) {
        let log = File::create(self.directory.path().join(format!("broker-{number}.log"))).unwrap();
        let mut command = java("kafka.Kafka");
        command.arg(self.properties(number)).stderr(log.try_clone().unwrap()).stdout(log);
        self.brokers[number] = Some(command.spawn().unwrap());
    }

    /// Kills a broker.
    pub fn kill(&mut self, number: usize) {
        if let Some(mut broker) = self.brokers[number].take() {
            broker.kill().unwrap();
            broker.wait().unwrap();
        }
    }

    /// Stops a broker so that it neither answers nor closes its connections, or lets it go on.
    pub fn signal(&self, number: usize, name: &str) {
        crate::harness::daemon::signal(self.brokers[number].as_ref().unwrap(), name);
    }

    /// The broker that leads partition 0.
    pub fn leader(&self) -> usize {
        self.until_done("a leader", || {
            let mut told =
                self.ports[..self.count()].iter().filter_map(|port| partitions(*port, TOPIC));
            let told = told.next().ok_or("no broker answers")?;
            let first = told.iter().find(|partition| partition.number == 0);
            let leader = first.and_then(|first| usize::try_from(first.leader).ok());
            leader.ok_or_else(|| format!("{told:?}"))
        })
    }

    /// Waits until all brokers say that all replicas of all partitions are in sync.
    pub fn wait_until_in_sync(&self) {
        self.until_done("replicas in sync", || {
            for port in &self.ports[..self.count()] {
                for topic in [TOPIC, &format!("{TOPIC}-progress")] {
                    let told =
                        partitions(*port, topic).ok_or_else(|| format!("{port} is silent"))?;
                    if told.iter().any(|partition| partition.in_sync < partition.replicas) {
                        return Err(format!("{port}: {told:?}"));
                    }
                }
            }
            Ok(())
        });
    }

    fn topics(&self, arguments: &[&str]) -> Result<String, String> {
        let addresses = self.addresses();
        let server = ["--bootstrap-server", &addresses];
        tool("org.apache.kafka.tools.TopicCommand", &[&server[..], arguments].concat())
    }

    fn until_done<T>(&self, what: &str, mut work: impl FnMut() -> Result<T, String>) -> T {
        let until = Instant::now() + PATIENCE;
        loop {
            match work() {
                Ok(done) => return done,
                Err(error) => assert!(Instant::now() < until, "waited in vain: {what}: {error}"),
            }
            thread::sleep(Duration::from_millis(500));
        }
    }

    /// Reads what is committed of the whole topic with Kafka's consumer.
    pub fn consume(&self) -> Vec<Record> {
        let mut command = java("org.apache.kafka.tools.consumer.ConsoleConsumer");
        command.args(["--bootstrap-server", &self.addresses(), "--topic", TOPIC]);
        command.args(["--from-beginning", "--timeout-ms", "15000"]);
        command.args(["--isolation-level", "read_committed"]);
        for shown in ["timestamp", "partition", "headers"] {
            command.args(["--property", &format!("print.{shown}=true")]);
        }
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // It prints that it waited in vain for more, too.
        let lines = lines.map(Result::unwrap).filter(|line| line.starts_with("CreateTime:"));
        let records = lines.map(|line| record(&line)).collect();
        child.wait().unwrap();
        records
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for number in 0..self.count() {
            self.kill(number);
        }
    }
}

fn record(line: &str) -> Record {
    let mut fields = line.splitn(4, '\t');
    let mut field = |name: &str| {
        let field = fields.next().unwrap_or_else(|| panic!("no {name}: {line}"));
        field.strip_prefix(name).unwrap_or_else(|| panic!("no {name}: {line}"))
    };
    let (time_ms, partition) = (field("CreateTime:"), field("Partition:"));
    let (headers, value) = (field(""), field(""));
    let headers: BTreeMap<&str, &str> =
        headers.split(',').filter_map(|header| header.split_once(':')).collect();
    Record {
        partition: partition.parse().unwrap(),
        time_ms: time_ms.parse().unwrap(),
        origin: headers["origin"].to_owned(),
        stream: headers["stream"].parse().unwrap(),
        line: headers["line"].parse().unwrap(),
        tenant: headers.get("tenant").map(|&tenant| tenant.to_owned()),
        value: value.to_owned(),
    }
}
