//! The break-even point over block sizes, from sections that differ in nothing else.

use super::group::Group;
use crate::{
    results::{
        section::Section,
        verdict::{BLOCK, BreakEven, Verdict},
    },
    sampling::job::Profile,
};

/// The verdicts of sections that differ only in the block. The last of them gets the advice from
/// which block on the ring wins, at the greatest depth that all have.
#[derive(Debug, Default)]
pub struct OverBlocks(Vec<(Profile, Verdict)>);

impl OverBlocks {
    /// Takes a section in. `groups` are all that there will be.
    pub fn add(&mut self, group: &Group, groups: &[Group], section: &mut Section) {
        let kin = || groups.iter().filter(|own| own.profile == group.profile);
        let blocks = kin().count();
        // The greatest depth that all of them have.
        let shared = |depth: &&usize| kin().all(|own| own.depths.contains(depth));
        let Some(&deepest) = group.depths.iter().filter(shared).max() else { return };
        let verdict = section.verdicts.iter().find(|verdict| verdict.depth == deepest);
        let of_block = verdict.map(|own| Verdict { depth: group.block_bytes, ..own.clone() });
        self.0.extend(of_block.map(|own| (group.profile, own)));
        let own = self.0.iter().filter(|(profile, _)| *profile == group.profile);
        let own: Vec<Verdict> = own.map(|(_, verdict)| verdict.clone()).collect();
        if let Some(found) = BreakEven::of(BLOCK, &own).filter(|_| own.len() == blocks) {
            section.advice.push(format!("{}, at depth {deepest}", found.text()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{args::Args, results::verdict::Finding, testing::read_groups};

    fn verdict(depth: usize, verdict: Finding) -> Verdict {
        let reason = String::new();
        let (winner, rival, noise_floor) = (None, None, None);
        Verdict { depth, verdict, winner, rival, ratio: None, cpu_ratio: None, noise_floor, reason }
    }

    #[test]
    fn the_block_from_which_the_ring_wins_is_told_with_the_last() {
        let groups = read_groups(&Args {
            workload: Some("read".to_owned()),
            block: Some("512,4k,64k".to_owned()),
            profile: Some("direct".to_owned()),
            depth: Some("1,32".to_owned()),
            ..Args::default()
        });
        let (groups, mut over) = (groups.unwrap(), OverBlocks::default());
        let findings = [Finding::DoNotUse, Finding::UseIt, Finding::UseIt];
        let told: Vec<Vec<String>> = groups
            .iter()
            .zip(findings)
            .map(|(group, finding)| {
                let mut section = crate::testing::section();
                section.advice.clear();
                section.verdicts = vec![verdict(1, Finding::DoNotUse), verdict(32, finding)];
                over.add(group, &groups, &mut section);
                section.advice
            })
            .collect();
        let expected = "break-even: the ring wins from block 4k on, at depth 32".to_owned();
        assert_eq!(told, [vec![], vec![], vec![expected.clone()]]);
        // At the greatest depth that all of them have, though one has a greater one.
        let mut deeper = groups.clone();
        deeper[0].depths.push(256);
        let mut over = OverBlocks::default();
        for (group, finding) in deeper.iter().zip(findings) {
            let mut section = crate::testing::section();
            section.advice.clear();
            section.verdicts = vec![verdict(32, finding), verdict(256, Finding::UseIt)];
            over.add(group, &deeper, &mut section);
            let told = Some(&expected).filter(|_| group.block_bytes == 64 << 10);
            assert_eq!(section.advice.first(), told);
        }
    }
}
