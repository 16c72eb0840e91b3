//! The `penstock` command. Everything is in the library.

use std::process::ExitCode;

/// Rows are allocated by whoever receives them and freed by whoever flushes or checkpoints them: the system's allocator spends a fifth
/// of a small append on that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Two TLS providers are compiled in, and rustls refuses to choose; a provider that is there already is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    penstock::telemetry::init();
    penstock::cli::main()
}
