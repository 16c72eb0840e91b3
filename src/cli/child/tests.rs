use std::fs;
use std::path::Path;

use super::{Error, Launch, Server};
use crate::cli::client::Client;
use crate::cli::stub::Stub;

/// A shell script in the place of `penstock serve`.
fn launch(directory: &Path, script: &str) -> Launch {
    let path = directory.join("server.sh");
    let find_port_file = "while [ $# -gt 1 ]; do [ \"$1\" = --port-file ] && port_file=\"$2\"; shift; done\n";
    fs::write(&path, format!("{find_port_file}{script}")).unwrap();
    Launch { program: "/bin/sh".into(), arguments: vec![path.into()] }
}

#[tokio::test]
async fn a_server_is_started_used_and_stopped() {
    let stub = Stub::start().await;
    let directory = tempfile::tempdir().unwrap();
    let stopped = directory.path().join("stopped");
    let script = format!(
        "trap 'touch {}; exit 0' TERM\nsleep 0.1\nprintf %s 127.0.0.1:9 > \"$port_file\"\nsleep 0.1\n\
         echo {} > \"$port_file\"\nwhile :; do sleep 0.02; done\n",
        stopped.display(),
        stub.address
    );
    let server = Server::start(&launch(directory.path(), &script)).await.unwrap();
    assert_eq!(server.url(), stub.url());
    Client::new(server.url()).unwrap().ready().await.unwrap();
    server.stop().await.unwrap();
    assert!(stopped.exists());
}

#[tokio::test]
async fn a_server_that_ends_early_is_quoted() {
    let directory = tempfile::tempdir().unwrap();
    let script = "echo first; echo 'error: the directory is in use' >&2; exit 3";
    let error = Server::start(&launch(directory.path(), script)).await.unwrap_err();
    assert!(matches!(error, Error::Exited { .. }));
    let text = error.to_string();
    assert!(text.contains("exit status: 3") && text.contains("  | error: the directory is in use"), "{text}");
    assert!(error.help().is_some());
}

#[tokio::test]
async fn a_server_that_fails_to_drain_is_reported() {
    let stub = Stub::start().await;
    let directory = tempfile::tempdir().unwrap();
    let script = format!(
        "trap 'echo cannot flush; exit 1' TERM\necho {} > \"$port_file\"\nwhile :; do sleep 0.02; done\n",
        stub.address
    );
    let server = Server::start(&launch(directory.path(), &script)).await.unwrap();
    let error = server.stop().await.unwrap_err();
    assert!(matches!(&error, Error::Unclean { log, .. } if log.contains("cannot flush")), "{error}");
}

#[tokio::test]
async fn a_dropped_server_is_gone() {
    let stub = Stub::start().await;
    let directory = tempfile::tempdir().unwrap();
    let script = format!("trap '' TERM\necho {} > \"$port_file\"\nwhile :; do sleep 0.02; done\n", stub.address);
    let server = Server::start(&launch(directory.path(), &script)).await.unwrap();
    let process = format!("/proc/{}", server.pid());
    assert!(Path::new(&process).exists());
    drop(server);
    assert!(!Path::new(&process).exists());
}
