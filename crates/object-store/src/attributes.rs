//! Attributes of objects, in extended attributes of their files.
//!
//! The name of each begins with `user.object_store.`. Then comes the name that HTTP has for it
//! (`content-type`), or `metadata.` and the name that the program gave. File systems set limits: ext4 has
//! room for about 4 KiB a file (xattr(7)).

use std::{borrow::Cow, os::fd::AsFd};

use object_store::{Attribute, Attributes};
use rustix::{
    fs::{XattrFlags, fgetxattr, fgetxattr_query, flistxattr, flistxattr_query, fsetxattr},
    io::Errno,
};

const PREFIX: &str = "user.object_store.";
const METADATA: &str = "metadata.";

/// The attributes that HTTP has names for.
const NAMED: [(Attribute, &str); 6] = [
    (Attribute::CacheControl, "cache-control"),
    (Attribute::ContentDisposition, "content-disposition"),
    (Attribute::ContentEncoding, "content-encoding"),
    (Attribute::ContentLanguage, "content-language"),
    (Attribute::ContentType, "content-type"),
    (Attribute::StorageClass, "storage-class"),
];

/// Adds attributes to a file.
pub(crate) fn write(file: impl AsFd, attributes: &Attributes) -> rustix::io::Result<()> {
    for (attribute, value) in attributes {
        let name = name(attribute).ok_or(Errno::OPNOTSUPP)?;
        let name = format!("{PREFIX}{name}");
        fsetxattr(&file, name, value.as_bytes(), XattrFlags::empty())?;
    }
    Ok(())
}

/// Reads the attributes of a file. Those that this crate does not know are left out.
pub(crate) fn read(file: impl AsFd) -> rustix::io::Result<Attributes> {
    let list = whole(|| flistxattr_query(&file), |into| flistxattr(&file, into));
    let list = match list {
        // A file system without such attributes.
        Err(Errno::OPNOTSUPP) => return Ok(Attributes::new()),
        list => list?,
    };
    let names = list.split(|byte| *byte == 0).filter_map(|name| std::str::from_utf8(name).ok());
    let mut attributes = Attributes::new();
    for name in names {
        let Some(attribute) = name.strip_prefix(PREFIX).and_then(attribute) else { continue };
        let value =
            match whole(|| fgetxattr_query(&file, name), |into| fgetxattr(&file, name, into)) {
                // Removed since the list was read.
                Err(Errno::NODATA) => continue,
                value => value?,
            };
        let value = String::from_utf8(value).map_err(|_| Errno::ILSEQ)?;
        attributes.insert(attribute, value.into());
    }
    Ok(attributes)
}

fn name(attribute: &Attribute) -> Option<Cow<'static, str>> {
    if let Attribute::Metadata(name) = attribute {
        return Some(format!("{METADATA}{name}").into());
    }
    let named = NAMED.iter().find(|(named, _)| named == attribute);
    named.map(|(_, name)| Cow::Borrowed(*name))
}

fn attribute(name: &str) -> Option<Attribute> {
    if let Some(name) = name.strip_prefix(METADATA) {
        return Some(Attribute::Metadata(name.to_owned().into()));
    }
    let named = NAMED.iter().find(|(_, named)| *named == name);
    named.map(|(attribute, _)| attribute.clone())
}

/// Reads what may grow between the question for its length and the read.
fn whole(
    len: impl Fn() -> rustix::io::Result<usize>,
    read: impl Fn(&mut [u8]) -> rustix::io::Result<usize>,
) -> rustix::io::Result<Vec<u8>> {
    loop {
        let mut bytes = vec![0; len()?];
        if bytes.is_empty() {
            return Ok(bytes);
        }
        match read(&mut bytes) {
            Err(Errno::RANGE) => {}
            read => {
                bytes.truncate(read?);
                return Ok(bytes);
            }
        }
    }
}
