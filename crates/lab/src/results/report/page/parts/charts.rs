//! Which charts a section has: throughput over depth, and over block sizes where it was measured
//! with several; with offered load the 99th percentile over that; the distribution of latencies; CPU
//! time by whose it is.

use maud::{Markup, PreEscaped, html};
use ringwise_measure::{
    quantity::{latency_text, size_text},
    statistics::Ratio,
};

use crate::results::{
    report::{
        chart::{Bar, Bars, Lines, Point, Series},
        figures,
        page::topic::Colors,
        saved::{Saved, SavedRow},
        table::grouped,
    },
    section::{KNEE, OFFERED, SAMPLE_P99},
};

/// Depths with a chart of latencies: the least, the most, and one between them.
const LATENCY_CHARTS: usize = 3;
/// What of a distribution is drawn, with the words of those that have any.
const QUANTILES: [(f64, &str); 13] = [
    (0.0, "min"),
    (0.25, ""),
    (0.5, "p50"),
    (0.75, ""),
    (0.9, "p90"),
    (0.95, ""),
    (0.99, "p99"),
    (0.995, ""),
    (0.999, "p99.9"),
    (0.9995, ""),
    (0.9999, "p99.99"),
    (0.99995, ""),
    (1.0, "max"),
];

/// CPU time by whose it is, of workloads that tell it apart: the fields, and their words.
const KINDS_OF_CPU: [(&str, &str); 6] = [
    ("user_ns", "program, user"),
    ("system_ns", "program, system"),
    ("io_worker_ns", "io-wq workers"),
    ("sqpoll_ns", "SQPOLL"),
    ("interrupt_ns", "interrupts"),
    ("write_back_ns", "write-back"),
];

/// The charts of a section, each a figure of HTML.
pub fn of(run: &Saved, section: usize, colors: &Colors) -> Vec<Markup> {
    let rows: Vec<&SavedRow> =
        run.rows(section).filter(|row| row.is_valid() && !row.is_control()).collect();
    let noun = &run.sections[section].depth_is;
    let depths = depths(&rows);
    let mut drawn = Vec::new();
    drawn.extend(match depths.len() {
        0 => None,
        1 => single(&rows, colors),
        _ => over_depths(&rows, &depths, noun, colors),
    });
    drawn.extend((noun == OFFERED).then(|| over_load(&rows, &depths, colors)).flatten());
    drawn.extend(over_blocks(run, section, colors));
    for depth in some_of(&depths) {
        drawn.extend(latencies(&rows, depth, noun, colors));
    }
    drawn.extend(cpu(&rows, noun));
    drawn
}

fn figure(data: Option<&str>, caption: &str, legend: &str, drawing: &str) -> Markup {
    html! {
        figure data-lines=[data] {
            figcaption { (caption) }
            (PreEscaped(legend))
            (PreEscaped(drawing))
        }
    }
}

/// Lines, with their figures for the page's script.
fn lines(chart: &Lines) -> Option<Markup> {
    Some(figure(Some(&chart.data()), &chart.title, &chart.legend(), &chart.draw()?))
}

fn depths(rows: &[&SavedRow]) -> Vec<u64> {
    let mut depths: Vec<u64> = rows.iter().map(|row| row.depth).collect();
    depths.sort_unstable();
    depths.dedup();
    depths
}

fn some_of(depths: &[u64]) -> Vec<u64> {
    match depths.len() {
        0..=LATENCY_CHARTS => depths.to_vec(),
        count => vec![depths[0], depths[count / 2], depths[count - 1]],
    }
}

/// The engines of some rows, in their order, each with its rows.
fn by_engine<'a>(rows: &[&'a SavedRow]) -> Vec<(&'a str, Vec<&'a SavedRow>)> {
    let mut engines: Vec<(&str, Vec<&SavedRow>)> = Vec::new();
    for row in rows {
        match engines.iter_mut().find(|(name, _)| *name == row.engine) {
            Some((_, own)) => own.push(row),
            None => engines.push((&row.engine, vec![row])),
        }
    }
    engines
}

fn throughput(value: f64) -> String {
    match value {
        1e6.. => {
            format!("{:.4}", value / 1e6).trim_end_matches('0').trim_end_matches('.').to_owned()
                + " M"
        }
        10_000.0.. => format!("{} k", grouped(value / 1e3)),
        _ => figures::rate(value),
    }
}

/// A median, as the table has it, with the interval over the blocks.
fn point(x: f64, y: Option<f64>, interval: Option<Ratio>) -> Option<Point> {
    Some(Point { x, y: y?, interval: interval.map(|own| (own.low, own.high)) })
}

