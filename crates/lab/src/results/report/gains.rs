//! The gains of a section as cells of text: a line for each starting point and each row that it is
//! compared with.

use ringwise_measure::statistics::Ratio;

use super::figures::Cells;
use crate::results::{
    gain::{Column, Gain},
    verdict::interval_text,
};

/// The cells. `noun` is what a depth is called. A column in which no gain has anything is left out.
pub fn cells<'a>(noun: &str, gains: impl Iterator<Item = &'a Gain>) -> Cells {
    let gains: Vec<&Gain> = gains.collect();
    let mut cells = Cells {
        head: ["today", noun, "change to", "finding"].map(str::to_owned).into(),
        lines: gains.iter().map(|gain| first_cells(noun, gain)).collect(),
    };
    let interval = |ratio: Option<Ratio>| ratio.as_ref().map(interval_text);
    type Figure<'f> = &'f dyn Fn(&Gain) -> Option<String>;
    let columns: [(&str, Figure<'_>); 4] = [
        ("throughput", &|gain| interval(gain.ratio)),
        ("p99", &|gain| interval(gain.p99_ratio)),
        ("CPU/op", &|gain| interval(gain.cpu_ratio)),
        ("reason", &|gain| gain.reason.clone()),
    ];
    for (name, figure) in columns {
        let column: Vec<Option<String>> = gains.iter().map(|gain| figure(gain)).collect();
        if column.iter().any(Option::is_some) {
            cells.head.push(name.to_owned());
            let texts = column.into_iter().map(|cell| cell.unwrap_or_else(|| "-".to_owned()));
            cells.lines.iter_mut().zip(texts).for_each(|(line, text)| line.push(text));
        }
    }
    cells
}

fn first_cells(noun: &str, gain: &Gain) -> Vec<String> {
    let deeper = match gain.to_depth == gain.depth {
        true => String::new(),
        false => format!(" at {noun} {}", gain.to_depth),
    };
    let best = if gain.column == Column::Best { "the best: " } else { "" };
    vec![
        gain.from.clone(),
        gain.depth.to_string(),
        format!("{best}{}{deeper}", gain.to),
        gain.finding.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::section;

    #[test]
    fn a_gain_is_a_line_and_what_is_not_told_has_its_reason() {
        let section = section();
        let cells = cells("depth", section.gains.iter());
        let head =
            ["today", "depth", "change to", "finding", "throughput", "p99", "CPU/op", "reason"];
        assert_eq!(cells.head, head);
        let lines: Vec<String> = cells.lines.iter().map(|line| line.join("|")).collect();
        let gain = "6.67 [6.67, 6.67]|4.85 [4.85, 4.85]|1.00 [1.00, 1.00]|-";
        let mmap = "not measurable here: a mapping always goes through the page cache";
        assert_eq!(
            lines,
            [
                format!("sync|1|uring at depth 32|gain|{gain}"),
                format!("sync|1|the best: uring at depth 32|gain|{gain}"),
                format!("mmap|1|the best: sync|excluded|-|-|-|mmap: {mmap}"),
                "threads|32|uring|gain|1.25 [1.25, 1.25]|1.00 [1.00, 1.00]|0.43 [0.43, 0.43]|-".into(),
                "threads|32|the best: uring|gain|1.25 [1.25, 1.25]|1.00 [1.00, 1.00]|0.43 [0.43, 0.43]|-"
                    .into(),
            ]
        );
    }
}
