//! The binary's other commands.

use std::fs::{self, File};
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::POLL;
use super::server::clean_command;

/// Longest run of a command.
const LIMIT: Duration = Duration::from_secs(60);

/// How a command ended, and what it printed.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// The output of a command that has to succeed.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{}\n{}", self.stdout, self.stderr);
        self.stdout
    }

    /// The errors of a command that has to fail, and to say what to do.
    #[track_caller]
    pub fn failed(self) -> String {
        assert_eq!(self.code, Some(1), "{}\n{}", self.stdout, self.stderr);
        assert!(self.stderr.contains("error: "), "{}", self.stderr);
        self.stderr
    }
}

/// Runs a command to its end.
pub async fn penstock(arguments: &[&str]) -> Ran {
    let scratch = super::directory();
    let (out, err) = (scratch.path().join("out"), scratch.path().join("err"));
    let file = |path| File::create(path).expect("should make a file");
    let mut command = clean_command();
    command.args(arguments).stdin(Stdio::null()).stdout(file(&out)).stderr(file(&err));
    let mut child = command.spawn().expect("should start the program");
    let deadline = Instant::now() + LIMIT;
    let status = loop {
        if let Some(status) = child.try_wait().expect("should ask for the child's state") {
            break status;
        }
        if Instant::now() >= deadline {
            // Whether this works or not, the test fails with what is known.
            let _ = child.kill();
            panic!("{arguments:?} runs for longer than {LIMIT:?}");
        }
        tokio::time::sleep(POLL).await;
    };
    let read = |path| fs::read_to_string(path).expect("should print UTF-8");
    Ran { code: status.code(), stdout: read(&out), stderr: read(&err) }
}
