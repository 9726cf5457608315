//! Random programs of reads, writes, lengths and syncs against a vector of bytes.

use proptest::{prelude::*, test_runner::TestRunner};
use ringwise::{Buffer, Descriptor, Local, OpenOptions, Operation};

use crate::loops::{Loop, run};

#[derive(Clone, Debug)]
enum Step {
    Write { at: usize, len: usize, fill: u8 },
    Read { at: usize, len: usize },
    SetLen { len: usize },
    Sync,
}

const LEN_MAX: usize = 20_000;

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..LEN_MAX, 0..9000_usize, any::<u8>())
            .prop_map(|(at, len, fill)| Step::Write { at, len, fill }),
        3 => (0..LEN_MAX, 0..9000_usize).prop_map(|(at, len)| Step::Read { at, len }),
        1 => (0..LEN_MAX).prop_map(|len| Step::SetLen { len }),
        1 => Just(Step::Sync),
    ]
}

pub fn random_programs_agree_with_a_model(way: Loop) {
    let mut runner = TestRunner::new(ProptestConfig::with_cases(48));
    let programs = proptest::collection::vec(step(), 1..40);
    let result = runner.run(&programs, |program| {
        let (mut local, directory) = (way.build(), way.disk());
        let path = directory.path().join("file");
        let options = OpenOptions::new().create_new(true).read(true).write(true);
        let file = directory.open_with(&path, options);
        let mut model = Vec::new();
        for step in &program {
            perform(&mut local, &file, &mut model, step);
        }
        prop_assert_eq!(directory.read(&path).unwrap(), model);
        Ok(())
    });
    result.unwrap();
}

fn perform(local: &mut Local, file: &Descriptor, model: &mut Vec<u8>, step: &Step) {
    match *step {
        Step::Write { at, len, fill } => {
            let buffer = Buffer::from(vec![fill; len + 7]).slice(7..);
            let written = run(local, Operation::write_at(file, buffer, at as u64));
            assert_eq!(written.result().unwrap(), len);
            if len > 0 {
                model.resize(model.len().max(at + len), 0);
                model[at..at + len].fill(fill);
            }
        }
        Step::Read { at, len } => {
            let read = run(local, Operation::read_at(file, vec![0; len], at as u64));
            let count = read.result().unwrap();
            assert_eq!(count, len.min(model.len().saturating_sub(at)));
            let start = at.min(model.len());
            let buffer = read.into_buffer().unwrap();
            assert_eq!(buffer.as_slice()[..count], model[start..start + count]);
        }
        Step::SetLen { len } => {
            run(local, Operation::set_len(file, len as u64)).result().unwrap();
            model.resize(len, 0);
        }
        Step::Sync => assert_eq!(run(local, Operation::sync_data(file)).result().unwrap(), 0),
    }
}
