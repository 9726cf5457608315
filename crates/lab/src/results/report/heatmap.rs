//! Drawings of which latencies came when: an SVG file for each row, and `index.svg` with the rows
//! of a depth beside each other.
//!
//! All drawings of a run have the same axis of latency and the same colours, so that they can be
//! laid side by side. The samples of a row stand one after the other in the order taken; between
//! them other rows were measured. Excluded rows and controls are not drawn. A file of
//! the same name is replaced.

mod svg;

use std::{
    fs,
    path::{Path, PathBuf},
};

use ringwise_measure::{Percentiles, quantity::size_text};

use super::{Section, json};
use crate::{
    error::LabError,
    results::row::{Row, RowKind},
    sampling::{
        heat::{BUCKETS, Heat, SLICES},
        job::{Extent, Timing},
    },
};
use svg::{HEADER_HEIGHT, LEGEND_HEIGHT, Legend, PANEL_HEIGHT, PANEL_WIDTH};

/// The name of the sheet with all drawings.
pub const INDEX_NAME: &str = "index.svg";

/// A row as it is drawn.
struct Panel<'a> {
    section: &'a Section,
    row: &'a Row,
    recorded: Recorded,
}

/// Latencies over time as they are drawn, and the percentiles that are marked.
pub struct Recorded {
    title: String,
    subtitle: String,
    grid: Grid,
    /// How long one sample was.
    seconds: f64,
    latency: Percentiles,
}

impl Recorded {
    /// Of one or two lines of title, and a record for each sample of so many seconds.
    pub fn of(
        (title, subtitle): (String, String),
        heats: &[Heat],
        seconds: f64,
        latency: Percentiles,
    ) -> Recorded {
        Recorded { title, subtitle, grid: Grid::of(heats), seconds, latency }
    }

    fn draw(&self, legend: &Legend) -> String {
        svg::panel(&svg::Drawing {
            title: &self.title,
            subtitle: &self.subtitle,
            columns: &self.grid.columns,
            samples: self.grid.samples,
            seconds: self.seconds * self.grid.samples as f64,
            latency: self.latency,
            legend,
        })
    }
}

/// The colours for all drawings, and how long a column is. None where there is nothing to draw.
fn legend<'a>(all: impl Iterator<Item = &'a Recorded> + Clone) -> Option<Legend> {
    let most = all.clone().map(|one| one.grid.most()).max()?;
    let first = all.clone().next()?;
    let samples = first.grid.samples as f64;
    let column_s = first.seconds * samples / first.grid.columns.len().max(1) as f64;
    (most > 0).then(|| Legend::new(most, column_s))
}

/// Counts as they are drawn: columns of time, each with all buckets.
struct Grid {
    columns: Vec<[u64; BUCKETS]>,
    samples: usize,
}

impl Grid {
    /// The samples one after the other, in about as many columns as one sample has slices.
    fn of(heats: &[Heat]) -> Grid {
        let wanted = (SLICES / heats.len().max(1)).max(1);
        // Columns of equal width: their number divides that of the slices.
        let each = (1..=wanted).rev().find(|each| SLICES.is_multiple_of(*each)).unwrap_or(1);
        let slices = SLICES / each;
        let column = |heat: &Heat, index: usize| {
            let within = index * slices..(index + 1) * slices;
            std::array::from_fn(|bucket| heat.count(within.clone(), bucket))
        };
        let columns = heats.iter().flat_map(|heat| (0..each).map(move |at| column(heat, at)));
        Grid { columns: columns.collect(), samples: heats.len() }
    }

    fn most(&self) -> u64 {
        self.columns.iter().flatten().copied().max().unwrap_or(0)
    }
}

impl<'a> Panel<'a> {
    fn of(section: &'a Section, row: &'a Row, seconds: f64) -> Panel<'a> {
        let (title, latency) =
            (format!("{}, depth {}", row.engine, row.depth), &row.measured.latency);
        let titles = (title, subtitle(section, row));
        let recorded = Recorded::of(titles, &row.measured.heats, seconds, latency.percentiles());
        Panel { section, row, recorded }
    }

    fn file_name(&self) -> String {
        let (place, row) = (&self.section.place, self.row);
        let place = place.profile.map_or_else(String::new, |profile| {
            format!("{profile}-{}-", size_text(place.block_bytes as u64))
        });
        format!("{place}depth{}-{}.svg", row.depth, row.engine)
    }
}

