//! Charts as SVG: lines with intervals, and bars.
//!
//! They have classes and no colours, so that a page's style decides by day and by night; every mark
//! has its figure as a title, and every line a shape of its own beside its colour. They need no
//! script; lines also come as data, for one. A chart knows nothing of rows: what it is given it draws.

use std::fmt::Write;

use ringwise_measure::statistics::Ratio;
use serde_json::{Value, json};

use super::markup::{self, escaped, number};

/// The width of every chart; narrow, so that its words can still be read on a phone.
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 44.0;
/// A line of bars.
const BAR_HEIGHT: f64 = 16.0;
const BAR_LINE: f64 = 38.0;
/// How far a line's marks stand beside the next one's.
const ASIDE: f64 = 2.5;
/// What a letter takes of a line, about.
const LETTER_WIDTH: f64 = 7.0;
/// Colours and shapes there are.
pub const KINDS: usize = 8;

/// How a figure is written.
pub type Format = fn(f64) -> String;

/// Lines over an axis of places that were chosen before.
pub struct Lines {
    /// What is shown, for those who cannot see it.
    pub title: String,
    /// Below the axis.
    pub x_name: String,
    /// Places on it, and their words.
    pub x_ticks: Vec<(f64, String)>,
    /// How a figure is written.
    pub format: Format,
    /// Whether equal distances are equal factors. Otherwise the axis begins at zero.
    pub is_log: bool,
    /// Whether figures are nanoseconds.
    pub is_time: bool,
    /// What is drawn.
    pub series: Vec<Series>,
}

/// A line.
#[derive(Clone)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Its colour and shape.
    pub kind: usize,
    /// Its points from left to right.
    pub points: Vec<Point>,
}

/// A point with its interval.
#[derive(Clone, Copy)]
pub struct Point {
    /// Where on the axis.
    pub x: f64,
    /// The figure.
    pub y: f64,
    /// The ends of its interval, where it has one.
    pub interval: Option<(f64, f64)>,
}

/// Lines of bars, each of parts one after the other.
pub struct Bars {
    /// What is shown, for those who cannot see it.
    pub title: String,
    /// How a figure is written.
    pub format: Format,
    /// The bars.
    pub bars: Vec<Bar>,
}

/// A bar.
pub struct Bar {
    /// Its name.
    pub name: String,
    /// Its parts: what, how much, and which colour.
    pub parts: Vec<(&'static str, f64, usize)>,
    /// The ends of an interval of the whole, where it has one.
    pub interval: Option<(f64, f64)>,
}

/// A figure's place on an axis.
struct Scale {
    from: f64,
    to: f64,
    is_log: bool,
}

impl Scale {
    /// For all values; from zero, or from the least to the most of factors.
    fn of(values: impl Iterator<Item = f64> + Clone, is_log: bool) -> Option<Scale> {
        let usable = values.filter(|value| value.is_finite() && *value >= 0.0);
        let most = usable.clone().fold(f64::NEG_INFINITY, f64::max);
        if !is_log {
            return (most > 0.0).then_some(Scale { from: 0.0, to: most * 1.05, is_log });
        }
        let least = usable.filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
        if least > most {
            return None;
        }
        let (from, to) = (10f64.powf(least.log10().floor()), 10f64.powf(most.log10().ceil()));
        Some(Scale { from, to: if to > from { to } else { from * 10.0 }, is_log })
    }

    /// As a share of the axis.
    fn share(&self, value: f64) -> f64 {
        let share = match self.is_log {
            true => (value.max(self.from) / self.from).ln() / (self.to / self.from).ln(),
            false => (value - self.from) / (self.to - self.from),
        };
        share.clamp(0.0, 1.0)
    }

