//! The page as its readers find it: whole, safe and small, whatever the results hold.

use serde_json::Value;

use super::*;
use crate::{
    results::section::{KNEE, OFFERED, SAMPLE_P99},
    testing::{saved_text, section},
};

fn saved(change: impl FnOnce(&mut Value)) -> Saved {
    let mut value: Value = serde_json::from_str(&saved_text()).unwrap();
    change(&mut value);
    let saved = Saved::parse(&value.to_string()).unwrap();
    Saved { name: "run".to_owned(), ..saved }
}

/// The page as XML: it is written so that it is both.
fn parsed(page: &str) -> String {
    let body = page.split_once("<body>").unwrap().1.split_once("</body>").unwrap().0;
    format!("<body>{body}</body>")
}

#[test]
fn a_page_says_and_draws_what_was_measured() {
    let page = text(&[saved(|_| {})]);
    for part in [
        "<div><dt>read</dt><dd>You use a thread pool with 32 reads in flight (O_DIRECT 4k): io_uring \
         gives 1.25 ",
        "<th scope=\"row\">measurable iopoll</th><td>not measurable here: ",
        "<span class=\"verdict win\">use it</span> the ring is faster, or as fast with less CPU time",
        "<li>not measurable here: energy, hardware counters, IOPOLL, NVMe passthrough</li>",
        "<summary>What a change gives, times today</summary>",
        "the best: uring at depth 32",
        "1.25 [1.25, 1.25]",
        "keeps 32 requests in flight from one thread",
        "<b>mmap at depth 1</b>: not measurable here: a mapping always goes through the page cache",
        "uring is 1.25 [1.25, 1.25] times uring-registered-files",
        "uring at 32: 100 k [100 k, 100 k]",
        "Latency by percentile at depth 32",
        "uring, depth 32: process with the kernel&#39;s workers 3.00 µs",
        "<th scope=\"row\">flag seed</th><td>7</td>",
        "<th scope=\"row\">littles law tolerance</th><td>5 %</td>",
        "ringwise lab, 2026-11-21 07:24 UTC",
    ] {
        assert!(page.contains(part), "{part:?} is not in:\n{page}");
    }
    let body = parsed(&page);
    let document = roxmltree::Document::parse(&body).unwrap();
    let cells = document.descendants().filter_map(|node| node.attribute("data-reads"));
    let reads: u64 = cells.map(|count| count.parse::<u64>().unwrap()).sum();
    assert_eq!(reads, 2000, "the latencies over time of two samples");
    let charts = document.descendants().filter(|node| node.attribute("class") == Some("chart"));
    assert_eq!(charts.count(), 4, "throughput, two of latencies, CPU");
}

#[test]
fn the_knee_of_an_offered_load_is_in_its_drawing() {
    let page = text(&[saved(|value| {
        value["sections"][0]["depth_is"] = OFFERED.into();
        for row in value["results"].as_array_mut().unwrap() {
            row[SAMPLE_P99] = 90_000.into();
            let is_knee = row["engine"] == "uring" && row["depth"] == 32;
            row["remarks"] = if is_knee { vec![KNEE].into() } else { Value::Array(Vec::new()) };
        }
    })]);
    for part in [
        "uring (the knee is at 32.00/s) at 32.00: 90.0 µs",
        "</svg>uring (the knee is at 32.00/s)</li>",
    ] {
        assert!(page.contains(part), "{part:?} is not in:\n{page}");
    }
    assert_eq!(page.matches("</svg>uring (the knee").count(), 1);
}

/// Each starting point of a workload has one line, with the deepest ring for what does one thing at a time.
#[test]
fn a_workload_has_a_matrix_of_its_starting_points() {
    let body = parsed(&text(&[saved(|_| {})]));
    let document = roxmltree::Document::parse(&body).unwrap();
    let has_class = |node: &roxmltree::Node<'_, '_>, class| node.attribute("class") == Some(class);
    let matrix = document.descendants().find(|node| has_class(node, "matrix")).unwrap();
    let text = |node: roxmltree::Node<'_, '_>| {
        let parts = node.descendants().filter_map(|part| part.text().filter(|_| part.is_text()));
        parts.collect::<String>()
    };
    let lines = matrix.descendants().filter(|node| node.has_tag_name("tr")).skip(1);
    let cells = |line: roxmltree::Node<'_, '_>| line.children().map(text).collect::<Vec<_>>();
    let found: Vec<Vec<String>> = lines.map(cells).collect();
    let title = &section().title;
    let deep = "uring at 32 gain throughput 6.67, p99 4.85, CPU 1.00";
    let same = "uring gain throughput 1.25, p99 1.00, CPU 0.43";
    assert_eq!(
        found,
        [
            [title, "sync, depth 1", deep, deep],
            [title, "mmap, depth 1", "-", "sync excluded"],
            [title, "threads, depth 32", same, same],
        ]
    );
}

