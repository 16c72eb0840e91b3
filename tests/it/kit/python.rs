//! An interpreter that has the packages a test needs. Where they are missing the test is skipped, loudly; in CI that is a failure.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::POLL;

/// Longest run of a script.
const LIMIT: Duration = Duration::from_secs(60);

/// The interpreter, if it can import all of `modules`.
pub fn with(modules: &[&str]) -> Option<String> {
    let program = std::env::var("PENSTOCK_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let found = modules.iter().map(|m| format!("assert importlib.util.find_spec({m:?}), {m:?}\n")).collect::<String>();
    let check = Command::new(&program).arg("-c").arg(format!("import importlib.util\n{found}")).output();
    let reason = match check {
        Ok(output) if output.status.success() => return Some(program),
        Ok(output) => String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or("no reason").to_owned(),
        Err(error) => error.to_string(),
    };
    let text = format!("{program} does not have {modules:?} ({reason}); name one that has with PENSTOCK_TEST_PYTHON");
    assert!(std::env::var("CI").as_deref() != Ok("true"), "in CI nothing is skipped: {text}");
    eprintln!("SKIPPED: {text}");
    None
}

/// Runs a script to its end; what it prints is JSON.
pub async fn run(program: &str, script: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Value {
    let scratch = super::directory();
    let (out, err) = (scratch.path().join("out"), scratch.path().join("err"));
    let file = |path| std::fs::File::create(path).expect("should make a file");
    let mut command = Command::new(program);
    // An interpreter with several native runtimes in it now and then aborts while it takes itself apart, behind its result.
    let script = format!("{script}\nimport os, sys\nsys.stdout.flush()\nos._exit(0)\n");
    command.arg("-c").arg(script).args(arguments).envs(environment.iter().copied());
    command.env("NO_PROXY", "127.0.0.1,localhost").env("TZ", "America/New_York");
    command.stdin(Stdio::null()).stdout(file(&out)).stderr(file(&err));
    let mut child = command.spawn().expect("should start Python");
    let deadline = Instant::now() + LIMIT;
    let status = loop {
        if let Some(status) = child.try_wait().expect("should ask for the child's state") {
            break status;
        }
        if Instant::now() >= deadline {
            // Whether this works or not, the test fails with what is known.
            let _ = child.kill();
            panic!("the script runs for longer than {LIMIT:?}");
        }
        tokio::time::sleep(POLL).await;
    };
    let read = |path| std::fs::read_to_string(path).expect("should print UTF-8");
    let (out, err) = (read(&out), read(&err));
    assert!(status.success(), "the script failed ({status}):\n{out}\n{err}");
    serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e} in {out}"))
}