    /// Round figures along it.
    fn ticks(&self) -> Vec<f64> {
        if self.is_log {
            let decades = (self.to / self.from).log10().round() as i32;
            return (0..=decades).map(|decade| self.from * 10f64.powi(decade)).collect();
        }
        let rough = (self.to - self.from) / 5.0;
        let unit = 10f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
        let step = unit * steps.into_iter().find(|step| step * unit >= rough).unwrap_or(10.0);
        let count = ((self.to - self.from) / step).floor() as u64;
        (0..=count).map(|index| self.from + index as f64 * step).collect()
    }
}

/// How far intervals may push an axis: that of few blocks may be many times as long as what it is
/// of, which would flatten everything else. What is longer ends at the edge.
fn highest(figures: impl Iterator<Item = f64>) -> f64 {
    figures.filter(|figure| figure.is_finite()).fold(0.0, f64::max) * 1.3
}

impl Lines {
    /// The drawing. None where there is nothing to draw.
    pub fn draw(&self) -> Option<String> {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let most = highest(points().map(|point| point.y));
        let ends = |point: &Point| {
            let high = point.interval.map_or(point.y, |ends| ends.1.min(most));
            [point.y, high]
        };
        let scale = Scale::of(points().flat_map(ends), self.is_log)?;
        let x_min = self.x_ticks.iter().map(|tick| tick.0).fold(f64::INFINITY, f64::min);
        let x_max = self.x_ticks.iter().map(|tick| tick.0).fold(f64::NEG_INFINITY, f64::max);
        // Marks at the ends keep off the frame.
        let inner = WIDTH - LEFT - RIGHT - 16.0;
        let span = (x_max - x_min).max(f64::EPSILON);
        let x_of = |x: f64| LEFT + 8.0 + inner * (x - x_min) / span;
        let y_of = |y: f64| TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - scale.share(y));
        let mut out = opening(HEIGHT, &self.title);
        for tick in scale.ticks() {
            let y = y_of(tick);
            out += &line("g", (LEFT, y), (WIDTH - RIGHT, y));
            out += &text("t", LEFT - 6.0, y + 4.0, "end", &(self.format)(tick));
        }
        let mut free_from = f64::NEG_INFINITY;
        for (x, words) in &self.x_ticks {
            let x = x_of(*x);
            let half = words.chars().count() as f64 * LETTER_WIDTH / 2.0;
            out += &line("g", (x, HEIGHT - BOTTOM), (x, HEIGHT - BOTTOM + 4.0));
            if x - half >= free_from {
                out += &text("t", x, HEIGHT - BOTTOM + 18.0, "middle", words);
                free_from = x + half + 4.0;
            }
        }
        out += &line("a", (LEFT, HEIGHT - BOTTOM), (WIDTH - RIGHT, HEIGHT - BOTTOM));
        out += &text("n", LEFT + inner / 2.0 + 8.0, HEIGHT - 6.0, "middle", &self.x_name);
        for (index, series) in self.series.iter().enumerate() {
            // Intervals at one place would cover each other.
            let aside = match series.points.iter().any(|point| point.interval.is_some()) {
                true => (index as f64 - (self.series.len() - 1) as f64 / 2.0) * ASIDE,
                false => 0.0,
            };
            out += &self.one(series, &|x| x_of(x) + aside, &y_of);
        }
        Some(out + "</svg>\n")
    }

    fn one(&self, series: &Series, x: &dyn Fn(f64) -> f64, y: &dyn Fn(f64) -> f64) -> String {
        let kind = series.kind % KINDS;
        let mut out = format!("<g class=\"k{kind}\">\n");
        let band = |point: &Point| point.interval.map(|ends| (x(point.x), y(ends.0), y(ends.1)));
        for (x, low, high) in series.points.iter().filter_map(band) {
            out += &line("i", (x, low), (x, high));
            out += &line("i", (x - 4.0, low), (x + 4.0, low));
            out += &line("i", (x - 4.0, high), (x + 4.0, high));
        }
        let mut path = String::new();
        for point in &series.points {
            let letter = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{letter}{} {}", number(x(point.x)), number(y(point.y)));
        }
        if series.points.len() > 1 {
            let _ = writeln!(out, "<path class=\"l\" d=\"{path}\"/>");
        }
        for point in &series.points {
            let at = self.x_ticks.iter().find(|tick| (tick.0 - point.x).abs() < 1e-9);
            let at = at.map_or_else(String::new, |(_, words)| format!(" at {words}"));
            let title = escaped(&format!("{}{at}: {}", series.name, self.words(point)));
            let (x, y) = (x(point.x), y(point.y));
            let _ = writeln!(
                out,
                "<path class=\"m\" d=\"{}\"><title>{title}</title></path>",
                shape(kind, x, y)
            );
        }
        out + "</g>\n"
    }

