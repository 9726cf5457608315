//! A `google.rpc.Status`: how OTLP says that a request failed, in the format of the request.

use prost::encoding;
use serde_json::json;

use super::route::Form;

/// A status with a code of gRPC.
pub(super) fn write(form: Form, code: i32, message: &str) -> Vec<u8> {
    if form == Form::Json {
        return json!({"code": code, "message": message}).to_string().into_bytes();
    }
    let mut status = Vec::new();
    encoding::int32::encode(1, &code, &mut status);
    encoding::string::encode(2, &message.to_owned(), &mut status);
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_has_the_format_of_the_request() {
        assert_eq!(write(Form::Protobuf, 3, "no"), b"\x08\x03\x12\x02no");
        assert_eq!(write(Form::Json, 3, "no"), b"{\"code\":3,\"message\":\"no\"}");
    }
}
