//! Drawings of which latencies came when: an SVG file for each row, and `index.svg` with the rows
//! of a depth beside each other.
//!
//! All drawings of a run have the same axis of latency and the same colours, so that they can be
//! laid side by side. The samples of a row stand one after the other in the order taken; between
//! them other rows were measured. Rows that are void or only a control are not drawn. A file of
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
    heat::{BUCKETS, Heat, SLICES},
    job::{Extent, Timing},
    row::{Row, RowKind},
};
use svg::{HEADER_HEIGHT, LEGEND_HEIGHT, Legend, PANEL_HEIGHT, PANEL_WIDTH};

/// The name of the sheet with all drawings.
pub const INDEX_NAME: &str = "index.svg";

/// A row as it is drawn.
struct Panel<'a> {
    section: &'a Section,
    row: &'a Row,
    grid: Grid,
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

impl Panel<'_> {
    fn file_name(&self) -> String {
        let (group, row) = (self.section.group.as_ref(), self.row);
        let place = group.map_or_else(String::new, |group| {
            format!("{}-{}-", group.profile, size_text(group.block_bytes as u64))
        });
        format!("{place}depth{}-{}.svg", row.depth, row.engine)
    }

    /// What this row read, where the section's title is for all of its rows.
    fn subtitle(&self) -> String {
        let Some(group) = &self.section.group else { return self.section.title.clone() };
        let (block, cache) = (group.block_bytes as u64, group.cache_of(&self.row.engine));
        format!("read {} {}, {} blocks, {cache}", group.profile, group.pattern, size_text(block))
    }

    fn draw(&self, seconds: f64, legend: &Legend) -> String {
        let (grid, latency) = (&self.grid, &self.row.measured.latency);
        svg::panel(&svg::Drawing {
            title: format!("{}, depth {}", self.row.engine, self.row.depth),
            subtitle: self.subtitle(),
            columns: &grid.columns,
            samples: grid.samples,
            seconds: seconds * grid.samples as f64,
            latency: latency.percentiles(),
            legend,
        })
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
    let panels: Vec<Panel<'_>> = sections.iter().flat_map(panels).collect();
    let Some(legend) = legend(&panels, time.as_secs_f64()) else { return Ok(None) };
    let draw = |panel: &Panel<'_>| panel.draw(time.as_secs_f64(), &legend);
    for panel in &panels {
        let body = format!("{}{}", legend.draw(0.0), svg::moved(0.0, LEGEND_HEIGHT, &draw(panel)));
        let text = svg::document(PANEL_WIDTH, LEGEND_HEIGHT + PANEL_HEIGHT, &body);
        json::write(&directory.join(panel.file_name()), &text)?;
    }
    let index = directory.join(INDEX_NAME);
    json::write(&index, &sheet(&panels, &legend, &draw))?;
    Ok(Some((index, panels.len())))
}

/// Latencies over time that were saved: what of, its samples, how long one of them was, and the
/// percentiles that are marked.
pub struct Recorded {
    /// The first line above the drawing.
    pub title: String,
    /// A record for each sample.
    pub heats: Vec<Heat>,
    /// Of one sample.
    pub seconds: f64,
    /// Of all of them.
    pub latency: Percentiles,
}

/// What was saved as drawings for a page, on one scale: the meaning of the colours first. Empty
/// where nothing was recorded.
pub fn for_page(recorded: &[Recorded]) -> Vec<String> {
    let grids: Vec<Grid> = recorded.iter().map(|one| Grid::of(&one.heats)).collect();
    let most = grids.iter().map(Grid::most).max().unwrap_or(0);
    let Some((first, grid)) = recorded.first().zip(grids.first()).filter(|_| most > 0) else {
        return Vec::new();
    };
    let column_s = first.seconds * grid.samples as f64 / grid.columns.len().max(1) as f64;
    let legend = Legend::new(most, column_s);
    let drawings = recorded.iter().zip(&grids).map(|(one, grid)| {
        let body = svg::panel(&svg::Drawing {
            title: one.title.clone(),
            subtitle: String::new(),
            columns: &grid.columns,
            samples: grid.samples,
            seconds: one.seconds * grid.samples as f64,
            latency: one.latency,
            legend: &legend,
        });
        svg::within_page(PANEL_WIDTH, PANEL_HEIGHT, &one.title, &body)
    });
    let meaning = svg::within_page(
        PANEL_WIDTH,
        LEGEND_HEIGHT,
        "what the colours of the drawings below stand for",
        &legend.draw(0.0),
    );
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

fn panels(section: &Section) -> Vec<Panel<'_>> {
    let is_drawn = |row: &&Row| {
        row.is_valid() && row.kind != RowKind::Control && !row.measured.heats.is_empty()
    };
    let rows = section.rows.iter().filter(is_drawn);
    rows.map(|row| Panel { section, row, grid: Grid::of(&row.measured.heats) }).collect()
}

/// The colours for all of a run, and how long a column is. None where there is nothing to draw.
fn legend(panels: &[Panel<'_>], seconds: f64) -> Option<Legend> {
    let most = panels.iter().map(|panel| panel.grid.most()).max()?;
    let first = &panels.first()?.grid;
    let column_s = seconds * first.samples as f64 / first.columns.len().max(1) as f64;
    (most > 0).then(|| Legend::new(most, column_s))
}

/// The panels of a depth of a section in a line, the depths below each other.
fn sheet(panels: &[Panel<'_>], legend: &Legend, draw: &dyn Fn(&Panel<'_>) -> String) -> String {
    let is_beside = |left: &Panel<'_>, right: &Panel<'_>| {
        std::ptr::eq(left.section, right.section) && left.row.depth == right.row.depth
    };
    let (mut body, mut y, mut widest) = (legend.draw(0.0), LEGEND_HEIGHT, 0.0_f64);
    for line in panels.chunk_by(is_beside) {
        let (section, depth) = (line[0].section, line[0].row.depth);
        body.push_str(&svg::heading(y, &format!("depth {depth}, {}", section.title)));
        y += HEADER_HEIGHT;
        for (index, panel) in line.iter().enumerate() {
            body.push_str(&svg::moved(index as f64 * PANEL_WIDTH, y, &draw(panel)));
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
        heat::bucket,
        plan::Workload,
        testing::{Figures, row},
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
        Section::new(Workload::Read, None, "read direct, 4k <blocks> & more".to_owned(), rows)
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
        assert_eq!(count, 3, "neither controls nor what is void");
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
