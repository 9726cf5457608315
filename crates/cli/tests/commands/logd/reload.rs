//! SIGHUP: what changes at once, what needs a restart and is told, what is wrong and changes nothing.

use std::{
    io::{BufRead, BufReader, Write},
    process::ChildStderr,
};

use super::{Client, Daemon, count, start};

/// Has a daemon read its options again; gives what it says of that, up to the last line.
fn reload(daemon: &Daemon, errors: &mut BufReader<ChildStderr>) -> Vec<String> {
    daemon.signal("-HUP");
    let mut told = Vec::new();
    while told.last().is_none_or(|line: &String| !line.contains("reloaded")) {
        let mut line = String::new();
        errors.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "it ended: {told:?}");
        told.push(line.trim_end().to_owned());
    }
    told
}

#[test]
fn options_are_read_again_and_statistics_printed() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("logd.toml");
    std::fs::write(&config, "max-line = 100\nrequire = [\"ts:string\"]\n").unwrap();
    let flags = ["--config", config.to_str().unwrap()];
    let Some(mut daemon) = start("epoll", &directory.path().join("log"), &flags) else {
        return;
    };
    let mut errors = BufReader::new(daemon.child.stderr.take().unwrap());
    let mut client = Client::new(&daemon, "LOGD 1\n");
    client.stream.write_all(b"{\"ts\":\"now\"}\n{}\n").unwrap();
    let long = format!("{{\"ts\":\"{}\"}}\n", "x".repeat(200));
    client.stream.write_all(long.as_bytes()).unwrap();
    let told: Vec<String> =
        client.until(3).into_iter().filter(|answer| answer.starts_with('N')).collect();
    assert_eq!(told, ["N 2 missing-field", "N 3 too-long"]);

    std::fs::write(&config, "max-line = 1000\n").unwrap();
    assert_eq!(reload(&daemon, &mut errors), ["ringwise: logd: reloaded"]);
    // It is said when all threads were told, and done by each before it takes more lines.
    client.stream.write_all(long.as_bytes()).unwrap();
    assert_eq!(client.until(4), ["A 4"]);

    std::fs::write(&config, "max-line = \"nonsense\"\n").unwrap();
    let told = reload(&daemon, &mut errors);
    assert!(told[0].contains("not reloaded") && told[0].contains("nonsense"), "{told:?}");

    daemon.signal("-USR1");
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    assert_eq!(count(&line, "lines accepted"), 2, "{line}");
    assert_eq!(count(&line, "rejected;"), 2, "{line}");
}

/// Which of them it is, and no other; what can change does all the same, and who has one back as it was
/// is told nothing more.
#[test]
fn what_needs_a_restart_is_told_by_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("logd.toml");
    let log = directory.path().join("log");
    std::fs::write(&config, "max-line = 10\n").unwrap();
    let flags = ["--config", config.to_str().unwrap(), "--log", "json"];
    let mut daemon = start("epoll", &log, &flags).unwrap();
    let mut errors = BufReader::new(daemon.child.stderr.take().unwrap());
    let mut client = Client::new(&daemon, "LOGD 1\n");
    let changes = "max-line = 1000\nack = \"written\"\ndrain = \"1m\"\nhttp = \"127.0.0.1:0\"\n\
                   max-connections = 7\nsegment-size = \"1m\"\n";
    std::fs::write(&config, changes).unwrap();
    let message = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        line["message"].as_str().unwrap().to_owned()
    };
    let told: Vec<String> = reload(&daemon, &mut errors).iter().map(|line| message(line)).collect();
    let remark = "ack, max-connections, drain, http: changed, and needs a restart";
    assert_eq!(told, [remark, "reloaded"]);
    writeln!(client.stream, "\"{}\"", "x".repeat(500)).unwrap();
    assert_eq!(client.until(1), ["A 1"], "a longer line is taken");
    std::fs::write(&config, "max-line = 1000\n").unwrap();
    let told = reload(&daemon, &mut errors);
    assert_eq!(told.iter().map(|line| message(line)).collect::<Vec<_>>(), ["reloaded"]);
    daemon.signal("-TERM");
    assert!(daemon.child.wait().unwrap().success());
}