/// A browser paints this much at once: the page of a quick suite has some 7000 elements in 300 KB,
/// which headless Chromium painted within 0.6 s on two busy processors.
#[test]
fn the_page_of_a_whole_suite_is_small() {
    let one: Value = serde_json::from_str(&saved_text()).unwrap();
    let many = saved(|value| {
        const SECTIONS: usize = 30;
        for list in ["sections", "results", "verdicts", "comparisons", "gains"] {
            let items = one[list].as_array().unwrap();
            let copies = (0..SECTIONS).flat_map(|section| {
                items.iter().cloned().map(move |mut item| {
                    if list != "sections" {
                        item["section"] = section.into();
                    }
                    item
                })
            });
            value[list] = copies.collect();
        }
    });
    let page = text(&[many]);
    let body = parsed(&page);
    let document = roxmltree::Document::parse(&body).unwrap();
    let elements = document.descendants().filter(roxmltree::Node::is_element).count();
    assert!((1000..20_000).contains(&elements), "{elements} elements");
    assert!(page.len() < 1 << 20, "{} bytes", page.len());
}

#[test]
fn nothing_is_fetched_and_the_body_needs_no_script() {
    let page = text(&[saved(|_| {})]);
    assert!(page.contains("content=\"default-src 'none'; "), "the browser sees to it");
    for part in [" src=", "@import", "url(", "javascript:", "import(", "fetch("] {
        assert!(!page.contains(part), "{part}");
    }
    let body = parsed(&page);
    for part in ["<script", "onclick"] {
        assert!(!body.contains(part), "{part}");
    }
    let links = body.match_indices("http").map(|(at, _)| &body[at..(at + 30).min(body.len())]);
    links.for_each(|link| assert!(link.starts_with("http://www.w3.org/2000/svg"), "{link}"));
}

#[test]
fn the_library_comes_with_its_licence_and_the_figures_that_are_drawn() {
    let page = text(&[saved(|_| {})]);
    assert!(
        page.contains("Permission is hereby granted, free of charge") && page.contains("v1.6.32")
    );
    let body = parsed(&page);
    let document = roxmltree::Document::parse(&body).unwrap();
    let data = document.descendants().filter_map(|node| node.attribute("data-lines"));
    let charts: Vec<Value> = data.map(|text| serde_json::from_str(text).unwrap()).collect();
    assert_eq!(charts.len(), 3, "throughput, two of latencies");
    let rates = charts.iter().find(|chart| chart["isTime"] == false).unwrap();
    let ring = rates["series"].as_array().unwrap().iter().find(|one| one["name"] == "uring");
    let last = ring.unwrap()["points"].as_array().unwrap().last().unwrap();
    assert_eq!((&last[0], &last[4]), (&5.0.into(), &"100 k [100 k, 100 k]".into()), "{last}");
    assert!(rates["ticks"].as_array().unwrap().contains(&serde_json::json!([5.0, "32"])));
}

#[test]
fn what_results_hold_cannot_become_tags() {
    let evil = "<script>alert(1)</script>\"' onload=x &";
    let page = text(&[saved(|value| {
        for row in value["results"].as_array_mut().unwrap() {
            row["engine"] = evil.into();
            row["detail"] = evil.into();
            row["remarks"] = vec![evil].into();
            row[evil] = evil.into();
        }
        value["results"][1]["void"] = evil.into();
        value["sections"][0]["title"] = evil.into();
        value["sections"][0]["notes"] = vec![evil].into();
        value["sections"][0]["depth_is"] = evil.into();
        value["verdicts"][0]["reason"] = evil.into();
        value["verdicts"][0]["verdict"] = evil.into();
        value["verdicts"][0]["advice"] = evil.into();
        for field in ["today", "place", "effect", "advice", "loss"] {
            value["answers"][0][field] = evil.into();
        }
        value["left_out"] = serde_json::json!([{"workload": evil, "reason": evil}]);
        for field in ["from", "today", "to", "reason"] {
            value["gains"][0][field] = evil.into();
        }
        value["environment"]["kernel"] = evil.into();
        value["environment"][evil] = evil.into();
        value["sections"][0]["advice"] = vec![evil].into();
        value["version"] = evil.into();
    })]);
    assert_eq!(page.matches("<script").count(), 2, "the library and its use");
    let body = parsed(&page);
    let document = roxmltree::Document::parse(&body).unwrap();
    assert!(document.descendants().all(|node| node.attribute("onload").is_none()));
}

#[test]
fn advice_and_costs_of_switches_are_on_the_page() {
    let page = text(&[saved(|value| {
        let section = &mut value["sections"][0];
        section["advice"] = vec!["raise the depth to 16"].into();
        section["break_even"] =
            serde_json::json!({"dimension": "depth", "from": 4, "measured": [1, 32]});
        section["switches"] = serde_json::json!([{"depth": 32, "engine": "uring+sqpoll",
            "baseline": "uring", "switch": "+sqpoll", "cost_ns": 100.0, "cost_ns_low": 90.0,
            "cost_ns_high": 110.0, "ratio": {"low": 1.1, "mid": 1.2, "high": 1.3}, "is_told": true}]);
    })]);
    let told = "break-even: the ring wins from depth 4 on; raise the depth to 16</li>";
    assert!(page.contains(told), "{page}");
    assert!(page.contains("<li>advice: raise the depth to 16</li>"), "{page}");
    assert!(page.contains("sqpoll") && page.contains("<li>depth 32: "), "{page}");
}

