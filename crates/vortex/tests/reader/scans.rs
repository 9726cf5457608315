//! Whole Vortex files, opened and scanned through the source and through Vortex's own reader.

use std::sync::Arc;

use futures::TryStreamExt;
use ringwise::BackendChoice;
use ringwise_vortex::FileSource;
use vortex_array::{
    ArrayRef, IntoArray, VortexSessionExecute, array_session,
    arrays::{PrimitiveArray, StructArray, VarBinViewArray, struct_::StructArrayExt},
    expr::{root, select},
};
use vortex_buffer::Buffer;
use vortex_file::{
    OpenOptionsSessionExt, VortexFile, WriteOptionsSessionExt, register_default_encodings,
};
use vortex_io::{
    CoalesceConfig,
    session::{RuntimeSession, RuntimeSessionExt},
};
use vortex_layout::{scan::scan_builder::ScanBuilder, session::LayoutSession};
use vortex_scan::strict_sorted_buffer::StrictSortedBuffer;
use vortex_session::VortexSession;

use crate::{BACKENDS, place, ring};

const ROWS: u64 = 300_000;

fn session() -> VortexSession {
    let session = array_session().with::<LayoutSession>().with::<RuntimeSession>().with_tokio();
    register_default_encodings(&session);
    session
}

/// A number that depends on all bits of another (splitmix64), so that nothing makes it shorter.
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

fn column(number: u64) -> Buffer<u64> {
    (0..ROWS).map(|row| mixed(row * 3 + number)).collect()
}

async fn table(session: &VortexSession) -> Vec<u8> {
    let columns = [0, 1, 2].map(|number| (format!("column {number}"), column(number).into_array()));
    written(&columns, session).await
}

async fn written(columns: &[(impl AsRef<str>, ArrayRef)], session: &VortexSession) -> Vec<u8> {
    let table = StructArray::from_fields(columns).unwrap().into_array();
    let mut bytes = Vec::new();
    let options = session.write_options().disable_editions();
    options.write(&mut bytes, table.to_array_stream()).await.unwrap();
    bytes
}

/// The numbers of a column, through a scan of that column alone.
async fn scanned(file: &VortexFile, session: &VortexSession, name: &str) -> Vec<u64> {
    let projection = select([name], root()).bind(file.dtype()).unwrap();
    let scan = file.scan().unwrap().with_projection(projection.optimize_recursive().unwrap());
    let chunks: Vec<_> = scan.into_array_stream().unwrap().try_collect().await.unwrap();
    let mut context = session.create_execution_ctx();
    let mut numbers = Vec::new();
    for chunk in chunks {
        let table = chunk.execute::<StructArray>(&mut context).unwrap();
        let column = table.unmasked_field(0).clone();
        let column = column.execute::<PrimitiveArray>(&mut context).unwrap();
        numbers.extend_from_slice(column.as_slice::<u64>());
    }
    numbers
}

#[tokio::test(flavor = "multi_thread")]
async fn scans_give_the_table_that_was_written() {
    let (_directory, path) = place();
    let session = session();
    std::fs::write(&path, table(&session).await).unwrap();
    let own = session.open_options().open_path(&path).await.unwrap();
    for choice in BACKENDS {
        let source = FileSource::open(&ring(choice), &path).await.unwrap();
        // Requests that are joined, and a request for each segment.
        let joined = source.clone();
        let alone = source.with_coalescing(CoalesceConfig::new(0, 0)).with_concurrency(1);
        for source in [joined, alone] {
            let file = session.open_options().open(Arc::new(source)).await.unwrap();
            assert_eq!(file.row_count(), ROWS);
            for number in 0..3 {
                let name = format!("column {number}");
                let numbers = scanned(&file, &session, &name).await;
                assert!(numbers == column(number).as_slice(), "{choice:?}: {name}");
                assert!(numbers == scanned(&own, &session, &name).await, "{choice:?}: {name}");
            }
        }
    }
}

