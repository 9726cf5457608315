//! The library of logd, as a daemon in a process of its own, and its scanner of JSON beside serde_json.

#[path = "../shared/daemon.rs"]
mod daemon;
#[path = "../../../cli/tests/harness/disk.rs"]
mod disk;

mod json;
mod limits;
mod readiness;
mod segments;
mod tenants;