/// The engines as lines, each with its rows from left to right.
fn series(
    rows: &[&SavedRow],
    colors: &Colors,
    x: fn(&SavedRow) -> u64,
    point: fn(&SavedRow, f64) -> Option<Point>,
) -> Vec<Series> {
    let of_engine = |(engine, mut own): (&str, Vec<&SavedRow>)| {
        own.sort_by_key(|row| x(row));
        let points: Vec<Point> =
            own.iter().filter_map(|row| point(row, (x(row).max(1) as f64).log2())).collect();
        Series { name: engine.to_owned(), kind: colors.kind(engine), points }
    };
    let all = by_engine(rows).into_iter().map(of_engine);
    all.filter(|series| !series.points.is_empty()).collect()
}

/// Places of an axis on which equal distances are equal factors.
fn ticks(places: &[u64], words: fn(u64) -> String) -> Vec<(f64, String)> {
    places.iter().map(|&at| ((at.max(1) as f64).log2(), words(at))).collect()
}

fn over_depths(rows: &[&SavedRow], depths: &[u64], noun: &str, colors: &Colors) -> Option<Markup> {
    let rate = |row: &SavedRow, x| point(x, row.ops_per_s, row.interval(|own| own.ops_per_s));
    let chart = Lines {
        title: format!("Operations per second by {noun}, with intervals of 95 %"),
        x_name: noun.to_owned(),
        x_ticks: ticks(depths, |depth| depth.to_string()),
        format: throughput,
        is_log: false,
        is_time: false,
        series: series(rows, colors, |row| row.depth, rate),
    };
    lines(&chart)
}

/// The knee is where the line turns upwards. The legend says where the rows have it.
fn over_load(rows: &[&SavedRow], depths: &[u64], colors: &Colors) -> Option<Markup> {
    let p99 = |row: &SavedRow, x| point(x, row.others.get(SAMPLE_P99)?.as_f64(), None);
    let mut all = series(rows, colors, |row| row.depth, p99);
    for own in &mut all {
        let is_knee = |row: &&&SavedRow| {
            row.engine == own.name && row.remarks.iter().any(|remark| remark == KNEE)
        };
        if let Some(row) = rows.iter().find(is_knee) {
            own.name += &format!(" (the knee is at {}/s)", throughput(row.depth as f64));
        }
    }
    let chart = Lines {
        title: "p99 from the intended start, the median over samples, by offered load".to_owned(),
        x_name: OFFERED.to_owned(),
        x_ticks: ticks(depths, |rate| throughput(rate as f64)),
        format: latency_text,
        is_log: true,
        is_time: true,
        series: all,
    };
    lines(&chart)
}

/// Engines at one depth are bars: there is no line to draw.
fn single(rows: &[&SavedRow], colors: &Colors) -> Option<Markup> {
    let bars = rows.iter().filter_map(|row| {
        let interval = row.interval(|sample| sample.ops_per_s);
        Some(Bar {
            name: row.label(),
            parts: vec![("operations per second", row.ops_per_s?, colors.kind(&row.engine))],
            interval: interval.map(|own| (own.low, own.high)),
        })
    });
    let chart = Bars {
        title: "Operations per second, with intervals of 95 %".to_owned(),
        format: throughput,
        bars: bars.collect(),
    };
    Some(figure(None, &chart.title, "", &chart.draw()?))
}

/// Bytes per second over the sizes of blocks, at the greatest depth of those that most have: drawn in the first of the
/// sections that differ in nothing else.
fn over_blocks(run: &Saved, section: usize, colors: &Colors) -> Option<Markup> {
    let kin = |row: &&SavedRow| {
        let first = run.rows(section).next().map(|row| &row.place);
        first.is_some_and(|first| {
            let place = &row.place;
            (&place.workload, &place.profile, &place.pattern)
                == (&first.workload, &first.profile, &first.pattern)
        })
    };
    let rows: Vec<&SavedRow> = run
        .results
        .iter()
        .filter(kin)
        .filter(|row| row.is_valid() && !row.is_control() && row.place.block_bytes > 0)
        .collect();
    let mut blocks: Vec<u64> = rows.iter().map(|row| row.place.block_bytes).collect();
    blocks.sort_unstable();
    blocks.dedup();
    let is_first = run.rows(section).any(|row| blocks.first() == Some(&row.place.block_bytes));
    if blocks.len() < 2 || !is_first {
        return None;
    }
    let shared = |depth: &u64| {
        let has = |block: &&u64| {
            rows.iter().any(|row| row.place.block_bytes == **block && row.depth == *depth)
        };
        (blocks.iter().filter(has).count(), *depth)
    };
    let deepest = rows.iter().map(|row| row.depth).max_by_key(shared)?;
    let at_it: Vec<&SavedRow> = rows.into_iter().filter(|row| row.depth == deepest).collect();
    let rate = |row: &SavedRow, x| point(x, row.mib_per_s, row.interval(|own| own.mib_per_s));
    let noun = &run.sections[section].depth_is;
    let chart = Lines {
        title: format!("MiB per second by block size at {noun} {deepest}, with intervals of 95 %"),
        x_name: "block".to_owned(),
        x_ticks: ticks(&blocks, size_text),
        format: grouped,
        is_log: false,
        is_time: false,
        series: series(&at_it, colors, |row| row.place.block_bytes, rate),
    };
    lines(&chart)
}

