//! Small file systems that fill up, fail and go read-only, mounted for a test; root only.

// No test uses all of it.
#![allow(dead_code)]

use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use super::daemon::wait_until;

/// A file system that is unmounted at the end.
pub struct Disk {
    directory: tempfile::TempDir,
    /// What serves the device, if it is one that can fail.
    server: Option<Child>,
}

/// What a file system lies on.
#[derive(Clone, Copy, Debug)]
pub enum Device {
    /// Memory, a megabyte.
    Memory,
    /// Memory, 512 megabytes.
    Roomy,
    /// A file of 16 MiB with ext4 on it.
    Loop,
    /// The same through a server that answers every write with EIO while it is told to
    /// (nbdkit's error filter, as a file by nbdfuse). Without a journal: an error there would make
    /// all of it read-only.
    Failing,
}

impl Disk {
    /// Mounts one; nothing, and the reason, where that cannot be done.
    pub fn mount(device: Device) -> Option<Disk> {
        let mut disk = Disk { directory: tempfile::tempdir().unwrap(), server: None };
        std::fs::create_dir(disk.path()).unwrap();
        let made = match device {
            Device::Memory => run("mount", &["-t", "tmpfs", "-o", "size=1m", "ringwise-test"]),
            Device::Roomy => run("mount", &["-t", "tmpfs", "-o", "size=512m", "ringwise-test"]),
            Device::Loop => disk.make(&["-m", "0"]).and_then(|image| loop_mount(&image)),
            Device::Failing => disk
                .make(&["-m", "0", "-O", "^has_journal"])
                .and_then(|image| disk.serve(&image))
                .and_then(|served| loop_mount(&served)),
        };
        let mounted = made.and_then(|mut command| finish(command.arg(disk.path())));
        if let Err(error) = mounted {
            assert!(std::env::var_os("CI").is_none(), "no skips in CI: {error}");
            eprintln!("skipped: {device:?} cannot be mounted here: {error}");
            return None;
        }
        Some(disk)
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("mounted")
    }

    fn make(&self, options: &[&str]) -> Result<PathBuf, String> {
        let image = self.directory.path().join("image");
        File::create(&image).and_then(|file| file.set_len(16 << 20)).map_err(|e| e.to_string())?;
        finish(run("mkfs.ext4", &["-q", "-F"])?.args(options).arg(&image))?;
        Ok(image)
    }

    fn serve(&mut self, image: &Path) -> Result<PathBuf, String> {
        let served = self.directory.path().join("served");
        File::create(&served).map_err(|error| error.to_string())?;
        let mut command = Command::new("nbdfuse");
        command.arg(&served).args(["--command", "nbdkit", "-s", "--exit-with-parent"]);
        command.args(["--filter=error", "file"]).arg(image);
        command.args(["error=EIO", "error-pwrite-rate=100%"]);
        command.arg(format!("error-file={}", self.trigger().display()));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        self.server = Some(command.spawn().map_err(|error| format!("nbdfuse: {error}"))?);
        let server = self.server.as_mut().unwrap();
        let mut ended = false;
        wait_until("a device that can fail", || {
            ended = server.try_wait().unwrap().is_some();
            ended || served.metadata().is_ok_and(|metadata| metadata.len() > 0)
        });
        if ended { Err("nbdfuse or nbdkit failed".to_owned()) } else { Ok(served) }
    }

    fn trigger(&self) -> PathBuf {
        self.directory.path().join("fail")
    }

    /// Whether writes to the device fail from now on.
    pub fn fail(&self, fails: bool) {
        match fails {
            true => drop(File::create(self.trigger()).unwrap()),
            false => std::fs::remove_file(self.trigger()).unwrap(),
        }
    }

    /// Fills it but for so many bytes; gives the file that does.
    pub fn fill(&self, but: u64) -> PathBuf {
        let path = self.path().join("ballast");
        let mut file = File::create(&path).unwrap();
        while self.free() > but && file.write_all(&[0; 4096]).is_ok() {
            file.sync_all().unwrap();
        }
        path
    }

    /// Stops all that writes to it.
    pub fn freeze(&self) -> Frozen<'_> {
        assert!(fsfreeze(self, "-f"));
        Frozen(self)
    }

    pub fn free(&self) -> u64 {
        let space = rustix::fs::statvfs(self.path()).unwrap();
        space.f_bavail * space.f_frsize
    }

    /// Makes it read-only, or writable again; what is still open for writing is waited for.
    pub fn remount(&self, how: &str) {
        wait_until("a remount", || {
            let options = format!("remount,{how}");
            finish(run("mount", &["-o", &options]).unwrap().arg(self.path())).is_ok()
        });
    }
}

/// A file system that takes nothing until this goes, whatever becomes of the test.
pub struct Frozen<'a>(&'a Disk);

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        fsfreeze(self.0, "-u");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
        if let Some(mut server) = self.server.take() {
            let _ =
                Command::new("umount").arg("-l").arg(self.directory.path().join("served")).status();
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

fn fsfreeze(disk: &Disk, how: &str) -> bool {
    Command::new("fsfreeze").arg(how).arg(disk.path()).status().unwrap().success()
}

fn loop_mount(image: &Path) -> Result<Command, String> {
    let mut command = run("mount", &["-o", "loop"])?;
    command.arg(image);
    Ok(command)
}

fn run(program: &str, arguments: &[&str]) -> Result<Command, String> {
    let mut command = Command::new(program);
    command.args(arguments);
    Ok(command)
}

fn finish(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}
