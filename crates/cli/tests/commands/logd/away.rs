//! `ringwise logd --kafka` without a broker. `tests/kafka` has brokers.

use super::*;
use crate::harness::load::closed_port;

/// Nobody waits for Kafka, unless that is asked for.
#[test]
fn while_kafka_is_away_lines_are_stored_and_acknowledged() {
    let (_held, nobody) = closed_port();
    let brokers = nobody.to_string();
    let flags = ["--kafka", &brokers, "--kafka-topic", "logs", "--http", "127.0.0.1:0"];
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let Some(mut daemon) = start(engine, directory.path(), &flags) else { continue };
        let page = daemon.line();
        let mut client = Client::new(&daemon, "LOGD 1\n");
        for number in 1..=3_u64 {
            writeln!(client.stream, "{number}").unwrap();
            client.until(number);
        }
        let sum = |name: &str| {
            let text = ask(&page, "/metrics");
            let lines =
                text.lines().filter(|line| line.starts_with(&format!("logd_ship_{name}{{")));
            lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum::<u64>()
        };
        wait_until("an error", || sum("errors_total") > 1);
        assert_eq!((sum("lag_lines"), sum("shipped_lines_total")), (3, 0));
        assert!(sum("away") > 0);
        assert_eq!(ask(&page, "/readyz").lines().last(), Some("ok"));
        drop(client);
        let begun = Instant::now();
        let output = daemon.end();
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        // Once for the one stream that has lines.
        let told = output.matches("lines wait in the segments, and logd tries again").count();
        assert_eq!(told, 1, "{output}");
        assert_eq!(cat(&[], directory.path()), ["1", "2", "3"]);
    }
}
