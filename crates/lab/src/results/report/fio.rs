//! The rows of the workload `read` as fio's JSON, so that what reads fio's results reads these: a job
//! for each engine at each depth, with the names and units of `fio --output-format=json+`
//! (fio 3.x, `show_thread_status_json` in stat.c).
//!
//! What was not measured so is left out and not zero: there is no submission latency, and no CPU time
//! of another program's process. What was not done is zero, as fio has it: writes and trims.

use ringwise_measure::Latency;
use serde_json::{Map, Value, json};

use super::saved::{Saved, SavedRow, SavedSample};

/// The quantiles that fio lists unless it is told otherwise.
const QUANTILES: [f64; 17] = [
    0.01, 0.05, 0.10, 0.20, 0.30, 0.40, 0.50, 0.60, 0.70, 0.80, 0.90, 0.95, 0.99, 0.995, 0.999,
    0.9995, 0.9999,
];

/// The text. None where the run has no such row.
pub fn text(run: &Saved) -> Option<String> {
    let rows = run.results.iter().filter(|row| row.place.workload == "read" && row.is_valid());
    let jobs: Vec<Value> = rows.enumerate().map(|(number, row)| job(number, row)).collect();
    if jobs.is_empty() {
        return None;
    }
    let document = json!({
        "fio version": format!("ringwise-{}, in the form of fio-3", run.version),
        "timestamp": run.began_unix_s,
        "timestamp_ms": run.began_unix_s * 1000,
        "global options": {},
        "jobs": jobs,
    });
    let mut text = serde_json::to_string_pretty(&document).expect("keys are strings");
    text.push('\n');
    Some(text)
}

fn job(number: usize, row: &SavedRow) -> Value {
    let is_random = row.place.pattern.as_deref() == Some("random");
    let is_direct = row.place.profile.as_deref() == Some("direct");
    let place = &row.place;
    let profile = place.profile.as_deref().unwrap_or("read");
    let name = format!("{profile}-{}-{}-{}", place.block_bytes, row.label(), row.depth);
    let elapsed_ns: u64 = row.samples.iter().filter_map(|sample| sample.elapsed_ns).sum();
    let mut job = json!({
        "jobname": name,
        "groupid": number,
        "error": 0,
        "elapsed": elapsed_ns.div_ceil(1_000_000_000),
        "job options": {
            "name": name,
            "ioengine": row.engine,
            "iodepth": row.depth.to_string(),
            "rw": if is_random { "randread" } else { "read" },
            "bs": place.block_bytes.to_string(),
            "direct": if is_direct { "1" } else { "0" },
        },
        "read": read(row, elapsed_ns),
        "write": nothing(),
        "trim": nothing(),
    });
    let fields = job.as_object_mut().expect("made above");
    let user = cpu_percent(row, elapsed_ns, |sample| sample.user_ns_per_op);
    let system = cpu_percent(row, elapsed_ns, |sample| sample.system_ns_per_op);
    if let Some((user, system)) = user.zip(system) {
        fields.insert("usr_cpu".to_owned(), user.into());
        fields.insert("sys_cpu".to_owned(), system.into());
    }
    job
}

/// CPU time as fio says it: percent of the measured time. None where a sample did not see it.
fn cpu_percent(
    row: &SavedRow,
    elapsed_ns: u64,
    per_operation: fn(&SavedSample) -> Option<f64>,
) -> Option<f64> {
    let of = |sample: &SavedSample| Some(per_operation(sample)? * sample.operations? as f64);
    let cpu_ns: f64 = row.samples.iter().map(of).sum::<Option<f64>>()?;
    (elapsed_ns > 0).then(|| cpu_ns / elapsed_ns as f64 * 100.0)
}

