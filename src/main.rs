//! The `penstock` command. Everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Two TLS providers are compiled in, and rustls refuses to choose; a provider that is there already is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    penstock::telemetry::init();
    penstock::cli::main()
}
