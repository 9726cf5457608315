//! Tests of the gain of each way to work today, and of the gains that are left out.

use ringwise_measure::statistics::Ratio;

use super::*;
use crate::{
    results::verdict::Decisive,
    testing::{Figures, row},
    workload::{form::facts::Facts, read, stat},
};

const DIRECT: Figures = Figures::DIRECT;

fn section(facts: &'static Facts, short: &str, rows: Vec<Row>) -> Section {
    let mut section = Section::new(facts, format!("{} of a test", facts.name), rows);
    section.short = short.to_owned();
    section.gains = of(&section, 1);
    section
}

fn rate(ops_per_s: f64) -> Figures {
    Figures { ops_per_s, ..DIRECT }
}

/// A row of direct reads at depth 32, in which the ring is twice as fast as tokio.
fn direct() -> Vec<Row> {
    vec![
        row("sync", RowKind::Rival, 1, rate(10_000.0)),
        row("uring", RowKind::Subject, 1, rate(10_100.0)),
        row("uring", RowKind::Control, 1, rate(10_000.0)),
        row("tokio", RowKind::Rival, 32, Figures { cpu_ns: 30_000.0, ..rate(40_000.0) }),
        row("threads", RowKind::Rival, 32, rate(70_000.0)),
        row("ringwise", RowKind::Variant, 32, Figures { latency_ns: 160_000, ..rate(80_000.0) }),
        row("uring", RowKind::Subject, 32, rate(100_000.0)),
        row("uring", RowKind::Control, 32, rate(100_000.0)),
    ]
}

fn one<'a>(section: &'a Section, from: &str, column: Column) -> &'a Gain {
    let is_it = |gain: &&Gain| gain.from == from && gain.column == column;
    section.gains.iter().find(is_it).unwrap_or_else(|| panic!("{from} {column:?}"))
}

#[test]
fn each_start_is_beside_the_row_that_it_would_be_changed_to_and_the_best() {
    let section = section(&read::FACTS, "O_DIRECT 4k", direct());
    let tokio = one(&section, "tokio", Column::Ring);
    assert_eq!((tokio.to.as_str(), tokio.finding), ("ringwise", Told::Gain));
    assert_eq!(tokio.decided_by, Some(Decisive::Throughput));
    let mid = |ratio: Option<Ratio>| (ratio.unwrap().mid * 100.0).round() / 100.0;
    let figures = (mid(tokio.ratio), mid(tokio.p99_ratio), mid(tokio.cpu_ratio));
    assert_eq!(figures, (2.0, 0.5, 0.1));
    assert_eq!(one(&section, "tokio", Column::Best).to, "uring");
    assert_eq!(one(&section, "threads", Column::Ring).to, "uring");
    let sync = one(&section, "sync", Column::Ring);
    assert_eq!((sync.to_depth, sync.finding), (1, Told::NoDifference));
    let deepest = one(&section, "sync", Column::DeepestRing);
    assert_eq!((deepest.to_depth, deepest.finding, mid(deepest.ratio)), (32, Told::Gain, 10.0));
    assert!(!section.gains.iter().any(|gain| gain.from == "threads" && gain.depth == 1));
}

/// Of tokio without its row of the library's files the ring of one thread is told.
#[test]
fn the_subject_stands_for_a_row_that_is_not_there() {
    let mut rows = direct();
    rows[5].measured.void = Some("wrong".to_owned());
    let section = section(&read::FACTS, "", rows);
    assert_eq!(one(&section, "tokio", Column::Ring).to, "uring");
}

#[test]
fn what_is_within_the_noise_is_no_difference_and_much_noise_says_nothing() {
    for (again, finding) in [(96_000.0, Told::NoDifference), (70_000.0, Told::Inconclusive)] {
        let rows = vec![
            row("threads", RowKind::Rival, 32, DIRECT),
            row("uring", RowKind::Subject, 32, rate(103_000.0)),
            row("uring", RowKind::Control, 32, rate(again)),
        ];
        let section = section(&read::FACTS, "", rows);
        let gain = one(&section, "threads", Column::Ring);
        assert_eq!(gain.finding, finding, "{gain:?}");
        let is_said =
            gain.reason.as_deref().is_some_and(|reason| reason.contains("the noise of 4"));
        assert_eq!(is_said, finding == Told::Inconclusive, "{gain:?}");
        // What was measured is told all the same.
        let text = answers(&[section])[0].text();
        let has_ratio = text.ends_with(" hides a difference (1.03 [1.03, 1.03] times).");
        assert_eq!(has_ratio, finding == Told::Inconclusive, "{text}");
    }
}

