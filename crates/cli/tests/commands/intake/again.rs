//! What clients send again: requests and chunks that got no answer, and those that are still on their way to the disk.

use std::{thread, time::Duration};

use serde_json::Value;

use super::{
    answer,
    fluent::{acknowledgement, chunk, event, packed},
    http::{Answer, Client, start},
    next_address,
    protocols::{BULK, LOKI_JSON, send},
};
use crate::harness::{
    daemon::{ENGINES, ask, cat, wait_until},
    disk::{Device, Disk},
};

/// A client that got no answer sends the same again.
#[test]
fn what_comes_again_is_recognised_where_its_protocol_has_a_name_for_it() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let flags = ["--http", "127.0.0.1:0"];
        let Some((mut daemon, address)) = start(engine, directory.path(), &flags) else { continue };
        let page = daemon.line();
        let body = "{\"create\":{\"_index\":\"a\",\"_id\":\"1\"}}\n{\"n\":1}\n\
                    {\"index\":{\"_index\":\"a\",\"_id\":\"2\"}}\n{\"n\":2}\n\
                    {\"create\":{\"_index\":\"a\",\"_id\":\"3\"}}\n{\"n\":}\n\
                    {\"index\":{\"_index\":\"a\"}}\n{\"n\":3}\n";
        let statuses = |answer: &Answer| -> Vec<u64> {
            let item = |item: &Value| item.as_object().unwrap().values().next().cloned().unwrap();
            let items = answer.body["items"].as_array().unwrap().iter().map(item);
            items.map(|item| item["status"].as_u64().unwrap()).collect()
        };
        assert_eq!(statuses(&send(address, BULK, body.as_bytes())), [201, 201, 400, 201]);
        let again = send(address, BULK, body.as_bytes());
        assert_eq!(statuses(&again), [409, 200, 400, 201], "one without an _id is not recognised");
        assert_eq!(
            again.body["items"][0]["create"]["error"]["type"],
            "version_conflict_engine_exception"
        );
        // Who does not wait for the answer comes again too.
        let pushed =
            b"{\"streams\":[{\"stream\":{\"a\":\"b\"},\"values\":[[\"7\",\"x\"],[\"8\",\"y\"]]}]}";
        let head =
            "POST /loki/api/v1/push HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
        let request = format!("{head}Content-Length: {}\r\n\r\n", pushed.len());
        Client::new(address).send(&[request.as_bytes(), pushed].concat()).unwrap();
        wait_until("both entries", || cat(&[], directory.path()).len() == 6);
        // Its lines can be read before their sync is done, and until then the answer is to come again later.
        let mut status = 429;
        wait_until("an answer but 429", || {
            status = send(address, LOKI_JSON, pushed).status;
            status != 429
        });
        assert_eq!(status, 204);
        let figures = ask(&page, "/metrics");
        assert!(figures.contains("logd_repeated_items_total{thread=\"1\"} 3\n"), "{figures}");
        daemon.end();
        assert_eq!(cat(&[], directory.path()).len(), 6);
    }
}

/// A client that is tired of waiting sends the same again while the first one is still on its way to the disk.
#[test]
fn what_comes_again_while_it_is_stored_is_stored_once() {
    for engine in ENGINES {
        let Some(disk) = Disk::mount(Device::Loop) else { continue };
        let log = disk.path().join("log");
        let flags = ["--fluent-intake", "127.0.0.1:0", "--min-free", "0"];
        let Some((mut daemon, address)) = start(engine, &log, &flags) else { continue };
        let fluent = next_address(&mut daemon, "taking Fluent Forward on ");
        let push = b"{\"streams\":[{\"stream\":{},\"values\":[[\"7\",\"x\"]]}]}";
        // Too many events for one piece.
        let events = (0..20_000).flat_map(|_| event(4)).collect::<Vec<_>>();
        let message = packed(&events, &chunk("c"));
        let frozen = disk.freeze();
        let answers: Vec<_> = thread::scope(|scope| {
            let pushes = [(); 2].map(|()| scope.spawn(|| send(address, LOKI_JSON, push)));
            let chunks = [(); 2].map(|()| scope.spawn(|| answer(fluent, &message)));
            // All have come by then. The disk takes nothing, so there is no answer to wait for.
            thread::sleep(Duration::from_secs(2));
            drop(frozen);
            let mut answers = pushes.map(|push| push.join().unwrap().status);
            answers.sort_unstable();
            assert_eq!(answers, [204, 429], "{engine}");
            chunks.into_iter().map(|chunk| chunk.join().unwrap()).collect()
        });
        assert_eq!(answers.iter().filter(|answer| **answer == acknowledgement("c")).count(), 1);
        assert_eq!(answers.iter().filter(|answer| answer.is_empty()).count(), 1);
        assert_eq!(send(address, LOKI_JSON, push).status, 204);
        daemon.end();
        assert_eq!(cat(&[], &log).len(), 20_001, "{engine}");
    }
}
