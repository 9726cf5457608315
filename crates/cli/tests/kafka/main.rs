//! `ringwise logd --kafka` with brokers of Apache Kafka, which fail. Maven gets them, so these tests run on a schedule:
//! `bash .ci/scheduled kafka`.

mod cluster;
#[path = "../harness/harness.rs"]
mod harness;
mod metadata;
mod shipping;
