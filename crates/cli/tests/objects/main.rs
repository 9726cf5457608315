//! `ringwise logd --upload` with servers that speak the protocols of S3 and of Azure, which are cut off and hang. The
//! servers are moto and Azurite, so these tests run on a schedule: `bash .ci/scheduled objects`.
//!
//! Google Cloud Storage is not here: fake-gcs-server 1.52 does not answer the simplest `PUT` of its XML API.

#[path = "../harness/harness.rs"]
mod harness;
mod server;
mod uploads;
