//! `penstock serve`: the server in this process, until a signal ends it.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use penstock_store::Progress;
use tokio::sync::oneshot;

use super::{ServeArgs, starting};
use crate::config::{self, Loaded};
use crate::engine::{Engine, StartError};
use crate::server::Server;

/// Why the server did not run.
#[derive(Debug, thiserror::Error)]
enum ServeError {
    #[error(transparent)]
    Config(#[from] config::Error),
    #[error("{0:?} is not an address to listen on, such as 127.0.0.1:8750")]
    Listen(String),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("cannot listen on {address}: {source}")]
    Bind { address: std::net::SocketAddr, source: std::io::Error },
    #[error("cannot write the port file: {0}")]
    PortFile(std::io::Error),
    #[error("serving: {0}")]
    Serve(std::io::Error),
    #[error("starting the runtime: {0}")]
    Runtime(std::io::Error),
}

impl ServeError {
    /// What to do about it.
    fn help(&self) -> Option<&'static str> {
        use penstock_store::OpenError;
        Some(match self {
            Self::Config(_) => "config/penstock.toml in the source tree shows every key with its default",
            Self::Bind { .. } => "another server may be running there; choose another address with --listen",
            Self::Start(StartError::Store(OpenError::Locked { .. })) => {
                "stop the other server first, or choose another directory with --data-dir"
            }
            Self::Start(StartError::Store(OpenError::Corrupt { .. } | OpenError::Layout { .. })) => {
                "nothing was changed; restore the file from a copy of this very node. `penstock wal verify` lists all damage, `penstock wal repair` says what would be lost without the file"
            }
            Self::Start(StartError::Store(OpenError::CountChanged { .. })) => {
                "set the stored value again; `penstock reshape` changes it"
            }
            _ => return None,
        })
    }
}

/// Runs the server until it is told to stop.
pub fn run(args: ServeArgs) -> ExitCode {
    match serve(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let mut text = format!("error: {error}\n");
            if let Some(help) = error.help() {
                text.push_str(&format!("help: {help}\n"));
            }
            // Nobody is left to tell if standard error is gone.
            let _ = std::io::stderr().write_all(text.as_bytes());
            ExitCode::FAILURE
        }
    }
}

fn serve(args: ServeArgs) -> Result<(), ServeError> {
    let settings = settings(&args)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(ServeError::Runtime)?;
    let served = runtime.block_on(until_stopped(settings, &args));
    // A start that was given up is still reading the log, on a thread that nobody waits for.
    runtime.shutdown_background();
    served
}

async fn until_stopped(settings: Loaded, args: &ServeArgs) -> Result<(), ServeError> {
    let progress = Arc::new(Progress::new());
    let config::Server { listen, max_connections, .. } = settings.config.server;
    let server = Server::bind(listen, max_connections, Arc::clone(&progress)).await;
    let server = server.map_err(|source| ServeError::Bind { address: listen, source })?;
    let (address, gate) = (server.address().map_err(ServeError::Serve)?, server.gate());
    if !address.ip().is_loopback() {
        tracing::warn!(%address, "listening beyond loopback without tokens or TLS: anybody who can connect can read and write");
    }
    let (stop, stopped) = oneshot::channel::<()>();
    let mut serving = tokio::spawn(server.run(async { drop(stopped.await) }));
    let mut signal = std::pin::pin!(until_signal());
    // From here on: unwatched, it would end the process.
    let mut hangup = Hangup::watch();
    let engine = tokio::select! {
        engine = Engine::start_telling(settings, Arc::clone(&progress)) => engine?,
        never = starting::tell(progress) => match never {},
        () = &mut signal => {
            tracing::info!("stopped during the start; nothing is lost");
            return Ok(());
        }
    };
    gate.open(Arc::clone(&engine));
    if let Some(path) = &args.port_file
        && let Err(error) = write_port_file(path, &address.to_string())
    {
        engine.stop().await;
        return Err(ServeError::PortFile(error));
    }
    tracing::info!(%address, data_dir = %engine.config().data_dir.display(), "ready");
    let served = loop {
        tokio::select! {
            served = &mut serving => break served,
            () = &mut signal => {
                engine.end_waiting();
                // Gone only with the server itself, which then has an outcome.
                let _ = stop.send(());
                break serving.await;
            }
            () = hangup.next() => reread(args.clone(), Arc::clone(&engine)).await,
        }
    };
    tracing::info!("draining");
    engine.stop().await;
    served.unwrap_or_else(|error| Err(std::io::Error::other(error))).map_err(ServeError::Serve)
}

fn settings(args: &ServeArgs) -> Result<Loaded, ServeError> {
    let mut loaded = Loaded::load(args.config.as_deref(), &args.settings)?;
    if let Some(dir) = &args.data_dir {
        loaded.config.data_dir.clone_from(dir);
    }
    if let Some(listen) = &args.listen {
        loaded.config.server.listen = listen.parse().map_err(|_| ServeError::Listen(listen.clone()))?;
    }
    Ok(loaded)
}

/// SIGHUP: the settings as a start would read them now. Whatever is wrong with them, the server goes on with those that it has.
async fn reread(args: ServeArgs, engine: Arc<Engine>) {
    let read = move || {
        let loaded = settings(&args).map_err(|error| error.to_string())?;
        engine.reread(loaded).map_err(|error| error.to_string())
    };
    match tokio::task::spawn_blocking(read).await {
        Ok(Ok(reread)) => {
            tracing::info!(changed = reread.changed.len(), "the configuration was read again");
            if !reread.fixed.is_empty() {
                let settings = reread.fixed.join(", ");
                tracing::warn!(settings, "settings that are not as at the start and take a restart");
            }
        }
        Ok(Err(error)) => {
            tracing::error!(error, "the configuration was read again and cannot be used; nothing was changed")
        }
        Err(error) => tracing::error!(%error, "reading the configuration again"),
    }
}

/// SIGHUP, watched for.
struct Hangup(Option<tokio::signal::unix::Signal>);

impl Hangup {
    fn watch() -> Self {
        let watched = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup());
        Self(watched.inspect_err(|error| tracing::warn!(%error, "SIGHUP is not watched for")).ok())
    }

    /// The next one.
    async fn next(&mut self) {
        let next = match &mut self.0 {
            Some(signal) => signal.recv().await,
            None => None,
        };
        if next.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

/// Whole or not at all: whoever waits for the file must not read half an address.
fn write_port_file(path: &Path, address: &str) -> std::io::Result<()> {
    let temporary = path.with_extension("new");
    std::fs::write(&temporary, address)?;
    std::fs::rename(&temporary, path)
}

async fn until_signal() {
    let terminate = async {
        match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            Ok(mut signal) => {
                signal.recv().await;
            }
            Err(error) => {
                tracing::warn!(%error, "SIGTERM is not watched for");
                std::future::pending::<()>().await;
            }
        }
    };
    tokio::select! {
        () = terminate => {}
        result = tokio::signal::ctrl_c() => {
            if let Err(error) = result {
                tracing::warn!(%error, "Ctrl-C is not watched for");
                std::future::pending::<()>().await;
            }
        }
    }
}
