//! SVG as text: a panel with its axes, the legend, and a document around them.
//!
//! Only what every browser draws: rectangles, paths, lines and text in a generic font, on white.
//! Nothing is fetched. It knows nothing of rows; what it is given it draws.

use std::fmt::Write;

use ringwise_measure::{Percentiles, quantity::latency_text};

use crate::{
    results::report::markup::{self, escaped, number},
    sampling::heat::{BUCKETS, position},
};

/// A panel with its axes.
pub const PANEL_WIDTH: f64 = 640.0;
/// A panel with its titles and axes.
pub const PANEL_HEIGHT: f64 = 350.0;
/// The legend, above everything.
pub const LEGEND_HEIGHT: f64 = 50.0;
/// A line of text above panels.
pub const HEADER_HEIGHT: f64 = 30.0;

const PLOT_LEFT: f64 = 62.0;
const PLOT_TOP: f64 = 46.0;
const PLOT_WIDTH: f64 = 480.0;
const PLOT_HEIGHT: f64 = 256.0;
/// Lines of text closer than this cover each other.
const TEXT_DISTANCE: f64 = 12.0;
const TIME_TICKS: usize = 5;
/// More samples than this are not told apart.
const SAMPLES_MARKED_MAX: usize = 60;

const TEXT_COLOR: &str = "#222222";
const FAINT_COLOR: &str = "#6b6b6b";
const GRID_COLOR: &str = "#e4e4e4";
const MARK_COLOR: &str = "#b03a2e";
/// From few to many, light to dark: told apart in grey too.
const COLORS: [(f64, f64, f64); 5] = [
    (208.0, 225.0, 242.0),
    (148.0, 196.0, 223.0),
    (74.0, 152.0, 201.0),
    (23.0, 100.0, 171.0),
    (8.0, 40.0, 92.0),
];

/// What a panel shows.
pub struct Drawing<'a> {
    /// The first line above it.
    pub title: &'a str,
    /// The second.
    pub subtitle: &'a str,
    /// Counts by time and latency.
    pub columns: &'a [[u64; BUCKETS]],
    /// How many samples the columns are of, all as long as each other.
    pub samples: usize,
    /// How long all columns are together.
    pub seconds: f64,
    /// Where lines are to be drawn.
    pub latency: Percentiles,
    /// The colours.
    pub legend: &'a Legend,
}

/// What the colours mean: one for each doubling of a count.
pub struct Legend {
    levels: u32,
    column_s: f64,
}

impl Legend {
    /// For counts up to `most`, in columns of so many seconds.
    pub fn new(most: u64, column_s: f64) -> Legend {
        Legend { levels: most.max(1).ilog2() + 1, column_s }
    }

    fn color(&self, level: u32) -> String {
        let share = f64::from(level) / f64::from(self.levels.saturating_sub(1).max(1));
        let place = share.clamp(0.0, 1.0) * (COLORS.len() - 1) as f64;
        let from = (place as usize).min(COLORS.len() - 2);
        let ((r0, g0, b0), (r1, g1, b1)) = (COLORS[from], COLORS[from + 1]);
        let mix = |a: f64, b: f64| (a + (b - a) * (place - from as f64)).round() as u8;
        format!("#{:02x}{:02x}{:02x}", mix(r0, r1), mix(g0, g1), mix(b0, b1))
    }

    /// A box for each colour, with the least count that it stands for.
    pub fn draw(&self, y: f64) -> String {
        const BOX_WIDTH: f64 = 26.0;
        let cell = latency_text(self.column_s * 1e9);
        let words = format!("operations in a cell of {cell} and a quarter of an octave, at least");
        let mut out = text((PLOT_LEFT, y + 16.0), "start", FAINT_COLOR, 11, &words);
        for level in 0..self.levels {
            let x = PLOT_LEFT + f64::from(level) * BOX_WIDTH;
            let _ = writeln!(
                out,
                r#"<rect x="{}" y="{}" width="{BOX_WIDTH}" height="8" fill="{}"/>"#,
                number(x),
                number(y + 22.0),
                self.color(level)
            );
            let least = short_count(1 << level);
            out += &text((x + BOX_WIDTH / 2.0, y + 42.0), "middle", FAINT_COLOR, 9, &least);
        }
        out
    }
}

/// A count in at most four signs.
fn short_count(count: u64) -> String {
    match count {
        0..1024 => count.to_string(),
        1024..1_048_576 => format!("{}k", count >> 10),
        _ => format!("{}M", count >> 20),
    }
}

