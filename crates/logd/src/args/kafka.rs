//! The options of shipping to Kafka, and which of them go together.

use std::path::PathBuf;

use super::sources::Sources;
use crate::{
    error::LogdError,
    guarantee::Guarantee,
    ship::kafka::{
        self, Brokers, Compression, Delivery, Login, Mechanism, Security, Settings, Tls,
    },
};

/// Flags of the daemon that begin with `--kafka`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct KafkaArgs {
    /// Send stored lines to Kafka through these brokers; needs --kafka-topic [default: none]
    #[arg(long, value_name = "HOST:PORT,...", value_parser = kafka::brokers)]
    kafka: Option<Brokers>,

    /// Send the lines to this topic, which must exist
    #[arg(long, value_name = "TOPIC", value_parser = kafka::topic)]
    kafka_topic: Option<String>,

    /// Speak TLS to brokers, and trust the authorities in this PEM file [default: no TLS]
    #[arg(long, value_name = "FILE")]
    kafka_ca: Option<PathBuf>,

    /// Present the certificate in this PEM file to brokers
    #[arg(long, value_name = "FILE")]
    kafka_cert: Option<PathBuf>,

    /// Use the private key in this PEM file for --kafka-cert
    #[arg(long, value_name = "FILE")]
    kafka_key: Option<PathBuf>,

    /// Log in to brokers over SASL; the first line of this file is the user, the second the password
    /// [default: no login]
    #[arg(long, value_name = "FILE")]
    kafka_login: Option<PathBuf>,

    /// Log in with this SASL mechanism [default: scram-sha-512]
    #[arg(long, value_enum)]
    kafka_sasl: Option<Mechanism>,

    /// Compress the batches that are sent to Kafka; Kafka stores them compressed [default: none]
    #[arg(long, value_enum)]
    kafka_compression: Option<Compression>,

    /// Deliver lines with this guarantee; exactly-once needs a topic TOPIC-progress [default: idempotent]
    #[arg(long, value_enum)]
    kafka_delivery: Option<Delivery>,
}

impl KafkaArgs {
    /// The flags, and where they say nothing the file's options, where they go together.
    pub(super) fn decide(
        self,
        file: KafkaArgs,
        sources: &mut Sources,
        guarantee: Guarantee,
    ) -> Result<Option<Settings>, LogdError> {
        macro_rules! either {
            ($option:ident) => {
                sources.pick(stringify!($option), self.$option, file.$option)
            };
        }
        let (brokers, topic) = (either!(kafka), either!(kafka_topic));
        let tls = tls(either!(kafka_ca), either!(kafka_cert), either!(kafka_key))?;
        let login = login(either!(kafka_login), either!(kafka_sasl), tls.is_some())?;
        let (compression, delivery) = (either!(kafka_compression), either!(kafka_delivery));
        let more = [
            ("--kafka-ca", tls.is_some()),
            ("--kafka-login", login.is_some()),
            ("--kafka-compression", compression.is_some()),
            ("--kafka-delivery", delivery.is_some()),
        ];
        let more = more.into_iter().find_map(|(option, is_given)| is_given.then_some(option));
        let (brokers, topic) = match (brokers, topic) {
            (None, None) if guarantee == Guarantee::Replicated => {
                return usage("--ack replicated needs --kafka and --kafka-topic");
            }
            (None, None) => match more {
                Some(option) => return usage(&format!("{option} needs --kafka and --kafka-topic")),
                None => return Ok(None),
            },
            (Some(_), None) => return usage("--kafka needs --kafka-topic"),
            (None, Some(_)) => return usage("--kafka-topic needs --kafka"),
            (Some(_), Some(_)) if guarantee < Guarantee::Durable => {
                return usage(
                    "--kafka needs --ack durable or replicated: without them a power failure could lose lines that Kafka \
                     has, and new lines would get their numbers",
                );
            }
            (Some(Brokers(brokers)), Some(topic)) => (brokers, topic),
        };
        let security = Security { tls, login };
        security.check()?;
        let (compression, delivery) =
            (compression.unwrap_or_default(), delivery.unwrap_or_default());
        let settings = Settings { brokers, topic, security, compression, delivery };
        if let Some(topic) = settings.progress_topic() {
            let checked = kafka::topic(&topic);
            checked.map_err(|why| LogdError::Usage(format!("--kafka-topic {topic}: {why}")))?;
        }
        Ok(Some(settings))
    }
}

