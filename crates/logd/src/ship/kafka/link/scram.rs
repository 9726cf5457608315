//! A login by SCRAM (RFC 5802 and 7677), without I/O: both sides prove that they know the password, and none shows it.
//!
//! Kafka takes users and passwords as they are, without SASLprep. There is no channel binding, which Kafka does not
//! have.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::{
    digest, hmac, pbkdf2,
    rand::{SecureRandom, SystemRandom},
};

/// Kafka stores no password with fewer rounds. More than the most would let a server that is none keep a thread busy.
const ROUNDS: std::ops::RangeInclusive<u32> = 4096..=1_000_000;
const NONCE_BYTES: usize = 24;

/// The hash of a mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hash {
    Sha256,
    Sha512,
}

impl Hash {
    fn digest(self) -> &'static digest::Algorithm {
        match self {
            Hash::Sha256 => &digest::SHA256,
            Hash::Sha512 => &digest::SHA512,
        }
    }

    pub(crate) fn hmac(self, key: &[u8], message: &[u8]) -> hmac::Tag {
        hmac::sign(&self.key(key), message)
    }

    fn key(self, key: &[u8]) -> hmac::Key {
        let algorithm = match self {
            Hash::Sha256 => hmac::HMAC_SHA256,
            Hash::Sha512 => hmac::HMAC_SHA512,
        };
        hmac::Key::new(algorithm, key)
    }

    pub(crate) fn hash(self, bytes: &[u8]) -> digest::Digest {
        digest::digest(self.digest(), bytes)
    }

    /// Hashes a password with a salt, many times.
    pub(crate) fn salted(self, password: &str, salt: &[u8], rounds: u32) -> Option<Vec<u8>> {
        let algorithm = match self {
            Hash::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Hash::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        };
        let mut salted = vec![0; self.digest().output_len()];
        let rounds = rounds.try_into().ok()?;
        pbkdf2::derive(algorithm, rounds, salt, password.as_bytes(), &mut salted);
        Some(salted)
    }
}

/// A login that was begun.
pub(super) struct Exchange<'a> {
    hash: Hash,
    password: &'a str,
    nonce: String,
    /// The first message, without what says that there is no channel binding.
    first: String,
}