/// A whole file.
pub fn document(width: f64, height: f64, body: &str) -> String {
    let (width, height) = (number(width), number(height));
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n{body}</svg>\n"
    )
}

/// A drawing within a page of HTML, which is as wide as there is room.
pub fn within_page(width: f64, height: f64, title: &str, body: &str) -> String {
    let (width, height, title) = (number(width), number(height), escaped(title));
    format!(
        "<svg class=\"heat\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         aria-label=\"{title}\">\n{body}</svg>\n"
    )
}

/// Something at another place.
pub fn moved(x: f64, y: f64, body: &str) -> String {
    format!("<g transform=\"translate({} {})\">\n{body}</g>\n", number(x), number(y))
}

/// A line of text above panels, below `y`.
pub fn heading(y: f64, words: &str) -> String {
    text((PLOT_LEFT, y + HEADER_HEIGHT - 8.0), "start", TEXT_COLOR, 15, words)
}

/// A panel at the origin.
pub fn panel(drawing: &Drawing<'_>) -> String {
    let mut out = text((PLOT_LEFT, 20.0), "start", TEXT_COLOR, 14, drawing.title);
    out += &text((PLOT_LEFT, 37.0), "start", FAINT_COLOR, 11, drawing.subtitle);
    out += &latency_axis();
    out += &cells(drawing);
    out += &time_axis(drawing);
    out += &percentile_lines(&drawing.latency);
    let _ = writeln!(
        out,
        r##"<rect x="{PLOT_LEFT}" y="{PLOT_TOP}" width="{PLOT_WIDTH}" height="{PLOT_HEIGHT}" fill="none" stroke="{FAINT_COLOR}"/>"##,
    );
    out
}

/// Where a latency is drawn.
fn height_of(latency_ns: f64) -> f64 {
    PLOT_TOP + PLOT_HEIGHT * (1.0 - position(latency_ns))
}

