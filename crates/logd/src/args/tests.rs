//! What flags and the keys of a file mean, and what is said of wrong ones.

use clap::FromArgMatches as _;

use super::*;

/// A new flag belongs into this list, and has to be the same from a file.
#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn every_flag_is_an_option_of_the_file_and_changes_something() {
    let values = [
        ("listen", "127.0.0.1:5"),
        ("dir", "elsewhere"),
        ("ack", "written"),
        ("engine", "epoll"),
        ("sqpoll", "20ms"),
        ("threads", "7"),
        ("max-connections", "7"),
        ("names", "anyone"),
        ("address-names", "7"),
        ("forget-names", "30d"),
        ("tokens", "no-such-file"),
        ("token-transport", "any"),
        ("senders", "tenants"),
        ("address-connections", "7"),
        ("framing", "octet-counting"),
        ("wrap", "syslog"),
        ("max-line", "5k"),
        ("long-lines", "refuse"),
        ("max-depth", "3"),
        ("require", "ts:string"),
        ("connection-budget", "9m"),
        ("budget", "99m"),
        ("commit-size", "2m"),
        ("segment-size", "5m"),
        ("segment-age", "5s"),
        ("write", "buffered"),
        ("pack", "3"),
        ("retain-size", "5g"),
        ("retain-dead", "5g"),
        ("retain-age", "9m"),
        ("min-free", "5m"),
        ("tenant", "web,from=10.0.0.0/8,quota=5g"),
        ("http", "127.0.0.1:6"),
        ("page-tokens", "no-such-file"),
        ("http-intake", "127.0.0.1:7"),
        ("relp-intake", "127.0.0.1:8"),
        ("fluent-intake", "127.0.0.1:9"),
        ("intake-connections", "7"),
        ("kafka", "127.0.0.1:9092"),
        ("kafka-topic", "logs"),
        ("kafka-ca", "ca.pem"),
        ("kafka-cert", "cert.pem"),
        ("kafka-key", "key.pem"),
        ("kafka-login", "login"),
        ("kafka-sasl", "scram-sha-256"),
        ("kafka-compression", "zstd"),
        ("kafka-delivery", "exactly-once"),
        ("upload", "file:///backup/logd"),
        ("tls-cert", "cert.pem"),
        ("tls-key", "key.pem"),
        ("tls-client-ca", "ca.pem"),
        ("tls-client-auth", "required"),
        ("tls-handshake", "3s"),
        ("idle", "5m"),
        ("batch", "1"),
        ("log", "json"),
        ("drain", "9s"),
    ];
    let command = <ServeArgs as clap::Args>::augment_args(clap::Command::new("logd"));
    let flags: Vec<&str> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
    let (known, own): (Vec<&str>, Vec<&str>) =
        flags.into_iter().partition(|flag| values.iter().any(|(name, _)| name == flag));
    assert_eq!((known.len(), own), (values.len(), vec!["config", "check"]));

    let directory = tempfile::tempdir().unwrap();
    let decided = |args: ServeArgs| match args.decide(None) {
        Ok(options) => format!("{:?}", Options { sources: Sources::default(), ..options }),
        Err(error) => format!("error: {error}"),
    };
    let unchanged = decided(ServeArgs::default());
    for (name, value) in values {
        let typed = command
            .clone()
            .try_get_matches_from(["logd".to_owned(), format!("--{name}={value}")])
            .unwrap();
        let typed = decided(ServeArgs::from_arg_matches(&typed).unwrap());
        let path = directory.path().join("logd.toml");
        std::fs::write(&path, format!("{name} = \"{value}\"\n")).unwrap();
        let read = decided(ServeArgs { config: Some(path.clone()), ..ServeArgs::default() });
        // An error is told in the words of where the option stands.
        let typed = match typed.strip_prefix("error: ") {
            Some(error) => {
                format!("error: --config {}: {}", path.display(), error.replace("--", ""))
            }
            None => typed,
        };
        assert_eq!(typed, read, "{name}");
        assert_ne!(typed, unchanged, "{name} changes nothing");
    }
}

#[test]
fn a_submission_thread_is_a_ring_s() {
    for engine in [None, Some(EngineChoice::Auto), Some(EngineChoice::Uring)] {
        let sqpoll = Some(Duration::from_millis(20));
        let args = ServeArgs { engine, sqpoll, ..ServeArgs::default() };
        assert_eq!(args.decide(None).unwrap().sqpoll, sqpoll);
    }
    let mut args = parse("sqpoll = \"20ms\"").unwrap();
    args.engine = Some(EngineChoice::Epoll);
    let error = args.decide(None).unwrap_err();
    assert_eq!(error.exit_status(), 2);
    assert_eq!(error.to_string(), "--sqpoll needs io_uring: use --engine uring or auto");
    assert!(parse("sqpoll = \"0s\"").is_err());
}

