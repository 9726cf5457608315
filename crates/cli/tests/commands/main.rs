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
mod load_log;
mod logd;
mod logd_client;
mod logd_fluent;
mod logd_http;
mod logd_intake;
mod logd_names;
mod logd_page;
mod logd_protocols;
mod logd_query;
#[cfg(feature = "parquet")]
mod logd_query_parquet;
mod logd_relp;
mod logd_time;
mod logd_tls;
mod logd_unit;
mod logd_wrap;
mod unread;
