//! object_store's own integration suite, on the ring and on classic syscalls.

use object_store::integration::*;
use ringwise::{BackendChoice, Builder};
use ringwise_object_store::RingFileSystem;

async fn whole_suite(choice: BackendChoice, fsync: bool) {
    let directory = tempfile::tempdir().unwrap();
    let ring = Builder::default().backend(choice).build_ring().unwrap();
    let store = RingFileSystem::with_ring(ring, &directory).unwrap();
    passes(store.with_fsync(fsync).with_attributes(fsync)).await;
}

/// All that `LocalFileSystem` passes, and the response's extensions, which it has none of.
pub async fn passes(store: RingFileSystem) {
    put_get_delete_list(&store).await;
    list_with_offset_exclusivity(&store).await;
    get_opts(&store).await;
    list_uses_directories_correctly(&store).await;
    list_with_delimiter(&store).await;
    rename_and_copy(&store).await;
    copy_if_not_exists(&store).await;
    copy_rename_nonexistent_object(&store).await;
    stream_get(&store).await;
    put_opts(&store, false).await;
    put_get_attributes(&store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_suite_passes_on_the_best_backend() {
    whole_suite(BackendChoice::Auto, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_suite_passes_on_classic_syscalls() {
    whole_suite(BackendChoice::Classic, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_suite_passes_with_durable_writes_and_attributes() {
    whole_suite(BackendChoice::Auto, true).await;
}

#[tokio::test]
async fn the_suite_passes_on_a_runtime_of_one_thread() {
    whole_suite(BackendChoice::Auto, false).await;
}
