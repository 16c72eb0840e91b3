//! Log lines: one per event that matters, on stderr, so that a command's results stay alone on stdout. Figures: [`metrics`].

pub mod metrics;

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// What is logged where `PENSTOCK_LOG` says nothing: our own events and other people's warnings. The Delta kernel logs as an error
/// what it returns as one, a table that does not exist yet among them.
const DEFAULT_FILTER: &str = "warn,penstock=info,penstock_store=info,buoyant_kernel=off";

/// Sets up logging; `PENSTOCK_LOG` takes the `tracing` crate's filter syntax. A second call changes nothing.
pub fn init() {
    let filter = EnvFilter::try_from_env("PENSTOCK_LOG").unwrap_or_else(|_| EnvFilter::new(DEFAULT_FILTER));
    let installed = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .try_init();
    if let Err(error) = installed {
        tracing::debug!(%error, "logging was set up before");
    }
}
