//! Which flags belong to which workloads: one that would be without effect is refused.

use super::{Workload, check::usage};
use crate::{args::Args, error::LabError};

/// Refuses flags that none of the workloads looks at. `named` is none for the whole suite, which
/// takes only what all of them take.
///
/// # Errors
///
/// [`LabError::Usage`], which names the flag and whose it is.
pub(super) fn check(args: &Args, named: Option<Workload>) -> Result<(), LabError> {
    use Workload::{Chain, Copy, Echo, Latency, Log, Nop, Read, Stat};
    let given: [(&str, bool, &[Workload]); 24] = [
        ("--engines", args.engines.is_some(), &[Read, Latency, Echo, Copy, Log]),
        ("--ablate", args.ablate, &[Read]),
        ("--depth", args.depth.is_some(), &[Read, Nop, Chain, Stat, Copy]),
        ("--block", args.block.is_some(), &[Read, Latency, Copy]),
        ("--profile", args.profile.is_some(), &[Read, Latency, Chain]),
        ("--pattern", args.pattern.is_some(), &[Read]),
        ("--cache", args.cache.is_some(), &[Read, Latency, Copy]),
        ("--size", args.size.is_some(), &[Read, Latency, Chain, Copy]),
        ("--files", args.files.is_some(), &[Read, Stat]),
        ("--threads", args.threads.is_some(), &[Read]),
        ("--sync", args.sync.is_some(), &[Chain]),
        ("--connections", args.connections.is_some(), &[Echo, Log]),
        ("--length", args.length.is_some(), &[Echo, Log]),
        ("--target", !args.target.is_empty(), &[Echo, Log]),
        ("--guarantee", args.guarantee.is_some(), &[Log]),
        ("--transport", args.transport.is_some(), &[Log]),
        ("--rate", args.rate.is_some(), &[Log]),
        ("--gather", args.gather.is_some(), &[Log]),
        ("--batch", args.batch.is_some(), &[Log]),
        ("--heatmap", args.heatmap.is_some(), &[Read]),
        ("--keep", args.keep && named.is_some(), &[Read, Latency, Chain, Copy]),
        ("--sets", args.sets.is_some(), &[Copy]),
        ("--study", args.study, &[Copy]),
        ("--reads", args.reads.is_some(), &[Read, Latency, Nop, Chain, Stat]),
    ];
    for (flag, is_given, takers) in given {
        if is_given && !named.is_some_and(|workload| takers.contains(&workload)) {
            let names: Vec<&str> = takers.iter().map(|workload| workload.name()).collect();
            let name = if names.len() > 1 { "workloads" } else { "workload" };
            return Err(usage(flag, format_args!("is for the {name} {}", names.join(", "))));
        }
    }
    Ok(())
}
