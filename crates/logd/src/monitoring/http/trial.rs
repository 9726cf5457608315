//! What the page makes of the bytes of a request, without any I/O: for tests and fuzzers.

use std::path::Path;

use super::{
    access::{Ends, tenant},
    client::{LIVE_OPTIONS, Refused, SEARCH_OPTIONS, parse},
    request::{self, Asked, Head},
};
use crate::clients::tokens::Tokens;

/// Whatever comes, it is a request or an error, and it obtains no lines that it may not read.
pub(crate) fn request(bytes: &[u8], more: &[u8]) {
    let Some(asked) = request::parse(bytes) else { return };
    let again = request::parse(&[bytes, more].concat());
    let Asked::For(head) = asked else { return };
    assert_eq!(again, Some(Asked::For(head.clone())), "what follows a head changes nothing");
    may_not_read(&head);
    for options in [LIVE_OPTIONS, SEARCH_OPTIONS] {
        for own in [None, Some("web")] {
            match parse(&head.query, options, Path::new("directory"), own) {
                Ok(args) => {
                    let args = format!("{args:?}");
                    assert!(own.is_none() || args.contains("tenant: Some(\"web\")"), "{args}");
                }
                Err(Refused::Wrong(why)) => assert_eq!(why.lines().count(), 1, "{why}"),
                Err(Refused::Denied(_)) => assert!(own.is_some()),
            }
        }
    }
}

/// Who has no token reads nothing where tokens are needed, and who is elsewhere nothing where there are none.
fn may_not_read(head: &Head) {
    let [near, far] = ["127.0.0.1:9001", "10.0.0.1:9001"].map(|own| own.parse().expect("address"));
    let here = Ends { own: near, peer: near };
    let elsewhere = Ends { own: far, peer: far };
    assert!(tenant(head, here, Some(&Tokens::default())).is_err());
    assert!(tenant(head, elsewhere, None).is_err());
    if tenant(head, here, None).is_ok() {
        let host = head.host.as_deref().expect("it names a host");
        assert!(!host.contains(|sign: char| sign == '/' || sign == '@' || sign.is_whitespace()));
        let origin = head.origin.as_deref().and_then(|origin| origin.strip_prefix("http://"));
        assert!(head.origin.is_none() || origin == Some(host));
    }
}
