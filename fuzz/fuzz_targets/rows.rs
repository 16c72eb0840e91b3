//! The first byte chooses the decoder of what senders post, the rest is what it reads.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/it/garbage/targets.rs"]
mod targets;

fuzz_target!(|bytes: &[u8]| {
    if let Some((chosen, rest)) = bytes.split_first() {
        let (_, target) = targets::TARGETS[*chosen as usize % targets::TARGETS.len()];
        target(rest);
    }
});
