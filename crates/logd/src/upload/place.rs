//! The place that `--upload` names: a directory, or a bucket of S3, GCS or Azure.
//!
//! The stores of clouds need many crates and are behind the feature `cloud`. A directory has to exist: after an unmount
//! its parent is an empty directory of another disk, and nothing may be written there.

use std::{fmt, sync::Arc};

use object_store::{
    ObjectStore, ObjectStoreScheme, local::LocalFileSystem, path::Path, prefix::PrefixStore,
};
use url::Url;

use crate::ship::destination::Trouble;

/// What the option takes.
const EXPECTED: &str =
    "expected file:///DIRECTORY, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX";

/// A place for objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    url: Url,
}

/// Makes a store of what it needs, as often as it is called.
/// It may hang with the file system of a directory.
pub(super) type Connect = Arc<dyn Fn() -> Result<Arc<dyn ObjectStore>, Trouble> + Send + Sync>;

/// Reads the value of an option.
pub(crate) fn place(text: &str) -> Result<Place, String> {
    let url = Url::parse(text).map_err(|_| EXPECTED)?;
    if url.password().is_some() || url.query().is_some() {
        return Err(
            "credentials belong into environment variables, because the URL is logged".to_owned()
        );
    }
    match ObjectStoreScheme::parse(&url) {
        Ok((ObjectStoreScheme::Local, _)) => Ok(Place { url }),
        Ok((
            ObjectStoreScheme::AmazonS3
            | ObjectStoreScheme::GoogleCloudStorage
            | ObjectStoreScheme::MicrosoftAzure,
            _,
        )) if cfg!(feature = "cloud") => Ok(Place { url }),
        Ok((
            ObjectStoreScheme::AmazonS3
            | ObjectStoreScheme::GoogleCloudStorage
            | ObjectStoreScheme::MicrosoftAzure,
            _,
        )) => Err("this build has only file://: released binaries have s3://, gs:// and az:// too, and so has a build \
                   with `--features cloud`"
            .to_owned()),
        _ => Err(EXPECTED.to_owned()),
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url.as_str().trim_end_matches('/'))
    }
}

impl Place {
    /// Prepares stores for the objects below `id`, or for all objects here.
    ///
    /// # Errors
    ///
    /// The store of a cloud cannot be built, because its environment variables are wrong.
    pub(super) fn connect(&self, id: Option<&str>) -> Result<Connect, Trouble> {
        if self.url.scheme() != "file" {
            let (store, prefix) = cloud(&self.url)?;
            let store = below(store, prefix, id);
            return Ok(Arc::new(move || Ok(store.clone())));
        }
        let no_path = |()| Trouble(format!("{self} is not the path of a directory"));
        let directory = self.url.to_file_path().map_err(no_path)?;
        let id = id.map(str::to_owned);
        Ok(Arc::new(move || {
            if !directory.is_dir() {
                let directory = directory.display();
                return Err(Trouble(format!(
                    "{directory} is not a directory: create it, or mount it"
                )));
            }
            let store = LocalFileSystem::new_with_prefix(&directory).map_err(told)?;
            // The copy has to survive a power cut before the segment may go.
            Ok(below(store.with_fsync(true), Path::default(), id.as_deref()))
        }))
    }
}

/// A store of the objects below a prefix.
fn below(store: impl ObjectStore, prefix: Path, id: Option<&str>) -> Arc<dyn ObjectStore> {
    let prefix = id.map_or(prefix.clone(), |id| prefix.join(id));
    Arc::new(PrefixStore::new(store, prefix))
}

/// Builds the store of a cloud.
#[cfg(feature = "cloud")]
fn cloud(url: &Url) -> Result<(Box<dyn ObjectStore>, Path), Trouble> {
    /// How the names of variables begin that concern a store. Others might have the name of an option by chance.
    const VARIABLES: [&str; 4] = ["AWS_", "GOOGLE_", "AZURE_", "IDENTITY_ENDPOINT"];
    // An error means that it is installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
        VARIABLES.iter().any(|start| name.starts_with(start)).then_some((name, value))
    });
    object_store::parse_url_opts(url, variables).map_err(told)
}

/// No place of a cloud passes [`place`] in this build.
#[cfg(not(feature = "cloud"))]
fn cloud(url: &Url) -> Result<(Box<dyn ObjectStore>, Path), Trouble> {
    Err(Trouble(format!("this build cannot reach {url}; build it with --features cloud")))
}

/// An error of a store in one line. The answer of a server may be a page.
pub(super) fn told(error: impl fmt::Display) -> Trouble {
    const CHARACTERS_MAX: usize = 400;
    let text = error.to_string();
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    Trouble(match words.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => format!("{}...", &words[..end]),
        None => words,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_url_of_a_store_without_credentials() {
        assert_eq!(place("file:///mnt/backup/").unwrap().to_string(), "file:///mnt/backup");
        for (text, word) in [
            ("/mnt/backup", "file:///DIRECTORY"),
            ("file://host/backup", "file:///DIRECTORY"),
            ("http://127.0.0.1/bucket", "s3://BUCKET"),
            ("memory:///", "s3://BUCKET"),
            ("s3://bucket/logs?key=secret", "environment variables"),
            ("az://container:secret@account/logs", "environment variables"),
        ] {
            let error = place(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
        for text in ["s3://bucket/logs", "gs://bucket", "az://container/logs"] {
            let placed = place(text);
            assert_eq!(placed.is_ok(), cfg!(feature = "cloud"));
            match placed {
                Ok(place) => assert_eq!(place.to_string(), text),
                Err(why) => {
                    assert!(why.contains("only file://") && why.contains("released"), "{why}")
                }
            }
        }
    }

    /// A disk that is not mounted leaves an empty directory. A copy there would be on the disk of the segments.
    #[test]
    fn a_directory_that_is_not_there_is_not_made() {
        let above = tempfile::tempdir().unwrap();
        let directory = above.path().join("mounted");
        let url = Url::from_file_path(&directory).unwrap();
        let connect = Place { url }.connect(Some("0123456789abcdef")).unwrap();
        let error = connect().unwrap_err().0;
        assert!(error.contains("mount it") && !directory.exists(), "{error}");
        std::fs::create_dir(&directory).unwrap();
        assert!(connect().is_ok());
    }

    #[test]
    fn an_error_is_one_short_line() {
        assert_eq!(told("a\n  b").0, "a b");
        assert_eq!(told("ä".repeat(1000)).0.chars().count(), 403);
    }
}