/// The rows of a scan: the numbers of the first column, and texts of which some are missing.
async fn rows(scan: ScanBuilder<ArrayRef>, session: &VortexSession) -> Vec<(u64, Option<String>)> {
    let chunks: Vec<_> = scan.into_array_stream().unwrap().try_collect().await.unwrap();
    let mut context = session.create_execution_ctx();
    let mut rows = Vec::new();
    for chunk in chunks {
        let table = chunk.execute::<StructArray>(&mut context).unwrap();
        let numbers = table.unmasked_field(0).clone();
        let numbers = numbers.execute::<PrimitiveArray>(&mut context).unwrap();
        let texts = table.unmasked_field(1).clone();
        let texts = texts.execute::<VarBinViewArray>(&mut context).unwrap();
        for (at, number) in numbers.as_slice::<u64>().iter().enumerate() {
            let is_there = texts.is_valid(at, &mut context).unwrap();
            let text = || String::from_utf8(texts.bytes_at(at).as_slice().to_vec()).unwrap();
            rows.push((*number, is_there.then(text)));
        }
    }
    rows
}

fn text(row: u64) -> Option<String> {
    (row % 7 != 3).then(|| format!("{:x} of {}", mixed(row), row % 50))
}

#[tokio::test(flavor = "multi_thread")]
async fn chosen_rows_are_those_that_were_written() {
    let (_directory, path) = place();
    let session = session();
    let texts = VarBinViewArray::from_iter_nullable_str((0..ROWS).map(text)).into_array();
    let columns = [("number", column(0).into_array()), ("text", texts)];
    std::fs::write(&path, written(&columns, &session).await).unwrap();
    let own = session.open_options().open_path(&path).await.unwrap();
    let ranges = [0..1, 8_191..8_193, 100_000..140_001, ROWS - 3..ROWS];
    let spread: Vec<u64> = (0..ROWS).filter(|row| mixed(*row).is_multiple_of(3_000)).collect();
    for choice in BACKENDS {
        let source = FileSource::open(&ring(choice), &path).await.unwrap();
        let file = session.open_options().open(Arc::new(source)).await.unwrap();
        let scan = |file: &VortexFile| file.scan().unwrap();
        for range in &ranges {
            let expected: Vec<_> = range.clone().map(|row| (mixed(row * 3), text(row))).collect();
            for file in [&own, &file] {
                let found = rows(scan(file).with_row_range(range.clone()), &session).await;
                assert!(found == expected, "{choice:?}: rows {range:?}");
            }
        }
        let expected: Vec<_> = spread.iter().map(|row| (mixed(row * 3), text(*row))).collect();
        for file in [&own, &file] {
            let indices = StrictSortedBuffer::try_new(spread.iter().copied().collect()).unwrap();
            let found = rows(scan(file).with_row_indices(indices), &session).await;
            assert!(found == expected, "{choice:?}: spread rows");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_scan_harms_no_other() {
    let (_directory, path) = place();
    let session = session();
    std::fs::write(&path, table(&session).await).unwrap();
    for choice in BACKENDS {
        let source = FileSource::open(&ring(choice), &path).await.unwrap();
        let file = session.open_options().open(Arc::new(source)).await.unwrap();
        for taken in [0, 1, 3] {
            let mut scan = Box::pin(file.scan().unwrap().into_array_stream().unwrap());
            let _ = futures::poll!(scan.try_next());
            for _ in 0..taken {
                assert!(scan.try_next().await.unwrap().is_some());
            }
            drop(scan);
            assert!(scanned(&file, &session, "column 1").await == column(1).as_slice());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_file_is_an_error() {
    let (_directory, path) = place();
    let session = session();
    let bytes = table(&session).await;
    let ring = ring(BackendChoice::Auto);
    for len in [0, 3, 8, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(&path, &bytes[..len]).unwrap();
        let source = FileSource::open(&ring, &path).await.unwrap();
        assert!(session.open_options().open(Arc::new(source)).await.is_err(), "{len} bytes");
    }
    // The end of the file is there, and the segments before it are not.
    let source = FileSource::open(&ring, &path).await.unwrap();
    std::fs::write(&path, &bytes).unwrap();
    let file = session.open_options().open(Arc::new(source)).await.unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(100).unwrap();
    let scan = file.scan().unwrap().into_array_stream().unwrap();
    assert!(scan.try_collect::<Vec<_>>().await.is_err());
}