#[test]
fn runs_stand_beside_each_other() {
    let other = saved(|value| {
        value["environment"]["kernel"] = "7.0".into();
        value["partial"] = true.into();
    });
    let page = text(&[saved(|_| {}), other]);
    for part in [
        "ringwise lab, 2 runs",
        "<h3>1: run</h3>",
        "<h3>2: run</h3>",
        "run (2)",
        "<tr class=\"differs\"><th scope=\"row\">kernel</th>",
        "partial: interrupted",
        "the run is partial",
    ] {
        assert!(page.contains(part), "{part:?} is not in:\n{page}");
    }
    assert_eq!(page.matches("<section id=\"part-").count(), 1, "one topic");
    roxmltree::Document::parse(&parsed(&page)).unwrap();
}

#[test]
fn sizes_of_blocks_are_a_curve() {
    let mut larger = section();
    larger.title = "read direct random, 32k blocks, O_DIRECT".to_owned();
    let text_of_both = crate::testing::saved(vec![section(), larger]);
    let mut value: Value = serde_json::from_str(&text_of_both).unwrap();
    for row in value["results"].as_array_mut().unwrap() {
        let is_second = row["section"] == 1;
        row["block_bytes"] = if is_second { 32_768 } else { 4096 }.into();
    }
    let page = text(&[Saved::parse(&value.to_string()).unwrap()]);
    assert_eq!(page.matches("MiB per second by block size at depth 32").count(), 2, "{page}");
    assert!(page.contains("uring at 32k: 391"), "{page}");
}

/// The first screen is open and comes before everything that is folded; tables are all folded.
#[test]
fn answers_come_first_and_tables_are_folded() {
    let page = text(&[saved(|_| {})]);
    let body = parsed(&page);
    let document = roxmltree::Document::parse(&body).unwrap();
    let is = |name: &'static str| move |node: &roxmltree::Node<'_, '_>| node.has_tag_name(name);
    let tables: Vec<roxmltree::Node<'_, '_>> = document.descendants().filter(is("table")).collect();
    assert!(tables.len() >= 5, "verdicts, gains, figures, the machine, the method");
    for table in tables {
        let fold = table.ancestors().find(is("details")).expect("folded");
        assert_eq!(fold.attribute("open"), None);
        let summary = fold.first_element_child().filter(is("summary"));
        assert!(summary.and_then(|own| own.text()).is_some_and(|text| !text.is_empty()));
    }
    let place = |part: &str| body.find(part).unwrap_or_else(|| panic!("{part}"));
    assert!(place("<dl class=\"answers\">") < place("<details>"));
    assert!(place("<dl class=\"answers\">") < place("<svg class=\"chart\""));
}

/// What was saved before there were answers has its charts and tables, and says why it has none.
#[test]
fn a_file_of_before_is_a_page_too() {
    let page = text(&[saved(|value| {
        for field in ["gains", "answers", "left_out"] {
            value.as_object_mut().unwrap().remove(field);
        }
        value["verdicts"][0]["verdict"] = "cannot be told here".into();
    })]);
    for part in ["This file has no answers.", "verdict unknown\">inconclusive</span>", "Figures"] {
        assert!(page.contains(part), "{part:?} is not in:\n{page}");
    }
    assert!(!page.contains("cannot be told here") && !page.contains("What a change gives"));
    roxmltree::Document::parse(&parsed(&page)).unwrap();
}

#[test]
fn nothing_measured_is_a_page_too() {
    let page = text(&[saved(|value| {
        for list in ["results", "verdicts", "comparisons", "gains", "answers", "sections"] {
            value[list] = Value::Array(Vec::new());
        }
    })]);
    assert!(page.contains("or nothing was measured"));
    roxmltree::Document::parse(&parsed(&page)).unwrap();
}

#[test]
fn drawings_stop_where_the_page_would_grow_too_large() {
    let page = text(&[saved(|value| {
        let cells: Vec<[usize; 3]> =
            (0..120 * 80).map(|cell| [cell / 80, cell % 80, 1 + cell % 50]).collect();
        let cells = serde_json::to_value(vec![cells; 2]).unwrap();
        let row = value["results"][3].clone();
        for at in 0..40 {
            let mut row = row.clone();
            row["engine"] = format!("uring{at}").into();
            row["heat"] = cells.clone();
            value["results"].as_array_mut().unwrap().push(row);
        }
    })]);
    assert!(page.len() <= BYTES_MAX, "{} bytes", page.len());
    assert!(page.contains("more are left out to keep this page small"));
}
