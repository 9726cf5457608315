//! `ringwise logd --upload` with a server that speaks S3, which is cut off and hangs. Python's moto is that server, so
//! these tests run on a schedule: `bash .ci/scheduled objects`.

#[path = "../harness/harness.rs"]
mod harness;
mod server;
mod uploads;
