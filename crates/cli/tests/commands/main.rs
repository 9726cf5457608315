//! The `ringwise` command as its users run it.
//!
//! All tests of the command are one program. Many of them wait for a daemon, a disk or a clock, and the others use the
//! processors meanwhile.

mod command;
mod cp;

mod doctor;
mod echo;
mod echo_many;
mod harness;
mod lab;
mod lab_copy;
mod lab_http;
mod lab_log;
mod lab_report;
mod load;
mod load_log;
mod logd;
mod logd_hostile;
mod logd_http;
mod logd_many;
mod logd_names;
mod logd_time;
mod logd_tls;
mod logd_unit;
mod unread;