/// The noise of either depth counts where depths differ.
#[test]
fn the_noise_of_both_depths_counts() {
    let mut rows = direct();
    rows[2] = row("uring", RowKind::Control, 1, rate(500.0));
    let section = section(&read::FACTS, "", rows);
    assert_eq!(one(&section, "sync", Column::DeepestRing).finding, Told::Inconclusive);
}

#[test]
fn what_is_excluded_or_client_bound_says_why_not() {
    let mut rows = direct();
    rows[3].measured.void = Some("a block is wrong".to_owned());
    rows[4].measured.samples[0].client_bound = true;
    let section = section(&read::FACTS, "", rows);
    let tokio = one(&section, "tokio", Column::Ring);
    assert_eq!((tokio.finding, tokio.ratio), (Told::Excluded, None));
    assert_eq!(tokio.reason.as_deref(), Some("tokio: a block is wrong"));
    let threads = one(&section, "threads", Column::Ring);
    assert_eq!(threads.finding, Told::Inconclusive);
    assert!(threads.reason.as_deref().unwrap().starts_with("client-bound: "), "{threads:?}");
}

#[test]
fn rows_without_samples_say_nothing() {
    let mut rows = direct();
    rows.iter_mut().for_each(|row| row.measured = Default::default());
    assert!(section(&read::FACTS, "", rows).gains.is_empty());
    assert!(answers(&[]).is_empty());
}

#[test]
fn the_answer_starts_from_what_is_usual_and_names_where_to_keep_it() {
    let cached = Figures { device_share: 0.0, queue: 0.0, ..DIRECT };
    let warm = vec![
        row("mmap", RowKind::Rival, 32, Figures { ops_per_s: 400_000.0, ..cached }),
        row("threads", RowKind::Rival, 32, Figures { ops_per_s: 110_000.0, ..cached }),
        row("uring", RowKind::Subject, 32, cached),
    ];
    let sections =
        [section(&read::FACTS, "cached 4k", warm), section(&read::FACTS, "O_DIRECT 4k", direct())];
    let all = answers(&sections);
    assert_eq!(all.len(), 1);
    assert_eq!((all[0].finding, all[0].section), (Told::Gain, Some(1)));
    assert_eq!(
        all[0].text(),
        "You use spawn_blocking with 32 reads in flight (O_DIRECT 4k): io_uring gives 2.0 [2.0, 2.0] times \
         the reads at 0.10 of the CPU. Use ringwise::fs."
    );
    assert_eq!(
        all[0].loss.as_deref(),
        Some(
            "Keep the memory map with 32 reads in flight (cached 4k): io_uring gives only 0.25 [0.25, \
             0.25] times the reads at the same CPU."
        )
    );
}

/// Who reads that the ring is faster has to learn what is faster still.
#[test]
fn what_is_surely_faster_than_the_ring_is_said_beside_it() {
    let cached = Figures { device_share: 0.0, queue: 0.0, ..DIRECT };
    let rows = |mmap_ops_per_s| {
        vec![
            row("tokio", RowKind::Rival, 32, Figures { ops_per_s: 20_000.0, ..cached }),
            row("mmap", RowKind::Rival, 32, Figures { ops_per_s: mmap_ops_per_s, ..cached }),
            row("ringwise", RowKind::Variant, 32, cached),
            row("uring", RowKind::Subject, 32, cached),
        ]
    };
    let text = |mmap| answers(&[section(&read::FACTS, "cached 4k", rows(mmap))])[0].text();
    assert_eq!(
        text(400_000.0),
        "You use spawn_blocking with 32 reads in flight (cached 4k): io_uring gives 5.0 [5.0, 5.0] times the reads at \
         the same CPU, the memory map 20.0 [20.0, 20.0]. Use ringwise::fs."
    );
    assert!(!text(90_000.0).contains("the memory map"), "{}", text(90_000.0));
}

/// A gain that may be chance is not larger than one that is sure, and says nothing before what is usual.
#[test]
fn the_largest_gain_is_the_one_that_is_surely_large() {
    let wild = Figures { ops_per_s: 60_000.0, ..DIRECT };
    let mut rows = direct();
    rows.push(row("tokio", RowKind::Rival, 64, rate(20_000.0)));
    rows.push(row("uring", RowKind::Subject, 64, wild));
    let last = rows.last_mut().unwrap();
    for sample in &mut last.measured.samples {
        sample.ops_per_s *= [1.3, 1.0, 0.8][sample.block];
    }
    let section = section(&read::FACTS, "", rows);
    let uring = section.gains.iter().find(|gain| gain.depth == 64).unwrap();
    let Ratio { low, mid, .. } = uring.ratio.unwrap();
    assert!(uring.finding == Told::Gain && low < 1.9 && mid > 2.1, "{uring:?}");
    let answer = answers(std::slice::from_ref(&section)).remove(0);
    assert!(
        answer.text().starts_with("You use spawn_blocking with 32 reads in flight: "),
        "{answer:?}"
    );
}

