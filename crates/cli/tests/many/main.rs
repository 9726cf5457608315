//! The servers with as many clients as they can have, and with hostile ones. These tests are a program of their own,
//! because they keep the processors busy.

mod echo_many;
#[path = "../harness/harness.rs"]
mod harness;
mod logd_hostile;
mod logd_many;
