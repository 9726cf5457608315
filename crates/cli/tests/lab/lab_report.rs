//! What the lab says of results that were saved: pages, tables, comparisons, and of files that are
//! none. The page is also looked at in a browser, and walked through by its keys.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
    sync::LazyLock,
};

use serde_json::Value;

use crate::harness::browser::{BROWSER, Page, has_browser};

fn lab(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringwise"));
    command.arg("lab").args(arguments).current_dir(directory).output().unwrap()
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// What a command printed, which must have ended so.
#[track_caller]
fn printed(output: Output, status: i32) -> String {
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "{errors}");
    String::from_utf8(output.stdout).unwrap() + &errors
}

/// What a short run left, with two sizes of blocks and its latencies over time: all tests look at the same one.
fn measured(directory: &Path) {
    static LEFT: LazyLock<Vec<(&str, Vec<u8>)>> = LazyLock::new(|| {
        let directory = self::directory();
        let mut arguments =
            vec!["read", "--profile", "buffered", "--engines", "sync,threads,uring"];
        arguments.extend([
            "--size",
            "4m",
            "--duration",
            "30ms",
            "--repeats",
            "2",
            "--depth",
            "1,4",
        ]);
        arguments.extend(["--block", "4k,32k", "--heatmap", "maps", "--json", "r.json"]);
        let text = printed(lab(directory.path(), &arguments), 0);
        assert!(text.contains("results: r.json\nreport: r.html\n"), "{text}");
        // The directory of the maps is for other programs.
        let files = ["r.json", "r.html"].into_iter();
        files.map(|name| (name, fs::read(directory.path().join(name)).unwrap())).collect()
    });
    for (name, content) in LEFT.iter() {
        fs::write(directory.join(name), content).unwrap();
    }
}

fn results(directory: &Path, name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(directory.join(name)).unwrap()).unwrap()
}

fn save(directory: &Path, name: &str, value: &Value) {
    fs::write(directory.join(name), value.to_string()).unwrap();
}

#[test]
fn what_was_measured_is_drawn_again_from_its_file() {
    let directory = directory();
    let path = directory.path();
    measured(path);
    let mut arguments = vec!["report", "r.json", "--html", "again.html", "--csv", "r.csv"];
    arguments.extend(["--fio-json", "fio.json", "--markdown"]);
    let markdown = printed(lab(path, &arguments), 0);
    let page = fs::read_to_string(path.join("r.html")).unwrap();
    assert_eq!(fs::read_to_string(path.join("again.html")).unwrap(), page);
    assert!(page.len() < 2 << 20, "{} bytes", page.len());
    for part in ["Operations per second by depth", "MiB per second by block size", "CPU time per"] {
        assert!(page.contains(part), "{part:?} is not in the page");
    }
    let document = results(path, "r.json");
    let rows = document["results"].as_array().unwrap();
    let valid: Vec<&Value> = rows.iter().filter(|row| row["void"].is_null()).collect();
    for row in &valid {
        let histogram = row["histogram"].as_str().unwrap();
        let latency = ringwise_measure::Latency::from_base64(histogram).unwrap();
        assert_eq!(latency.percentiles().p99_9, row["latency_ns"]["p99_9"].as_u64().unwrap());
        let samples = row["samples"].as_array().unwrap();
        let operations: u64 = samples.iter().map(|own| own["operations"].as_u64().unwrap()).sum();
        assert_eq!(latency.count(), operations);
        assert_eq!(row["heat"].as_array().unwrap().len(), samples.len());
        assert!(markdown.contains(&format!("| {} | ", row["engine"].as_str().unwrap())));
    }
    let csv = fs::read_to_string(path.join("r.csv")).unwrap();
    assert_eq!(csv.lines().count(), rows.len() + 1);
    let fio = results(path, "fio.json");
    assert_eq!(fio["jobs"].as_array().unwrap().len(), valid.len());
    let several = printed(lab(path, &["report", "r.json", "r.json", "--html", "two.html"]), 0);
    assert!(several.is_empty(), "{several}");
    let page = fs::read_to_string(path.join("two.html")).unwrap();
    assert!(page.contains("ringwise lab, 2 runs") && page.contains("r (2)"));
}