impl<'a> Exchange<'a> {
    /// Begins with a random number.
    pub(super) fn new(hash: Hash, user: &str, password: &'a str) -> Option<Exchange<'a>> {
        let mut bytes = [0; NONCE_BYTES];
        SystemRandom::new().fill(&mut bytes).ok()?;
        Some(Exchange::with_nonce(hash, (user, password), STANDARD.encode(bytes)))
    }

    fn with_nonce(hash: Hash, (user, password): (&str, &'a str), nonce: String) -> Exchange<'a> {
        let user = user.replace('=', "=3D").replace(',', "=2C");
        let first = format!("n={user},r={nonce}");
        Exchange { hash, password, nonce, first }
    }

    /// Returns the first message.
    pub(super) fn first(&self) -> String {
        format!("n,,{}", self.first)
    }

    /// Makes the second message from the answer to the first, and what proves that the server knows the password.
    pub(super) fn second(&self, answer: &str) -> Result<(String, Proof), String> {
        let wrong = || format!("its answer is not SCRAM: {}", answer.escape_debug());
        let mut parts = answer.split(',');
        let mut part = |name: &str| parts.next()?.strip_prefix(name)?.strip_prefix('=');
        let (nonce, salt, rounds) = part("r")
            .zip(part("s"))
            .zip(part("i"))
            .map(|((a, b), c)| (a, b, c))
            .ok_or_else(wrong)?;
        let salt = STANDARD.decode(salt).map_err(|_| wrong())?;
        let rounds: u32 = rounds.parse().map_err(|_| wrong())?;
        if nonce.len() <= self.nonce.len() || !nonce.starts_with(&self.nonce) {
            return Err("its answer is to another login".to_owned());
        }
        if !ROUNDS.contains(&rounds) {
            let (least, most) = (ROUNDS.start(), ROUNDS.end());
            return Err(format!("it hashes passwords {rounds} times: expected {least} to {most}"));
        }
        let hash = self.hash;
        let salted = hash.salted(self.password, &salt, rounds).ok_or_else(wrong)?;
        let last = format!("c=biws,r={nonce}");
        let message = format!("{},{answer},{last}", self.first);
        let client = hash.hmac(&salted, b"Client Key");
        let stored = hash.hash(client.as_ref());
        let signature = hash.hmac(stored.as_ref(), message.as_bytes());
        let proof = client.as_ref().iter().zip(signature.as_ref()).map(|(key, sign)| key ^ sign);
        let proof = STANDARD.encode(proof.collect::<Vec<u8>>());
        let server = hash.hmac(&salted, b"Server Key");
        Ok((format!("{last},p={proof}"), Proof { key: hash.key(server.as_ref()), message }))
    }
}

/// Reads the lines of a text as the two answers of a server, for fuzzers: only one that knows the password proves it.
pub(crate) fn try_login(answers: &str) {
    let (answer, last) = answers.split_once('\n').unwrap_or((answers, ""));
    // More rounds than the least take long.
    let exchange = Exchange::with_nonce(Hash::Sha256, ("user", "password"), String::new());
    let rounds = answer.split(',').nth(2).and_then(|part| part.strip_prefix("i=")?.parse().ok());
    if rounds.is_some_and(|rounds: u32| rounds > *ROUNDS.start()) {
        return;
    }
    if let Ok((_, proof)) = exchange.second(answer) {
        assert!(!proof.is_in(last), "nobody knows the password");
    }
}

/// What a server proves that it knows the password by.
pub(super) struct Proof {
    key: hmac::Key,
    message: String,
}

impl Proof {
    /// Whether the last answer proves it.
    pub(super) fn is_in(&self, answer: &str) -> bool {
        let signature = answer.split(',').next().and_then(|part| part.strip_prefix("v="));
        let signature = signature.and_then(|text| STANDARD.decode(text).ok());
        signature.is_some_and(|signature| {
            hmac::verify(&self.key, self.message.as_bytes(), &signature).is_ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str =
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";

    fn exchange() -> Exchange<'static> {
        Exchange::with_nonce(Hash::Sha256, ("user", "pencil"), "rOprNGfwEbeRWgbNEkqO".to_owned())
    }

    /// The messages of RFC 7677, section 3.
    #[test]
    fn a_login_is_that_of_the_standard() {
        let exchange = exchange();
        assert_eq!(exchange.first(), "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let (second, proof) = exchange.second(ANSWER).unwrap();
        let expected = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                        p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        assert_eq!(second, expected);
        let signature = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";
        assert!(proof.is_in(signature));
        for wrong in
            ["", "v=", "e=invalid-proof", &*signature.replace("6rri", "7rri"), &signature[..40]]
        {
            assert!(!proof.is_in(wrong), "{wrong}");
        }
    }

    #[test]
    fn an_answer_that_is_wrong_is_refused() {
        let told = |answer: &str| exchange().second(answer).map(drop).unwrap_err();
        for (answer, word) in [
            ("", "not SCRAM"),
            ("e=unknown-user", "not SCRAM: e=unknown-user"),
            ("r=a,s=b", "not SCRAM"),
            (&*ANSWER.replace("gQ==", "g"), "not SCRAM"),
            (&*ANSWER.replace("4096", "x"), "not SCRAM"),
            (&*ANSWER.replace("rOpr", "qOpr"), "another login"),
            ("r=rOprNGfwEbeRWgbNEkqO,s=W22Z,i=4096", "another login"),
            (&*ANSWER.replace("4096", "4095"), "4095 times"),
            (&*ANSWER.replace("4096", "4000000000"), "4000000000 times"),
        ] {
            assert!(told(answer).contains(word), "{answer}: {}", told(answer));
        }
    }

    #[test]
    fn names_may_have_signs_and_no_login_begins_as_another() {
        let first = |user| Exchange::new(Hash::Sha512, user, "x").unwrap().first();
        assert!(first("a,b=c").starts_with("n,,n=a=2Cb=3Dc,r="));
        assert_ne!(first("a"), first("a"));
    }
}