/// A direction in which nothing was done.
fn nothing() -> Value {
    let none = || json!({"min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0});
    json!({
        "io_bytes": 0,
        "io_kbytes": 0,
        "bw_bytes": 0,
        "bw": 0,
        "iops": 0.0,
        "runtime": 0,
        "total_ios": 0,
        "slat_ns": none(),
        "clat_ns": none(),
        "lat_ns": none(),
        "iops_min": 0,
        "iops_max": 0,
        "iops_mean": 0.0,
        "iops_stddev": 0.0,
        "iops_samples": 0,
    })
}

/// fio's direction of a job: rates are the medians that ringwise says, totals are of all samples.
fn read(row: &SavedRow, elapsed_ns: u64) -> Value {
    let operations: u64 = row.samples.iter().filter_map(|sample| sample.operations).sum();
    let bytes = operations * row.place.block_bytes;
    let rates: Vec<f64> = row.samples.iter().filter_map(|sample| sample.ops_per_s).collect();
    let bytes_per_s = row.mib_per_s.unwrap_or(0.0) * f64::from(1 << 20);
    let mut out = json!({
        "io_bytes": bytes,
        "io_kbytes": bytes >> 10,
        "bw_bytes": bytes_per_s.round() as u64,
        "bw": (bytes_per_s / 1024.0).round() as u64,
        "iops": row.ops_per_s,
        "runtime": elapsed_ns / 1_000_000,
        "total_ios": operations,
        "iops_samples": rates.len(),
    });
    let fields = out.as_object_mut().expect("made above");
    spread(fields, &rates);
    if let Some(latency) = row.latency() {
        let times = times(&latency);
        // An operation is handed over and timed in one: completion latency is all of it.
        fields.insert("clat_ns".to_owned(), times.clone());
        fields.insert("lat_ns".to_owned(), times);
    }
    out
}

fn spread(fields: &mut Map<String, Value>, rates: &[f64]) {
    if rates.is_empty() {
        return;
    }
    let count = rates.len() as f64;
    let mean = rates.iter().sum::<f64>() / count;
    let variance = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / count;
    let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let most = rates.iter().copied().fold(0.0, f64::max);
    for (name, value) in [
        ("iops_min", least.floor()),
        ("iops_max", most.ceil()),
        ("iops_mean", mean),
        ("iops_stddev", variance.sqrt()),
    ] {
        fields.insert(name.to_owned(), value.into());
    }
}

fn times(latency: &Latency) -> Value {
    let figures = latency.percentiles();
    let percentile = QUANTILES.iter().map(|quantile| {
        let name = format!("{:.6}", quantile * 100.0);
        (name, Value::from(latency.quantile_ns(*quantile)))
    });
    let bins = latency.bins().into_iter().map(|bin| (bin.latency_ns.to_string(), bin.count.into()));
    json!({
        "min": figures.min,
        "max": figures.max,
        "mean": figures.mean,
        "stddev": latency.stdev_ns(),
        "N": latency.count(),
        "percentile": percentile.collect::<Map<String, Value>>(),
        "bins": bins.collect::<Map<String, Value>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::saved_text;

    #[test]
    fn a_job_has_what_fio_says_where_it_says_it() {
        let mut saved = Saved::parse(&saved_text()).unwrap();
        for row in &mut saved.results {
            row.place.block_bytes = 4096;
            row.place.pattern = Some("random".to_owned());
            row.place.profile = Some("direct".to_owned());
        }
        let text = text(&saved).unwrap();
        let document: Value = serde_json::from_str(&text).unwrap();
        let jobs = document["jobs"].as_array().unwrap();
        assert_eq!(jobs.len(), 5, "the excluded row is left out");
        let job = jobs.iter().find(|job| job["jobname"] == "direct-4096-uring-32").unwrap();
        assert_eq!(job["job options"]["rw"], "randread");
        assert_eq!(job["job options"]["iodepth"], "32");
        let read = &job["read"];
        assert_eq!(read["iops"], 100_000.0);
        assert_eq!(read["bw_bytes"], 409_600_000);
        assert_eq!(read["total_ios"], 600_000);
        assert_eq!((&read["iops_min"], &read["iops_samples"]), (&100_000.0.into(), &6.into()));
        let clat = &read["clat_ns"];
        assert_eq!(clat["N"], 600_000);
        let p99 = clat["percentile"]["99.000000"].as_f64().unwrap();
        assert!((p99 / 320_000.0 - 1.0).abs() < 0.001, "{p99}");
        let bins = clat["bins"].as_object().unwrap();
        assert_eq!(bins.values().map(|count| count.as_u64().unwrap()).sum::<u64>(), 600_000);
        assert!(read.get("slat_ns").is_none() && job.get("usr_cpu").is_none());
        for direction in ["write", "trim"] {
            assert_eq!(job[direction]["total_ios"], 0);
            assert_eq!(
                (&job[direction]["iops"], &job[direction]["clat_ns"]["N"]),
                (&0.0.into(), &0.into())
            );
        }
        let row = saved.results.iter_mut().find(|row| row.engine == "uring").unwrap();
        for sample in &mut row.samples {
            (sample.user_ns_per_op, sample.system_ns_per_op) = (Some(500.0), Some(2500.0));
        }
        let with: Value = serde_json::from_str(&super::text(&saved).unwrap()).unwrap();
        let jobs = with["jobs"].as_array().unwrap().iter();
        let job = jobs.into_iter().find(|job| job["usr_cpu"].is_number()).unwrap();
        // 100,000 operations a second of 0.5 and of 2.5 us.
        for (field, percent) in [("usr_cpu", 5.0), ("sys_cpu", 25.0)] {
            assert!((job[field].as_f64().unwrap() - percent).abs() < 1e-6, "{job}");
        }
        saved.results.retain(|row| row.void.is_some());
        assert!(super::text(&saved).is_none());
    }
}