fn usage<T>(text: &str) -> Result<T, LogdError> {
    Err(LogdError::Usage(text.to_owned()))
}

/// What is said of TLS to brokers, where it goes together.
fn tls(
    authorities: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
) -> Result<Option<Tls>, LogdError> {
    let own = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (Some(_), None) => return usage("--kafka-cert needs --kafka-key"),
        (None, Some(_)) => return usage("--kafka-key needs --kafka-cert"),
        (None, None) => None,
    };
    match authorities {
        None if own.is_some() => usage("--kafka-cert needs --kafka-ca"),
        authorities => Ok(authorities.map(|authorities| Tls { authorities, own })),
    }
}

/// What is said of a login, where it goes together.
fn login(
    file: Option<PathBuf>,
    mechanism: Option<Mechanism>,
    has_tls: bool,
) -> Result<Option<Login>, LogdError> {
    match (file, mechanism) {
        (None, None) => Ok(None),
        (None, Some(_)) => usage("--kafka-sasl needs --kafka-login"),
        (Some(_), Some(Mechanism::Plain)) if !has_tls => usage(
            "--kafka-sasl plain needs --kafka-ca: without TLS it shows the password to everybody on the network; add \
             --kafka-ca, or use a SCRAM mechanism",
        ),
        (Some(file), mechanism) => {
            Ok(Some(Login { mechanism: mechanism.unwrap_or_default(), file }))
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::args::parse;

    #[test]
    fn what_is_said_of_kafka_goes_together() {
        let told = |text: &str| {
            let decided = parse(text).unwrap().decide(None);
            decided.map(|options| options.kafka.is_some()).map_err(|error| error.to_string())
        };
        let both = "kafka = \"a:1,b:2\"\nkafka-topic = \"logs\"\n";
        assert_eq!(told(""), Ok(false));
        assert_eq!(told(both), Ok(true));
        assert_eq!(told(&format!("{both}ack = \"replicated\"")), Ok(true));
        for (text, word) in [
            (&*format!("{both}ack = \"written\""), "needs --ack durable or replicated"),
            (&*format!("{both}ack = \"none\""), "needs --ack durable or replicated"),
            ("ack = \"replicated\"", "--ack replicated needs --kafka and --kafka-topic"),
            ("kafka = \"a:1\"", "--kafka needs --kafka-topic"),
            ("kafka-topic = \"logs\"", "--kafka-topic needs --kafka"),
            ("kafka-ca = \"ca\"", "needs --kafka and --kafka-topic"),
            ("kafka-login = \"login\"", "needs --kafka and --kafka-topic"),
            ("kafka-compression = \"zstd\"", "needs --kafka and --kafka-topic"),
            ("kafka-delivery = \"exactly-once\"", "needs --kafka and --kafka-topic"),
            ("kafka-cert = \"cert\"", "--kafka-cert needs --kafka-key"),
            ("kafka-key = \"key\"", "--kafka-key needs --kafka-cert"),
            ("kafka-cert = \"cert\"\nkafka-key = \"key\"", "--kafka-cert needs --kafka-ca"),
            ("kafka-sasl = \"scram-sha-256\"", "--kafka-sasl needs --kafka-login"),
            ("kafka-sasl = \"plain\"\nkafka-login = \"l\"", "plain needs --kafka-ca"),
            (&*format!("{both}kafka-ca = \"/no/such\""), "--kafka-ca /no/such: "),
            (&*format!("{both}kafka-login = \"/no/such\""), "--kafka-login /no/such: "),
        ] {
            let error = told(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
