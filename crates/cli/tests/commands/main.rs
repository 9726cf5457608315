//! The `ringwise` command as its users run it.
//!
//! Most tools are one program of tests: many of these tests wait for a daemon or a clock.

mod command;
mod doctor;
mod echo;
#[path = "../harness/harness.rs"]
mod harness;
mod intake;
mod load;
mod logd;
mod logd_client;
mod logd_http;
mod logd_page;
mod logd_query;
mod unread;
