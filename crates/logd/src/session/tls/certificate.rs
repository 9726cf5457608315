//! Reads certificates: the name in a client's, which is the common name of its subject or else its first DNS name, and
//! whether the daemon's own is an authority's.
//!
//! A client's was verified before. Nothing else of them is read.

use rustls::{
    crypto::ring::default_provider,
    pki_types::{CertificateDer, UnixTime},
};
use webpki::{EndEntityCert, KeyUsage};

/// DER's tags (X.690): a set, a sequence, an object identifier, and texts in ASCII or UTF-8.
const SET: u8 = 0x31;
const SEQUENCE: u8 = 0x30;
const IDENTIFIER: u8 = 0x06;
const TEXTS: [u8; 3] = [0x0c, 0x13, 0x16];

/// `id-at-commonName`, 2.5.4.3 (RFC 5280, appendix A.1).
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];

/// The name, if the certificate has one and it can be written in a line.
pub(crate) fn name(certificate: &CertificateDer<'_>) -> Option<String> {
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    let common = common_name(certificate.subject());
    let name = common.or_else(|| certificate.valid_dns_names().next().map(str::to_owned))?;
    can_be_written(&name).then_some(name)
}

/// Whether it is the certificate of an authority (RFC 5280, basic constraints), which clients that use rustls refuse as a
/// server's.
pub(crate) fn is_authority(certificate: &CertificateDer<'_>) -> bool {
    let Ok(certificate) = EndEntityCert::try_from(certificate) else { return false };
    let algorithms = default_provider().signature_verification_algorithms.all;
    // What the certificate itself says is checked before who signed it, so nobody has to be trusted.
    let verified = certificate.verify_for_usage(
        algorithms,
        &[],
        &[],
        UnixTime::now(),
        KeyUsage::server_auth(),
        None,
        None,
    );
    matches!(verified, Err(webpki::Error::CaUsedAsEndEntity))
}

/// Whether a name can be printed in a line.
fn can_be_written(name: &str) -> bool {
    !name.is_empty() && !name.chars().any(char::is_control)
}

/// The last common name of a subject, which is the most specific.
fn common_name(subject: &[u8]) -> Option<String> {
    let mut found = None;
    let mut sets = subject;
    while let Some((SET, mut set)) = element(&mut sets) {
        while let Some((SEQUENCE, mut pair)) = element(&mut set) {
            if let Some((IDENTIFIER, identifier)) = element(&mut pair)
                && identifier == COMMON_NAME
                && let Some((tag, text)) = element(&mut pair)
                && TEXTS.contains(&tag)
            {
                found = std::str::from_utf8(text).ok().map(str::to_owned);
            }
        }
    }
    found
}

/// Takes the first element off the bytes: its tag and its content.
fn element<'a>(bytes: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&[tag, first], rest) = bytes.split_first_chunk::<2>()?;
    let (len, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        // The number of bytes of the length; no name needs more than two.
        0x81 => (usize::from(*rest.first()?), &rest[1..]),
        0x82 => {
            let (len, rest) = rest.split_first_chunk::<2>()?;
            (usize::from(u16::from_be_bytes(*len)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(len)?;
    *bytes = rest;
    Some((tag, content))
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

    use super::*;

    #[test]
    fn an_authority_is_known() {
        let made = |is_ca: IsCa| {
            let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
            params.is_ca = is_ca;
            params.self_signed(&KeyPair::generate().unwrap()).unwrap()
        };
        let authority = made(IsCa::Ca(BasicConstraints::Unconstrained));
        assert!(is_authority(authority.der()));
        assert!(!is_authority(made(IsCa::ExplicitNoCa).der()));
        assert!(!is_authority(made(IsCa::NoCa).der()));
        assert!(!is_authority(&CertificateDer::from(vec![1, 2, 3])));
    }

    #[test]
    fn a_name_that_is_none_or_breaks_a_line_is_nobodys() {
        let written = ["", "web\n{\"tenant\":\"other\"}", "web\u{85}", "web", "\u{e9} 1"];
        assert_eq!(written.map(can_be_written), [false, false, false, true, true]);
    }

    #[test]
    fn the_last_common_name_counts_and_nothing_panics() {
        let common = |text: &[u8]| {
            let pair = [&[6, 3, 0x55, 4, 3, 0x0c, text.len() as u8], text].concat();
            let sequence = [&[SEQUENCE, pair.len() as u8], &pair[..]].concat();
            [&[SET, sequence.len() as u8], &sequence[..]].concat()
        };
        let other = [SET, 9, SEQUENCE, 7, 6, 3, 0x55, 4, 10, 0x13, 0];
        let subject = [&common(b"first"), &other[..], &common("\u{e9}".as_bytes())].concat();
        assert_eq!(common_name(&subject).as_deref(), Some("\u{e9}"));
        assert_eq!(common_name(&common(b"\xff")), None);
        for cut in 0..subject.len() {
            let _ = common_name(&subject[..cut]);
        }
        for (at, byte) in (0..subject.len()).flat_map(|at| (0..=255).map(move |byte| (at, byte))) {
            let mut subject = subject.clone();
            subject[at] = byte;
            let _ = common_name(&subject);
        }
    }
}
