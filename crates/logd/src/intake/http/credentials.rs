//! The token of a request, in each of the ways in which clients can be told to send one.
//!
//! Clients of Elasticsearch and Loki send user names with passwords, or keys with identities. Here only the token says who
//! somebody is, so it takes the place of the password or of the key. It does not know which tokens there are.

use std::borrow::Cow;

use base64::prelude::{BASE64_STANDARD, Engine};
use hyper::{HeaderMap, header::AUTHORIZATION};

use super::answer::Refusal;

/// The token of a request, if it has one.
pub(super) fn token(headers: &HeaderMap) -> Result<Option<Cow<'_, str>>, Refusal> {
    let Some(value) = headers.get(AUTHORIZATION) else { return Ok(None) };
    let (scheme, value) =
        value.to_str().ok().and_then(|value| value.split_once(' ')).ok_or(Refusal::Token)?;
    let value = value.trim();
    match scheme.to_ascii_lowercase().as_str() {
        "bearer" => Ok(Some(value.into())),
        // Most clients pack an identity and the key, as for a password; some take the key as it is.
        "apikey" => Ok(Some(password(value).map_or(value.into(), Cow::from))),
        "basic" => password(value).map(|token| Some(token.into())).ok_or(Refusal::Token),
        _ => Err(Refusal::Token),
    }
}

/// What stands behind the colon of a packed pair of visible signs. A token as it is makes none: it is random.
fn password(packed: &str) -> Option<String> {
    let pair = String::from_utf8(BASE64_STANDARD.decode(packed).ok()?).ok()?;
    let (_, password) = pair.split_once(':')?;
    password.bytes().all(|byte| byte.is_ascii_graphic()).then(|| password.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_comes_as_a_bearer_a_key_or_a_password() {
        let of = |value: &str| {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())]);
            token(&headers).map(|own| own.map(|own| own.into_owned()))
        };
        let packed = |pair: &str| BASE64_STANDARD.encode(pair);
        for (value, expected) in [
            ("bearer  abc".to_owned(), "abc"),
            ("ApiKey abc".to_owned(), "abc"),
            ("ApiKey 0123456789abcdefghij=+".to_owned(), "0123456789abcdefghij=+"),
            (format!("ApiKey {}", packed("identity:abc:d")), "abc:d"),
            (format!("Basic {}", packed("user:abc")), "abc"),
            (format!("basic {}", packed(":abc")), "abc"),
        ] {
            assert_eq!(of(&value), Ok(Some(expected.to_owned())), "{value}");
        }
        for value in
            ["Basic abc", "abc", "Digest abc", "Basic", &format!("Basic {}", packed("abc"))]
        {
            assert_eq!(of(value), Err(Refusal::Token), "{value}");
        }
        assert_eq!(token(&HeaderMap::new()), Ok(None));
    }
}
