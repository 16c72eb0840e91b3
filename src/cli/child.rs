//! A server of our own: the same executable as a child process, for the length of one command.
//!
//! It runs on defaults (the caller's `PENSTOCK_*` variables are kept from it), listens on a free port of the loopback
//! interface and tells the port through a file. SIGTERM ends it; whatever goes wrong here, it does not outlive us.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::client::Client;

#[cfg(test)]
mod tests;

/// Longest wait for the server to be ready.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest wait for it to drain before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);
/// Lines of the server's output that an error repeats.
const LOG_LINES: usize = 12;

/// Why a server of our own did not run as it should.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The executable, the log file or the port file.
    #[error("could not start a server: {0}")]
    Spawn(#[source] io::Error),
    /// It ended before it was ready.
    #[error("the server ended before it was ready ({status})\n{log}")]
    Exited {
        /// How it ended.
        status: ExitStatus,
        /// The end of its output.
        log: String,
    },
    /// It runs, and does not get ready.
    #[error("the server was not ready after {} s\n{log}", START_TIMEOUT.as_secs())]
    NotReady {
        /// The end of its output.
        log: String,
    },
    /// It could not be told to stop, and was killed.
    #[error("could not send SIGTERM to the server: {0}")]
    Signal(#[source] io::Error),
    /// It did not drain in time and was killed.
    #[error("the server did not stop within {} s and was killed\n{log}", STOP_TIMEOUT.as_secs())]
    Stuck {
        /// The end of its output.
        log: String,
    },
    /// It stopped with an error.
    #[error("the server did not stop cleanly ({status})\n{log}")]
    Unclean {
        /// How it ended.
        status: ExitStatus,
        /// The end of its output.
        log: String,
    },
}

impl Error {
    /// What to do next.
    pub fn help(&self) -> Option<String> {
        match self {
            Self::Exited { .. } | Self::NotReady { .. } => {
                Some("run `penstock serve` by itself to see what it says".to_owned())
            }
            Self::Spawn(_) | Self::Signal(_) | Self::Stuck { .. } | Self::Unclean { .. } => None,
        }
    }
}

/// What to start.
#[derive(Debug)]
pub struct Launch {
    program: PathBuf,
    arguments: Vec<OsString>,
}

impl Launch {
    /// This executable's `serve` on `data_dir`, with settings as `KEY=VALUE`.
    pub fn own(data_dir: &Path, settings: &[(String, String)]) -> Result<Self, Error> {
        let mut arguments: Vec<OsString> = vec!["serve".into(), "--data-dir".into(), data_dir.into()];
        arguments.extend(["--listen".into(), "127.0.0.1:0".into()]);
        for (key, value) in settings {
            arguments.extend(["--set".into(), format!("{key}={value}").into()]);
        }
        Ok(Self { program: std::env::current_exe().map_err(Error::Spawn)?, arguments })
    }
}

/// A running server; killed when dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// Holds the port file and the server's output.
    scratch: TempDir,
    url: String,
}

impl Server {
    /// Starts it and waits until it is ready.
    pub async fn start(launch: &Launch) -> Result<Self, Error> {
        let scratch = tempfile::Builder::new().prefix("penstock-run-").tempdir().map_err(Error::Spawn)?;
        let log = File::create(scratch.path().join("log")).map_err(Error::Spawn)?;
        let mut command = Command::new(&launch.program);
        command.args(&launch.arguments).arg("--port-file").arg(scratch.path().join("port"));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PENSTOCK_")) {
            command.env_remove(name);
        }
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(Error::Spawn)?)
            .stderr(log)
            // A group of its own: Ctrl-C is for us, and we then stop the server when we are done with it.
            .process_group(0);
        let child = command.spawn().map_err(Error::Spawn)?;
        let mut server = Self { child, scratch, url: String::new() };
        server.wait_ready().await?;
        Ok(server)
    }

    /// Where it answers.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    async fn wait_ready(&mut self) -> Result<(), Error> {
        let deadline = Instant::now() + START_TIMEOUT;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().map_err(Error::Spawn)? {
                return Err(Error::Exited { status, log: self.log_tail() });
            }
            // The file is read anew each time: half an address is an address too, but nobody is ready there.
            if let Some(address) = self.announced()
                && is_ready(address).await
            {
                self.url = format!("http://{address}");
                return Ok(());
            }
            tokio::time::sleep(POLL).await;
        }
        Err(Error::NotReady { log: self.log_tail() })
    }

    fn announced(&self) -> Option<SocketAddr> {
        fs::read_to_string(self.scratch.path().join("port")).ok()?.trim().parse().ok()
    }

    /// Asks it to drain and waits for its end.
    pub async fn stop(mut self) -> Result<(), Error> {
        let deadline = Instant::now() + STOP_TIMEOUT;
        terminate(&self.child).map_err(Error::Signal)?;
        while Instant::now() < deadline {
            match self.child.try_wait().map_err(Error::Spawn)? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(Error::Unclean { status, log: self.log_tail() }),
                None => tokio::time::sleep(POLL).await,
            }
        }
        Err(Error::Stuck { log: self.log_tail() })
    }

    fn log_tail(&self) -> String {
        let text = fs::read(self.scratch.path().join("log")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].iter().map(|line| format!("  | {line}\n")).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only for a process that is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn is_ready(address: SocketAddr) -> bool {
    match Client::new(&format!("http://{address}")) {
        Ok(client) => client.ready().await.is_ok(),
        Err(_) => false,
    }
}

/// SIGTERM; the standard library can only SIGKILL.
fn terminate(child: &Child) -> io::Result<()> {
    let gone = || io::Error::other("the server's process id is not valid");
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw).ok_or_else(gone)?;
    Ok(rustix::process::kill_process(pid, rustix::process::Signal::TERM)?)
}
