//! The mock's TLS and SASL: it lets in who knows the password, as Kafka does, or only seems to know it itself.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rustls::ServerConfig;

use crate::ship::kafka::{
    link::Hash,
    wire::{Get, Put},
};

/// What a broker wants of those who connect.
#[derive(Default)]
pub(crate) struct Guard {
    pub(crate) tls: Option<Arc<ServerConfig>>,
    pub(crate) login: Option<Gate>,
}

/// Whom it lets in.
pub(crate) struct Gate {
    pub(crate) offered: &'static [&'static str],
    pub(crate) user: &'static str,
    pub(crate) password: &'static str,
    /// It knows no password, and says that each is right.
    pub(crate) is_false: bool,
}

/// How far the login of a connection is.
#[derive(Default)]
pub(super) struct Session {
    mechanism: Option<String>,
    /// The messages of SCRAM before the last one.
    begun: Option<(String, String)>,
    is_in: bool,
}

const SALT: &[u8] = b"salt of the mock";
const ROUNDS: u32 = 4096;

impl Session {
    /// Answers a request of a login. False means that it is another request. Nothing means that the connection is
    /// closed.
    pub(super) fn take(
        &mut self,
        guard: &Guard,
        kind: (i16, i16),
        get: &mut Get<'_>,
        out: &mut Vec<u8>,
    ) -> Option<bool> {
        match (kind, &guard.login) {
            ((17, 1), None) => {
                // ILLEGAL_SASL_STATE
                out.i16(34);
                out.i32(0);
            }
            ((17, 1), Some(gate)) => {
                let name = get.string()?;
                let is_offered = gate.offered.contains(&name);
                // UNSUPPORTED_SASL_MECHANISM
                out.i16(if is_offered { 0 } else { 33 });
                out.i32(gate.offered.len() as i32);
                gate.offered.iter().for_each(|name| out.string(name));
                self.mechanism = Some(name.to_owned());
            }
            ((36, 0), Some(gate)) => {
                let message = String::from_utf8(get.bytes()?.to_vec()).ok()?;
                match self.step(gate, &message) {
                    Some(answer) => {
                        out.i16(0);
                        out.no_string();
                        out.bytes(answer.as_bytes());
                    }
                    None => {
                        // SASL_AUTHENTICATION_FAILED
                        out.i16(58);
                        out.string("Authentication failed: invalid credentials");
                        out.bytes(b"");
                    }
                }
            }
            ((18, 0), _) | (_, None) => return Some(false),
            _ => return self.is_in.then_some(false),
        }
        Some(true)
    }

    fn step(&mut self, gate: &Gate, message: &str) -> Option<String> {
        let hash = match self.mechanism.as_deref()? {
            "PLAIN" => {
                let expected = format!("\0{}\0{}", gate.user, gate.password);
                self.is_in = message == expected;
                return self.is_in.then(String::new);
            }
            "SCRAM-SHA-256" => Hash::Sha256,
            "SCRAM-SHA-512" => Hash::Sha512,
            _ => return None,
        };
        let Some((first, answer)) = self.begun.take() else {
            let first = message.strip_prefix("n,,")?;
            let (user, nonce) = first.strip_prefix("n=")?.split_once(",r=")?;
            (user == gate.user).then_some(())?;
            let answer = format!("r={nonce}mock,s={},i={ROUNDS}", STANDARD.encode(SALT));
            self.begun = Some((first.to_owned(), answer.clone()));
            return Some(answer);
        };
        if gate.is_false {
            self.is_in = true;
            return Some(format!("v={}", STANDARD.encode([7; 32])));
        }
        let (last, proof) = message.split_once(",p=")?;
        let signed = format!("{first},{answer},{last}");
        let salted = hash.salted(gate.password, SALT, ROUNDS)?;
        let stored = hash.hash(hash.hmac(&salted, b"Client Key").as_ref());
        let signature = hash.hmac(stored.as_ref(), signed.as_bytes());
        let proof = STANDARD.decode(proof).ok()?;
        // The key, as the client knows it, has the hash that the server knows.
        let key = proof.iter().zip(signature.as_ref()).map(|(proof, sign)| proof ^ sign);
        let key: Vec<u8> = key.collect();
        (hash.hash(&key).as_ref() == stored.as_ref()).then_some(())?;
        self.is_in = true;
        let server = hash.hmac(&salted, b"Server Key");
        let signature = hash.hmac(server.as_ref(), signed.as_bytes());
        Some(format!("v={}", STANDARD.encode(signature)))
    }
}
