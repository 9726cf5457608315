//! Random programs of operations, beside the store in memory of object_store.

use std::ops::Range;

use futures::TryStreamExt;
use object_store::{
    GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutPayload,
    memory::InMemory, path::Path,
};
use proptest::prelude::*;
use ringwise::BackendChoice;

use crate::{kind, path, store_on};

/// None is a directory of another: in memory, an object and a directory may have one name.
const NAMES: [&str; 6] = ["a", "b c", "d/a", "d/b", "d/e/%2F", "f/g/h"];

#[derive(Clone, Debug)]
enum Step {
    Put { to: usize, len: usize, creates: bool },
    Upload { to: usize, parts: Vec<usize>, completes: bool },
    Get { from: usize, range: Option<GetRange> },
    GetRanges { from: usize, ranges: Vec<Range<u64>> },
    Head { from: usize },
    Delete { from: usize },
    Copy { from: usize, to: usize, creates: bool },
    Rename { from: usize, to: usize, creates: bool },
    List { prefix: Option<&'static str>, offset: Option<usize> },
    ListLevel { prefix: Option<&'static str> },
}

fn step() -> impl Strategy<Value = Step> {
    let name = || 0..NAMES.len();
    let prefix = || prop_oneof![Just(None), Just(Some("d")), Just(Some("f/g")), Just(Some("x"))];
    let range = || {
        prop_oneof![
            Just(None),
            (0..200_u64, 0..200_u64).prop_map(|(start, end)| Some(GetRange::Bounded(start..end))),
            (0..200_u64).prop_map(|start| Some(GetRange::Offset(start))),
            (0..200_u64).prop_map(|len| Some(GetRange::Suffix(len))),
        ]
    };
    let inner = (0..90_u64, 0..10_u64).prop_map(|(start, len)| start..start + len);
    prop_oneof![
        4 => (name(), 0..200_usize, any::<bool>())
            .prop_map(|(to, len, creates)| Step::Put { to, len, creates }),
        2 => (name(), prop::collection::vec(0..100_usize, 0..4), any::<bool>())
            .prop_map(|(to, parts, completes)| Step::Upload { to, parts, completes }),
        3 => (name(), range()).prop_map(|(from, range)| Step::Get { from, range }),
        3 => (name(), prop::collection::vec(inner, 0..6))
            .prop_map(|(from, ranges)| Step::GetRanges { from, ranges }),
        1 => name().prop_map(|from| Step::Head { from }),
        2 => name().prop_map(|from| Step::Delete { from }),
        2 => (name(), name(), any::<bool>())
            .prop_map(|(from, to, creates)| Step::Copy { from, to, creates }),
        2 => (name(), name(), any::<bool>())
            .prop_filter("in memory a rename onto itself removes the object", |(from, to, _)| from != to)
            .prop_map(|(from, to, creates)| Step::Rename { from, to, creates }),
        2 => (prefix(), prop::option::of(name()))
            .prop_map(|(prefix, offset)| Step::List { prefix, offset }),
        1 => prefix().prop_map(|prefix| Step::ListLevel { prefix }),
    ]
}

fn bytes(seed: usize, len: usize) -> PutPayload {
    (0..len).map(|at| (at * 7 + seed) as u8).collect::<Vec<_>>().into()
}

fn metas(mut metas: Vec<ObjectMeta>) -> String {
    metas.sort_by(|a, b| a.location.cmp(&b.location));
    let texts = metas.iter().map(|meta| format!("{} {}", meta.location, meta.size));
    texts.collect::<Vec<_>>().join(", ")
}

/// Makes a step, and tells what came of it.
async fn make(store: &dyn ObjectStore, seed: usize, step: &Step) -> object_store::Result<String> {
    let name = |at: usize| path(NAMES[at]);
    match step {
        Step::Put { to, len, creates } => {
            let mode = if *creates { PutMode::Create } else { PutMode::Overwrite };
            store.put_opts(&name(*to), bytes(seed, *len), mode.into()).await?;
        }
        Step::Upload { to, parts, completes } => {
            let mut upload = store.put_multipart(&name(*to)).await?;
            let parts: Vec<_> =
                parts.iter().map(|len| upload.put_part(bytes(seed, *len))).collect();
            futures::future::try_join_all(parts).await?;
            match completes {
                true => drop(upload.complete().await?),
                false => upload.abort().await?,
            }
        }
        Step::Get { from, range } => {
            let options = GetOptions { range: range.clone(), ..Default::default() };
            let got = store.get_opts(&name(*from), options).await?;
            let range = got.range.clone();
            return Ok(format!("{range:?} {:?}", got.bytes().await?));
        }
        Step::GetRanges { from, ranges } => {
            let size = store.head(&name(*from)).await?.size;
            let ranges: Vec<_> = ranges
                .iter()
                .filter(|range| range.end <= size && !range.is_empty())
                .cloned()
                .collect();
            return Ok(format!("{:?}", store.get_ranges(&name(*from), &ranges).await?));
        }
        Step::Head { from } => return Ok(store.head(&name(*from)).await?.size.to_string()),
        Step::Delete { from } => {
            // In memory, a delete of nothing succeeds.
            store.head(&name(*from)).await?;
            store.delete(&name(*from)).await?;
        }
        Step::Copy { from, to, creates: true } => {
            store.copy_if_not_exists(&name(*from), &name(*to)).await?;
        }
        Step::Copy { from, to, .. } => store.copy(&name(*from), &name(*to)).await?,
        Step::Rename { from, to, creates: true } => {
            store.rename_if_not_exists(&name(*from), &name(*to)).await?;
        }
        Step::Rename { from, to, .. } => store.rename(&name(*from), &name(*to)).await?,
        Step::List { prefix, offset } => {
            let prefix = prefix.map(path);
            let listed = match offset {
                Some(offset) => store.list_with_offset(prefix.as_ref(), &name(*offset)),
                None => store.list(prefix.as_ref()),
            };
            return Ok(metas(listed.try_collect().await?));
        }
        Step::ListLevel { prefix } => return level(store, prefix.map(path)).await,
    }
    Ok("done".to_owned())
}

/// One level, without the directories that no object is in.
async fn level(store: &dyn ObjectStore, prefix: Option<Path>) -> object_store::Result<String> {
    let listed = store.list_with_delimiter(prefix.as_ref()).await?;
    let mut text = metas(listed.objects);
    for directory in listed.common_prefixes {
        if store.list(Some(&directory)).try_next().await?.is_some() {
            text += &format!(", {directory}/");
        }
    }
    Ok(text)
}

fn outcome(result: object_store::Result<String>) -> String {
    match result {
        Ok(text) => text,
        Err(error) => kind(&error).to_owned(),
    }
}

fn compare(choice: BackendChoice, steps: &[Step]) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    runtime.block_on(async {
        let (store, _directory) = store_on(choice);
        let model = InMemory::new();
        for (seed, step) in steps.iter().enumerate() {
            let ours = outcome(make(&store, seed, step).await);
            let theirs = outcome(make(&model, seed, step).await);
            assert_eq!(ours, theirs, "step {seed}: {step:?}");
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn the_store_does_as_the_one_in_memory(steps in prop::collection::vec(step(), 1..60)) {
        compare(BackendChoice::Auto, &steps);
    }

    #[test]
    fn the_store_does_so_on_classic_syscalls(steps in prop::collection::vec(step(), 1..60)) {
        compare(BackendChoice::Classic, &steps);
    }
}