    /// All that is drawn, for a script that draws it in another way: places of the axis, and of each
    /// line the points with their intervals and words.
    pub fn data(&self) -> String {
        let point = |point: &Point| {
            let (low, high) = point.interval.unzip();
            json!([point.x, point.y, low, high, self.words(point)])
        };
        let series = |series: &Series| {
            let points: Vec<Value> = series.points.iter().map(point).collect();
            json!({ "name": series.name, "kind": series.kind % KINDS, "points": points })
        };
        json!({
            "x": self.x_name,
            "ticks": self.ticks(),
            "isLog": self.is_log,
            "isTime": self.is_time,
            "series": self.series.iter().map(series).collect::<Vec<_>>(),
        })
        .to_string()
    }

    /// The places that have words, and those between them where points are.
    fn ticks(&self) -> Vec<(f64, &str)> {
        let named = self.x_ticks.iter().map(|(x, words)| (*x, &**words));
        let mut all: Vec<(f64, &str)> = named.collect();
        for point in self.series.iter().flat_map(|series| &series.points) {
            if all.iter().all(|(x, _)| (x - point.x).abs() >= 1e-9) {
                all.push((point.x, ""));
            }
        }
        all.sort_by(|one, other| one.0.total_cmp(&other.0));
        all
    }

    /// A figure with its interval.
    fn words(&self, point: &Point) -> String {
        let ends = point.interval.map_or_else(String::new, |(low, high)| {
            format!(" [{}, {}]", (self.format)(low), (self.format)(high))
        });
        (self.format)(point.y) + &ends
    }

    /// The names of the lines with their colours and shapes, as HTML.
    pub fn legend(&self) -> String {
        legend(self.series.iter().map(|series| (&*series.name, series.kind)))
    }
}

impl Bars {
    /// The drawing. None where there is nothing to draw.
    pub fn draw(&self) -> Option<String> {
        let whole = |bar: &Bar| bar.parts.iter().map(|(_, value, _)| value).sum::<f64>();
        let most = highest(self.bars.iter().map(whole));
        let ends = |bar: &Bar| bar.interval.map_or_else(|| whole(bar), |ends| ends.1.min(most));
        let scale = Scale::of(self.bars.iter().flat_map(|bar| [whole(bar), ends(bar)]), false)?;
        let inner = WIDTH - 2.0 * RIGHT - 90.0;
        let x_of = |value: f64| RIGHT + inner * scale.share(value);
        let mut out = opening(TOP + self.bars.len() as f64 * BAR_LINE, &self.title);
        for (index, bar) in self.bars.iter().enumerate() {
            let y = TOP + index as f64 * BAR_LINE;
            out += &text("t", RIGHT, y, "start", &bar.name);
            let mut from = 0.0;
            for (what, value, kind) in &bar.parts {
                let (x, width) = (x_of(from), x_of(from + value) - x_of(from));
                let figure = (self.format)(*value);
                let title = escaped(&format!("{}: {what} {figure}", bar.name));
                let _ = writeln!(
                    out,
                    "<rect class=\"k{} b\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{BAR_HEIGHT}\">\
                     <title>{title}</title></rect>",
                    kind % KINDS,
                    number(x),
                    number(y + 5.0),
                    number(width)
                );
                from += value;
            }
            let middle = y + 5.0 + BAR_HEIGHT / 2.0;
            if let Some((low, high)) = bar.interval {
                out += &line("w", (x_of(low), middle), (x_of(high), middle));
                for end in [low, high] {
                    out += &line("w", (x_of(end), middle - 4.0), (x_of(end), middle + 4.0));
                }
            }
            let right = x_of(ends(bar).max(whole(bar))) + 6.0;
            out += &text("t", right, middle + 4.5, "start", &(self.format)(whole(bar)));
        }
        Some(out + "</svg>\n")
    }

    /// The names of the parts with their colours, as HTML.
    pub fn legend(&self) -> String {
        let mut parts: Vec<(&str, usize)> = Vec::new();
        for (what, _, kind) in self.bars.iter().flat_map(|bar| &bar.parts) {
            if !parts.contains(&(*what, *kind)) {
                parts.push((*what, *kind));
            }
        }
        legend(parts.into_iter())
    }
}