/// One path for each colour, with how many reads it shows.
fn cells(drawing: &Drawing<'_>) -> String {
    let legend = drawing.legend;
    let width = PLOT_WIDTH / drawing.columns.len().max(1) as f64;
    let height = PLOT_HEIGHT / BUCKETS as f64;
    let mut paths = vec![(String::new(), 0); legend.levels as usize];
    for (column, counts) in drawing.columns.iter().enumerate() {
        let x = PLOT_LEFT + column as f64 * width;
        for (bucket, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let y = PLOT_TOP + PLOT_HEIGHT - (bucket + 1) as f64 * height;
            let level = count.ilog2().min(legend.levels - 1) as usize;
            let (path, reads) = &mut paths[level];
            let (x, y, w, h) = (number(x), number(y), number(width), number(height));
            let _ = write!(path, "M{x} {y}h{w}v{h}h-{w}z");
            *reads += count;
        }
    }
    let mut out = String::from("<g shape-rendering=\"crispEdges\">\n");
    for (level, (path, reads)) in paths.iter().enumerate().filter(|(_, (_, reads))| *reads > 0) {
        let color = legend.color(level as u32);
        let _ = writeln!(out, r#"<path data-reads="{reads}" fill="{color}" d="{path}"/>"#);
    }
    out + "</g>\n"
}

fn latency_axis() -> String {
    let ticks = [
        (1e3, "1 µs"),
        (1e4, "10 µs"),
        (1e5, "100 µs"),
        (1e6, "1 ms"),
        (1e7, "10 ms"),
        (1e8, "100 ms"),
        (1e9, "1 s"),
    ];
    let mut out = String::new();
    for (latency_ns, words) in ticks {
        let y = height_of(latency_ns);
        out += &line((PLOT_LEFT, y), (PLOT_LEFT + PLOT_WIDTH, y), GRID_COLOR, "");
        out += &text((PLOT_LEFT - 6.0, y + 4.0), "end", TEXT_COLOR, 11, words);
    }
    let (x, y) = (12.0, PLOT_TOP + PLOT_HEIGHT / 2.0);
    let _ = writeln!(
        out,
        r#"<text x="{x}" y="{y}" text-anchor="middle" fill="{FAINT_COLOR}" font-size="11" transform="rotate(-90 {x} {y})">latency</text>"#
    );
    out
}

fn time_axis(drawing: &Drawing<'_>) -> String {
    let (bottom, mut out) = (PLOT_TOP + PLOT_HEIGHT, String::new());
    if (2..=SAMPLES_MARKED_MAX).contains(&drawing.samples) {
        for sample in 1..drawing.samples {
            let x = PLOT_LEFT + PLOT_WIDTH * sample as f64 / drawing.samples as f64;
            out += &line((x, PLOT_TOP), (x, bottom), GRID_COLOR, "");
        }
    }
    for tick in 0..=TIME_TICKS {
        let share = tick as f64 / TIME_TICKS as f64;
        let x = PLOT_LEFT + PLOT_WIDTH * share;
        out += &line((x, bottom), (x, bottom + 4.0), FAINT_COLOR, "");
        let words = number(drawing.seconds * share);
        out += &text((x, bottom + 16.0), "middle", TEXT_COLOR, 11, &words);
    }
    let words = match drawing.samples {
        1 => "measured time, s".to_owned(),
        samples => format!("measured time of {samples} samples, one after the other, s"),
    };
    out + &text((PLOT_LEFT + PLOT_WIDTH / 2.0, bottom + 34.0), "middle", FAINT_COLOR, 11, &words)
}

/// A line across at each percentile, named at its right end; the names keep their distance.
fn percentile_lines(latency: &Percentiles) -> String {
    let (right, mut out) = (PLOT_LEFT + PLOT_WIDTH, String::new());
    let mut lowest_free = f64::INFINITY;
    let marks = [("p50", latency.p50), ("p99", latency.p99), ("p99.9", latency.p99_9)];
    for (name, latency_ns) in marks {
        let y = height_of(latency_ns as f64);
        out += &line((PLOT_LEFT, y), (right, y), MARK_COLOR, r#" stroke-dasharray="5 3""#);
        let at = (y + 4.0).min(lowest_free);
        lowest_free = at - TEXT_DISTANCE;
        let words = format!("{name} {}", latency_text(latency_ns as f64));
        out += &text((right + 5.0, at), "start", MARK_COLOR, 11, &words);
    }
    out
}

fn line(from: (f64, f64), to: (f64, f64), color: &str, more: &str) -> String {
    markup::line(from, to, &format!("stroke=\"{color}\"{more}"))
}

fn text((x, y): (f64, f64), anchor: &str, color: &str, size: u32, words: &str) -> String {
    markup::text(x, y, anchor, &format!("fill=\"{color}\" font-size=\"{size}\""), words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_where_its_time_and_latency_are() {
        let mut columns = [[0; BUCKETS]; 2];
        // The second half; the bucket from 2^20 ns, the 41st of 80.
        columns[1][40] = 5;
        let legend = Legend::new(5, 0.5);
        let drawing = Drawing {
            title: "",
            subtitle: "",
            columns: &columns,
            samples: 1,
            seconds: 1.0,
            latency: Percentiles::default(),
            legend: &legend,
        };
        let cells = cells(&drawing);
        let top = PLOT_TOP + PLOT_HEIGHT / 2.0 - PLOT_HEIGHT / 80.0;
        let path = format!("d=\"M{} {}h240v3.2h-240z\"", PLOT_LEFT + 240.0, number(top));
        assert!(cells.contains(&path) && cells.contains("data-reads=\"5\""), "{cells}");
        assert_eq!(number(height_of(1_048_576.0)), number(PLOT_TOP + PLOT_HEIGHT / 2.0));
    }

    #[test]
    fn colours_go_from_light_to_dark() {
        let legend = Legend::new(1 << 10, 1.0);
        assert_eq!((legend.color(0), legend.color(10)), ("#d0e1f2".into(), "#08285c".into()));
        let only = Legend::new(1, 1.0);
        assert_eq!(only.color(0), "#d0e1f2");
    }

    #[test]
    fn names_of_near_percentiles_do_not_cover_each_other() {
        let near = Percentiles { p50: 100_000, p99: 101_000, p99_9: 102_000, ..Default::default() };
        let lines = percentile_lines(&near);
        let heights: Vec<f64> = lines
            .lines()
            .filter_map(|line| line.strip_prefix("<text x=\"547\" y=\""))
            .map(|rest| rest.split('"').next().unwrap().parse().unwrap())
            .collect();
        assert_eq!(heights.len(), 3, "{lines}");
        assert!(heights.windows(2).all(|pair| pair[0] - pair[1] >= TEXT_DISTANCE), "{heights:?}");
    }
}
