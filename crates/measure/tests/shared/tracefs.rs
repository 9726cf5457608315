//! Where tracepoints are, for tests that count them: mounted for a test where nobody has, away from
//! where programs look.

use std::{fs, process::Command};

use ringwise_measure::Sources;

pub struct Tracefs {
    pub sources: Sources,
    mounted: Option<tempfile::TempDir>,
}

impl Tracefs {
    /// With this event, such as `raw_syscalls/sys_enter`; else why there is none.
    pub fn find(event: &str) -> Result<Tracefs, String> {
        let here = Sources::default();
        if here.sys_text(format!("kernel/tracing/events/{event}/id")).known().is_some() {
            return Ok(Tracefs { sources: here, mounted: None });
        }
        let directory = tempfile::tempdir().unwrap();
        let point = directory.path().join("kernel/tracing");
        fs::create_dir_all(&point).unwrap();
        let output = Command::new("mount").args(["-t", "tracefs", "tracefs"]).arg(&point).output();
        match output {
            Ok(done) if done.status.success() => {
                let sources = Sources { sys: directory.path().into(), ..here };
                Ok(Tracefs { sources, mounted: Some(directory) })
            }
            Ok(done) => Err(String::from_utf8_lossy(&done.stderr).trim().to_owned()),
            Err(error) => Err(format!("mount: {error}")),
        }
    }
}

impl Drop for Tracefs {
    fn drop(&mut self) {
        if let Some(directory) = &self.mounted {
            let point = directory.path().join("kernel/tracing");
            assert!(Command::new("umount").arg(point).status().unwrap().success());
        }
    }
}
