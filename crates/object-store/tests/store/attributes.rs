//! Attributes, which a store keeps if it is asked to.

use object_store::{
    Attribute, Attributes, GetOptions, ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions,
};

use super::{kind, path, store};

fn attributes() -> Attributes {
    Attributes::from_iter([
        (Attribute::ContentType, "text/plain; charset=utf-8"),
        (Attribute::CacheControl, ""),
        (Attribute::StorageClass, "cold"),
        (Attribute::Metadata("Größe".into()), "klein"),
    ])
}

async fn found(store: &dyn ObjectStore, location: &str) -> Attributes {
    let whole = store.get(&path(location)).await.unwrap().attributes;
    let options = GetOptions { head: true, ..GetOptions::default() };
    let head = store.get_opts(&path(location), options).await.unwrap().attributes;
    assert_eq!(whole, head);
    whole
}

#[tokio::test]
async fn they_are_refused_unless_they_are_asked_for() {
    let (store, directory) = store();
    let options = PutOptions { attributes: attributes(), ..PutOptions::default() };
    let refused = store.put_opts(&path("a"), "a".into(), options).await.unwrap_err();
    assert_eq!(kind(&refused), "NotImplemented");
    let options = PutMultipartOptions { attributes: attributes(), ..Default::default() };
    let refused = store.put_multipart_opts(&path("a"), options).await.unwrap_err();
    assert_eq!(kind(&refused), "NotImplemented");
    assert!(super::names(&directory).is_empty());
}

#[tokio::test]
async fn they_come_with_the_object_and_go_with_it() {
    let (store, _directory) = store();
    let store = store.with_attributes(true);
    let options = PutOptions { attributes: attributes(), ..PutOptions::default() };
    store.put_opts(&path("put"), "a".into(), options).await.unwrap();
    let options = PutMultipartOptions { attributes: attributes(), ..Default::default() };
    let mut upload = store.put_multipart_opts(&path("parts"), options).await.unwrap();
    upload.put_part("part".into()).await.unwrap();
    upload.complete().await.unwrap();
    store.copy(&path("put"), &path("copy")).await.unwrap();
    store.rename(&path("parts"), &path("renamed")).await.unwrap();
    for location in ["put", "copy", "renamed"] {
        assert_eq!(found(&store, location).await, attributes(), "{location}");
    }
    // A new object of the name has its own.
    store.put(&path("put"), "b".into()).await.unwrap();
    assert_eq!(found(&store, "put").await, Attributes::new());
    assert_eq!(found(&store, "copy").await, attributes());
}

#[tokio::test]
async fn too_long_ones_leave_nothing_behind() {
    let (store, directory) = store();
    let store = store.with_attributes(true);
    let long = Attributes::from_iter([(Attribute::Metadata("n".repeat(300).into()), "value")]);
    let options = PutOptions { attributes: long, ..PutOptions::default() };
    let refused = store.put_opts(&path("a"), "a".into(), options).await.unwrap_err();
    assert_eq!(kind(&refused), "Generic", "{refused}");
    assert!(super::names(&directory).is_empty());
}
