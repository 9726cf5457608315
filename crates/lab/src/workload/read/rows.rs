//! Which rows a group has.

use super::group::Group;
use crate::{
    engine::{Named, name::EngineName, threads::Threads, uring::Switches},
    results::row::RowKind,
};

/// A row to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowPlan {
    /// Which engine.
    pub engine: EngineName,
    /// What it is for.
    pub kind: RowKind,
    /// Reads in flight.
    pub depth: usize,
}

/// The rows of a group: every engine at every depth that it can have, and a control for each depth.
pub fn rows(group: &Group) -> Vec<RowPlan> {
    let subject = subject(&group.engines);
    let kind = |engine: EngineName| match engine {
        EngineName::Fio(_) => RowKind::Program,
        _ if Some(engine) == subject => RowKind::Subject,
        _ if engine.is_uring() || engine.is_handle() => RowKind::Variant,
        _ => RowKind::Rival,
    };
    let row = |engine, depth| RowPlan { engine, kind: kind(engine), depth };
    let single = group.engines.iter().filter(|engine| engine.is_single());
    let mut rows: Vec<RowPlan> = single.map(|&engine| row(engine, 1)).collect();
    let mut depths = group.depths.clone();
    depths.sort_unstable();
    for &depth in &depths {
        let many = group.engines.iter().filter(|engine| !engine.is_single());
        // One thread is what `sync` is.
        let many = many.filter(|engine| depth > 1 || !matches!(engine, EngineName::Threads(_)));
        rows.extend(many.map(|&engine| row(engine, depth)));
        let twin = |row: &&RowPlan| row.depth == depth && row.kind != RowKind::Program;
        let original = rows.iter().find(|row| row.depth == depth && row.kind == RowKind::Subject);
        if let Some(original) = original.or_else(|| rows.iter().find(twin)) {
            rows.push(RowPlan { kind: RowKind::Control, ..*original });
        }
    }
    let threads = EngineName::Threads(Threads);
    if group.engines.contains(&threads) && group.threads > 1 && !depths.contains(&group.threads) {
        rows.push(row(threads, group.threads));
    }
    rows.sort_by_key(|row| row.depth);
    rows
}

/// The ring that verdicts are about: as it comes, or else the first one named, or else the library's
/// files in tokio.
fn subject(engines: &[EngineName]) -> Option<EngineName> {
    let default = EngineName::Uring(Switches::DEFAULT);
    let first = |is: fn(EngineName) -> bool| engines.iter().copied().find(|&engine| is(engine));
    engines
        .contains(&default)
        .then_some(default)
        .or_else(|| first(EngineName::is_uring))
        .or_else(|| first(EngineName::is_handle))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{args::Args, testing::read_groups};

    fn planned(change: impl FnOnce(&mut Args)) -> Vec<String> {
        let mut args =
            Args { workload: Some("read".into()), threads: Some("2".into()), ..Args::default() };
        change(&mut args);
        let name = |row: RowPlan| format!("{}@{} {:?}", row.engine, row.depth, row.kind);
        rows(&read_groups(&args).unwrap()[0]).into_iter().map(name).collect()
    }

    #[test]
    fn every_depth_has_its_threads_and_its_control() {
        assert_eq!(
            planned(|args| args.depth = Some("1,32".into())),
            [
                "sync@1 Rival",
                "mmap@1 Rival",
                "tokio@1 Rival",
                "aio@1 Rival",
                "ringwise@1 Variant",
                "uring@1 Subject",
                "uring@1 Control",
                "threads@2 Rival",
                "threads@32 Rival",
                "mmap@32 Rival",
                "tokio@32 Rival",
                "aio@32 Rival",
                "ringwise@32 Variant",
                "uring@32 Subject",
                "uring@32 Control",
            ]
        );
    }

    #[test]
    fn without_a_ring_another_engine_is_the_control() {
        let rows = planned(|args| {
            args.depth = Some("2".into());
            args.engines = Some("fio,threads".into());
        });
        assert_eq!(rows, ["fio@2 Program", "threads@2 Rival", "threads@2 Control"]);
    }

    #[test]
    fn the_files_of_the_library_are_beside_the_ring_and_stand_for_it_where_there_is_none() {
        let rows = |engines: &str| {
            planned(|args| {
                args.depth = Some("4".into());
                args.engines = Some(engines.into());
            })
        };
        let beside = ["tokio@4 Rival", "ringwise@4 Variant", "uring@4 Subject", "uring@4 Control"];
        assert_eq!(rows("tokio,ringwise,uring"), beside);
        let alone = ["tokio@4 Rival", "ringwise@4 Subject", "ringwise@4 Control"];
        assert_eq!(rows("tokio,ringwise"), alone);
    }

    #[test]
    fn variants_are_not_the_subject() {
        let rows = planned(|args| {
            args.depth = Some("4".into());
            args.engines = Some("uring+sqpoll,uring".into());
        });
        assert_eq!(rows, ["uring+sqpoll@4 Variant", "uring@4 Subject", "uring@4 Control"]);
    }
}