/// What an answer says where two engines differ by these figures of the ring beside `sync` and `threads`.
fn told(sync: Figures, threads: Figures, ring: [Figures; 2]) -> (Told, String) {
    let rows = vec![
        row("sync", RowKind::Rival, 1, sync),
        row("uring", RowKind::Subject, 1, ring[0]),
        row("threads", RowKind::Rival, 32, threads),
        row("uring", RowKind::Subject, 32, ring[1]),
    ];
    let answer = answers(&[section(&stat::FACTS, "", rows)]).remove(0);
    (answer.finding, answer.text())
}

#[test]
fn each_kind_of_answer_has_its_words() {
    let few = rate(10_000.0);
    let (finding, text) = told(few, few, [few, rate(50_000.0)]);
    assert_eq!(finding, Told::Gain);
    assert_eq!(
        text,
        "You make one statx call at a time: io_uring with 32 in flight gives 5.0 [5.0, 5.0] \
         times the calls at the same CPU. Use ringwise::Local."
    );
    let less = Figures { cpu_ns: 1500.0, ..few };
    let (_, text) = told(few, few, [few, less]);
    assert!(text.contains(" gives as many calls at 0.50 [0.50, 0.50] of the CPU. "), "{text}");
    let slow = rate(5_000.0);
    let (finding, text) = told(few, few, [slow, slow]);
    assert_eq!(finding, Told::Loss);
    assert_eq!(
        text,
        "You make one statx call at a time: io_uring with 32 in flight gives only 0.50 [0.50, 0.50] \
         times the calls at the same CPU. Keep blocking calls."
    );
    // Another row is worth a change where the ring is not.
    let (finding, text) = told(few, rate(38_000.0), [slow, slow]);
    assert_eq!(finding, Told::Gain);
    assert_eq!(
        text,
        "You make one statx call at a time: a thread pool with 32 in flight gives 3.8 [3.8, 3.8] \
         times the calls at the same CPU. No gain there from io_uring."
    );
    let (finding, text) = told(few, few, [few, few]);
    assert_eq!(finding, Told::NoDifference);
    assert_eq!(
        text,
        "You make one statx call at a time: io_uring makes no difference: 1.00 [1.00, 1.00] times \
         the calls. Change nothing."
    );
}

#[test]
fn nothing_told_says_why() {
    let mut rows = direct();
    rows.iter_mut().for_each(|row| row.measured.void = Some("O_DIRECT refused".to_owned()));
    let excluded = section(&read::FACTS, "O_DIRECT 4k", rows);
    let answer = answers(&[excluded]).remove(0);
    assert_eq!((answer.finding, &answer.loss), (Told::Excluded, &None));
    assert_eq!(answer.text(), "(O_DIRECT 4k) excluded: sync: O_DIRECT refused.");
    assert_eq!(answer.short_text(), "excluded: sync: O_DIRECT refused.");
}

/// An engine that the facts do not name has its own name for words.
#[test]
fn a_server_that_the_user_named_has_its_name() {
    let rows = vec![
        row("my-server", RowKind::Program, 50, rate(50_000.0)),
        row("uring", RowKind::Subject, 50, DIRECT),
    ];
    let answer = answers(&[section(&crate::workload::echo::FACTS, "64 bytes", rows)]).remove(0);
    assert!(
        answer
            .text()
            .starts_with("You use my-server with 50 connections (64 bytes): io_uring gives 2.0 "),
        "{}",
        answer.text()
    );
}

/// Two sections of `echo`: a closed loop that was client-bound with 50 connections, and a fixed rate there.
fn beside_a_fixed_rate(ring_at_rate: Figures) -> [Section; 2] {
    let epoll = Figures { cpu_ns: 10_000.0, ..rate(60_000.0) };
    let mut bound = vec![
        // More of a gain than at the fixed rate, but not with as many connections.
        row("epoll", RowKind::Rival, 1, rate(10_000.0)),
        row("uring", RowKind::Subject, 1, rate(30_000.0)),
        row("epoll", RowKind::Rival, 50, DIRECT),
        row("uring", RowKind::Subject, 50, DIRECT),
    ];
    for row in bound.iter_mut().filter(|row| row.depth == 50) {
        row.measured.samples.iter_mut().for_each(|sample| sample.client_bound = true);
    }
    let at_rate = vec![
        row("epoll", RowKind::Rival, 50, epoll),
        row("uring", RowKind::Subject, 50, ring_at_rate),
    ];
    let facts = &crate::workload::echo::FACTS;
    let closed = section(facts, "64 bytes", bound);
    let mut fixed = section(facts, "64 bytes", at_rate);
    fixed.place.offered_per_s = Some(60_000);
    fixed.gains = of(&fixed, 1);
    [closed, fixed]
}

