//! Makes connections to brokers, and logs them in by SASL, as their first requests.
//!
//! A broker that wants no login, or another one, says so. It never learns the password from SCRAM.

use super::{
    connection::{Connection, trouble},
    scram::Exchange,
    security::{Login, Security},
};
use crate::ship::{
    destination::Trouble,
    kafka::{
        messages::{Code, sasl_authenticate, sasl_handshake},
        wire::Get,
    },
};

/// Connects to a broker, and logs in if there is a login.
pub(crate) fn connect(broker: &str, security: &Security) -> Result<Connection, Trouble> {
    let tls = security.tls.as_ref().map(|tls| tls.load()).transpose();
    let tls = tls.map_err(|error| trouble(broker, &error.to_string()))?;
    let mut connection = Connection::open(broker, tls)?;
    if let Some(login) = &security.login {
        log_in(&mut connection, login)?;
    }
    Ok(connection)
}

/// Shows a broker who connects.
fn log_in(connection: &mut Connection, login: &Login) -> Result<(), Trouble> {
    let known = login.load().map_err(|error| connection.trouble(&error.to_string()))?;
    choose(connection, login)?;
    let Some(hash) = login.mechanism.hash() else {
        let message = format!("\0{}\0{}", known.user, known.password);
        return step(connection, login, &message).map(drop);
    };
    let exchange = Exchange::new(hash, &known.user, &known.password);
    let exchange = exchange.ok_or_else(|| connection.trouble("there are no random numbers"))?;
    let answer = step(connection, login, &exchange.first())?;
    let (second, proof) = exchange.second(&answer).map_err(|why| connection.trouble(&why))?;
    let answer = step(connection, login, &second)?;
    match proof.is_in(&answer) {
        true => Ok(()),
        false => Err(connection.trouble(
            "it does not prove that it knows the password: it may not be one of your brokers",
        )),
    }
}

/// Names the mechanism.
fn choose(connection: &mut Connection, login: &Login) -> Result<(), Trouble> {
    let name = login.mechanism.name();
    let answer = connection.call(&sasl_handshake(name))?;
    let mut get = Get(&answer);
    let read = get.i16().zip(get.list(|get| get.string().map(str::to_owned)));
    match read.map(|(code, offered)| (Code(code), offered)) {
        Some((Code::NONE, _)) => Ok(()),
        Some((Code::UNSUPPORTED_SASL_MECHANISM, offered)) => {
            let offered = offered.join(", ");
            Err(connection
                .trouble(&format!("it does not offer {name}, but {offered}: choose with --kafka-sasl")))
        }
        Some((Code::ILLEGAL_SASL_STATE, _)) => Err(connection.trouble(
            "its listener does not use SASL: name its listener with SASL, or leave --kafka-login out",
        )),
        Some((code, _)) => Err(connection.trouble(&format!("it refuses SASL: {code}"))),
        None => Err(connection.trouble("its answer is not understood")),
    }
}

/// Sends a message of the login, and returns the answer to it.
fn step(connection: &mut Connection, login: &Login, message: &str) -> Result<String, Trouble> {
    let answer = connection.call(&sasl_authenticate(message.as_bytes()))?;
    let mut get = Get(&answer);
    let mut read = || Some((Code(get.i16()?), get.string()?.to_owned(), get.bytes()?));
    match read() {
        Some((Code::NONE, _, answer)) => Ok(String::from_utf8_lossy(answer).into_owned()),
        Some((code, why, _)) => {
            let (file, why) =
                (login.file().display(), if why.is_empty() { code.to_string() } else { why });
            Err(connection.trouble(&format!(
                "it refuses the user and the password in {file} (--kafka-login): {why}"
            )))
        }
        None => Err(connection.trouble("its answer is not understood")),
    }
}