/// What a row read, where the section's title is for all of its rows.
fn subtitle(section: &Section, row: &Row) -> String {
    let place = &section.place;
    match (place.profile, place.pattern, section.cache_of(row)) {
        (Some(profile), Some(pattern), Some(cache)) => {
            let block = size_text(place.block_bytes as u64);
            format!("read {profile} {pattern}, {block} blocks, {cache}")
        }
        _ => section.title.clone(),
    }
}

/// Draws what was recorded. The answer is the path of the sheet, and how many drawings are beside
/// it; none where nothing was recorded.
///
/// # Errors
///
/// What writing a file reports.
pub fn write(
    directory: &Path,
    sections: &[Section],
    timing: Timing,
) -> Result<Option<(PathBuf, usize)>, LabError> {
    let Extent::Time(time) = timing.extent else { return Ok(None) };
    let panels: Vec<Panel<'_>> =
        sections.iter().flat_map(|section| panels(section, time.as_secs_f64())).collect();
    let legend = legend(panels.iter().map(|panel| &panel.recorded));
    let Some(legend) = legend else { return Ok(None) };
    for panel in &panels {
        let drawing = svg::moved(0.0, LEGEND_HEIGHT, &panel.recorded.draw(&legend));
        let body = format!("{}{drawing}", legend.draw(0.0));
        let text = svg::document(PANEL_WIDTH, LEGEND_HEIGHT + PANEL_HEIGHT, &body);
        json::write(&directory.join(panel.file_name()), &text)?;
    }
    let index = directory.join(INDEX_NAME);
    json::write(&index, &sheet(&panels, &legend))?;
    Ok(Some((index, panels.len())))
}

/// What was saved as drawings for a page, on one scale: the meaning of the colours first. Empty
/// where nothing was recorded.
pub fn for_page(recorded: &[Recorded]) -> Vec<String> {
    let Some(legend) = legend(recorded.iter()) else { return Vec::new() };
    let drawings = recorded
        .iter()
        .map(|one| svg::within_page(PANEL_WIDTH, PANEL_HEIGHT, &one.title, &one.draw(&legend)));
    let meaning = "what the colours of the drawings below stand for";
    let meaning = svg::within_page(PANEL_WIDTH, LEGEND_HEIGHT, meaning, &legend.draw(0.0));
    std::iter::once(meaning).chain(drawings).collect()
}

/// Makes the directory, if it is missing, before anything is measured.
///
/// # Errors
///
/// It cannot be made.
pub fn make_directory(path: &Path) -> Result<(), LabError> {
    match path.is_dir() {
        true => Ok(()),
        false => {
            fs::create_dir(path).map_err(|error| LabError::on("--heatmap: making", path, &error))
        }
    }
}

fn panels(section: &Section, seconds: f64) -> impl Iterator<Item = Panel<'_>> {
    let is_drawn = |row: &&Row| {
        row.is_valid() && row.kind != RowKind::Control && !row.measured.heats.is_empty()
    };
    let rows = section.rows.iter().filter(is_drawn);
    rows.map(move |row| Panel::of(section, row, seconds))
}