#[test]
fn a_regression_is_an_exit_status() {
    let directory = directory();
    let path = directory.path();
    measured(path);
    let text = printed(lab(path, &["compare", "r.json", "r.json"]), 0);
    assert!(text.contains("no regression past 5%"), "{text}");
    // The same rate in every sample: a busy machine is not what is tested.
    let with_rate = |share: f64| {
        let mut run = results(path, "r.json");
        for row in run["results"].as_array_mut().unwrap() {
            if row["engine"] == "sync" && row["void"].is_null() {
                let rate = row["ops_per_s"].as_f64().unwrap() * share;
                row["ops_per_s"] = rate.into();
                let samples = row["samples"].as_array_mut().unwrap();
                samples.iter_mut().for_each(|own| own["ops_per_s"] = rate.into());
            }
        }
        run
    };
    save(path, "even.json", &with_rate(1.0));
    let mut slower = with_rate(1e-6);
    slower["environment"]["kernel"] = "2.6.32".into();
    save(path, "slower.json", &slower);
    let text =
        printed(lab(path, &["compare", "even.json", "slower.json", "--threshold", "10%"]), 1);
    for part in ["differs: kernel: ", "slower", "2 regressions past 10%: sync at depth 1: slower"] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    // The other way round it is faster.
    printed(lab(path, &["compare", "slower.json", "even.json"]), 0);
    for section in slower["sections"].as_array_mut().unwrap() {
        section["title"] = "something else".into();
    }
    save(path, "other.json", &slower);
    let text = printed(lab(path, &["compare", "r.json", "other.json"]), 1);
    assert!(text.starts_with("ringwise: lab: nothing to compare"), "{text}");
    assert_eq!(text.matches('\n').count(), 1, "{text}");
}

#[test]
fn what_is_no_results_file_is_said_in_a_line() {
    let directory = directory();
    let path = directory.path();
    let whole = "{\"schema\": \"ringwise.lab/1\",\n\"version\": \"0\"}";
    for (name, text) in [
        ("empty.json", ""),
        ("cut.json", &whole[..30]),
        ("wrong.json", "<html>"),
        ("later.json", "{\"schema\": \"ringwise.lab/2\"}"),
        ("load.json", "{\"schema\": \"ringwise.load.echo/1\"}"),
        ("bare.json", whole),
    ] {
        fs::write(path.join(name), text).unwrap();
    }
    fs::write(path.join("keys.json"), "{\"depht\": 3}").unwrap();
    for (arguments, status, part) in [
        (
            &["report", "none.json"][..],
            1,
            "reading none.json: No such file or directory; name an existing file",
        ),
        (&["report", "empty.json"], 1, "empty.json: is empty"),
        (&["report", "cut.json"], 1, "cut.json: ends in the middle"),
        (&["report", "wrong.json"], 1, "wrong.json: is not JSON"),
        (&["report", "later.json"], 1, "ringwise.lab/2, and this program reads ringwise.lab/1"),
        (&["report", "load.json"], 1, "load.json: is of schema \"ringwise.load.echo/1\""),
        (&["compare", "bare.json", "bare.json"], 1, "bare.json: is damaged or was changed by hand"),
        (&["compare", "bare.json"], 2, "<NEW>"),
        (
            &["compare", "a", "b", "--threshold", "x"],
            2,
            "--threshold: invalid value 'x': expected a share",
        ),
        (&["report"], 2, "<JSON>"),
        (&["report", "a", "--htm", "x"], 2, "--html"),
        (&["report", "a", "b", "--fio-json", "x"], 2, "--fio-json: expected one results file"),
        (&["--config", "keys.json"], 2, "unknown field `depht`"),
    ] {
        let output = lab(path, arguments);
        assert!(output.stdout.is_empty());
        let text = printed(output, status);
        assert!(text.starts_with("ringwise: ") && text.contains(part), "{arguments:?}: {text}");
        assert_eq!(text.matches('\n').count(), 1, "{text}");
    }
}

/// A browser without a window, which writes what it is told into a file or to its output.
fn browser(directory: &Path, arguments: &[&str], page: &str) -> Option<Output> {
    let mut command = Command::new("timeout");
    command.arg("60").args(BROWSER.split_whitespace());
    command.args(["--disable-sync", "--enable-logging=stderr", "--hide-scrollbars"]);
    command.arg(format!("--user-data-dir={}", directory.join("profile").display()));
    let page = format!("file://{}", directory.join(page).display());
    let output = command.args(arguments).arg(page).current_dir(directory).output().ok()?;
    output.status.success().then_some(output)
}

/// Width and height, from a PNG's header (RFC 2083, 4.1.1).
fn size_of_picture(bytes: &[u8]) -> (u32, u32) {
    assert_eq!(&bytes[1..4], b"PNG");
    let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    (number(16), number(20))
}

