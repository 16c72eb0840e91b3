//! A file system of a few megabytes that nobody else has: a tmpfs in a mount namespace of its own. A process holds it; servers are
//! started in it, and everybody else reaches it through that process. Where mounting is not allowed the test is skipped, loudly; in
//! CI that is a failure.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::Launch;

/// The file system; gone when dropped.
#[derive(Debug)]
pub struct SmallDisk {
    /// Waits for the end of its input, which is ours: it does not outlive us.
    holder: Child,
    place: TempDir,
}

impl SmallDisk {
    /// One of so many mebibytes, if it can be had.
    pub fn new(mebibytes: u64) -> Option<Self> {
        let place = super::directory();
        let script = format!(
            "mount -t tmpfs -o size={mebibytes}m tmpfs '{}' && echo mounted && exec cat",
            place.path().display()
        );
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut reason = "it is not permitted".to_owned();
        match command.stderr(Stdio::piped()).spawn() {
            Ok(mut holder) => {
                let mut said = String::new();
                let out = holder.stdout.take().expect("should have an output");
                BufReader::new(out).read_line(&mut said).expect("should read what it says");
                if said.trim() == "mounted" {
                    return Some(Self { holder, place });
                }
                if let Ok(output) = holder.wait_with_output() {
                    reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                }
            }
            Err(error) => reason = error.to_string(),
        }
        let text = format!("a small file system cannot be mounted here ({reason}); run as root, or with CAP_SYS_ADMIN");
        assert!(std::env::var("CI").as_deref() != Ok("true"), "in CI nothing is skipped: {text}");
        eprintln!("SKIPPED: {text}");
        None
    }

    /// Where it is for a server that is started in it.
    pub fn inside(&self) -> &Path {
        self.place.path()
    }

    /// The same for everybody else.
    pub fn outside(&self) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder.id()));
        root.join(self.inside().strip_prefix("/").expect("should be absolute"))
    }

    /// A server that is started in it.
    pub fn launch(&self, launch: Launch) -> Launch {
        launch.through(&["nsenter", "--mount", "--target", &self.holder.id().to_string(), "--"])
    }

    /// Takes all the room that is left but about so many bytes.
    pub fn fill(&self, leave: u64) {
        let path = self.outside().join("filler");
        let mut file =
            std::fs::OpenOptions::new().create(true).append(true).open(path).expect("should open the filler");
        let chunk = vec![1; 64 << 10];
        while file.write_all(&chunk).is_ok() {}
        let len = file.metadata().expect("should have a length").len();
        file.set_len(len.saturating_sub(leave)).expect("should cut the filler");
    }

    /// Gives it back.
    pub fn empty(&self) {
        std::fs::remove_file(self.outside().join("filler")).expect("should remove the filler");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Both fail only for a process that is gone already.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
