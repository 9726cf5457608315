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

/// Who uses a body, and which steps are the first and the last to.
#[derive(Default)]
struct Use {
    threads: BTreeSet<usize>,
    /// When it begins, and where it is: its thread, and its number there.
    first: Option<(u64, usize, usize)>,
    /// The same.
    last: Option<(u64, usize, usize)>,
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
            own.last = own.last.max(Some(this));
        }
    }
    uses
}

fn made(script: &Script, uses: &[Use], before: Option<usize>, body: usize) -> Made {
    let frees = before.is_some_and(|before| {
        // What a file had when the replay begins is needed again.
        script.bodies[before].bytes == 0 && has_ended(script, &uses[before], &uses[body])
    });
    Made { before, frees }
}

/// Whether nobody uses a body any more when another one begins. Threads are in no order between each other.
fn has_ended(script: &Script, body: &Use, next: &Use) -> bool {
    let (Some((_, _, last)), Some((_, thread, first))) = (body.last, next.first) else {
        return false;
    };
    let all_before_have_ended = script.threads[thread][first].after >= first;
    body.threads == BTreeSet::from([thread]) && last < first && all_before_have_ended
}

#[cfg(test)]
mod tests {
    use ringwise_trace::{File, FileId, Kind, Operation};

    use super::*;
    use crate::program::{
        replay::script::CacheChoice,
        traced::tests::{file, number, operation, traced},
    };

    /// A file of these lives, of which threads write one after the other, by their numbers.
    fn script(lives: &[Option<u64>], writes: &[(u32, u32)]) -> Script {
        let write = |(at, &(life, thread)): (u64, &(u32, u32))| Operation {
            file: Some(FileId(number(life))),
            ..operation(thread, Kind::Write, (at * 10, 1))
        };
        let mut trace = traced((1..).zip(writes).map(write).collect());
        let life = |(id, &made_ns): (u32, &Option<u64>)| File {
            name: Name::Path("/journal".into()),
            made_ns,
            ..file(id, 0)
        };
        trace.files = (1..).zip(lives).map(life).collect();
        Script::of(&trace, CacheChoice::Recorded, false)
    }

    #[test]
    fn each_life_of_a_file_ends_with_the_next() {
        let script = script(&[None, Some(15), Some(25)], &[(1, 1), (2, 1), (3, 1)]);
        let made: Vec<_> = script.bodies.iter().map(|body| body.made).collect();
        let of = |before, frees| Some(Made { before: Some(before), frees });
        assert_eq!(made, [None, of(0, true), of(1, true)]);
        let makes: Vec<_> = script.threads[0].iter().map(|step| step.makes).collect();
        assert_eq!(makes, [None, Some(1), Some(2)]);
    }

    #[test]
    fn what_may_still_be_used_keeps_its_blocks() {
        let made = |writes: &[(u32, u32)]| {
            let script = script(&[Some(5), Some(15)], writes);
            script.bodies.iter().map(|body| body.made).collect::<Vec<_>>()
        };
        let of = |before, frees| Some(Made { before, frees });
        assert_eq!(made(&[(1, 1), (2, 1)]), [of(None, false), of(Some(0), true)]);
        let kept = [of(None, false), of(Some(0), false)];
        assert_eq!(made(&[(1, 1), (2, 2)]), kept, "by another thread");
        assert_eq!(made(&[(1, 1), (2, 1), (1, 1)]), kept, "open without a name");
    }
}
