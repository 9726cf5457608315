//! `ringwise lab` as its users run it. These tests are a program of their own, because they measure.

#[path = "../harness/harness.rs"]
mod harness;
mod lab;
mod lab_attach;
mod lab_copy;
mod lab_fifo;
mod lab_http;
mod lab_log;
mod lab_record;
mod lab_report;
mod lab_scale;
mod lab_trace;
