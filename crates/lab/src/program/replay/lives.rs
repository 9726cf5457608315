//! Files that the program made: in a replay, too, their names appear when they are first used, and go when the next file
//! of the same name is made.
//!
//! A sync writes what was changed in directories and in tables of inodes as well, and a program that makes its journal
//! anew for each transaction waits for that. The files of a replay are there before it begins and stay open, so only
//! their names come and go, and the blocks of those that nobody uses any more.

use std::collections::{BTreeSet, HashMap};

use ringwise_trace::Name;

use super::script::Script;

/// How a file is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Made {
    /// The body of the file that had the name before.
    pub before: Option<usize>,
    /// Whether that one's blocks are free from then on.
    pub frees: bool,
}

/// Who uses a body, and which step is the first to.
#[derive(Default)]
struct Use {
    threads: BTreeSet<usize>,
    /// When it begins, and where it is: its thread, and its number there.
    first: Option<(u64, usize, usize)>,
}

/// Marks the bodies of files that were made, and the steps before which they are. `bodies` are known by their names and
/// by when they were made.
pub(super) fn mark(script: &mut Script, bodies: &HashMap<(Name, Option<u64>), usize>) {
    let uses = uses(script);
    let mut by_name: HashMap<&Name, Vec<(Option<u64>, usize)>> = HashMap::new();
    for ((name, made_ns), body) in bodies {
        by_name.entry(name).or_default().push((*made_ns, *body));
    }
    for mut lives in by_name.into_values() {
        // One that was there when the recording began comes first.
        lives.sort_unstable();
        let mut before = None;
        for (made_ns, body) in lives {
            if made_ns.is_some() {
                script.bodies[body].made = Some(made(script, &uses, before, body));
                if let Some((_, thread, number)) = uses[body].first {
                    script.threads[thread][number].makes = Some(body);
                }
            }
            before = Some(body);
        }
    }
}

fn uses(script: &Script) -> Vec<Use> {
    let mut uses: Vec<Use> = script.bodies.iter().map(|_| Use::default()).collect();
    for (thread, steps) in script.threads.iter().enumerate() {
        for (number, step) in steps.iter().enumerate() {
            let own = &mut uses[script.handles[step.handle].body];
            own.threads.insert(thread);
            let this = (step.begin_ns, thread, number);
            own.first = Some(own.first.map_or(this, |first| first.min(this)));
        }
    }
    uses
}

fn made(script: &Script, uses: &[Use], before: Option<usize>, body: usize) -> Made {
    // Threads are in no order between each other, and what a file had when the replay begins is needed again.
    let frees = before.is_some_and(|before| {
        let threads = &uses[before].threads;
        script.bodies[before].bytes == 0 && threads.len() == 1 && *threads == uses[body].threads
    });
    Made { before, frees }
}

#[cfg(test)]
mod tests {
    use ringwise_trace::{File, FileId, Kind, Operation};

    use super::*;
    use crate::program::{
        replay::script::CacheChoice,
        traced::tests::{file, number, operation, traced},
    };

    /// A file of these lives, each written once by its thread.
    fn script(lives: &[(Option<u64>, u32)]) -> Script {
        let lives: Vec<_> = (1..).zip(lives).collect();
        let write = |&(id, &(_, thread)): &(u64, &(Option<u64>, u32))| Operation {
            file: Some(FileId(number(id as u32))),
            ..operation(thread, Kind::Write, (id * 10, 1))
        };
        let mut trace = traced(lives.iter().map(write).collect());
        let life = |&(id, &(made_ns, _)): &(u64, &(Option<u64>, u32))| File {
            name: Name::Path("/journal".into()),
            made_ns,
            ..file(id as u32, 0)
        };
        trace.files = lives.iter().map(life).collect();
        Script::of(&trace, CacheChoice::Recorded, false)
    }

    #[test]
    fn each_life_of_a_file_ends_with_the_next() {
        let script = script(&[(None, 1), (Some(15), 1), (Some(25), 1)]);
        let made: Vec<_> = script.bodies.iter().map(|body| body.made).collect();
        let of = |before, frees| Some(Made { before: Some(before), frees });
        assert_eq!(made, [None, of(0, true), of(1, true)]);
        let makes: Vec<_> = script.threads[0].iter().map(|step| step.makes).collect();
        assert_eq!(makes, [None, Some(1), Some(2)]);
    }

    #[test]
    fn what_another_thread_may_still_use_keeps_its_blocks() {
        let script = script(&[(Some(5), 1), (Some(15), 2)]);
        let made: Vec<_> = script.bodies.iter().map(|body| body.made).collect();
        let of = |before| Some(Made { before, frees: false });
        assert_eq!(made, [of(None), of(Some(0))]);
        assert_eq!(script.threads[1][0].makes, Some(1));
    }
}