fn latencies(rows: &[&SavedRow], depth: u64, noun: &str, colors: &Colors) -> Option<Markup> {
    let series = rows.iter().filter(|row| row.depth == depth).map(|row| {
        let points = distribution(row);
        let points = points.into_iter().map(|(x, y)| Point { x, y, interval: None });
        Series { name: row.label(), kind: colors.kind(&row.engine), points: points.collect() }
    });
    let ticks = QUANTILES.iter().enumerate().filter(|(_, (_, words))| !words.is_empty());
    let chart = Lines {
        title: format!("Latency by percentile at {noun} {depth}"),
        x_name: "percentile".to_owned(),
        x_ticks: ticks.map(|(at, (_, words))| (at as f64, (*words).to_owned())).collect(),
        format: latency_text,
        is_log: true,
        is_time: true,
        series: series.filter(|series| !series.points.is_empty()).collect(),
    };
    lines(&chart)
}

/// A row's latencies by the places of the quantiles: all of them from its histogram, or the few
/// that were saved where there is none.
fn distribution(row: &SavedRow) -> Vec<(f64, f64)> {
    let all = |latency: ringwise_measure::Latency| {
        let at = |(place, (quantile, _)): (usize, &(f64, &str))| {
            (place as f64, latency.quantile_ns(*quantile) as f64)
        };
        QUANTILES.iter().enumerate().map(at).collect()
    };
    let few = || {
        let latency = row.latency_ns?;
        let named = [
            ("min", latency.min),
            ("p50", latency.p50),
            ("p90", latency.p90),
            ("p99", latency.p99),
            ("p99.9", latency.p99_9),
            ("p99.99", latency.p99_99),
            ("max", latency.max),
        ];
        let place = |name: &str| QUANTILES.iter().position(|(_, words)| *words == name);
        let at = |(name, ns): (&str, u64)| Some((place(name)? as f64, ns as f64));
        Some(named.into_iter().filter_map(at).collect())
    };
    row.latency().map(all).or_else(few).unwrap_or_default()
}

/// CPU time per operation, stacked by whose it is.
fn cpu(rows: &[&SavedRow], noun: &str) -> Option<Markup> {
    let bars = rows.iter().filter_map(|row| {
        let own = row.cpu_ns_per_op?;
        let split = |name: &str| row.others.get(name).and_then(serde_json::Value::as_f64);
        let kinds = KINDS_OF_CPU.into_iter().enumerate();
        let known = kinds.filter_map(|(kind, (field, words))| Some((words, split(field)?, kind)));
        let mut parts: Vec<_> = known.filter(|(_, ns, _)| *ns > 0.0).collect();
        if parts.is_empty() {
            parts.push(("process with the kernel's workers", own, 0));
        }
        // What the kernel's own threads and interrupts took is of the machine's.
        let beside = ["interrupt_ns", "write_back_ns"].into_iter().filter_map(split).sum::<f64>();
        let other = row.system_other_cpu_ns_per_op.map(|ns| ns - beside).filter(|&ns| ns > 0.0);
        parts.extend(other.map(|ns| ("rest of the machine above idle", ns, KINDS_OF_CPU.len())));
        let name = format!("{}, {noun} {}", row.label(), row.depth);
        Some(Bar { name, parts, interval: None })
    });
    let chart = Bars {
        title: "CPU time per operation".to_owned(),
        format: latency_text,
        bars: bars.collect(),
    };
    Some(figure(None, &chart.title, &chart.legend(), &chart.draw()?))
}
