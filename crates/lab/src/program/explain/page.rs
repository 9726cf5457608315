//! The figures of a trace as a page: drawings of the lab's charts, a table, and the prediction.
//!
//! The page fetches nothing and has no script. Every mark of a drawing has its figure as a title, and the table has the
//! figures for those who cannot see the drawings.

use std::collections::BTreeMap;

use maud::{Markup, PreEscaped, html};
use ringwise_measure::quantity::{bytes_text, latency_text, size_text};

use super::{
    analysis::{Analysis, Group},
    in_flight::SLICES,
    prediction::Prediction,
    text::{facts, heading},
};
use crate::{
    program::traced::Traced,
    results::report::{
        chart::{Bar, Bars, Lines, Point, Series},
        heatmap::{Recorded, for_page},
        page::without_script,
    },
    workload::form::columns::grouped,
};

/// So many threads are drawn.
const THREADS_MAX: usize = 12;
/// So many places on the axis of time have a figure.
const TIME_TICKS: usize = 5;

/// The page.
pub(crate) fn text(
    traced: &Traced,
    analysis: &Analysis,
    prediction: &Prediction,
    measured: &[String],
) -> String {
    let title = format!("ringwise lab explain: {}", traced.program());
    let missing = traced.missing();
    let body = html! {
        a.skip href="#prediction" { "To the prediction" }
        header { h1 { (title) } p { (heading(traced, analysis)) } }
        main {
            @if !missing.is_empty() {
                h2 { "What is missing" }
                ul.notes { @for sentence in &missing { li { (sentence) } } }
            }
            section id="prediction" {
                h2 { "Prediction" }
                ul { @for sentence in prediction.sentences().iter().chain(measured) { li { (sentence) } } }
            }
            section id="figures" {
                h2 { "Where the time goes" }
                (table(analysis))
                ul.notes { @for fact in facts(analysis) { li { (fact) } } }
                div.charts { @for drawing in drawings(traced, analysis) { (drawing) } }
            }
            section id="latency" { h2 { "Latency over time" } (heatmap(analysis)) }
        }
    };
    without_script(&title, &body)
}

fn table(analysis: &Analysis) -> Markup {
    let percent = |share: Option<f64>| {
        share.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share * 100.0))
    };
    html! {
        div.wide tabindex="0" role="region" aria-label="Operations" {
            table.figures {
                thead { tr {
                    @for name in ["", "operations", "bytes", "median size", "waited", "sequential", "cached", "p50", "p99"] {
                        th scope="col" { (name) }
                    }
                } }
                tbody { @for (group, own) in analysis.groups() { tr {
                    th scope="row" { (group.name()) }
                    td { (grouped(own.operations as f64)) }
                    td { (bytes_text(own.bytes)) }
                    td { (bytes_text(own.median_bytes())) }
                    td { (latency_text(own.waited_ns as f64)) }
                    td { (percent(own.sequential_share())) }
                    td { (percent(own.cached_share())) }
                    td { (latency_text(own.latency.quantile_ns(0.5) as f64)) }
                    td { (latency_text(own.latency.quantile_ns(0.99) as f64)) }
                } } }
            }
        }
    }
}

fn drawings(traced: &Traced, analysis: &Analysis) -> Vec<Markup> {
    let bars = [threads(traced, analysis), order(analysis), sources(analysis)];
    let mut drawn: Vec<Markup> = in_flight(analysis).into_iter().collect();
    drawn.extend(bars.iter().filter_map(figure));
    drawn.extend(sizes(analysis).iter().chain(&sync_gaps(analysis)).filter_map(figure));
    drawn
}

fn figure(bars: &Bars) -> Option<Markup> {
    let drawing = bars.draw()?;
    Some(html! {
        figure {
            figcaption { (bars.title) }
            (PreEscaped(bars.legend()))
            (PreEscaped(drawing))
        }
    })
}

fn in_flight(analysis: &Analysis) -> Option<Markup> {
    let own = &analysis.in_flight.by_slice;
    let points = own.iter().enumerate();
    let points = points.map(|(at, &count)| Point { x: at as f64, y: count, interval: None });
    let tick = |tick: usize| {
        let time = analysis.elapsed_ns as f64 * tick as f64 / TIME_TICKS as f64;
        ((SLICES - 1) as f64 * tick as f64 / TIME_TICKS as f64, latency_text(time))
    };
    let lines = Lines {
        title: "Operations in flight over time, on average".to_owned(),
        x_name: "time since the recording began".to_owned(),
        x_ticks: (0..=TIME_TICKS).map(tick).collect(),
        format: |count| format!("{count:.2}"),
        is_log: false,
        is_time: false,
        series: vec![Series { name: "in flight".to_owned(), kind: 0, points: points.collect() }],
    };
    let drawing = lines.draw()?;
    Some(html! { figure { figcaption { (lines.title) } (PreEscaped(drawing)) } })
}

fn threads(traced: &Traced, analysis: &Analysis) -> Bars {
    let bars = analysis.threads.iter().take(THREADS_MAX).map(|(id, time)| {
        let thread = traced.thread(*id);
        let name = thread.map_or_else(String::new, |own| format!("{} {}", own.name, own.tid));
        let part =
            |group: Group| (group.name(), time.by_group[group as usize] as f64, group as usize);
        let parts = Group::ALL.into_iter().map(part).filter(|(_, ns, _)| *ns > 0.0);
        Bar { name, parts: parts.collect(), interval: None }
    });
    Bars {
        title: "Time that threads spent waiting".to_owned(),
        format: latency_text,
        bars: bars.collect(),
    }
}

