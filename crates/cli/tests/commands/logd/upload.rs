//! `ringwise logd --upload` to a directory, and `ringwise logd fetch`.

use std::fs;

use super::*;
use daemon::not_uploaded;

/// The URL of a directory.
fn url(directory: &Path) -> String {
    format!("file://{}", directory.display())
}

/// Fetches into a new directory, and checks what is there.
fn fetch(store: &Path) -> tempfile::TempDir {
    let fetched = tempfile::tempdir().unwrap();
    let output = logd(&["fetch", &url(store)], fetched.path());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    verify(fetched.path());
    fetched
}

/// Retention removes at once what is uploaded, and the daemon is killed under load. All lines come back.
#[test]
fn uploaded_lines_come_back_whenever_the_daemon_is_killed() {
    for (engine, pack) in ENGINES.into_iter().zip(["none", "1"]) {
        let (directory, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let upload = url(store.path());
        let flags = ["--segment-size", "1m", "--retain-age", "1ms", "--upload", &upload];
        let flags = [&flags[..], &["--pack", pack]].concat();
        let start = || start(engine, directory.path(), &flags);
        let load = |(daemon, ()): &(_, _), place, seen: &_| load(daemon, place, seen);
        let all = intake::kill_under_load(|| Some((start()?, ())), 3, load);
        let Some(all) = all else { continue };
        // One start seals what was open, and the other uploads it.
        start().unwrap().end();
        let daemon = start().unwrap();
        wait_until("uploads", || not_uploaded(directory.path()).is_empty());
        wait_until("their removal", || cat(&[], directory.path()).is_empty());
        daemon.end();
        let fetched = fetch(store.path());
        let lines = cat(&[], fetched.path());
        let place = |line: &String| {
            let (numbers, _) = line.rsplit_once(",\"").unwrap();
            let (round, number, sequence) = intake::place(&format!("{numbers}]"));
            (round, number, sequence - 1)
        };
        let places: Vec<_> = lines.iter().map(place).collect();
        intake::check_once_and_in_order(engine, &all, 1, &places);
    }
}

#[test]
fn a_store_that_is_away_holds_nothing_up_and_is_told_once() {
    let (directory, above) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = above.path().join("mounted");
    let flags = ["--segment-size", "1", "--http", "127.0.0.1:0", "--retain-age", "1ms"];
    let upload = url(&store);
    let flags = [&flags[..], &["--upload", &upload]].concat();
    let Some(mut daemon) = start("epoll", directory.path(), &flags) else { return };
    let page = daemon.line();
    let figure = |name: &str| {
        let (text, start) = (ask(&page, "/metrics"), format!("logd_upload_{name} "));
        let value = text.lines().find_map(|line| line.strip_prefix(&start));
        value.unwrap_or_else(|| panic!("no {name}: {text}")).parse::<u64>().unwrap()
    };
    let mut client = Client::new(&daemon, "LOGD 1\n");
    for number in 1..=5_u64 {
        writeln!(client.stream, "{number}").unwrap();
        client.until(number);
    }
    // The last segment ends with the next batch.
    wait_until("segments that wait", || figure("waiting_segments") == 4);
    wait_until("failures", || figure("errors_total") >= 2 && figure("oldest_seconds") >= 1);
    assert_eq!((figure("away"), figure("segments_total")), (1, 0));
    let shown = ask(&page, "/");
    let (_, table) = shown.split_once("id=\"uploads\"").unwrap();
    let (table, _) = table.split_once("</table>").unwrap();
    for part in
        ["<td>0<td>0 B<td>4<td>", "<td class=\"bad\">", "is not a directory: create it, or mount"]
    {
        assert!(table.contains(part), "{part}: {table}");
    }
    assert!(figure("waiting_bytes") > 4 * 64);
    assert_eq!(not_uploaded(directory.path()).len(), 4, "they are kept");
    fs::create_dir(&store).unwrap();
    wait_until("uploads", || figure("segments_total") == 4 && figure("waiting_segments") == 0);
    assert_eq!(
        (figure("away"), figure("oldest_seconds"), figure("lost_segments_total")),
        (0, 0, 0)
    );
    assert!(figure("bytes_total") > 4 * 64);
    drop(client);
    let output = daemon.end();
    for told in ["is not a directory: create it, or mount it", "it works again"] {
        assert_eq!(output.matches(told).count(), 1, "{output}");
    }
    assert_eq!(cat(&[], fetch(&store).path()), ["1", "2", "3", "4"]);
    assert_eq!(cat(&["--from", "4"], directory.path()), ["5"]);
}

#[test]
fn a_build_without_clouds_says_which_build_has_them() {
    let directory = tempfile::tempdir().unwrap();
    let own = ["--upload", "s3://bucket/logs", "--check", "--dir"];
    for (output, does) in [
        (logd(&own, directory.path()), "--upload"),
        (logd(&["fetch", "s3://bucket/logs"], directory.path()), "fetch"),
    ] {
        let said = String::from_utf8(output.stderr).unwrap();
        if cfg!(feature = "cloud") {
            assert!(!said.contains("this build"), "{does}: {said}");
            continue;
        }
        assert_eq!(output.status.code(), Some(2), "{does}: {said}");
        assert!(said.contains("this build has only file://") && said.contains("released binaries"));
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}
