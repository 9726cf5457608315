//! The versions of the peers as compiled, from the lock file of the build.

const LOCK: &str = include_str!("../Cargo.lock");

/// The version of a crate that this program was built with. Where there are several of one name, the
/// newest, which is the one named in the manifest here.
pub fn of(name: &str) -> Option<&'static str> {
    let wanted = format!("name = \"{name}\"");
    let mut lines = LOCK.lines();
    let mut found = None;
    while let Some(line) = lines.next() {
        if line == wanted {
            let version = lines.next().and_then(|line| line.strip_prefix("version = \""));
            // Packages of one name are sorted by version.
            found = version.and_then(|version| version.strip_suffix('"')).or(found);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peers_have_versions() {
        for name in [
            "tokio",
            "rustfs-uring",
            "a10",
            "uring-file",
            "tokio-uring",
            "compio",
            "monoio",
            "glommio",
        ] {
            assert!(of(name).is_some_and(|version| version.contains('.')), "{name}");
        }
        assert_eq!(of("no-such-crate"), None);
    }
}
