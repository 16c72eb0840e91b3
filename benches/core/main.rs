//! What the durable core promises, as ratios within one run: `cargo bench -p penstock-store --bench core [-- SECTION...]`.
//!
//! | section | question |
//! |---|---|
//! | `tables` | does the rate fall with the number of open (table, bucket) pairs? |
//! | `pace` | what do checkpoints do to the latency of an ack, at half of the peak rate? |
//! | `stall` | is the owner kept from its log for longer the more tables there are? |
//! | `bytes` | how many bytes are written for one byte of payload? |
//! | `group` | is group commit as good as a bare loop, and does it amortise a slow sync? |
//! | `restart` | how long does a start take after a crash, and how much memory? |
//!
//! Files go to the temporary directory (`TMPDIR` chooses another device). `PENSTOCK_BENCH_PAIRS`, `PENSTOCK_BENCH_SECONDS` and
//! `PENSTOCK_BENCH_GIB` make it smaller or larger.

mod bytes_written;
mod group;
mod kit;
mod pace;
mod restart;
mod slow;
mod stall;
mod tables;

/// As the binary has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    if let [step, dir] = &args[..]
        && restart::child(step, std::path::Path::new(dir))
    {
        return;
    }
    let sections: [(&str, fn()); 6] = [
        ("tables", tables::run),
        ("pace", pace::run),
        ("stall", stall::run),
        ("bytes", bytes_written::run),
        ("group", group::run),
        ("restart", restart::run),
    ];
    for (name, run) in sections {
        if args.is_empty() || args.iter().any(|a| a == name) {
            println!("\n== {name}");
            run();
        }
    }
}