#[test]
fn a_browser_shows_the_page_by_day_by_night_and_on_a_phone() {
    if !has_browser() {
        return;
    }
    let directory = directory();
    let path = directory.path();
    measured(path);
    // A page on which everything is broken, to know that the browser says so.
    fs::write(path.join("bad.html"), "<script>console.error('seen')</script>").unwrap();
    let Some(bad) = browser(path, &["--dump-dom"], "bad.html") else {
        assert!(std::env::var_os("CI").is_none(), "chromium does not start here");
        println!("skipped: chromium does not start here");
        return;
    };
    assert!(String::from_utf8_lossy(&bad.stderr).contains("CONSOLE"), "its console is not heard");
    let dom = browser(path, &["--dump-dom"], "r.html").unwrap();
    let errors = String::from_utf8_lossy(&dom.stderr);
    assert!(!errors.contains("CONSOLE"), "{errors}");
    let dom = String::from_utf8_lossy(&dom.stdout);
    assert!(dom.matches("<svg class=\"chart\"").count() >= 6, "charts are missing");
    assert!(dom.contains("<svg class=\"heat\""), "latencies over time are missing");
    let picture = |size: &str, more: &str| {
        let arguments = ["--screenshot=p.png", &format!("--window-size={size}"), more];
        browser(path, &arguments, "r.html").unwrap();
        fs::read(path.join("p.png")).unwrap()
    };
    let day = picture("1280,1600", "--blink-settings=preferredColorScheme=1");
    let night = picture("1280,1600", "--blink-settings=preferredColorScheme=0");
    let phone = picture("390,1600", "--blink-settings=preferredColorScheme=1");
    assert_eq!((size_of_picture(&day), size_of_picture(&phone)), ((1280, 1600), (390, 1600)));
    // An empty page of that size takes some 10 kB.
    assert!([&day, &night, &phone].iter().all(|picture| picture.len() > 40_000));
    assert_ne!(day, night, "the same by night");
    if let Some(kept) = std::env::var_os("RINGWISE_SCREENSHOTS") {
        for (name, picture) in [("day", &day), ("night", &night), ("phone", &phone)] {
            fs::write(Path::new(&kept).join(format!("{name}.png")), picture).unwrap();
        }
    }
}

/// How many stops a walk through the page has: the page keeps them as `stops`.
fn stops(page: &mut Page) -> u64 {
    // Whatever can be followed, opened or scrolled, in the order of the text.
    let all = "[...document.querySelectorAll('*')].filter(element => element.matches('a[href], button, summary') \
               || (element.matches('.wide') && element.scrollWidth > element.clientWidth + 1 \
               && ['auto', 'scroll'].includes(getComputedStyle(element).overflowX)))";
    // What is folded takes part: it is unfolded on the way.
    let fold = |is_open: bool| {
        format!(
            "document.querySelectorAll('details').forEach(fold => fold.open = {is_open}) === undefined"
        )
    };
    assert_eq!(page.look(&fold(true)), true);
    let count = page.look(&format!("(window.stops = {all}).length")).as_u64().unwrap();
    assert_eq!(page.look(&fold(false)), true);
    assert!(count >= 8, "{count} stops");
    assert!(page.look("stops.filter(stop => stop.matches('button')).length").as_u64() >= Some(3));
    assert!(page.look("stops.filter(stop => stop.matches('.wide')).length").as_u64() >= Some(1));
    assert!(page.look("stops.filter(stop => stop.matches('summary')).length").as_u64() >= Some(6));
    count
}

/// From the first link to the last region by the Tab key alone, each seen to have the focus; links are
/// followed, details opened and wide tables scrolled by keys.
#[test]
fn keys_alone_lead_through_the_page() {
    if !has_browser() {
        return;
    }
    let directory = directory();
    measured(directory.path());
    let mut page = Page::open(directory.path(), "r.html");
    page.is_for_everybody(6);
    let count = stops(&mut page);
    let mut at = 0;
    while at < count {
        page.press("Tab");
        // A region that is not too wide here may have the focus too.
        let place = page.look("stops.indexOf(document.activeElement)").as_i64().unwrap();
        let is_region = page.look("document.activeElement.matches('[role=region]')");
        assert!(place == at as i64 || (place < 0 && is_region == true), "{place} at stop {at}");
        let outline = "getComputedStyle(document.activeElement).outlineStyle != 'none'";
        assert_eq!(page.look(outline), true, "nothing shows that stop {at} has the focus");
        if place < 0 {
            continue;
        }
        page.look(&format!("window.at = {at}"));
        at += 1;
        match page.look("document.activeElement.tagName").as_str().unwrap() {
            "BUTTON" => {
                page.press("Enter");
                page.wait_for("document.activeElement.ariaExpanded == 'true'");
                // What opened has its figures read by keys, and goes again.
                page.press("Tab");
                page.press("ArrowRight");
                page.wait_for(
                    "document.activeElement.matches('.explored:has(canvas)') && \
                     /[0-9]/.test(document.activeElement.querySelector('.u-series:nth-child(2) .u-value').textContent)",
                );
                page.look("stops[window.at].focus()");
                page.press("Enter");
                page.wait_for("document.activeElement.ariaExpanded == 'false'");
            }
            "SUMMARY" => {
                page.press("Enter");
                page.wait_for("document.activeElement.parentElement.open");
            }
            "DIV" => {
                page.press("ArrowRight");
                page.wait_for("document.activeElement.scrollLeft > 0");
            }
            _ => {}
        }
    }
    page.reload();
    page.press("Tab");
    // Hidden but for who comes to it by keys.
    page.wait_for("document.activeElement.matches('.skip')");
    assert!(page.look("document.activeElement.getBoundingClientRect().left").as_f64() >= Some(0.0));
    page.press("Enter");
    page.wait_for("location.hash == '#summary' && document.activeElement.id == 'summary'");
    // A busy machine paints after it has answered to keys.
    page.wait_for("performance.getEntriesByName('first-contentful-paint').length == 1");
    let painted = "performance.getEntriesByName('first-contentful-paint')[0].startTime";
    println!("first paint after {} ms", page.look(painted));
}
