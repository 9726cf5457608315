//! Brokers that want TLS or a login, and whatever is wrong with either, in one line.

use std::{path::Path, sync::Arc};

use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::{ServerConfig, pki_types::PrivateKeyDer, server::WebPkiClientVerifier};

use super::*;
use crate::{
    session::tls::{VERSIONS, authorities, provider},
    ship::kafka::{
        Login, Mechanism, Tls,
        mock::{Gate, State},
    },
};

/// Files of a broker's certificate, of a login and of a client's certificate.
struct Files(tempfile::TempDir);

const ALL: &[&str] = &["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"];

impl Files {
    fn new() -> Files {
        let files = Files(tempfile::tempdir().unwrap());
        files.make("broker", &["127.0.0.1"]);
        files.make("other", &["elsewhere"]);
        files.make("client", &["client"]);
        std::fs::write(files.path("login"), "logd\npass,word=1\n").unwrap();
        std::fs::write(files.path("wrong"), "logd\nsecret\n").unwrap();
        files
    }

    fn make(&self, name: &str, names: &[&str]) {
        let names = names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let cert = params.self_signed(&key).unwrap();
        std::fs::write(self.path(&format!("{name}.pem")), cert.pem()).unwrap();
        std::fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    /// A broker's TLS with the certificate of this name.
    fn server(&self, name: &str, clients: Option<&Path>) -> Arc<ServerConfig> {
        let (certificate, key) =
            (self.path(&format!("{name}.pem")), self.path(&format!("{name}.key")));
        let own = crate::session::tls::Own { certificate: ("", &certificate), key: ("", &key) };
        let (chain, key): (_, PrivateKeyDer<'static>) = own.read().unwrap();
        let verifier = clients.map(|clients| {
            let roots = Arc::new(authorities("", clients).unwrap());
            WebPkiClientVerifier::builder_with_provider(roots, provider()).build().unwrap()
        });
        let config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(VERSIONS)
            .unwrap()
            .with_client_cert_verifier(
                verifier.unwrap_or_else(WebPkiClientVerifier::no_client_auth),
            );
        Arc::new(config.with_single_cert(chain, key).unwrap())
    }

    fn tls(&self) -> Option<Tls> {
        Some(Tls { authorities: self.path("broker.pem"), own: None })
    }

    fn login(&self, mechanism: Mechanism, file: &str) -> Option<Login> {
        Some(Login { mechanism, file: self.path(file) })
    }
}

fn gate(offered: &'static [&'static str]) -> Option<Gate> {
    Some(Gate { offered, user: "logd", password: "pass,word=1", is_false: false })
}

/// Ships a batch. Returns the error, if there was one.
fn told(guard: Guard, security: Security) -> Option<String> {
    let broker = Broker::guarded(guard, State::default());
    let mut world = World::new(1);
    world.write();
    let mut lane = world.lane(secured(vec![broker.address.to_string()], security));
    lane.turn(std::time::Duration::from_secs(5));
    if !lane.is_away() {
        finish(&mut lane);
        let stored = broker.state.lock().unwrap().committed("logs");
        let stored = stored.values().map(Vec::len).sum::<usize>();
        assert_eq!(stored, world.lines.len());
        return None;
    }
    let told = world.progress().troubles.last();
    assert!(told.starts_with(&format!("kafka {}: ", broker.address)), "{told}");
    assert!(told.lines().count() == 1 && !told.contains("secret"), "{told}");
    Some(told)
}

#[test]
fn a_broker_takes_lines_by_tls_and_by_each_login() {
    let files = Files::new();
    for mechanism in
        [None, Some(Mechanism::Plain), Some(Mechanism::ScramSha256), Some(Mechanism::ScramSha512)]
    {
        for has_tls in [true, false] {
            let guard = Guard {
                tls: has_tls.then(|| files.server("broker", None)),
                login: mechanism.and_then(|_| gate(ALL)),
            };
            let login = mechanism.and_then(|mechanism| files.login(mechanism, "login"));
            let security = Security { tls: files.tls().filter(|_| has_tls), login };
            assert_eq!(told(guard, security), None, "{mechanism:?}, TLS: {has_tls}");
        }
    }
}

#[test]
fn a_broker_that_wants_a_certificate_gets_one() {
    let files = Files::new();
    let guard = || {
        let clients = files.path("client.pem");
        Guard { tls: Some(files.server("broker", Some(&clients))), login: None }
    };
    let tls = |own| Security { tls: files.tls().map(|tls| Tls { own, ..tls }), login: None };
    let own =
        |name: &str| Some((files.path(&format!("{name}.pem")), files.path(&format!("{name}.key"))));
    assert_eq!(told(guard(), tls(own("client"))), None);
    for other in [None, own("other")] {
        let told = told(guard(), tls(other)).unwrap();
        assert!(told.contains("wants a certificate that it trusts (--kafka-cert)"), "{told}");
    }
}

#[test]
fn what_is_wrong_with_a_login_is_told() {
    let files = Files::new();
    for mechanism in [Mechanism::Plain, Mechanism::ScramSha256, Mechanism::ScramSha512] {
        let guard = Guard { tls: None, login: gate(ALL) };
        let security = Security { tls: None, login: files.login(mechanism, "wrong") };
        let told = told(guard, security).unwrap();
        let file = files.path("wrong").display().to_string();
        let expected = format!("it refuses the user and the password in {file} (--kafka-login): ");
        assert!(told.contains(&expected) && told.contains("invalid credentials"), "{told}");
    }
    let login = |mechanism| Security { tls: None, login: files.login(mechanism, "login") };
    let guard = |login| Guard { tls: None, login };
    let refused = told(guard(gate(&["PLAIN", "GSSAPI"])), login(Mechanism::ScramSha512)).unwrap();
    let words = "it does not offer SCRAM-SHA-512, but PLAIN, GSSAPI: choose with --kafka-sasl";
    assert!(refused.ends_with(words), "{refused}");
    let refused = told(guard(None), login(Mechanism::ScramSha256)).unwrap();
    assert!(refused.ends_with("or leave --kafka-login out"), "{refused}");
    let refused = told(guard(gate(ALL)), Security::default()).unwrap();
    assert!(refused.ends_with("its listener may want a login (--kafka-login)"), "{refused}");
    let is_false = gate(ALL).map(|gate| Gate { is_false: true, ..gate });
    let refused = told(guard(is_false), login(Mechanism::ScramSha256)).unwrap();
    assert!(refused.contains("does not prove that it knows the password"), "{refused}");
}

#[test]
fn what_is_wrong_with_tls_is_told() {
    let files = Files::new();
    let tls = || Security { tls: files.tls(), login: None };
    let guard = |name| Guard { tls: Some(files.server(name, None)), login: None };
    let refused = told(guard("other"), tls()).unwrap();
    assert!(refused.ends_with("no authority of --kafka-ca signed its certificate"), "{refused}");
    let named = Tls { authorities: files.path("other.pem"), own: None };
    let refused = told(guard("other"), Security { tls: Some(named), login: None }).unwrap();
    assert!(refused.contains("not valid for name") && refused.contains("elsewhere"), "{refused}");
    let refused = told(Guard::default(), tls()).unwrap();
    assert!(refused.contains("it speaks no TLS there: name its listener"), "{refused}");
    let refused = told(guard("broker"), Security::default()).unwrap();
    assert!(refused.contains("without TLS answers there: --kafka-ca speaks TLS"), "{refused}");
}

/// A password that was replaced needs no restart.
#[test]
fn files_are_read_for_each_connection() {
    let files = Files::new();
    let broker = Broker::guarded(Guard { tls: None, login: gate(ALL) }, State::default());
    let mut world = World::new(1);
    world.write();
    let security = Security { tls: None, login: files.login(Mechanism::ScramSha256, "wrong") };
    let mut lane = world.lane(secured(vec![broker.address.to_string()], security));
    lane.turn(std::time::Duration::ZERO);
    assert!(lane.is_away());
    std::fs::copy(files.path("login"), files.path("wrong")).unwrap();
    finish(&mut lane);
    assert!(!lane.is_away());
}
