//! The first byte chooses the decoder, the rest is what it reads. One corpus serves all of them: formats share their pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/store/decoders.rs"]
mod decoders;

fuzz_target!(|bytes: &[u8]| {
    if let Some((chosen, rest)) = bytes.split_first() {
        let (_, target) = decoders::TARGETS[*chosen as usize % decoders::TARGETS.len()];
        target(rest);
    }
});