#[test]
fn a_fixed_rate_answers_in_place_of_a_closed_loop_that_could_not() {
    let kept = Figures { cpu_ns: 7000.0, latency_ns: 288_000, ..rate(60_000.0) };
    for (ring, finding, effect, advice) in [
        (
            kept,
            Told::Gain,
            "takes 0.70 [0.70, 0.70] of the CPU and 0.90 [0.90, 0.90] of the p99 at 60 000 requests/s",
            "Use ringwise::Local.",
        ),
        (
            Figures { cpu_ns: 15_000.0, ..kept },
            Told::Loss,
            "takes 1.50 [1.50, 1.50] times the CPU and 0.90 [0.90, 0.90] of the p99 at 60 000 requests/s",
            "Keep epoll.",
        ),
        (
            Figures { ops_per_s: 48_000.0, ..kept },
            Told::Loss,
            "does not keep 60 000 requests/s: only 0.80 [0.80, 0.80] times the requests",
            "Keep epoll.",
        ),
        (
            Figures { cpu_ns: 10_000.0, latency_ns: 320_000, ..kept },
            Told::NoDifference,
            "makes no difference: 1.00 [1.00, 1.00] times the CPU and 1.00 [1.00, 1.00] times the p99 at \
             60 000 requests/s",
            "Change nothing.",
        ),
        (
            Figures { cpu_ns: 10_000.0, ..kept },
            Told::Gain,
            "takes 1.00 [1.00, 1.00] times the CPU and 0.90 [0.90, 0.90] of the p99 at 60 000 requests/s",
            "Use ringwise::Local.",
        ),
    ] {
        let answer = answers(&beside_a_fixed_rate(ring)).remove(0);
        let text = format!(
            "You serve with epoll with 50 connections (64 bytes): io_uring {effect}. {advice}"
        );
        assert_eq!((answer.finding, answer.text()), (finding, text));
        assert_eq!(answer.section, Some(1));
    }
}

/// A tail that a few stalls decide is no figure.
#[test]
fn a_tail_that_the_noise_hides_is_not_told() {
    let mut sections = beside_a_fixed_rate(Figures { cpu_ns: 7000.0, ..rate(60_000.0) });
    for (sample, p99) in sections[1].rows[1].measured.samples.iter_mut().zip([9, 9, 1, 1, 30, 30]) {
        sample.latency_ns.p99 *= p99;
    }
    sections[1].gains = of(&sections[1], 1);
    let effect = answers(&sections).remove(0).effect;
    assert_eq!(
        effect,
        "io_uring takes 0.70 [0.70, 0.70] of the CPU at 60 000 requests/s (the noise hides its p99)"
    );
}

#[test]
fn at_a_fixed_rate_the_noise_is_that_of_cpu_time() {
    let ring = Figures { cpu_ns: 9500.0, ..rate(60_000.0) };
    let [_, mut fixed] = beside_a_fixed_rate(ring);
    fixed.rows.push(row("uring", RowKind::Control, 50, Figures { cpu_ns: 6000.0, ..ring }));
    fixed.gains = of(&fixed, 1);
    let text = answers(&[fixed]).remove(0).text();
    let told = "inconclusive: the noise of 58 % hides a difference of CPU time (0.95 [0.95, 0.95] of the CPU).";
    assert!(text.ends_with(told), "{text}");
}

/// What was not told apart at the fixed rate either leaves what the closed loop told elsewhere.
#[test]
fn a_fixed_rate_that_is_client_bound_too_answers_nothing() {
    let mut sections = beside_a_fixed_rate(Figures { cpu_ns: 7000.0, ..rate(60_000.0) });
    let samples = &mut sections[1].rows[0].measured.samples;
    samples.iter_mut().for_each(|sample| sample.client_bound = true);
    sections[1].gains = of(&sections[1], 1);
    assert_eq!(one(&sections[1], "epoll", Column::Ring).finding, Told::Inconclusive);
    let answer = answers(&sections).remove(0);
    assert!(answer.text().starts_with("You serve with epoll with one connection (64 bytes): "));
}

/// Beside a closed loop that does answer, a fixed rate is one section among others.
#[test]
fn a_fixed_rate_does_not_stand_in_for_a_closed_loop_that_answers() {
    let mut sections = beside_a_fixed_rate(Figures { cpu_ns: 7000.0, ..rate(60_000.0) });
    for row in &mut sections[0].rows {
        row.measured.samples.iter_mut().for_each(|sample| sample.client_bound = false);
    }
    sections[0].gains = of(&sections[0], 1);
    assert_eq!(answers(&sections).remove(0).section, Some(0));
    sections[1].place.block_bytes = 4096;
    assert_eq!(answers(&sections).remove(0).section, Some(0));
}