/// The panels of a depth of a section in a line, the depths below each other.
fn sheet(panels: &[Panel<'_>], legend: &Legend) -> String {
    let is_beside = |left: &Panel<'_>, right: &Panel<'_>| {
        std::ptr::eq(left.section, right.section) && left.row.depth == right.row.depth
    };
    let (mut body, mut y, mut widest) = (legend.draw(0.0), LEGEND_HEIGHT, 0.0_f64);
    for line in panels.chunk_by(is_beside) {
        let (section, depth) = (line[0].section, line[0].row.depth);
        body.push_str(&svg::heading(y, &format!("depth {depth}, {}", section.title)));
        y += HEADER_HEIGHT;
        for (index, panel) in line.iter().enumerate() {
            let drawing = panel.recorded.draw(legend);
            body.push_str(&svg::moved(index as f64 * PANEL_WIDTH, y, &drawing));
        }
        y += PANEL_HEIGHT;
        widest = widest.max(line.len() as f64 * PANEL_WIDTH);
    }
    svg::document(widest, y, &body)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        sampling::heat::bucket,
        testing::{Figures, row},
        workload::read,
    };

    const TIMING: Timing =
        Timing { warm_up: Duration::ZERO, extent: Extent::Time(Duration::from_secs(1)) };

    /// Rows with two samples each: a thousand reads of 100 us all the time, ten of 50 ms at the
    /// end of the second.
    fn section() -> Section {
        let recorded = |name: &str, kind, depth| {
            let mut row = row(name, kind, depth, Figures::DIRECT);
            let (mut first, mut second) = (Heat::new(), Heat::new());
            (0..1000).for_each(|at| first.record(at, 1000, 100_000));
            (0..10).for_each(|at| second.record(990 + at, 1000, 50_000_000));
            row.measured.heats = vec![first, second];
            row
        };
        let mut void = recorded("aio", RowKind::Rival, 8);
        void.measured.void = Some("wrong".to_owned());
        let rows = vec![
            recorded("mmap", RowKind::Rival, 8),
            recorded("uring", RowKind::Subject, 8),
            recorded("uring", RowKind::Control, 8),
            void,
            recorded("uring", RowKind::Subject, 32),
        ];
        Section::new(&read::FACTS, "read direct, 4k <blocks> & more".to_owned(), rows)
    }

    fn drawn_reads(svg: &str) -> u64 {
        let document = roxmltree::Document::parse(svg).unwrap();
        let cells = document.descendants().filter_map(|node| node.attribute("data-reads"));
        cells.map(|count| count.parse::<u64>().unwrap()).sum()
    }

    #[test]
    fn every_row_is_drawn_and_every_read_is_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let (index, count) = write(directory.path(), &[section()], TIMING).unwrap().unwrap();
        assert_eq!(count, 3, "neither controls nor excluded rows");
        for name in ["depth8-mmap.svg", "depth8-uring.svg", "depth32-uring.svg"] {
            let text = fs::read_to_string(directory.path().join(name)).unwrap();
            assert_eq!(drawn_reads(&text), 1010, "{name}");
            assert!(text.contains("read direct, 4k &lt;blocks&gt; &amp; more"), "{text}");
        }
        let sheet = fs::read_to_string(index).unwrap();
        assert_eq!(drawn_reads(&sheet), 3 * 1010);
        let document = roxmltree::Document::parse(&sheet).unwrap();
        let texts: Vec<&str> =
            document.descendants().filter(|node| node.is_text()).filter_map(|n| n.text()).collect();
        for part in ["mmap, depth 8", "uring, depth 32", "1 µs", "100 ms", "1 s", "latency"] {
            assert!(texts.contains(&part), "{part} is not in {texts:?}");
        }
        assert!(texts.iter().any(|text| text.starts_with("p99.9 ")), "{texts:?}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 4);
    }

    #[test]
    fn samples_stand_one_after_the_other() {
        let section = section();
        let grid = Grid::of(&section.rows[0].measured.heats);
        assert_eq!((grid.columns.len(), grid.samples), (120, 2));
        let count = |column: usize, latency_ns| grid.columns[column][bucket(latency_ns)];
        let reads: u64 = grid.columns.iter().flatten().sum();
        assert_eq!((reads, count(119, 50_000_000)), (1010, 10));
        assert!((0..60).all(|column| (16..=17).contains(&count(column, 100_000))));
        assert!((60..119).all(|column| grid.columns[column].iter().all(|&count| count == 0)));
    }

    #[test]
    fn any_number_of_samples_keeps_its_reads() {
        for samples in [1, 7, 14, 121, 1000] {
            let mut heat = Heat::new();
            (0..777).for_each(|at| heat.record(at, 777, at * 4000));
            let grid = Grid::of(&vec![heat; samples]);
            let reads: u64 = grid.columns.iter().flatten().sum();
            assert_eq!(reads, 777 * samples as u64);
            assert!(grid.columns.len().is_multiple_of(samples), "{}", grid.columns.len());
        }
    }

    #[test]
    fn nothing_recorded_is_nothing_drawn() {
        let directory = tempfile::tempdir().unwrap();
        let mut section = section();
        section.rows.iter_mut().for_each(|row| row.measured.heats.clear());
        assert_eq!(write(directory.path(), &[section], TIMING).unwrap(), None);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