/// A ratio with its interval on a line that has 1 in the middle, as high as a line of text.
/// Equal distances are equal factors, up to `most` on either side.
pub fn ratio(ratio: &Ratio, most: f64) -> String {
    let Ratio { low, mid, high } = *ratio;
    const RATIO_WIDTH: f64 = 140.0;
    const RATIO_HEIGHT: f64 = 18.0;
    let x_of = |ratio: f64| {
        let share = ratio.max(1e-9).ln() / most.max(1.01).ln();
        RATIO_WIDTH / 2.0 * (1.0 + share.clamp(-0.96, 0.96))
    };
    let title = escaped(&format!("{mid:.2} [{low:.2}, {high:.2}]"));
    let y = RATIO_HEIGHT / 2.0;
    let mut out = format!(
        "<svg class=\"ratio\" viewBox=\"0 0 {RATIO_WIDTH} {RATIO_HEIGHT}\" role=\"img\" \
         aria-label=\"{title}\">\n"
    );
    out += &line("a", (RATIO_WIDTH / 2.0, 0.0), (RATIO_WIDTH / 2.0, RATIO_HEIGHT));
    out += &line("w", (x_of(low), y), (x_of(high), y));
    let _ = writeln!(
        out,
        "<circle class=\"r\" cx=\"{}\" cy=\"{y}\" r=\"4\"><title>{title}</title></circle>",
        number(x_of(mid))
    );
    out + "</svg>"
}

fn legend<'a>(names: impl Iterator<Item = (&'a str, usize)>) -> String {
    let mut out = String::from("<ul class=\"legend\">");
    for (name, kind) in names {
        let kind = kind % KINDS;
        let _ = write!(
            out,
            "<li><svg class=\"k{kind}\" viewBox=\"0 0 14 14\" aria-hidden=\"true\">\
             <path class=\"m\" d=\"{}\"/></svg>{}</li>",
            shape(kind, 7.0, 7.0),
            escaped(name)
        );
    }
    out + "</ul>\n"
}

fn opening(height: f64, title: &str) -> String {
    let (height, title) = (number(height), escaped(title));
    format!(
        "<svg class=\"chart\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         role=\"img\" aria-label=\"{title}\">\n"
    )
}

fn line(class: &str, from: (f64, f64), to: (f64, f64)) -> String {
    markup::line(from, to, &format!("class=\"{class}\""))
}

fn text(class: &str, x: f64, y: f64, anchor: &str, words: &str) -> String {
    markup::text(x, y, anchor, &format!("class=\"{class}\""), words)
}