fn order(analysis: &Analysis) -> Bars {
    let files = analysis.groups().filter(|(_, own)| own.sequential + own.random > 0);
    let bars = files.map(|(group, own)| Bar {
        name: group.name().to_owned(),
        parts: vec![("sequential", own.sequential as f64, 0), ("random", own.random as f64, 1)],
        interval: None,
    });
    Bars {
        title: "Sequential and random operations".to_owned(),
        format: grouped,
        bars: bars.collect(),
    }
}

fn sources(analysis: &Analysis) -> Bars {
    let reads = analysis.group(Group::Reads);
    let unknown = reads.bytes - reads.cache_bytes - reads.device_bytes;
    let parts = [
        ("page cache", reads.cache_bytes as f64, 2),
        ("device", reads.device_bytes as f64, 1),
        ("unknown", unknown as f64, 7),
    ];
    let parts: Vec<_> = parts.into_iter().filter(|(_, bytes, _)| *bytes > 0.0).collect();
    let bars = match parts.is_empty() {
        true => Vec::new(),
        false => vec![Bar { name: "reads".to_owned(), parts, interval: None }],
    };
    Bars {
        title: "Where the bytes of reads came from".to_owned(),
        format: |bytes| bytes_text(bytes as u64),
        bars,
    }
}

/// For each group that moves bytes, the operations by the power of two of their size.
fn sizes(analysis: &Analysis) -> Vec<Bars> {
    let moving = analysis.groups().filter(|(group, own)| *group != Group::Syncs && own.bytes > 0);
    let of = |(group, own): (Group, &super::analysis::Counted)| {
        let title = format!("Sizes of {}, by powers of two", group.name());
        powers(title, &own.sizes, ("operations", group), bytes_from)
    };
    moving.map(of).collect()
}

/// What is between two syncs of a thread: the time, and the bytes written.
fn sync_gaps(analysis: &Analysis) -> [Bars; 2] {
    let of = |what: &str, counts, from| {
        let title = format!("{what} between two syncs of a thread, by powers of two");
        powers(title, counts, ("gaps", Group::Syncs), from)
    };
    let time_from = |from: u64| format!("from {}", latency_text(from as f64));
    let gaps = &analysis.sync_gaps;
    [of("Time", &gaps.times, time_from), of("Bytes written", &gaps.sizes, bytes_from)]
}

fn bytes_from(from: u64) -> String {
    if from == 0 { "0 bytes".to_owned() } else { format!("from {} bytes", size_text(from)) }
}

/// A bar for each power of two, with the number that it begins with.
fn powers(
    title: String,
    counts: &BTreeMap<u32, u64>,
    (what, group): (&'static str, Group),
    name: fn(u64) -> String,
) -> Bars {
    let bar = |(power, count): (&u32, &u64)| Bar {
        name: name(power.checked_sub(1).map_or(0, |power| 1 << power)),
        parts: vec![(what, *count as f64, group as usize)],
        interval: None,
    };
    Bars { title, format: grouped, bars: counts.iter().map(bar).collect() }
}

fn heatmap(analysis: &Analysis) -> Markup {
    let titles = ("All operations".to_owned(), "by when they ended".to_owned());
    let seconds = analysis.elapsed_ns as f64 / 1e9;
    let latency = analysis.latency.percentiles();
    let recorded = Recorded::of(titles, std::slice::from_ref(&analysis.heat), seconds, latency);
    html! {
        div.heats {
            @for drawing in for_page(&[recorded]) {
                div.wide tabindex="0" role="region" aria-label="Latency over time" { (PreEscaped(drawing)) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ringwise_trace::{Kind, Operation, Source};

    use super::*;
    use crate::program::traced::tests::{operation, traced};

    #[test]
    fn the_page_has_its_drawings_with_words_and_escapes_names() {
        let read = operation(1, Kind::Read, (0, 500_000));
        let mut trace = traced(vec![
            Operation { source: Source::Cache, ..read },
            operation(2, Kind::Write, (100, 500_000)),
            operation(1, Kind::Sync, (600_000, 100_000)),
            operation(1, Kind::Sync, (900_000, 100_000)),
        ]);
        trace.header.command = vec!["<script>x</script>".to_owned()];
        let analysis = Analysis::of(&trace);
        let page = text(&trace, &analysis, &Prediction::of(&analysis), &["told".to_owned()]);
        assert!(!page.contains("<script") && page.contains("&lt;script&gt;"), "escaped");
        for part in [
            "aria-label=\"Operations in flight over time, on average\"",
            "aria-label=\"Time that threads spent waiting\"",
            "aria-label=\"Sequential and random operations\"",
            "aria-label=\"Where the bytes of reads came from\"",
            "reads: page cache 4.0 KiB",
            "aria-label=\"Sizes of reads, by powers of two\"",
            "aria-label=\"Time between two syncs of a thread, by powers of two\"",
            "aria-label=\"Bytes written between two syncs of a thread, by powers of two\"",
            "aria-label=\"All operations\"",
            "<li>told</li>",
            "lang=\"en\"",
        ] {
            assert!(page.contains(part), "{part} is not in the page");
        }
        let drawings = page.matches("<svg").count();
        assert_eq!(
            drawings,
            page.matches("role=\"img\"").count() + page.matches("aria-hidden").count()
        );
        for rest in page.split("<svg class=\"chart\"").skip(1) {
            let end = rest.find("</svg>").unwrap();
            roxmltree::Document::parse(&format!("<svg{}</svg>", &rest[..end])).unwrap();
        }
    }
}
