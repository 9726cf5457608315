//! OTLP: each log record of a request becomes a line of JSON, the same from protobuf and from JSON.
//!
//! A line is whole: it has its resource and its scope. Names are those of OTLP's JSON. Attributes are an object of plain
//! values, since that is what everybody searches (docs/reference/logd.md). It stores nothing.

mod json;
mod protobuf;
mod record;

use prost::encoding;

use super::{answer::Refusal, route::Form};

/// The lines of a request, one for each record. `room` is asked for the memory of all of them.
pub(crate) fn lines(
    body: &[u8],
    form: Form,
    mut room: impl FnMut(usize) -> Result<(), Refusal>,
) -> Result<Vec<u8>, Refusal> {
    match form {
        Form::Protobuf => protobuf::lines(body, &mut room),
        Form::Json => json::lines(body, &mut room),
    }
}

/// The answer if all records are stored but these.
pub(crate) fn answer(form: Form, rejected: u64, first: Option<(u64, &str)>) -> Vec<u8> {
    let message =
        first.map(|(record, reason)| format!("rejected; the first is record {record}: {reason}"));
    if form != Form::Protobuf {
        return match message {
            None => b"{}".to_vec(),
            Some(message) => serde_json::json!({"partialSuccess": {
                "rejectedLogRecords": rejected.to_string(), "errorMessage": message}})
            .to_string()
            .into_bytes(),
        };
    }
    let mut answer = Vec::new();
    if let Some(message) = message {
        let mut partial = Vec::new();
        encoding::int64::encode(1, &i64::try_from(rejected).unwrap_or(i64::MAX), &mut partial);
        encoding::string::encode(2, &message, &mut partial);
        encoding::bytes::encode(1, &partial, &mut answer);
    }
    answer
}

#[cfg(test)]
mod tests;