/// With one thread as the default a daemon left all processors but one idle; with one for each a
/// budget or a longest line that one thread had room for was an error.
#[test]
fn there_is_a_thread_for_each_processor_of_which_each_has_room_for_a_line() {
    let processors = available_parallelism().unwrap().get() as u32;
    let threads = |args: ServeArgs| {
        let options = args.decide(None).unwrap();
        let limits = &options.live.limits;
        assert!(limits.budget_all / 2 >= limits.line_max, "{limits:?}");
        options.threads
    };
    assert_eq!(threads(ServeArgs::default()), processors.min(256));
    let asked = ServeArgs { threads: Some(processors + 1), ..ServeArgs::default() };
    assert_eq!(threads(asked), processors + 1);
    let little = ServeArgs { budget: Some(3 << 20), ..ServeArgs::default() };
    assert_eq!(threads(little), 1);
    let long = 100 << 20;
    let long =
        ServeArgs { max_line: Some(long), connection_budget: Some(long), ..ServeArgs::default() };
    assert_eq!(threads(long), 1);
    assert_eq!((default_budget(2), default_budget(256)), (256 << 20, 4 << 30));
}

/// Who reads the file again has as many threads as before, whatever it says.
#[test]
fn what_is_shared_by_threads_that_run_is_shared_by_these() {
    let share = |args: &ServeArgs, serving| {
        args.decide(serving).map(|options| (options.threads, options.live.limits.budget_all))
    };
    let asked = ServeArgs { threads: Some(1), budget: Some(8 << 20), ..ServeArgs::default() };
    assert_eq!(share(&asked, None).unwrap(), (1, 8 << 20));
    assert_eq!(share(&asked, Some(4)).unwrap(), (1, 2 << 20));
    let unasked = ServeArgs { threads: None, ..asked.clone() };
    assert_eq!(share(&unasked, Some(4)).unwrap(), (4, 2 << 20));
    let error = share(&asked, Some(5)).unwrap_err().to_string();
    let told = "--budget is too small: 5 threads with --max-line 1m need 10m; raise --budget or lower --max-line";
    assert_eq!(error, told);
}

#[test]
fn what_is_wrong_in_a_file_is_said_by_its_keys() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("logd.toml");
    let cases = [
        ("budget = \"1q\"", "budget: invalid value '1q': expected a whole"),
        ("threads = 0", "threads: invalid value '0': expected 1 to 256"),
        ("lissten = \"127.0.0.1:1\"", "unknown key 'lissten': did you mean 'listen'?"),
        ("xyzzy = 1", "unknown key 'xyzzy': `ringwise logd --help` lists"),
        (
            "budget = \"1m\"\nthreads = 1",
            "budget is too small: 1 thread with max-line 1m needs 2m; raise budget or",
        ),
        (
            "max-line = \"8m\"",
            "connection-budget 4m is smaller than max-line 8m: raise connection-budget or",
        ),
        ("tls-cert = \"a\"", "tls-cert needs tls-key"),
        ("tls-client-ca = \"a\"", "tls-client-ca needs tls-cert and tls-key"),
        ("tls-client-auth = \"required\"", "tls-client-auth needs tls-client-ca"),
        ("tls-cert = \"/no/such\"\ntls-key = \"a\"", "tls-cert /no/such: No such file"),
        ("tokens = \"/no/such\"", "tokens /no/such: No such file"),
        ("tokens = \"/proc/version\"", "tokens /proc/version: line 1: expected a token of"),
        ("tenant = [\"a\", \"a\"]", "tenant a is given twice: give it once"),
        ("engine = \"ring\"", "engine: invalid value 'ring': did you mean 'uring'?"),
    ];
    for (text, told) in cases {
        std::fs::write(&path, text).unwrap();
        let args = ServeArgs { config: Some(path.clone()), ..ServeArgs::default() };
        let error = args.decide(None).unwrap_err().to_string();
        let begin = format!("--config {}: ", path.display());
        let message = error.strip_prefix(&begin).unwrap_or_else(|| panic!("{error}"));
        let without_help = message.replace("logd --help", "");
        assert!(message.starts_with(told) && !without_help.contains("--"), "{text}: {error}");
    }
}

/// It named the file, which was right.
#[test]
fn what_is_wrong_with_a_flag_is_not_said_of_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("logd.toml");
    std::fs::write(&path, "budget = \"256m\"\ntokens = \"/dev/null\"\nsqpoll = \"9ms\"").unwrap();
    let config = Some(path.clone());
    let flags = ServeArgs { config, engine: Some(EngineChoice::Auto), ..ServeArgs::default() };
    let told = |args: ServeArgs| args.decide(None).unwrap_err().to_string();
    let tokens = told(ServeArgs { tokens: Some("/no/such".into()), ..flags.clone() });
    assert!(tokens.starts_with("--tokens /no/such: "), "{tokens}");
    let long = told(ServeArgs { max_line: Some(8 << 20), ..flags.clone() });
    assert!(
        long.starts_with("--connection-budget 4m is smaller than --max-line 8m: raise"),
        "{long}"
    );
    // What stands in two places is told in the words of each.
    let engine = told(ServeArgs { engine: Some(EngineChoice::Epoll), ..flags });
    let words = "sqpoll needs io_uring: use --engine uring or auto";
    assert_eq!(engine, format!("--config {}: {words}", path.display()));
}

#[test]
fn a_line_has_to_fit_into_the_budgets() {
    let args = ServeArgs { max_line: Some(8 << 20), ..ServeArgs::default() };
    let error = args.decide(None).unwrap_err();
    assert_eq!(error.exit_status(), 2);
    assert!(error.to_string().contains("--connection-budget"), "{error}");
}