/// A mark around a place: told apart without colours.
fn shape(kind: usize, x: f64, y: f64) -> String {
    let (x, y) = (number(x), number(y));
    match kind % KINDS {
        0 => format!("M{x} {y}m-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z"),
        1 => format!("M{x} {y}m-4 -4h8v8h-8z"),
        2 => format!("M{x} {y}m0 -5l5 9h-10z"),
        3 => format!("M{x} {y}m0 -5.5l5.5 5.5l-5.5 5.5l-5.5 -5.5z"),
        4 => format!("M{x} {y}m0 5l5 -9h-10z"),
        5 => format!("M{x} {y}m-1.5 -5h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5v-3h3.5z"),
        6 => format!("M{x} {y}m-5 -2h10v4h-10z"),
        _ => format!("M{x} {y}m-2 -5h4v10h-4z"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(value: f64) -> String {
        format!("{value:.0}")
    }

    fn lines(is_log: bool) -> Lines {
        let point = |x, y| Point { x, y, interval: Some((y * 0.9, y * 1.1)) };
        let one = Series {
            name: "a <b>".to_owned(),
            kind: 0,
            points: vec![point(0.0, 100.0), point(5.0, 1000.0)],
        };
        Lines {
            title: "t \"q\"".to_owned(),
            x_name: "depth".to_owned(),
            x_ticks: vec![(0.0, "1".to_owned()), (5.0, "32".to_owned())],
            format: plain,
            is_log,
            is_time: false,
            series: vec![one],
        }
    }

    /// Where a mark begins, by the figure in its title.
    fn place(svg: &str, title: &str) -> (f64, f64) {
        let document = roxmltree::Document::parse(svg).unwrap();
        let marks = document.descendants().filter(|node| node.attribute("class") == Some("m"));
        let mark = marks
            .into_iter()
            .find(|mark| mark.descendants().any(|node| node.text() == Some(title)))
            .unwrap_or_else(|| panic!("{title} is not in {svg}"));
        let path = mark.attribute("d").unwrap().trim_start_matches('M');
        let mut numbers = path.split(['m', ' ']);
        let mut next = || numbers.next().unwrap().parse().unwrap();
        (next(), next())
    }

    #[test]
    fn a_point_is_where_its_figures_are() {
        let drawing = lines(false).draw().unwrap();
        let low = place(&drawing, "a <b> at 1: 100 [90, 110]");
        let high = place(&drawing, "a <b> at 32: 1000 [900, 1100]");
        let (bottom, height) = (HEIGHT - BOTTOM, HEIGHT - BOTTOM - TOP);
        // The axis goes from zero to 1.05 of the end of the highest interval.
        assert!((bottom - low.1 - height * 100.0 / 1155.0).abs() < 0.01, "{low:?}");
        assert!((bottom - high.1 - height * 1000.0 / 1155.0).abs() < 0.01, "{high:?}");
        assert!(low.0 < high.0 && low.0 > LEFT && high.0 < WIDTH - RIGHT);
        let drawing = lines(true).draw().unwrap();
        let low = place(&drawing, "a <b> at 1: 100 [90, 110]");
        let high = place(&drawing, "a <b> at 32: 1000 [900, 1100]");
        // From 100 to 10,000: at the bottom, and in the middle.
        assert!((bottom - low.1).abs() < 0.01, "{low:?}");
        assert!((bottom - high.1 - height / 2.0).abs() < 0.01, "{high:?}");
    }

    #[test]
    fn bars_are_as_long_as_their_figures() {
        let bars = Bars {
            title: "CPU".to_owned(),
            format: plain,
            bars: vec![
                Bar {
                    name: "one".to_owned(),
                    parts: vec![("own", 100.0, 0), ("other", 50.0, 1)],
                    interval: None,
                },
                Bar { name: "two".to_owned(), parts: vec![("own", 300.0, 0)], interval: None },
            ],
        };
        let drawing = bars.draw().unwrap();
        let document = roxmltree::Document::parse(&drawing).unwrap();
        let widths: Vec<f64> = document
            .descendants()
            .filter(|node| node.has_tag_name("rect"))
            .map(|node| node.attribute("width").unwrap().parse().unwrap())
            .collect();
        assert_eq!(widths.len(), 3);
        assert!((widths[0] / widths[1] - 2.0).abs() < 0.01, "{widths:?}");
        assert!((widths[2] / widths[0] - 3.0).abs() < 0.01, "{widths:?}");
        assert_eq!(bars.legend().matches("<li>").count(), 2);
    }

    #[test]
    fn nothing_is_no_drawing() {
        let mut nothing = lines(false);
        nothing.series.clear();
        assert!(nothing.draw().is_none());
        let bars = Bars { title: String::new(), format: plain, bars: Vec::new() };
        assert!(bars.draw().is_none());
        let mut unknown = lines(true);
        unknown.series[0].points =
            vec![Point { x: 0.0, y: f64::NAN, interval: Some((f64::NAN, f64::INFINITY)) }];
        assert!(unknown.draw().is_none());
    }

    #[test]
    fn ticks_are_round() {
        let scale = |values: [f64; 2], is_log| Scale::of(values.into_iter(), is_log).unwrap();
        let ticks = scale([0.0, 920.0], false).ticks();
        assert_eq!(ticks, [0.0, 200.0, 400.0, 600.0, 800.0]);
        let ticks = scale([1500.0, 80_000.0], true).ticks();
        assert_eq!(ticks.len(), 3, "1000 to 100000: {ticks:?}");
        assert_eq!(scale([7.0, 7.0], true).ticks().len(), 2);
    }

    #[test]
    fn a_ratio_lies_on_its_side_of_one() {
        let ratio = |low, mid, high, most| ratio(&Ratio { low, mid, high }, most);
        let x = |svg: &str| -> f64 {
            svg.split("cx=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
        };
        assert!((x(&ratio(1.0, 1.0, 1.0, 2.0)) - 70.0).abs() < 0.01);
        let (half, twice) = (x(&ratio(0.4, 0.5, 0.6, 4.0)), x(&ratio(1.9, 2.0, 2.1, 4.0)));
        assert!((half - 35.0).abs() < 0.01 && (twice - 105.0).abs() < 0.01, "{half} {twice}");
        assert!(x(&ratio(90.0, 100.0, 110.0, 4.0)) < 140.0);
    }
}
