//! Limits of this process: locked memory (tried by registering some), open
//! files, and what cgroups leave of processors and memory.

use ringwise::{BackendChoice, Local, Registration};
use ringwise_measure::environment::{Environment, Limit};
use ringwise_measure::quantity::bytes_text;

use crate::finding::Finding;

const BUFFERS: usize = 64;
const BUFFER_BYTES: usize = 64 << 10;

/// The least that a server with many connections and files in flight wants.
const OPEN_FILES_MIN: u64 = 4096;

/// Registers 4 MiB of buffers with a ring: the man page says that since 5.12 no
/// limit applies, and the kernel enforces it all the same for buffers, so that
/// only trying tells.
pub(crate) fn register_memory() -> Result<Registration, String> {
    let ring = Local::builder().backend(BackendChoice::Uring).build();
    let mut ring = ring.map_err(|error| error.to_string())?;
    let pool = ring.register_pool(BUFFERS, BUFFER_BYTES).map_err(|error| error.to_string())?;
    Ok(pool.registration())
}

pub(crate) fn judge(
    environment: &Environment,
    registered: &Result<Registration, String>,
) -> Vec<Finding> {
    vec![
        memlock(environment, registered),
        open_files(environment),
        processors(environment),
        memory(environment),
    ]
}

fn memlock(environment: &Environment, registered: &Result<Registration, String>) -> Finding {
    const NAME: &str = "limits.memlock";
    let limit = match environment.limits.memlock_bytes.known() {
        Some(Limit::At(bytes)) => bytes_text(*bytes),
        Some(Limit::Unlimited) => "unlimited".to_owned(),
        None => "unknown".to_owned(),
    };
    let tried = bytes_text((BUFFERS * BUFFER_BYTES) as u64);
    let evidence = |what: &str| {
        format!("limit {limit} (/proc/self/limits); registering {tried} of buffers: {what}")
    };
    match registered {
        Ok(Registration::Registered) => Finding::ok(NAME, evidence("done")),
        Ok(Registration::Unregistered(reason)) => Finding::limited(NAME, evidence(reason)).remedy(
            "raise the limit on locked memory: ulimit -l, LimitMEMLOCK= in a unit, \
             --ulimit memlock= for a container",
        ),
        Ok(_) => Finding::unknown(NAME, evidence("of a kind that this version does not know")),
        Err(reason) => Finding::unknown(NAME, evidence(&format!("not tried ({reason})"))),
    }
}

fn open_files(environment: &Environment) -> Finding {
    const NAME: &str = "limits.nofile";
    let limits = &environment.limits;
    Finding::of(NAME, &limits.open_files, |limit| {
        let evidence = format!(
            "/proc/self/limits: {limit} open files, can be raised to {}",
            limits.open_files_hard
        );
        // A limit that allows this many is at least as high.
        if limit.allows(OPEN_FILES_MIN) {
            return Finding::ok(NAME, evidence);
        }
        Finding::limited(NAME, evidence).remedy(format!(
            "raise the limit for many files or connections: ulimit -n {OPEN_FILES_MIN}"
        ))
    })
}

fn processors(environment: &Environment) -> Finding {
    const NAME: &str = "limits.processors";
    Finding::of(NAME, &environment.quota.processors, |quota| {
        match quota {
        None => Finding::ok(NAME, "cgroup: no bandwidth limit"),
        Some(quota) => Finding::limited(
            NAME,
            format!("cgroup: {quota:.2} processors' time (cpu.max or cpu.cfs_quota_us); who uses it up stands still until its period ends, which shows in the highest latencies"),
        )
        .remedy("measure without the limit: --cpus for a container, CPUQuota= in a unit"),
    }
    })
}

fn memory(environment: &Environment) -> Finding {
    const NAME: &str = "limits.memory";
    Finding::of(NAME, &environment.quota.memory_bytes, |quota| {
        match quota {
        None => Finding::ok(NAME, "cgroup: no memory limit"),
        Some(bytes) => Finding::limited(
            NAME,
            format!("cgroup: {}, the page cache of own files included; what is read beyond it comes from the device again", bytes_text(*bytes)),
        )
        .remedy("keep what is to stay cached below the limit, or raise it: --memory for a container, MemoryMax= in a unit"),
    }
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ringwise_measure::{Fact, Sources};

    use super::*;
    use crate::finding::Status;

    fn judged(limits: &str, registered: Result<Registration, String>) -> Vec<Finding> {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("proc/self")).unwrap();
        fs::write(directory.path().join("proc/self/limits"), limits).unwrap();
        judge(&Environment::read(&Sources::below(directory.path())), &registered)
    }

    #[test]
    fn low_limits_have_remedies() {
        let limits = "Max open files 1024 524288 files\nMax locked memory 65536 65536 bytes\n";
        let found = judged(limits, Ok(Registration::Unregistered("out of memory".into())));
        assert_eq!((found[0].status, found[1].status), (Status::Limited, Status::Limited));
        assert!(found[0].evidence.contains("64.0 KiB") && found[0].remedy.is_some());
        assert!(found[1].evidence.contains("1024") && found[1].evidence.contains("524288"));
    }

    #[test]
    fn quotas_of_cgroups_are_told() {
        let mut environment = Environment::read(&Sources::below("/nonexistent"));
        environment.quota.processors = Fact::Known(Some(0.5));
        environment.quota.memory_bytes = Fact::Known(None);
        let registered = Ok(Registration::Registered);
        let found = judge(&environment, &registered);
        assert_eq!(found[2].status, Status::Limited);
        assert!(found[2].evidence.contains("0.50") && found[2].remedy.is_some(), "{found:?}");
        assert_eq!(found[3].status, Status::Ok);
        environment.quota.processors = Fact::Known(None);
        environment.quota.memory_bytes = Fact::Known(Some(512 << 20));
        let found = judge(&environment, &registered);
        assert_eq!(found[2].status, Status::Ok);
        assert!(found[3].status == Status::Limited && found[3].evidence.contains("512.0 MiB"));
    }

    #[test]
    fn what_works_is_ok_whatever_the_limit_says() {
        let limits = "Max open files 4096 4096 files\nMax locked memory 65536 65536 bytes\n";
        let found = judged(limits, Ok(Registration::Registered));
        assert_eq!((found[0].status, found[1].status), (Status::Ok, Status::Ok));
    }

    #[test]
    fn unreadable_and_untried_are_unknown() {
        let found = judged("", Err("no ring".into()));
        assert_eq!((found[0].status, found[1].status), (Status::Unknown, Status::Unknown));
        assert!(found[0].evidence.contains("no ring"));
    }
}
